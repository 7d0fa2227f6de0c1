//! Copies between host and device. A copy goes over several links if that pays; else it is counted and forwarded.

use std::ffi::c_void;

use wm_abi::symbol::Symbol;
use wm_abi::{CUDA_MEMCPY2D, CUdeviceptr, CUresult, CUstream};

use super::crossing::{self, Family};
use crate::counters::{Direction, copied};
use crate::hooks::call::boundary::Outcome;
use crate::hooks::call::stream::resolve_default;
use crate::multipath::{self, Linear, shapes};
use crate::process::driver;

/// `cuMemcpyHtoD`.
pub(in crate::hooks) fn memcpy_htod<F: Family>(
    to: CUdeviceptr,
    from: *const c_void,
    bytes: usize,
) -> Outcome {
    serve::<F>(
        Direction::HostToDevice,
        Linear { to, from: from as u64, bytes, stream: F::HANDLE, waits: true },
    )
}

/// `cuMemcpyDtoH`.
pub(in crate::hooks) fn memcpy_dtoh<F: Family>(to: *mut c_void, from: CUdeviceptr, bytes: usize) -> Outcome {
    serve::<F>(Direction::DeviceToHost, Linear { to: to as u64, from, bytes, stream: F::HANDLE, waits: true })
}

/// `cuMemcpyDtoD`.
pub(in crate::hooks) fn memcpy_dtod<F: Family>(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Outcome {
    serve::<F>(Direction::DeviceToDevice, Linear { to, from, bytes, stream: F::HANDLE, waits: true })
}

/// `cuMemcpyHtoDAsync`.
pub(in crate::hooks) fn memcpy_htod_async<F: Family>(
    to: CUdeviceptr,
    from: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> Outcome {
    serve::<F>(
        Direction::HostToDevice,
        Linear { to, from: from as u64, bytes, stream: resolve_default::<F>(stream), waits: false },
    )
}

/// `cuMemcpyDtoHAsync`.
pub(in crate::hooks) fn memcpy_dtoh_async<F: Family>(
    to: *mut c_void,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Outcome {
    serve::<F>(
        Direction::DeviceToHost,
        Linear { to: to as u64, from, bytes, stream: resolve_default::<F>(stream), waits: false },
    )
}

/// `cuMemcpyDtoDAsync`.
pub(in crate::hooks) fn memcpy_dtod_async<F: Family>(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Outcome {
    serve::<F>(
        Direction::DeviceToDevice,
        Linear { to, from, bytes, stream: resolve_default::<F>(stream), waits: false },
    )
}

/// A copy whose direction the call names. In this order: made by `crossing` if it touches another device's memory, made over several
/// links if that pays, else forwarded.
fn serve<F: Family>(direction: Direction, linear: Linear) -> Outcome {
    if let Some(answer) = crossing::linear::<F>(&linear, Some(direction)) {
        copied(direction, linear.bytes);
        return answer;
    }
    let expected = match direction {
        Direction::HostToDevice => wm_multipath::LinkDirection::In,
        Direction::DeviceToHost => wm_multipath::LinkDirection::Out,
        Direction::DeviceToDevice => return count(direction, linear.bytes),
    };
    if multipath::copy(&linear, Some(expected)) { SERVED } else { count(direction, linear.bytes) }
}

pub(in crate::hooks) const SERVED: Outcome = Outcome::Return(CUresult::SUCCESS);

fn count(direction: Direction, bytes: usize) -> Outcome {
    copied(direction, bytes);
    Outcome::Forward
}

/// `cuMemcpy`: the direction follows from the addresses.
pub(in crate::hooks) fn memcpy<F: Family>(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Outcome {
    linear::<F>(&Linear { to, from, bytes, stream: F::HANDLE, waits: true })
}

/// `cuMemcpyAsync`.
pub(in crate::hooks) fn memcpy_async<F: Family>(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Outcome {
    linear::<F>(&Linear { to, from, bytes, stream: resolve_default::<F>(stream), waits: false })
}

fn linear<F: Family>(linear: &Linear) -> Outcome {
    crossing::linear::<F>(linear, None).unwrap_or_else(|| spread(linear))
}

/// Makes the copy over several links if that pays, else forwards it.
fn spread(linear: &Linear) -> Outcome {
    if multipath::copy(linear, None) { SERVED } else { Outcome::Forward }
}

/// `cuMemcpy2D` and its unaligned form.
pub(in crate::hooks) unsafe fn memcpy_2d<S, F: Family>(copy: *const CUDA_MEMCPY2D) -> Outcome
where
    S: Symbol<Function = unsafe extern "C" fn(*const CUDA_MEMCPY2D) -> CUresult>,
{
    // SAFETY: the program's description of a copy, null where it made a mistake, and copies like it.
    let crossing = unsafe { crossing::shaped::<F, _>(copy, None, |part| driver().get::<S>()(part)) };
    // SAFETY: as above.
    crossing.unwrap_or_else(|| unsafe { touching(copy, F::HANDLE, true) })
}

/// `cuMemcpy2DAsync`.
pub(in crate::hooks) unsafe fn memcpy_2d_async<S, F: Family>(
    copy: *const CUDA_MEMCPY2D,
    stream: CUstream,
) -> Outcome
where
    S: Symbol<Function = unsafe extern "C" fn(*const CUDA_MEMCPY2D, CUstream) -> CUresult>,
{
    let resolved = resolve_default::<F>(stream);
    // SAFETY: as in `rows`.
    let crossing =
        unsafe { crossing::shaped::<F, _>(copy, Some(resolved), |part| driver().get::<S>()(part, stream)) };
    // SAFETY: as in `rows`.
    crossing.unwrap_or_else(|| unsafe { touching(copy, resolved, false) })
}

/// Rows that touch are one linear copy.
unsafe fn touching(copy: *const CUDA_MEMCPY2D, stream: CUstream, waits: bool) -> Outcome {
    // SAFETY: null, or the program's description.
    let linear = unsafe { copy.as_ref() }.and_then(|copy| shapes::linear(copy, stream, waits));
    linear.map_or(Outcome::Forward, |linear| spread(&linear))
}
