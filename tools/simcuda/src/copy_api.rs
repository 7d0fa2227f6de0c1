//! The driver's copy functions.

use std::ffi::c_void;

use wm_abi::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUcontext, CUdeviceptr, CUmemcpyAttributes, CUstream,
};

use crate::batch;
use crate::capture;
use crate::copy::{Said, Shape, Side, between, start};
use crate::entry::{Call, Outcome, exports, get};

/// A copy in the default stream that waits like the driver's.
pub(crate) fn now(call: &Call, shape: Shape) -> Outcome {
    start(&*call.context()?, &*call.stream(CUstream::NULL)?, shape, true)
}

/// A copy in a stream.
pub(crate) fn later(call: &Call, shape: Shape, stream: CUstream) -> Outcome {
    start(&*call.context()?, &*call.stream(stream)?, shape, false)
}

pub(crate) fn device(address: CUdeviceptr) -> Side {
    Side::flat(address, Said::Device)
}

pub(crate) fn host(address: *const c_void) -> Side {
    Side::flat(address as u64, Said::Host)
}

fn anything(address: CUdeviceptr) -> Side {
    Side::flat(address, Said::Anything)
}

exports! {
    fn cuMemcpy + cuMemcpy_ptds(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize) |call| {
        now(call, Shape::flat(anything(dst), anything(src), ByteCount))
    }

    fn cuMemcpyAsync + cuMemcpyAsync_ptsz(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize, hStream: CUstream) |call| {
        later(call, Shape::flat(anything(dst), anything(src), ByteCount), hStream)
    }

    fn cuMemcpyHtoD_v2 + cuMemcpyHtoD_v2_ptds(dstDevice: CUdeviceptr, srcHost: *const c_void, ByteCount: usize) |call| {
        now(call, Shape::flat(device(dstDevice), host(srcHost), ByteCount))
    }

    fn cuMemcpyHtoDAsync_v2 + cuMemcpyHtoDAsync_v2_ptsz(dstDevice: CUdeviceptr, srcHost: *const c_void, ByteCount: usize, hStream: CUstream) |call| {
        later(call, Shape::flat(device(dstDevice), host(srcHost), ByteCount), hStream)
    }

    fn cuMemcpyDtoH_v2 + cuMemcpyDtoH_v2_ptds(dstHost: *mut c_void, srcDevice: CUdeviceptr, ByteCount: usize) |call| {
        now(call, Shape::flat(host(dstHost), device(srcDevice), ByteCount))
    }

    fn cuMemcpyDtoHAsync_v2 + cuMemcpyDtoHAsync_v2_ptsz(dstHost: *mut c_void, srcDevice: CUdeviceptr, ByteCount: usize, hStream: CUstream) |call| {
        later(call, Shape::flat(host(dstHost), device(srcDevice), ByteCount), hStream)
    }

    fn cuMemcpyDtoD_v2 + cuMemcpyDtoD_v2_ptds(dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize) |call| {
        now(call, Shape::flat(device(dstDevice), device(srcDevice), ByteCount))
    }

    fn cuMemcpyDtoDAsync_v2 + cuMemcpyDtoDAsync_v2_ptsz(dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize, hStream: CUstream) |call| {
        later(call, Shape::flat(device(dstDevice), device(srcDevice), ByteCount), hStream)
    }

    fn cuMemcpyPeer + cuMemcpyPeer_ptds(dstDevice: CUdeviceptr, dstContext: CUcontext, srcDevice: CUdeviceptr, srcContext: CUcontext, ByteCount: usize) |call| {
        now(call, between([(dstDevice, dstContext), (srcDevice, srcContext)], ByteCount)?)
    }

    fn cuMemcpyPeerAsync + cuMemcpyPeerAsync_ptsz(dstDevice: CUdeviceptr, dstContext: CUcontext, srcDevice: CUdeviceptr, srcContext: CUcontext, ByteCount: usize, hStream: CUstream) |call| {
        later(call, between([(dstDevice, dstContext), (srcDevice, srcContext)], ByteCount)?, hStream)
    }

    fn cuMemcpy2D_v2 + cuMemcpy2D_v2_ptds(pCopy: *const CUDA_MEMCPY2D) |call| {
        now(call, Shape::of_2d(&get(pCopy)?)?)
    }

    fn cuMemcpy2DUnaligned_v2 + cuMemcpy2DUnaligned_v2_ptds(pCopy: *const CUDA_MEMCPY2D) |call| {
        now(call, Shape::of_2d(&get(pCopy)?)?)
    }

    fn cuMemcpy2DAsync_v2 + cuMemcpy2DAsync_v2_ptsz(pCopy: *const CUDA_MEMCPY2D, hStream: CUstream) |call| {
        later(call, Shape::of_2d(&get(pCopy)?)?, hStream)
    }

    fn cuMemcpy3D_v2 + cuMemcpy3D_v2_ptds(pCopy: *const CUDA_MEMCPY3D) |call| {
        now(call, Shape::of_3d(&get(pCopy)?)?)
    }

    fn cuMemcpy3DAsync_v2 + cuMemcpy3DAsync_v2_ptsz(pCopy: *const CUDA_MEMCPY3D, hStream: CUstream) |call| {
        later(call, Shape::of_3d(&get(pCopy)?)?, hStream)
    }

    fn cuMemcpy3DPeer + cuMemcpy3DPeer_ptds(pCopy: *const CUDA_MEMCPY3D_PEER) |call| {
        now(call, Shape::of_peer(&get(pCopy)?)?)
    }

    fn cuMemcpy3DPeerAsync + cuMemcpy3DPeerAsync_ptsz(pCopy: *const CUDA_MEMCPY3D_PEER, hStream: CUstream) |call| {
        let shape = Shape::of_peer(&get(pCopy)?)?;
        capture::forbid_in_stream(&*call.stream(hStream)?)?;
        later(call, shape, hStream)
    }

    fn cuMemcpyWithAttributesAsync + cuMemcpyWithAttributesAsync_ptsz(dst: CUdeviceptr, src: CUdeviceptr, size: usize, attr: *mut CUmemcpyAttributes, hStream: CUstream) |call| {
        batch::check_order(get(attr)?.srcAccessOrder)?;
        later(call, Shape::flat(anything(dst), anything(src), size), hStream)
    }

    fn cuMemcpy3DWithAttributesAsync + cuMemcpy3DWithAttributesAsync_ptsz(op: *mut c_void, flags: u64, hStream: CUstream) |call| {
        let shape = get(op.cast::<batch::Operation>())?.shape()?;
        later(call, shape, hStream)
    }

    fn cuMemcpyBatchAsync + cuMemcpyBatchAsync_ptsz(dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize, attrs: *mut CUmemcpyAttributes, attrsIdxs: *mut usize, numAttrs: usize, failIdx: *mut usize, hStream: CUstream) |call| {
        let batch = batch::Flat::read(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs);
        batch::start(call, hStream, batch.and_then(|batch| batch.shapes()), failIdx)
    }

    fn cuMemcpyBatchAsync_v2 + cuMemcpyBatchAsync_v2_ptsz(dsts: *mut CUdeviceptr, srcs: *mut CUdeviceptr, sizes: *mut usize, count: usize, attrs: *mut CUmemcpyAttributes, attrsIdxs: *mut usize, numAttrs: usize, hStream: CUstream) |call| {
        let batch = batch::Flat::read(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs);
        batch::start(call, hStream, batch.and_then(|batch| batch.shapes()), std::ptr::null_mut())
    }

    fn cuMemcpy3DBatchAsync + cuMemcpy3DBatchAsync_ptsz(numOps: usize, opList: *mut c_void, failIdx: *mut usize, flags: u64, hStream: CUstream) |call| {
        batch::start(call, hStream, batch::shapes_3d(opList, numOps, flags), failIdx)
    }

    fn cuMemcpy3DBatchAsync_v2 + cuMemcpy3DBatchAsync_v2_ptsz(numOps: usize, opList: *mut c_void, flags: u64, hStream: CUstream) |call| {
        batch::start(call, hStream, batch::shapes_3d(opList, numOps, flags), std::ptr::null_mut())
    }
}
