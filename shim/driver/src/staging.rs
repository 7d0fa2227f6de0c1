//! Copies between a device and memory that files are read into and written from.
//!
//! Invariants: the memory is pinned where the driver pins it, and begins at a page; the thread that
//! copies waits for the copy, so nothing uses the memory when a call has returned. If the wait
//! fails, as at exit, the memory is never given back.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_void;
use std::ptr::NonNull;

use wm_abi::{CUcontext, CUresult, CUstream};

use crate::api::Api;
use crate::api::scope::{Current, Relaxed};
use crate::device::Device;
use crate::gpu::{LinkWay, Result};
use crate::streams::Streams;
use crate::table::Table;

/// Bytes of a page, and of the units of direct I/O at most.
pub const PAGE: usize = 4096;

/// Memory of a thread's own, for copies and files.
pub struct StagingBuffer {
    start: NonNull<u8>,
    layout: Layout,
    /// Where it is pinned.
    pin: Option<Pin>,
    /// A copy was not seen to end: the driver may use the memory for ever.
    is_lost: bool,
}

/// A driver that has pinned memory, in a context.
#[derive(Clone, Copy)]
struct Pin {
    driver: &'static Table,
    streams: &'static Streams,
    context: CUcontext,
}

impl Pin {
    /// # Safety
    /// The memory was pinned so, and no copy uses it.
    unsafe fn end(self, start: *mut c_void) -> Result<()> {
        let _relaxed = Relaxed::enter(self.driver, self.streams);
        let _current = Current::make(self.driver, self.context)?;
        // SAFETY: by contract.
        unsafe { self.driver.mem_host_unregister(start) }
    }
}

// SAFETY: it owns its memory, which any thread may use and give back.
unsafe impl Send for StagingBuffer {}

impl StagingBuffer {
    /// The bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the memory is this value's own, of that size, and was zeroed when it was made.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

impl Drop for StagingBuffer {
    fn drop(&mut self) {
        if self.is_lost {
            return;
        }
        // SAFETY: it was pinned so, and the calls that copy have waited for their copies.
        let unpinned = self.pin.map_or(Ok(()), |pin| unsafe { pin.end(self.start.as_ptr().cast()) });
        if unpinned.is_err() {
            // The driver may take other memory at these addresses for pinned: they are not given
            // out again. It is gone, or about to go.
            return;
        }
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

impl Device {
    /// Memory for [`Device::stage_out`] and [`Device::stage_in`], pinned if the driver does it.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`.
    pub fn staging_buffer(&self, bytes: usize) -> Result<StagingBuffer> {
        let layout = Layout::from_size_align(bytes.max(PAGE), PAGE).map_err(|_| CUresult::INVALID_VALUE)?;
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(CUresult::OUT_OF_MEMORY)?;
        let mut buffer = StagingBuffer { start, layout, pin: None, is_lost: false };
        let pin = Pin { driver: self.driver(), streams: self.streams(), context: self.context() };
        let _relaxed = Relaxed::enter(pin.driver, pin.streams);
        let _current = Current::make(pin.driver, pin.context)?;
        let memory: *mut c_void = start.as_ptr().cast();
        // SAFETY: the memory lives as long as the buffer, which unpins it. Copies work without it.
        if unsafe { self.driver().mem_host_register(memory, layout.size(), 0) }.is_ok() {
            buffer.pin = Some(pin);
        }
        Ok(buffer)
    }

    /// Copies from the device into the first bytes of a buffer, and waits. The caller ensures that
    /// the range is mapped, and not written meanwhile.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn stage_out(&self, to: &mut StagingBuffer, from: u64, bytes: usize) -> Result<()> {
        let start = to.bytes().get_mut(..bytes).ok_or(CUresult::INVALID_VALUE)?.as_mut_ptr();
        // SAFETY: the bytes stay until the stream is empty, or for ever if that is not known.
        self.in_stream(to, LinkWay::Out, |stream| unsafe {
            self.measured().memcpy_dtoh_async(start.cast(), from, bytes, stream)
        })
    }

    /// Copies the first bytes of a buffer to the device, and waits. The caller ensures that the
    /// range is mapped, and not used meanwhile.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn stage_in(&self, to: u64, from: &mut StagingBuffer, bytes: usize) -> Result<()> {
        let start = from.bytes().get(..bytes).ok_or(CUresult::INVALID_VALUE)?.as_ptr();
        // SAFETY: the bytes stay until the stream is empty, or for ever if that is not known.
        self.in_stream(from, LinkWay::In, |stream| unsafe {
            self.measured().memcpy_htod_async(to, start.cast(), bytes, stream)
        })
    }

    /// Starts a copy, and waits until the stream is empty, whether it was started or not.
    fn in_stream(
        &self,
        buffer: &mut StagingBuffer,
        way: LinkWay,
        copy: impl FnOnce(CUstream) -> Result<()>,
    ) -> Result<()> {
        let context = self.context();
        let _relaxed = Relaxed::enter(self.driver(), self.streams());
        let _current = Current::make(self.driver(), context)?;
        let stream = self.stream_for_copies(way, context)?;
        let started = copy(stream);
        let emptied = self.measured().stream_synchronize(stream);
        // At exit the driver is asked nothing any more, and after a fault it does not tell.
        buffer.is_lost |= emptied.is_err();
        emptied.and(started)
    }
}
