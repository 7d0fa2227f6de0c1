//! Two devices: every form of copy between them, queries of a peer's memory, and withdrawn access.
//! The driver's own memory needs no peer access for copies; mapped memory does, so each form has
//! its own case.

use std::mem::ManuallyDrop;

use wm_abi::*;

use super::peer::{both, sized_memory_of};
use crate::case::{Case, Verdict, short};
use crate::driver::Driver;
use crate::fixture::{Kernels, Memory, Primary, Stream, alloc_async, pattern, read, synchronize};
use crate::{cu, must};

const BYTES: usize = 1 << 20;
const PITCH: usize = 1 << 16;
const ROWS: usize = BYTES / PITCH;

fn plane(from: CUdeviceptr, to: CUdeviceptr) -> CUDA_MEMCPY2D {
    // SAFETY: numbers, null handles and null pointers are all zeroes.
    let mut copy: CUDA_MEMCPY2D = unsafe { std::mem::zeroed() };
    (copy.srcMemoryType, copy.srcDevice, copy.srcPitch) = (CU_MEMORYTYPE_DEVICE, from, PITCH);
    (copy.dstMemoryType, copy.dstDevice, copy.dstPitch) = (CU_MEMORYTYPE_DEVICE, to, PITCH);
    (copy.WidthInBytes, copy.Height) = (PITCH - 1, ROWS);
    copy
}

fn volume(from: CUdeviceptr, to: CUdeviceptr) -> CUDA_MEMCPY3D {
    // SAFETY: as above.
    let mut copy: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    (copy.srcMemoryType, copy.srcDevice, copy.srcPitch, copy.srcHeight) =
        (CU_MEMORYTYPE_UNIFIED, from, PITCH, ROWS / 2);
    (copy.dstMemoryType, copy.dstDevice, copy.dstPitch, copy.dstHeight) =
        (CU_MEMORYTYPE_UNIFIED, to, PITCH, ROWS / 2);
    (copy.WidthInBytes, copy.Height, copy.Depth) = (PITCH - 1, ROWS / 2, 2);
    copy
}

fn between(copy: &CUDA_MEMCPY3D, from: &Primary, to: &Primary) -> CUDA_MEMCPY3D_PEER {
    // SAFETY: as above.
    let mut peer: CUDA_MEMCPY3D_PEER = unsafe { std::mem::zeroed() };
    (peer.srcMemoryType, peer.srcDevice, peer.srcPitch, peer.srcHeight, peer.srcContext) =
        (CU_MEMORYTYPE_DEVICE, copy.srcDevice, PITCH, ROWS / 2, from.context);
    (peer.dstMemoryType, peer.dstDevice, peer.dstPitch, peer.dstHeight, peer.dstContext) =
        (CU_MEMORYTYPE_DEVICE, copy.dstDevice, PITCH, ROWS / 2, to.context);
    (peer.WidthInBytes, peer.Height, peer.Depth) = (PITCH - 1, ROWS / 2, 2);
    peer
}

fn memory_of(driver: &'static Driver, owner: &Primary, seed: u64) -> Verdict<ManuallyDrop<Memory>> {
    sized_memory_of(driver, owner, BYTES, seed)
}

/// The ends of a copy. The stream ends before the contexts: the driver does not allow calls with a
/// stream whose context has ended.
struct Ends {
    from: CUdeviceptr,
    to: CUdeviceptr,
    stream: Stream,
    there: Primary,
    here: Primary,
}

/// One form a process: the first copy between two devices may enable access for later ones. Whether
/// a form needs peer access depends on the driver, and is the same for all memory.
fn form(case: &mut Case, copy: impl FnOnce(&Ends) -> CUresult) -> Verdict {
    let d = case.driver;
    let (here, there) = both(d)?;
    let (source, target) = (memory_of(d, &there, 1)?, memory_of(d, &here, 2)?);
    let stream = Stream::non_blocking(d)?;
    let ends = Ends { from: source.address, to: target.address, stream, there, here };
    let code = copy(&ends);
    case.code("copy without peer access", code);
    if code != CUresult::SUCCESS {
        return Ok(());
    }
    synchronize(d, ends.stream.raw)?;
    must!(d, cuCtxSynchronize());
    let (copied, wanted) = (target.read()?, pattern(BYTES, 1));
    let same = copied.chunks(PITCH).zip(wanted.chunks(PITCH)).all(|(a, b)| a[..PITCH - 1] == b[..PITCH - 1]);
    case.expect_that("bytes", same);
    Ok(())
}

