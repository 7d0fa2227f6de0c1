//! Copies of consecutive bytes. In this order: a copy that touches another device's memory is made
//! by [`peer_calls`]; a large copy goes over several links if that pays; every other copy is
//! counted and forwarded.

use std::ffi::c_void;

use wm_abi::{CUdeviceptr, CUresult, CUstream};

use super::peer_calls::{self, Family};
use crate::copies::{CopyEnd, EndKind, LinearCopy};
use crate::counters::{COUNTERS, CopyCount};
use crate::hooks::call::boundary::Outcome;
use crate::hooks::call::stream::resolve_default;
use crate::multipath;

/// `cuMemcpyHtoD`.
pub(in crate::hooks) fn memcpy_htod<F: Family>(
    to: CUdeviceptr,
    from: *const c_void,
    bytes: usize,
) -> Outcome {
    let (to, from) = (device(to), host(from));
    serve::<F>(&COUNTERS.host_to_device, &LinearCopy { to, from, bytes, stream: F::HANDLE, waits: true })
}

/// `cuMemcpyDtoH`.
pub(in crate::hooks) fn memcpy_dtoh<F: Family>(to: *mut c_void, from: CUdeviceptr, bytes: usize) -> Outcome {
    let (to, from) = (host(to), device(from));
    serve::<F>(&COUNTERS.device_to_host, &LinearCopy { to, from, bytes, stream: F::HANDLE, waits: true })
}

/// `cuMemcpyDtoD`.
pub(in crate::hooks) fn memcpy_dtod<F: Family>(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Outcome {
    let (to, from) = (device(to), device(from));
    serve::<F>(&COUNTERS.device_to_device, &LinearCopy { to, from, bytes, stream: F::HANDLE, waits: true })
}

/// `cuMemcpyHtoDAsync`.
pub(in crate::hooks) fn memcpy_htod_async<F: Family>(
    to: CUdeviceptr,
    from: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> Outcome {
    let (to, from, stream) = (device(to), host(from), resolve_default::<F>(stream));
    serve::<F>(&COUNTERS.host_to_device, &LinearCopy { to, from, bytes, stream, waits: false })
}

/// `cuMemcpyDtoHAsync`.
pub(in crate::hooks) fn memcpy_dtoh_async<F: Family>(
    to: *mut c_void,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Outcome {
    let (to, from, stream) = (host(to), device(from), resolve_default::<F>(stream));
    serve::<F>(&COUNTERS.device_to_host, &LinearCopy { to, from, bytes, stream, waits: false })
}

/// `cuMemcpyDtoDAsync`.
pub(in crate::hooks) fn memcpy_dtod_async<F: Family>(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Outcome {
    let (to, from, stream) = (device(to), device(from), resolve_default::<F>(stream));
    serve::<F>(&COUNTERS.device_to_device, &LinearCopy { to, from, bytes, stream, waits: false })
}

fn device(address: CUdeviceptr) -> CopyEnd {
    CopyEnd::linear(address, EndKind::Device)
}

fn host(address: *const c_void) -> CopyEnd {
    CopyEnd::linear(address as u64, EndKind::Host)
}

/// A copy whose direction the call names. A copy over several links is counted by its links
/// instead.
fn serve<F: Family>(count: &CopyCount, copy: &LinearCopy) -> Outcome {
    let made = peer_calls::copy_linear::<F>(copy);
    if made.is_none() && multipath::copy(copy) {
        return SERVED;
    }
    count.add(copy.bytes);
    made.unwrap_or(Outcome::Forward)
}

pub(super) const SERVED: Outcome = Outcome::Return(CUresult::SUCCESS);

/// `cuMemcpy`: the direction follows from the addresses.
pub(in crate::hooks) fn memcpy<F: Family>(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Outcome {
    let copy = LinearCopy::unified(to, from, bytes, F::HANDLE, true);
    peer_calls::copy_linear::<F>(&copy).unwrap_or_else(|| spread(&copy))
}

/// `cuMemcpyAsync`.
pub(in crate::hooks) fn memcpy_async<F: Family>(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Outcome {
    let copy = LinearCopy::unified(to, from, bytes, resolve_default::<F>(stream), false);
    peer_calls::copy_linear::<F>(&copy).unwrap_or_else(|| spread(&copy))
}

/// Makes the copy over several links if that pays, else forwards it.
pub(super) fn spread(copy: &LinearCopy) -> Outcome {
    if multipath::copy(copy) { SERVED } else { Outcome::Forward }
}
