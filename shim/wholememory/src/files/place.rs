//! The places of a rank's entries in its memory, and copies of their bytes to and from there.
//!
//! Host memory is written and read by this process: where entries touch each other, files are read
//! straight into it. Device memory is reached by the driver's copies, which come behind all work
//! that the context's default stream waits for.
//!
//! Invariant: no byte outside of the entries is written. An access beyond the rank's own part is a
//! fault of ours, and a panic.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::ptr::null_mut;

use wm_abi::*;
use wm_driver::Api;
use wm_driver::api::Named;
use wm_driver::api::scope::{Current, Relaxed};

use crate::error::{Error, Result, require};
use crate::memory::Memory;
use crate::vocabulary::codes::Location;

/// The largest distance of rows that the driver's 2D copies take, bytes.
const LARGEST_PITCH: u64 = i32::MAX as u64;

/// The shape of an entry in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryShape {
    /// Bytes of an entry and of the gap after it, in memory.
    pub stride: u64,
    /// Bytes before an entry's, in each stride.
    pub offset: u64,
    /// Bytes of an entry. In a file entries touch each other.
    pub bytes: u64,
}

impl EntryShape {
    /// Does it fit into rows of so many bytes?
    ///
    /// # Errors
    /// [`Error::Input`] with the reason.
    pub fn check(&self, row: u64) -> Result {
        let Self { stride, offset, bytes } = *self;
        let end = offset.checked_add(bytes).filter(|end| bytes > 0 && *end <= stride);
        let reason =
            || format!("entries of {bytes} bytes, {offset} bytes into each {stride} bytes of memory");
        end.ok_or_else(|| Error::Input(reason()))?;
        require(
            row.is_multiple_of(stride),
            &format!("entries of {stride} bytes do not divide the memory's rows of {row}"),
        )
    }
}

/// The entries of this rank's own part.
#[derive(Debug)]
pub(super) struct Entries<'a> {
    memory: &'a Memory,
    shape: EntryShape,
    /// How many there are.
    count: u64,
}

/// A thread's right to make the driver's calls for them.
pub(super) struct Entered {
    _current: Current<'static>,
    _relaxed: Relaxed<'static>,
}

impl<'a> Entries<'a> {
    /// Those of a shape that [fits](EntryShape::check).
    pub(super) fn new(memory: &'a Memory, shape: EntryShape) -> Self {
        Self { memory, shape, count: memory.own_part().bytes / shape.stride }
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Can the system read and write them where they are?
    pub(super) fn are_packed_on_host(&self) -> bool {
        self.is_on_host() && self.are_packed()
    }

    /// Makes the rank's context the calling thread's.
    pub(super) fn enter(&self) -> Result<Entered> {
        let (driver, context) = (self.driver(), self.memory.communicator().context());
        let current = Current::make(driver.0, context);
        let current = current
            .map_err(|code| Error::Cuda(format!("the communicator's context is not usable: {code}")))?;
        Ok(Entered { _current: current, _relaxed: Relaxed::always(driver.0) })
    }

    /// Waits for all work that the default stream waits for: earlier work on host memory, and
    /// copies of ours.
    pub(super) fn settle(&self) -> Result {
        Ok(self.driver().stream_synchronize(CUstream::NULL)?)
    }

    /// Writes entries that follow each other.
    pub(super) fn put(&self, first: u64, bytes: &[u8]) -> Result {
        self.hold(first, bytes.len() as u64 / self.shape.bytes);
        let mut rows = self.rows(first, bytes.len());
        rows.try_for_each(|(address, row)| {
            let (from, bytes) = (bytes[row.clone()].as_ptr(), row.len());
            match self.way(bytes) {
                CopyForm::Host => {
                    // SAFETY: inside the part, which is mapped for writing as long as the memory
                    // lives. The API forbids other uses during this call.
                    unsafe { (address as *mut u8).copy_from_nonoverlapping(from, bytes) };
                    Ok(())
                }
                // SAFETY: inside the part, and the bytes are a slice's.
                CopyForm::Linear => Ok(unsafe { self.driver().memcpy_htod(address, from.cast(), bytes) }?),
                CopyForm::Rows => {
                    let copy = CUDA_MEMCPY2D {
                        srcMemoryType: CU_MEMORYTYPE_HOST,
                        srcHost: from.cast(),
                        srcPitch: self.shape.bytes as usize,
                        dstMemoryType: CU_MEMORYTYPE_DEVICE,
                        dstDevice: address,
                        dstPitch: self.shape.stride as usize,
                        ..self.copy(bytes)
                    };
                    // SAFETY: as above.
                    Ok(unsafe { self.driver().memcpy_2d(&copy) }?)
                }
            }
        })
    }

    /// Reads entries that follow each other.
    pub(super) fn get(&self, first: u64, bytes: &mut [u8]) -> Result {
        self.hold(first, bytes.len() as u64 / self.shape.bytes);
        let mut rows = self.rows(first, bytes.len());
        rows.try_for_each(|(address, row)| {
            let (to, bytes) = (bytes[row.clone()].as_mut_ptr(), row.len());
            match self.way(bytes) {
                CopyForm::Host => {
                    // SAFETY: inside the part, which is mapped until the memory ends. The API
                    // forbids writes during this call.
                    unsafe { (address as *const u8).copy_to_nonoverlapping(to, bytes) };
                    Ok(())
                }
                // SAFETY: inside the part, and the place is a slice.
                CopyForm::Linear => Ok(unsafe { self.driver().memcpy_dtoh(to.cast(), address, bytes) }?),
                CopyForm::Rows => {
                    let copy = CUDA_MEMCPY2D {
                        srcMemoryType: CU_MEMORYTYPE_DEVICE,
                        srcDevice: address,
                        srcPitch: self.shape.stride as usize,
                        dstMemoryType: CU_MEMORYTYPE_HOST,
                        dstHost: to.cast(),
                        dstPitch: self.shape.bytes as usize,
                        ..self.copy(bytes)
                    };
                    // SAFETY: as above.
                    Ok(unsafe { self.driver().memcpy_2d(&copy) }?)
                }
            }
        })
    }

    /// Reads a file straight into entries that are packed on the host.
    pub(super) fn read(&self, first: u64, count: u64, file: &File, from: u64) -> io::Result<()> {
        assert!(self.are_packed_on_host(), "entries that the system cannot reach");
        self.hold(first, count);
        let (place, bytes) = (self.address(first), count * self.shape.bytes);
        whole(bytes, |done| {
            let (place, left) = ((place + done) as *mut libc::c_void, (bytes - done) as usize);
            // SAFETY: inside the part, which is mapped for writing as long as the memory lives.
            // The API forbids other uses during this call.
            unsafe { libc::pread(file.as_raw_fd(), place, left, (from + done) as libc::off_t) }
        })
    }

    /// Writes entries that are packed on the host straight into a file.
    pub(super) fn write(&self, first: u64, count: u64, file: &File, to: u64) -> io::Result<()> {
        assert!(self.are_packed_on_host(), "entries that the system cannot reach");
        self.hold(first, count);
        let (place, bytes) = (self.address(first), count * self.shape.bytes);
        whole(bytes, |done| {
            let (place, left) = ((place + done) as *const libc::c_void, (bytes - done) as usize);
            // SAFETY: inside the part, which is mapped as long as the memory lives.
            unsafe { libc::pwrite(file.as_raw_fd(), place, left, (to + done) as libc::off_t) }
        })
    }

    fn driver(&self) -> Named<'static> {
        self.memory.communicator().driver()
    }