pub(super) fn by_address(case: &mut Case) -> Verdict {
    let d = case.driver;
    form(case, |ends| cu!(d, cuMemcpy(ends.to, ends.from, BYTES)))
}

pub(super) fn by_address_in_a_stream(case: &mut Case) -> Verdict {
    let d = case.driver;
    form(case, |ends| cu!(d, cuMemcpyAsync(ends.to, ends.from, BYTES, ends.stream.raw)))
}

pub(super) fn in_a_stream(case: &mut Case) -> Verdict {
    let d = case.driver;
    form(case, |ends| cu!(d, cuMemcpyDtoDAsync_v2(ends.to, ends.from, BYTES, ends.stream.raw)))
}

pub(super) fn planes(case: &mut Case) -> Verdict {
    let d = case.driver;
    form(case, |ends| cu!(d, cuMemcpy2D_v2(&plane(ends.from, ends.to))))
}

pub(super) fn planes_in_a_stream(case: &mut Case) -> Verdict {
    let d = case.driver;
    form(case, |ends| cu!(d, cuMemcpy2DAsync_v2(&plane(ends.from, ends.to), ends.stream.raw)))
}

pub(super) fn volumes(case: &mut Case) -> Verdict {
    let d = case.driver;
    form(case, |ends| cu!(d, cuMemcpy3D_v2(&volume(ends.from, ends.to))))
}

pub(super) fn volumes_in_a_stream(case: &mut Case) -> Verdict {
    let d = case.driver;
    form(case, |ends| cu!(d, cuMemcpy3DAsync_v2(&volume(ends.from, ends.to), ends.stream.raw)))
}

pub(super) fn volumes_between_contexts(case: &mut Case) -> Verdict {
    let d = case.driver;
    form(case, |ends| {
        let copy = between(&volume(ends.from, ends.to), &ends.there, &ends.here);
        cu!(d, cuMemcpy3DPeerAsync(&copy, ends.stream.raw))
    })
}

pub(super) fn batches(case: &mut Case) -> Verdict {
    let d = case.driver;
    form(case, |ends| {
        let (mut to, mut from, mut sizes, mut index) = ([ends.to], [ends.from], [BYTES], [0_usize]);
        let attributes = CUmemcpyAttributes { srcAccessOrder: 1, ..CUmemcpyAttributes::default() };
        let (mut attributes, mut failed) = ([attributes], 0);
        let (t, f, s) = (to.as_mut_ptr(), from.as_mut_ptr(), sizes.as_mut_ptr());
        let (a, i) = (attributes.as_mut_ptr(), index.as_mut_ptr());
        cu!(d, cuMemcpyBatchAsync(t, f, s, 1, a, i, 1, &mut failed, ends.stream.raw))
    })
}

