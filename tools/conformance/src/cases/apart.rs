//! Copies between devices of mapped memory: the answers for a part of one backing, with and without
//! the other device's right to it. A range on the device and on the host at once crashes NVIDIA's
//! driver in such a copy; these cases copy its parts, one form a process. Other cases copy between
//! contexts that have no right to one end.

use wm_abi::*;

use super::peer::{both, sized_memory_of};
use crate::case::{Case, Verdict};
use crate::driver::Driver;
use crate::fixture::{
    Memory, Physical, Pinned, Primary, Range, Stream, device_properties, host_properties, pattern,
    synchronize,
};
use crate::{cu, must};

const BYTES: usize = 2 << 20;

/// A range with its backing.
struct Mapped {
    range: Range,
    /// These stay until the process ends: the contexts may have ended at the drop.
    _physical: [Physical; 2],
}

/// A range of device 1, the second half on the host, which device 1 may use, and device 0 if
/// `shared`. Holds a pattern.
fn mapped(driver: &'static Driver, owner: &Primary, shared: bool) -> Verdict<std::mem::ManuallyDrop<Mapped>> {
    owner.enter()?;
    let mut range = Range::reserve(driver, 2 * BYTES)?;
    let head = Physical::new(driver, BYTES, &device_properties(owner.device, 0))?;
    let tail = Physical::new(driver, BYTES, &host_properties(0))?;
    range.map(0, &head)?;
    range.map(BYTES, &tail)?;
    range.allow(0, 2 * BYTES, owner.device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)?;
    if shared {
        range.allow(0, 2 * BYTES, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)?;
    }
    let bytes = pattern(2 * BYTES, 4);
    must!(driver, cuMemcpyHtoD_v2(range.address, bytes.as_ptr().cast(), 2 * BYTES));
    must!(driver, cuCtxSynchronize());
    Ok(std::mem::ManuallyDrop::new(Mapped { range, _physical: [head, tail] }))
}

/// The ends of a copy, with device 0's context current.
struct Ends {
    from: CUdeviceptr,
    to: CUdeviceptr,
    stream: Stream,
    there: Primary,
    here: Primary,
}

/// One half of a mapped range of device 1 to memory of device 0, in one form a process.
fn half(case: &mut Case, second: bool, shared: bool, copy: impl FnOnce(&Ends) -> CUresult) -> Verdict {
    let d = case.driver;
    let (here, there) = both(d)?;
    let target = sized_memory_of(d, &here, BYTES, 2)?;
    let mapped = mapped(d, &there, shared)?;
    here.enter()?;
    let stream = Stream::non_blocking(d)?;
    let offset = if second { BYTES } else { 0 };
    let from = mapped.range.address + offset as u64;
    let ends = Ends { from, to: target.address, stream, there, here };
    let code = copy(&ends);
    case.expect_ok("copy", code);
    if code == CUresult::SUCCESS {
        synchronize(d, ends.stream.raw)?;
        must!(d, cuCtxSynchronize());
        case.expect_that("bytes", target.read()? == pattern(2 * BYTES, 4)[offset..offset + BYTES]);
    }
    Ok(())
}

fn peer(d: &'static Driver, ends: &Ends) -> CUresult {
    cu!(d, cuMemcpyPeer(ends.to, ends.here.context, ends.from, ends.there.context, BYTES))
}

fn peer_async(d: &'static Driver, ends: &Ends) -> CUresult {
    let (to, from) = (ends.here.context, ends.there.context);
    cu!(d, cuMemcpyPeerAsync(ends.to, to, ends.from, from, BYTES, ends.stream.raw))
}

/// A copy of consecutive bytes between contexts, with ends of these kinds.
fn between(ends: &Ends, kinds: [u32; 2]) -> CUDA_MEMCPY3D_PEER {
    // SAFETY: numbers, null handles and null pointers are all zeroes.
    let mut copy: CUDA_MEMCPY3D_PEER = unsafe { std::mem::zeroed() };
    (copy.dstMemoryType, copy.dstDevice, copy.dstContext) = (kinds[0], ends.to, ends.here.context);
    (copy.srcMemoryType, copy.srcDevice, copy.srcContext) = (kinds[1], ends.from, ends.there.context);
    (copy.dstPitch, copy.srcPitch, copy.dstHeight, copy.srcHeight) = (BYTES, BYTES, 1, 1);
    (copy.WidthInBytes, copy.Height, copy.Depth) = (BYTES, 1, 1);
    copy
}

const DEVICES: [u32; 2] = [CU_MEMORYTYPE_DEVICE; 2];

pub(super) fn device_part_to_a_peer(case: &mut Case) -> Verdict {
    let d = case.driver;
    half(case, false, true, |ends| peer(d, ends))
}

pub(super) fn host_part_to_a_peer(case: &mut Case) -> Verdict {
    let d = case.driver;
    half(case, true, true, |ends| peer(d, ends))
}

pub(super) fn host_part_to_a_peer_in_a_stream(case: &mut Case) -> Verdict {
    let d = case.driver;
    half(case, true, true, |ends| peer_async(d, ends))
}

pub(super) fn host_part_by_address(case: &mut Case) -> Verdict {
    let d = case.driver;
    half(case, true, true, |ends| cu!(d, cuMemcpy(ends.to, ends.from, BYTES)))
}

pub(super) fn host_part_in_a_stream(case: &mut Case) -> Verdict {
    let d = case.driver;
    half(case, true, true, |ends| cu!(d, cuMemcpyDtoDAsync_v2(ends.to, ends.from, BYTES, ends.stream.raw)))
}

