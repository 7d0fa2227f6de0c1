//! Copies between host and device: over several links where that pays, else counted and the driver's.

use std::ffi::c_void;

use wm_abi::symbol::Symbol;
use wm_abi::{CUDA_MEMCPY2D, CUdeviceptr, CUresult, CUstream};

use super::boundary::Answer;
use super::crossing::{self, Family};
use super::stream::meant;
use crate::counters::{Direction, copied};
use crate::multipath::{self, Linear, shapes};
use crate::process::driver;

/// An end of a copy, in whatever type the driver's function has it.
pub(super) trait End: Copy {
    fn address(self) -> u64;
}

impl End for CUdeviceptr {
    fn address(self) -> u64 {
        self
    }
}

impl End for *const c_void {
    fn address(self) -> u64 {
        self as u64
    }
}

impl End for *mut c_void {
    fn address(self) -> u64 {
        self as u64
    }
}

/// A synchronous copy, in the default stream of its family.
pub(super) fn plain<F: Family, D: End, S: End>(direction: Direction, _: F) -> impl Fn(D, S, usize) -> Answer {
    move |to, from, bytes| serve::<F, _, _>(direction, to, from, bytes, F::HANDLE, true)
}

/// A copy in a stream.
pub(super) fn ordered<F: Family, D: End, S: End>(
    direction: Direction,
    _: F,
) -> impl Fn(D, S, usize, CUstream) -> Answer {
    move |to, from, bytes, stream| serve::<F, _, _>(direction, to, from, bytes, meant::<F>(stream), false)
}

fn serve<F: Family, D: End, S: End>(
    direction: Direction,
    to: D,
    from: S,
    bytes: usize,
    stream: CUstream,
    waits: bool,
) -> Answer {
    let linear = Linear { to: to.address(), from: from.address(), bytes, stream, waits };
    if let Some(answer) = crossing::linear::<F>(&linear, Some(direction)) {
        copied(direction, bytes);
        return answer;
    }
    let expected = match direction {
        Direction::HostToDevice => wm_multipath::Direction::In,
        Direction::DeviceToHost => wm_multipath::Direction::Out,
        Direction::DeviceToDevice => return count(direction, bytes),
    };
    if multipath::copy(&linear, Some(expected)) { SERVED } else { count(direction, bytes) }
}

pub(super) const SERVED: Answer = Answer::Is(CUresult::SUCCESS);

fn count(direction: Direction, bytes: usize) -> Answer {
    copied(direction, bytes);
    Answer::Pass
}

/// `cuMemcpy`: the addresses say which way it goes.
pub(super) fn any<F: Family>(_: F) -> impl Fn(CUdeviceptr, CUdeviceptr, usize) -> Answer {
    |to, from, bytes| linear::<F>(&Linear { to, from, bytes, stream: F::HANDLE, waits: true })
}

/// `cuMemcpyAsync`.
pub(super) fn any_ordered<F: Family>(_: F) -> impl Fn(CUdeviceptr, CUdeviceptr, usize, CUstream) -> Answer {
    |to, from, bytes, stream| {
        linear::<F>(&Linear { to, from, bytes, stream: meant::<F>(stream), waits: false })
    }
}

fn linear<F: Family>(linear: &Linear) -> Answer {
    crossing::linear::<F>(linear, None).unwrap_or_else(|| spread(linear))
}

/// Over several links, where that pays.
fn spread(linear: &Linear) -> Answer {
    if multipath::copy(linear, None) { SERVED } else { Answer::Pass }
}

/// `cuMemcpy2D` and its unaligned form.
pub(super) unsafe fn rows<S, F: Family>(copy: *const CUDA_MEMCPY2D) -> Answer
where
    S: Symbol<Function = unsafe extern "C" fn(*const CUDA_MEMCPY2D) -> CUresult>,
{
    // SAFETY: the program's description of a copy, null where it made a mistake, and copies like it.
    let crossing = unsafe { crossing::shaped::<F, _>(copy, None, |part| driver().get::<S>()(part)) };
    // SAFETY: as above.
    crossing.unwrap_or_else(|| unsafe { touching(copy, F::HANDLE, true) })
}

/// `cuMemcpy2DAsync`.
pub(super) unsafe fn rows_ordered<S, F: Family>(copy: *const CUDA_MEMCPY2D, stream: CUstream) -> Answer
where
    S: Symbol<Function = unsafe extern "C" fn(*const CUDA_MEMCPY2D, CUstream) -> CUresult>,
{
    let named = meant::<F>(stream);
    // SAFETY: as in `rows`.
    let crossing =
        unsafe { crossing::shaped::<F, _>(copy, Some(named), |part| driver().get::<S>()(part, stream)) };
    // SAFETY: as in `rows`.
    crossing.unwrap_or_else(|| unsafe { touching(copy, named, false) })
}

/// Rows that touch are one linear copy.
unsafe fn touching(copy: *const CUDA_MEMCPY2D, stream: CUstream, waits: bool) -> Answer {
    // SAFETY: null, or the program's description.
    let linear = unsafe { copy.as_ref() }.and_then(|copy| shapes::linear(copy, stream, waits));
    linear.map_or(Answer::Pass, |linear| spread(&linear))
}