/// A node, made before another copy can have enabled access to the peer's memory; only the launch
/// is followed by a wait.
fn node(
    case: &mut Case,
    add: impl FnOnce(&'static Driver, CUgraph, &mut CUgraphNode, &Ends) -> CUresult,
) -> Verdict {
    let d = case.driver;
    form(case, |ends| {
        let (mut graph, mut node, mut ready) = (CUgraph::NULL, CUgraphNode::NULL, CUgraphExec::NULL);
        let made = cu!(d, cuGraphCreate(&mut graph, 0));
        let added = add(d, graph, &mut node, ends);
        let built = cu!(d, cuGraphInstantiateWithFlags(&mut ready, graph, 0));
        let launched = cu!(d, cuGraphLaunch(ready, ends.stream.raw));
        [made, added, built, launched]
            .into_iter()
            .find(|code| code.ok().is_err())
            .unwrap_or(CUresult::SUCCESS)
    })
}

pub(super) fn nodes(case: &mut Case) -> Verdict {
    node(case, |d, graph, node, ends| {
        let copy = volume(ends.from, ends.to);
        cu!(d, cuGraphAddMemcpyNode(node, graph, std::ptr::null(), 0, &copy, ends.here.context))
    })
}

pub(super) fn nodes_of_any_kind(case: &mut Case) -> Verdict {
    node(case, |d, graph, node, ends| {
        let mut params = CUgraphNodeParams::empty(CU_GRAPH_NODE_TYPE_MEMCPY);
        let (context, copy) = (ends.here.context, volume(ends.from, ends.to));
        params.body.memcpy =
            CUDA_MEMCPY_NODE_PARAMS { flags: 0, reserved: 0, copyCtx: context, copyParams: copy };
        cu!(d, cuGraphAddNode(node, graph, std::ptr::null(), 0, (&raw mut params).cast()))
    })
}

/// Pool memory of one device, copied from the other's.
pub(super) fn pool_memory(case: &mut Case) -> Verdict {
    let d = case.driver;
    let (first, second) = both(d)?;
    let here = memory_of(d, &first, 2)?;
    second.enter()?;
    let there = alloc_async(d, BYTES, CUstream::NULL)?;
    must!(d, cuMemsetD8Async(there, 7, BYTES, CUstream::NULL));
    synchronize(d, CUstream::NULL)?;
    first.enter()?;
    let (to, from) = (first.context, second.context);
    case.expect_ok("cuMemcpyPeer", cu!(d, cuMemcpyPeer(here.address, to, there, from, BYTES)));
    must!(d, cuCtxSynchronize());
    case.expect_that("bytes", here.read()? == vec![7; BYTES]);
    second.enter()?;
    case.expect_ok("free", cu!(d, cuMemFreeAsync(there, CUstream::NULL)));
    synchronize(d, CUstream::NULL)
}

/// A memset of another device's memory: recorded.
pub(super) fn memsets(case: &mut Case) -> Verdict {
    let d = case.driver;
    let (first, second) = both(d)?;
    let there = memory_of(d, &second, 1)?;
    first.enter()?;
    let code = cu!(d, cuMemsetD8_v2(there.address, 4, BYTES));
    case.observe_machine("memset without peer access", short(code));
    case.observe_machine("then", short(cu!(d, cuCtxSynchronize())));
    must!(d, cuCtxEnablePeerAccess(second.context, 0));
    case.expect_ok("memset with peer access", cu!(d, cuMemsetD8_v2(there.address, 5, BYTES)));
    must!(d, cuCtxSynchronize());
    case.expect_that("bytes", read(d, there.address, BYTES)? == vec![5; BYTES]);
    Ok(())
}

/// A device's memory is the same memory for every caller.
pub(super) fn attributes(case: &mut Case) -> Verdict {
    let d = case.driver;
    let (first, second) = both(d)?;
    let there = memory_of(d, &second, 1)?;
    first.enter()?;
    let mut ordinal = -1_i32;
    let place = (&raw mut ordinal).cast();
    must!(d, cuPointerGetAttribute(place, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, there.address));
    case.expect_eq("its device", ordinal, 1);
    let mut context = CUcontext::NULL;
    let place = (&raw mut context).cast();
    must!(d, cuPointerGetAttribute(place, CU_POINTER_ATTRIBUTE_CONTEXT, there.address));
    case.expect_that("its context", context == second.context);
    for (when, enable) in [("before enabling", false), ("after enabling", true)] {
        if enable {
            must!(d, cuCtxEnablePeerAccess(second.context, 0));
        }
        let mut flags = 77_u32;
        let place = (&raw mut flags).cast();
        let code = cu!(d, cuPointerGetAttribute(place, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, there.address));
        case.observe_machine(format!("access {when}"), format!("{} {flags}", short(code)));
    }
    let mut base = 0;
    let mut bytes = 0;
    must!(d, cuMemGetAddressRange_v2(&mut base, &mut bytes, there.address + 5));
    case.expect_that("its range", base == there.address && bytes == BYTES);
    Ok(())
}

/// After disabling, a kernel's access is an error again.
pub(super) fn disabled(case: &mut Case) -> Verdict {
    let d = case.driver;
    let (first, second) = both(d)?;
    let there = memory_of(d, &second, 1)?;
    first.enter()?;
    must!(d, cuCtxEnablePeerAccess(second.context, 0));
    let kernels = Kernels::load(d)?;
    kernels.fill(CUstream::NULL, there.address, 64, 1)?;
    case.expect_ok("a kernel while enabled", cu!(d, cuCtxSynchronize()));
    must!(d, cuCtxDisablePeerAccess(second.context));
    kernels.fill(CUstream::NULL, there.address, 64, 2)?;
    case.code("a kernel after disabling", cu!(d, cuCtxSynchronize()));
    std::mem::forget((first, second, kernels));
    Ok(())
}

/// Memory that is freed from the other device's context.
pub(super) fn freed_from_the_other_side(case: &mut Case) -> Verdict {
    let d = case.driver;
    let (first, second) = both(d)?;
    let there = memory_of(d, &second, 1)?;
    first.enter()?;
    case.expect_ok("free", cu!(d, cuMemFree_v2(there.address)));
    case.expect_code("free again", cu!(d, cuMemFree_v2(there.address)), CUresult::INVALID_VALUE);
    second.enter()?;
    let again = memory_of(d, &second, 3)?;
    case.expect_that("its device works on", again.read()? == pattern(BYTES, 3));
    Ok(())
}
