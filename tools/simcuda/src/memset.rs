//! Memsets, in every width and form.

use std::ffi::c_uint;
use std::sync::Arc;

use wm_abi::{CUdeviceptr, CUresult, CUstream};

use crate::context::Context;
use crate::entry::{Call, Outcome, exports, require};
use crate::graph_form::Form;
use crate::lane::Work;
use crate::launch::reachable;
use crate::memory::{Place, Want};
use crate::races::{self, Access};
use crate::state::driver;

/// Elements to be written: `width` in each of `height` rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fill {
    pub(crate) address: CUdeviceptr,
    /// Bytes from one row to the next.
    pub(crate) pitch: usize,
    pub(crate) value: c_uint,
    /// Bytes of an element: 1, 2 or 4.
    pub(crate) element: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

impl Fill {
    pub(crate) fn is_empty(&self) -> bool {
        self.width == 0 || self.height == 0
    }

    /// Its accesses, row by row.
    fn accesses(&self) -> Vec<Access> {
        let row = self.width * self.element;
        let whole = self.height == 1 || self.pitch == row;
        let (bytes, rows) = if whole { (row * self.height, 1) } else { (row, self.height) };
        let start = |y: usize| self.address + (y * self.pitch) as u64;
        (0..rows).map(|y| Access::write(start(y)..start(y) + bytes as u64)).collect()
    }

    /// Bytes from the first to the last.
    ///
    /// # Errors
    /// `INVALID_VALUE` if there are too many.
    pub(crate) fn extent(&self) -> Outcome<u64> {
        let rows = self.pitch.checked_mul(self.height.saturating_sub(1)).ok_or(CUresult::INVALID_VALUE)?;
        let extent = rows.checked_add(self.row_bytes()?).ok_or(CUresult::INVALID_VALUE)?;
        Ok(extent as u64)
    }

    fn row_bytes(&self) -> Outcome<usize> {
        self.width.checked_mul(self.element).ok_or(CUresult::INVALID_VALUE)
    }

    fn check(&self, device: usize) -> Outcome {
        let aligned =
            self.address.is_multiple_of(self.element as u64) && self.pitch.is_multiple_of(self.element);
        let row = self.row_bytes()?;
        require(aligned && matches!(self.element, 1 | 2 | 4), CUresult::INVALID_VALUE)?;
        require(self.height == 1 || self.pitch >= row, CUresult::INVALID_VALUE)?;
        driver().memory().check(self.address, self.extent()?, Want::Write, device)
    }

    /// Writes the elements, a piece at a time under the address map's lock.
    fn run(&self, device: usize) -> Outcome {
        const PIECE: usize = 1 << 20;
        for y in 0..self.height {
            let row = self.address + (y * self.pitch) as u64;
            for at in (0..self.width).step_by(PIECE) {
                let count = PIECE.min(self.width - at);
                self.write(row + (at * self.element) as u64, count, device)?;
            }
        }
        Ok(())
    }

    fn write(&self, address: u64, count: usize, device: usize) -> Outcome {
        let memory = driver().memory();
        let still = memory.check_moving(address, (count * self.element) as u64, Want::Write, device);
        still.map_err(|_| CUresult::ILLEGAL_ADDRESS)?;
        // SAFETY: the range was checked under the lock, and is aligned.
        unsafe {
            match self.element {
                1 => std::slice::from_raw_parts_mut(address as *mut u8, count).fill(self.value as u8),
                2 => std::slice::from_raw_parts_mut(address as *mut u16, count).fill(self.value as u16),
                _ => std::slice::from_raw_parts_mut(address as *mut u32, count).fill(self.value),
            }
        }
        Ok(())
    }
}

/// The memset as work, for a graph.
///
/// # Errors
/// `INVALID_VALUE` for a range that the driver does not know, or that may not be written.
pub(crate) fn work(context: &Context, fill: Fill) -> Outcome<Work> {
    if fill.is_empty() {
        return Ok(Arc::new(|| Ok(())));
    }
    let device = context.device;
    fill.check(device)?;
    // Kernels of the driver write it: memory of a peer needs peer access, unlike for copies.
    reachable(context, fill.address).map_err(|_| CUresult::INVALID_VALUE)?;
    Ok(races::declare(Arc::new(move || fill.run(device)), || fill.accesses()))
}