    fn is_on_host(&self) -> bool {
        self.memory.request().location == Location::Host
    }

    fn are_packed(&self) -> bool {
        self.shape.bytes == self.shape.stride
    }

    fn address(&self, first: u64) -> u64 {
        self.memory.own_part().address + first * self.shape.stride + self.shape.offset
    }

    /// Panics for entries that are not all of this rank's own part.
    fn hold(&self, first: u64, count: u64) {
        let end = first.checked_add(count);
        assert!(
            end.is_some_and(|end| end <= self.count),
            "entries {first} and {count} more of {}",
            self.count
        );
    }

    /// The places of entries that follow each other, in as few copies as possible: addresses, and
    /// which of the bytes.
    fn rows(&self, first: u64, bytes: usize) -> impl Iterator<Item = (u64, Range<usize>)> {
        let is_one = !self.is_on_host() && self.shape.stride <= LARGEST_PITCH;
        let step = if is_one || self.are_packed() { bytes.max(1) } else { self.shape.bytes as usize };
        let (address, stride) = (self.address(first), self.shape.stride);
        (0..bytes).step_by(step).zip(0..).map(move |(at, entry)| (address + entry * stride, at..at + step))
    }

    /// How a copy of so many bytes is made.
    fn way(&self, bytes: usize) -> CopyForm {
        match bytes as u64 == self.shape.bytes || self.are_packed() {
            _ if self.is_on_host() => CopyForm::Host,
            true => CopyForm::Linear,
            false => CopyForm::Rows,
        }
    }

    /// A copy of entries that touch each other in so many bytes.
    fn copy(&self, bytes: usize) -> CUDA_MEMCPY2D {
        CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: 0,
            srcHost: null_mut(),
            srcDevice: 0,
            srcArray: CUarray::NULL,
            srcPitch: 0,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: 0,
            dstHost: null_mut(),
            dstDevice: 0,
            dstArray: CUarray::NULL,
            dstPitch: 0,
            WidthInBytes: self.shape.bytes as usize,
            Height: bytes / self.shape.bytes as usize,
        }
    }
}

/// How bytes get to an address.
enum CopyForm {
    /// By this process.
    Host,
    /// By the driver, as they are.
    Linear,
    /// By the driver, with gaps.
    Rows,
}

/// Bytes on their way, in memory that is kept.
#[derive(Debug, Default)]
pub(super) struct Buffer(Vec<u8>);

impl Buffer {
    /// So many of them.
    pub(super) fn of(&mut self, bytes: usize) -> Result<&mut [u8]> {
        let more = bytes.saturating_sub(self.0.len());
        let grown = self.0.try_reserve_exact(more);
        grown.map_err(|_| Error::Memory(format!("a buffer of {} MiB for files", bytes >> 20)))?;
        self.0.resize(self.0.len() + more, 0);
        Ok(&mut self.0[..bytes])
    }
}

/// Goes on with a system call until all bytes are through.
fn whole(bytes: u64, mut call: impl FnMut(u64) -> isize) -> io::Result<()> {
    let mut done = 0;
    while done < bytes {
        match call(done) {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            -1 => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
            more => done += more.unsigned_abs() as u64,
        }
    }
    Ok(())
}

/// Closes a file: some file systems say only then that a write failed.
pub(super) fn close(file: File) -> io::Result<()> {
    // SAFETY: a descriptor of ours, without other users.
    match unsafe { libc::close(file.into_raw_fd()) } {
        0 => Ok(()),
        // Linux has closed an interrupted one.
        _ => Some(io::Error::last_os_error())
            .filter(|error| error.kind() != io::ErrorKind::Interrupted)
            .map_or(Ok(()), Err),
    }
}
