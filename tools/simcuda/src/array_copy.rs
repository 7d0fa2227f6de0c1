//! Copies between arrays and flat memory, named by array and offset in bytes.

use std::ffi::c_void;

use wm_abi::{CUarray, CUdeviceptr, CUresult, CUstream};

use crate::array::Array;
use crate::copy::{Said, Shape, Side};
use crate::copy_api::{device, host, later, now};
use crate::entry::{Outcome, exports, require};

/// The bytes of an array from `offset` on, of which `bytes` are wanted.
fn array_side(array: CUarray, offset: usize, bytes: usize) -> Outcome<Side> {
    let array = Array::of(array)?;
    let within = offset.checked_add(bytes).is_some_and(|end| end <= array.bytes());
    require(within, CUresult::INVALID_VALUE)?;
    Ok(Side::flat(array.address + offset as u64, Said::Device))
}

exports! {
    fn cuMemcpyHtoA_v2 + cuMemcpyHtoA_v2_ptds(dstArray: CUarray, dstOffset: usize, srcHost: *const c_void, ByteCount: usize) |call| {
        now(call, Shape::flat(array_side(dstArray, dstOffset, ByteCount)?, host(srcHost), ByteCount))
    }

    fn cuMemcpyAtoH_v2 + cuMemcpyAtoH_v2_ptds(dstHost: *mut c_void, srcArray: CUarray, srcOffset: usize, ByteCount: usize) |call| {
        now(call, Shape::flat(host(dstHost), array_side(srcArray, srcOffset, ByteCount)?, ByteCount))
    }

    fn cuMemcpyDtoA_v2 + cuMemcpyDtoA_v2_ptds(dstArray: CUarray, dstOffset: usize, srcDevice: CUdeviceptr, ByteCount: usize) |call| {
        now(call, Shape::flat(array_side(dstArray, dstOffset, ByteCount)?, device(srcDevice), ByteCount))
    }

    fn cuMemcpyAtoD_v2 + cuMemcpyAtoD_v2_ptds(dstDevice: CUdeviceptr, srcArray: CUarray, srcOffset: usize, ByteCount: usize) |call| {
        now(call, Shape::flat(device(dstDevice), array_side(srcArray, srcOffset, ByteCount)?, ByteCount))
    }

    fn cuMemcpyAtoA_v2 + cuMemcpyAtoA_v2_ptds(dstArray: CUarray, dstOffset: usize, srcArray: CUarray, srcOffset: usize, ByteCount: usize) |call| {
        let (to, from) = (array_side(dstArray, dstOffset, ByteCount)?, array_side(srcArray, srcOffset, ByteCount)?);
        now(call, Shape::flat(to, from, ByteCount))
    }

    fn cuMemcpyHtoAAsync_v2 + cuMemcpyHtoAAsync_v2_ptsz(dstArray: CUarray, dstOffset: usize, srcHost: *const c_void, ByteCount: usize, hStream: CUstream) |call| {
        later(call, Shape::flat(array_side(dstArray, dstOffset, ByteCount)?, host(srcHost), ByteCount), hStream)
    }

    fn cuMemcpyAtoHAsync_v2 + cuMemcpyAtoHAsync_v2_ptsz(dstHost: *mut c_void, srcArray: CUarray, srcOffset: usize, ByteCount: usize, hStream: CUstream) |call| {
        later(call, Shape::flat(host(dstHost), array_side(srcArray, srcOffset, ByteCount)?, ByteCount), hStream)
    }
}