/// In the default stream. The host waits only if the memory is its own.
fn now(call: &Call, fill: Fill) -> Outcome {
    let (context, stream) = (call.context()?, call.stream(CUstream::NULL)?);
    let on_host = driver().memory().place(fill.address) == Some(Place::Host);
    let point = stream.submit(Form::Set(fill), work(&context, fill)?)?;
    let Some(point) = point else { return Ok(()) };
    if on_host {
        point.wait();
    }
    Ok(())
}

fn later(call: &Call, fill: Fill, stream: CUstream) -> Outcome {
    let context = call.context()?;
    call.stream(stream)?.submit(Form::Set(fill), work(&context, fill)?)?;
    Ok(())
}

fn flat(address: CUdeviceptr, value: c_uint, element: usize, width: usize) -> Fill {
    Fill { address, pitch: 0, value, element, width, height: 1 }
}

fn rows(
    address: CUdeviceptr,
    pitch: usize,
    value: c_uint,
    element: usize,
    width: usize,
    height: usize,
) -> Fill {
    Fill { address, pitch, value, element, width, height }
}

exports! {
    fn cuMemsetD8_v2 + cuMemsetD8_v2_ptds(dstDevice: CUdeviceptr, uc: u8, N: usize) |call| {
        now(call, flat(dstDevice, uc.into(), 1, N))
    }

    fn cuMemsetD16_v2 + cuMemsetD16_v2_ptds(dstDevice: CUdeviceptr, us: u16, N: usize) |call| {
        now(call, flat(dstDevice, us.into(), 2, N))
    }

    fn cuMemsetD32_v2 + cuMemsetD32_v2_ptds(dstDevice: CUdeviceptr, ui: c_uint, N: usize) |call| {
        now(call, flat(dstDevice, ui, 4, N))
    }

    fn cuMemsetD8Async + cuMemsetD8Async_ptsz(dstDevice: CUdeviceptr, uc: u8, N: usize, hStream: CUstream) |call| {
        later(call, flat(dstDevice, uc.into(), 1, N), hStream)
    }

    fn cuMemsetD16Async + cuMemsetD16Async_ptsz(dstDevice: CUdeviceptr, us: u16, N: usize, hStream: CUstream) |call| {
        later(call, flat(dstDevice, us.into(), 2, N), hStream)
    }

    fn cuMemsetD32Async + cuMemsetD32Async_ptsz(dstDevice: CUdeviceptr, ui: c_uint, N: usize, hStream: CUstream) |call| {
        later(call, flat(dstDevice, ui, 4, N), hStream)
    }

    fn cuMemsetD2D8_v2 + cuMemsetD2D8_v2_ptds(dstDevice: CUdeviceptr, dstPitch: usize, uc: u8, Width: usize, Height: usize) |call| {
        now(call, rows(dstDevice, dstPitch, uc.into(), 1, Width, Height))
    }

    fn cuMemsetD2D16_v2 + cuMemsetD2D16_v2_ptds(dstDevice: CUdeviceptr, dstPitch: usize, us: u16, Width: usize, Height: usize) |call| {
        now(call, rows(dstDevice, dstPitch, us.into(), 2, Width, Height))
    }

    fn cuMemsetD2D32_v2 + cuMemsetD2D32_v2_ptds(dstDevice: CUdeviceptr, dstPitch: usize, ui: c_uint, Width: usize, Height: usize) |call| {
        now(call, rows(dstDevice, dstPitch, ui, 4, Width, Height))
    }

    fn cuMemsetD2D8Async + cuMemsetD2D8Async_ptsz(dstDevice: CUdeviceptr, dstPitch: usize, uc: u8, Width: usize, Height: usize, hStream: CUstream) |call| {
        later(call, rows(dstDevice, dstPitch, uc.into(), 1, Width, Height), hStream)
    }

    fn cuMemsetD2D16Async + cuMemsetD2D16Async_ptsz(dstDevice: CUdeviceptr, dstPitch: usize, us: u16, Width: usize, Height: usize, hStream: CUstream) |call| {
        later(call, rows(dstDevice, dstPitch, us.into(), 2, Width, Height), hStream)
    }

    fn cuMemsetD2D32Async + cuMemsetD2D32Async_ptsz(dstDevice: CUdeviceptr, dstPitch: usize, ui: c_uint, Width: usize, Height: usize, hStream: CUstream) |call| {
        later(call, rows(dstDevice, dstPitch, ui, 4, Width, Height), hStream)
    }
}