pub(super) fn host_part_as_a_volume(case: &mut Case) -> Verdict {
    let d = case.driver;
    half(case, true, true, |ends| cu!(d, cuMemcpy3DPeerAsync(&between(ends, DEVICES), ends.stream.raw)))
}

/// Without a right of device 0. The same copy of the host's part crashes NVIDIA's driver, so no
/// case makes it.
pub(super) fn device_part_that_only_its_device_may_use(case: &mut Case) -> Verdict {
    let d = case.driver;
    half(case, false, false, |ends| peer_async(d, ends))
}

pub(super) fn volume_that_only_its_device_may_use(case: &mut Case) -> Verdict {
    let d = case.driver;
    half(case, false, false, |ends| cu!(d, cuMemcpy3DPeer(&between(ends, DEVICES))))
}

pub(super) fn unified_volume_that_only_its_device_may_use(case: &mut Case) -> Verdict {
    let d = case.driver;
    let kinds = [CU_MEMORYTYPE_UNIFIED, CU_MEMORYTYPE_DEVICE];
    half(case, false, false, |ends| cu!(d, cuMemcpy3DPeerAsync(&between(ends, kinds), ends.stream.raw)))
}

/// The answers of the forms that name no context: recorded.
pub(super) fn by_address_without_a_right(case: &mut Case) -> Verdict {
    let d = case.driver;
    let (here, there) = both(d)?;
    let target = sized_memory_of(d, &here, BYTES, 2)?;
    let mapped = mapped(d, &there, false)?;
    here.enter()?;
    let (to, from) = (target.address, mapped.range.address);
    case.observe_machine("cuMemcpy", crate::case::short(cu!(d, cuMemcpy(to, from, BYTES))));
    let code = cu!(d, cuMemcpyDtoDAsync_v2(to, from, BYTES, CUstream::NULL));
    case.observe_machine("cuMemcpyDtoDAsync", crate::case::short(code));
    must!(d, cuCtxSynchronize());
    Ok(())
}

/// Between the host and memory that only the other device may access, by a copy between contexts.
pub(super) fn host_and_the_other_device(case: &mut Case) -> Verdict {
    let d = case.driver;
    let (here, there) = both(d)?;
    let mapped = mapped(d, &there, false)?;
    here.enter()?;
    let stream = Stream::non_blocking(d)?;
    let pinned = Pinned::new(d, BYTES, 0)?;
    let (from, to) = (mapped.range.address, mapped.range.address);
    let ends = Ends { from, to, stream, there, here };
    let mut out = between(&ends, [CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE]);
    (out.dstDevice, out.dstHost) = (0, pinned.address() as *mut _);
    case.expect_ok("out", cu!(d, cuMemcpy3DPeerAsync(&out, ends.stream.raw)));
    synchronize(d, ends.stream.raw)?;
    case.expect_that("bytes out", pinned.get() == pattern(2 * BYTES, 4)[..BYTES]);
    let source = pattern(BYTES, 9);
    let mut into = between(&ends, [CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST]);
    (into.srcDevice, into.srcHost) = (0, source.as_ptr().cast());
    (into.dstContext, into.srcContext) = (ends.there.context, ends.here.context);
    case.expect_ok("in, pageable", cu!(d, cuMemcpy3DPeer(&into)));
    must!(d, cuCtxSynchronize());
    ends.there.enter()?;
    case.expect_that("bytes in", crate::fixture::read(d, to, BYTES)? == source);
    Ok(())
}

/// A captured copy between contexts, of memory that only the other device may access: an H200's
/// driver does not capture it.
pub(super) fn captured_between_contexts(case: &mut Case) -> Verdict {
    let d = case.driver;
    let (here, there) = both(d)?;
    let target = sized_memory_of(d, &here, BYTES, 2)?;
    let mapped = mapped(d, &there, false)?;
    here.enter()?;
    let stream = Stream::non_blocking(d)?;
    let ends = Ends { from: mapped.range.address, to: target.address, stream, there, here };
    let (mut graph, mut ready) = (CUgraph::NULL, CUgraphExec::NULL);
    must!(d, cuStreamBeginCapture_v2(ends.stream.raw, CU_STREAM_CAPTURE_MODE_RELAXED));
    let copied = cu!(d, cuMemcpy3DPeerAsync(&between(&ends, DEVICES), ends.stream.raw));
    case.code("copy", copied);
    let ended = cu!(d, cuStreamEndCapture(ends.stream.raw, &mut graph));
    case.observe_machine("end of the capture", crate::case::short(ended));
    if copied == CUresult::SUCCESS {
        must!(d, cuGraphInstantiateWithFlags(&mut ready, graph, 0));
        must!(d, cuGraphLaunch(ready, ends.stream.raw));
        synchronize(d, ends.stream.raw)?;
        case.expect_that("bytes", target.read()? == pattern(2 * BYTES, 4)[..BYTES]);
    }
    Ok(())
}

/// A copy within device 0, in a stream of device 1, with device 0 current.
pub(super) fn in_the_other_devices_stream(case: &mut Case) -> Verdict {
    let d = case.driver;
    let (here, there) = both(d)?;
    let (source, target) = (sized_memory_of(d, &here, BYTES, 1)?, sized_memory_of(d, &here, BYTES, 2)?);
    there.enter()?;
    let stream = std::mem::ManuallyDrop::new(Stream::non_blocking(d)?);
    here.enter()?;
    let code = cu!(d, cuMemcpyDtoDAsync_v2(target.address, source.address, BYTES, stream.raw));
    case.code("copy", code);
    if code == CUresult::SUCCESS {
        synchronize(d, stream.raw)?;
        case.expect_that("bytes", Memory::read(&target)? == pattern(BYTES, 1));
    }
    Ok(())
}
