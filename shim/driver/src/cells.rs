//! Small copies in stream order between the device and host memory of ours.
//!
//! [`Cells`] are equal pieces of host memory, pinned for the device. Invariant: their memory is
//! never released, so a late copy has a valid destination, and the bytes can be read after the
//! driver or the context is gone. Cells are atomics because the device may write one while it is
//! read.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use wm_abi::{CU_MEMHOSTREGISTER_PORTABLE, CU_STREAM_NON_BLOCKING, CUresult, CUstream};

use crate::api::Api;
use crate::api::scope::{Current, Relaxed as RelaxedCapture};
use crate::device::Device;
use crate::gpu::{Result, StreamId};

const PAGE: usize = 4096;

/// Pinned host memory in equal pieces.
#[derive(Debug, Clone, Copy)]
pub struct Cells {
    memory: &'static [AtomicU8],
    bytes: usize,
}

impl Cells {
    /// The bytes of a cell.
    ///
    /// # Panics
    /// If there is no such cell.
    pub fn cell(&self, cell: usize) -> &'static [AtomicU8] {
        &self.memory[cell * self.bytes..(cell + 1) * self.bytes]
    }

    /// Fills a cell.
    pub fn write(&self, cell: usize, fill: impl Fn(usize) -> u8) {
        self.cell(cell).iter().enumerate().for_each(|(at, byte)| byte.store(fill(at), Relaxed));
    }

    fn address(&self, cell: usize) -> *mut std::ffi::c_void {
        self.cell(cell).as_ptr().cast_mut().cast()
    }
}

impl Device {
    /// Pinned cells, `count` of `bytes` each, all filled alike. Their memory stays until the
    /// process ends.
    ///
    /// # Errors
    /// The driver's, if it cannot pin the memory.
    pub fn cells(&self, count: usize, bytes: usize, fill: impl Fn(usize) -> u8) -> Result<Cells> {
        let length = (count * bytes).next_multiple_of(PAGE);
        let memory: Box<[AtomicU8]> = (0..length + PAGE).map(|_| AtomicU8::new(0)).collect();
        let start = memory.as_ptr().addr().next_multiple_of(PAGE) - memory.as_ptr().addr();
        self.pin(&memory[start..start + length])?;
        let cells = Cells { memory: &Box::leak(memory)[start..start + length], bytes };
        (0..count).for_each(|cell| cells.write(cell, &fill));
        Ok(cells)
    }

    fn pin(&self, memory: &[AtomicU8]) -> Result<()> {
        let _relaxed = RelaxedCapture::always(self.driver());
        let held = self.hold_context();
        let _current = Current::make(self.driver(), held.context)?;
        let start = memory.as_ptr().cast_mut().cast();
        // SAFETY: atomics, which `cells` never gives back once they are pinned.
        unsafe { self.measured().mem_host_register(start, memory.len(), CU_MEMHOSTREGISTER_PORTABLE) }
    }

    /// A stream of our own that waits for no other. It ends with the device's context.
    ///
    /// # Errors
    /// The driver's.
    pub fn own_stream(&self) -> Result<StreamId> {
        let _relaxed = RelaxedCapture::enter(self.driver(), self.streams());
        let held = self.hold_context();
        let _current = Current::make(self.driver(), held.context)?;
        let stream = self.measured().stream_create(CU_STREAM_NON_BLOCKING)?;
        Ok(self.streams().identify(held.context, stream))
    }

    /// Copies the first bytes of a cell to the device, behind the present work in `stream`.
    ///
    /// # Errors
    /// `INVALID_VALUE` if a cell has fewer bytes; as [`crate::Gpu::record`].
    pub fn copy_in(&self, stream: StreamId, to: u64, cells: &Cells, cell: usize, bytes: usize) -> Result<()> {
        let (stream, _current) = self.enter(stream, cells, bytes)?;
        // SAFETY: a cell has at least this many bytes, stays, and is atomics; the caller owns the
        // block.
        unsafe { self.measured().memcpy_htod_async(to, cells.address(cell), bytes, stream) }
    }

    /// Copies bytes of the device to the start of a cell, behind the present work in `stream`.
    ///
    /// # Errors
    /// As [`Device::copy_in`].
    pub fn copy_out(
        &self,
        stream: StreamId,
        cells: &Cells,
        cell: usize,
        from: u64,
        bytes: usize,
    ) -> Result<()> {
        let (stream, _current) = self.enter(stream, cells, bytes)?;
        // SAFETY: as in `copy_in`.
        unsafe { self.measured().memcpy_dtoh_async(cells.address(cell), from, bytes, stream) }
    }

    fn enter(&self, stream: StreamId, cells: &Cells, bytes: usize) -> Result<(CUstream, Current<'_>)> {
        let key = self.streams().key(stream).ok_or(CUresult::INVALID_HANDLE)?;
        if bytes > cells.bytes {
            return Err(CUresult::INVALID_VALUE);
        }
        if !key.is_reachable() {
            return Err(CUresult::STREAM_CAPTURE_UNSUPPORTED);
        }
        self.refuse_captured(key.stream)?;
        Ok((key.stream, Current::make(self.driver(), key.context)?))
    }
}
