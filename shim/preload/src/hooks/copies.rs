//! Copies between host and device: over several links where that pays, else counted and the driver's.

use std::ffi::c_void;

use wm_abi::{CUDA_MEMCPY2D, CUdeviceptr, CUresult, CUstream};

use super::reach;
use super::stream::DefaultStream;
use crate::boundary::Answer;
use crate::counters::{Direction, copied};
use crate::multipath::{self, Linear, shapes};

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
pub(super) fn plain<F: DefaultStream, D: End, S: End>(
    direction: Direction,
    _: F,
) -> impl Fn(D, S, usize) -> Answer {
    move |to, from, bytes| serve(direction, to, from, bytes, F::HANDLE, true)
}

/// A copy in a stream.
pub(super) fn ordered<F: DefaultStream, D: End, S: End>(
    direction: Direction,
    _: F,
) -> impl Fn(D, S, usize, CUstream) -> Answer {
    move |to, from, bytes, stream| serve(direction, to, from, bytes, named::<F>(stream), false)
}

fn serve<D: End, S: End>(
    direction: Direction,
    to: D,
    from: S,
    bytes: usize,
    stream: CUstream,
    waits: bool,
) -> Answer {
    let linear = Linear { to: to.address(), from: from.address(), bytes, stream, waits };
    reach::ends(linear.to, linear.from);
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
pub(super) fn any<F: DefaultStream>(_: F) -> impl Fn(CUdeviceptr, CUdeviceptr, usize) -> Answer {
    |to, from, bytes| linear(&Linear { to, from, bytes, stream: F::HANDLE, waits: true })
}

/// `cuMemcpyAsync`.
pub(super) fn any_ordered<F: DefaultStream>(
    _: F,
) -> impl Fn(CUdeviceptr, CUdeviceptr, usize, CUstream) -> Answer {
    |to, from, bytes, stream| linear(&Linear { to, from, bytes, stream: named::<F>(stream), waits: false })
}

fn linear(linear: &Linear) -> Answer {
    reach::ends(linear.to, linear.from);
    if multipath::copy(linear, None) { SERVED } else { Answer::Pass }
}

/// `cuMemcpy2D` and its unaligned form.
pub(super) unsafe fn rows<F: DefaultStream>(copy: *const CUDA_MEMCPY2D) -> Answer {
    // SAFETY: the program's description of a copy, null where it made a mistake.
    unsafe { reach::plane(copy) };
    // SAFETY: as above.
    let shape = unsafe { copy.as_ref() }.and_then(|copy| shapes::linear(copy, F::HANDLE, true));
    shape.map_or(Answer::Pass, |shape| linear(&shape))
}

/// `cuMemcpy2DAsync`.
pub(super) unsafe fn rows_ordered<F: DefaultStream>(copy: *const CUDA_MEMCPY2D, stream: CUstream) -> Answer {
    // SAFETY: as in `rows`.
    unsafe { reach::plane(copy) };
    // SAFETY: as in `rows`.
    let shape = unsafe { copy.as_ref() }.and_then(|copy| shapes::linear(copy, named::<F>(stream), false));
    shape.map_or(Answer::Pass, |shape| linear(&shape))
}

/// What a stream handle of this family stands for.
fn named<F: DefaultStream>(stream: CUstream) -> CUstream {
    if stream.is_null() { F::HANDLE } else { stream }
}
