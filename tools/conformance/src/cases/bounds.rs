//! Ranges that run past the end of memory, for each way of allocating and each kind of call: the
//! refused calls, and the byte from which on they are refused.
//!
//! If it is not known whether a driver refuses a call, the call reads: a read does no harm.

use std::ptr::null;

use wm_abi::*;

use crate::case::{Case, Verdict};
use crate::driver::Driver;
use crate::fixture::{Memory, Pinned, Primary, Stream, synchronize};
use crate::{cu, must};

const MIB: usize = 1 << 20;

/// The lengths of the overruns: one byte, up to the sizes that drivers round to, and beyond.
const PAST: [usize; 6] = [1, 16, 512, 4096, 64 << 10, 2 * MIB];

/// Reads from a block's start to places past its end.
fn reads(case: &mut Case, name: &str, address: CUdeviceptr, bytes: usize) -> Verdict {
    let d = case.driver;
    let host = Pinned::new(d, bytes + 2 * MIB, 0)?;
    for past in PAST {
        let code = cu!(d, cuMemcpyDtoH_v2(host.pointer, address, bytes + past));
        case.code(format!("{name}: {past} bytes past the end"), code);
    }
    let code = cu!(d, cuMemcpyDtoH_v2(host.pointer, address + bytes as u64 - 1, 2));
    case.code(format!("{name}: the last byte and the next one"), code);
    case.expect_ok(&format!("{name}: all of it"), cu!(d, cuMemcpyDtoH_v2(host.pointer, address, bytes)));
    Ok(())
}

/// Neighbours keep the addresses past a block mapped, if a driver maps more than the requested
/// size.
pub(super) fn of_plain_memory(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    for bytes in [1000, 4096, 64 << 10, MIB, 3 * MIB, 3 * MIB + 1000, 8 * MIB] {
        let blocks = (0..3).map(|_| Memory::new(d, bytes)).collect::<Verdict<Vec<_>>>()?;
        reads(case, &format!("{bytes} bytes"), blocks[0].address, bytes)?;
    }
    Ok(())
}

pub(super) fn of_pool_memory(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    for bytes in [1000, 4096, 64 << 10, MIB, 3 * MIB, 3 * MIB + 1000, 8 * MIB] {
        let mut blocks = [0; 3];
        for block in &mut blocks {
            must!(d, cuMemAllocAsync(block, bytes, stream.raw));
        }
        synchronize(d, stream.raw)?;
        reads(case, &format!("{bytes} bytes"), blocks[0], bytes)?;
        for block in blocks {
            must!(d, cuMemFreeAsync(block, stream.raw));
        }
    }
    Ok(())
}

pub(super) fn of_pitched_memory(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (mut address, mut pitch) = (0, 0);
    must!(d, cuMemAllocPitch_v2(&mut address, &mut pitch, 1000, 700, 4));
    reads(case, "pitched", address, pitch * 700)?;
    must!(d, cuMemFree_v2(address));
    Ok(())
}

/// Two blocks, of which the second one may follow the first, and another end for copies.
struct Blocks {
    first: Memory,
    second: Memory,
    other: Memory,
}

const BYTES: usize = 8 * MIB;
const OVER: usize = 2 * MIB;

impl Blocks {
    fn new(driver: &'static Driver) -> Verdict<Self> {
        let filled = |bytes| Memory::holding(driver, &vec![0xEE; bytes]);
        Ok(Self { first: filled(BYTES)?, second: filled(BYTES)?, other: filled(2 * BYTES)? })
    }

    fn expect_untouched(&self, case: &mut Case) -> Verdict {
        must!(case.driver, cuCtxSynchronize());
        let kept = |memory: &Memory| Ok(memory.read()?.iter().all(|byte| *byte == 0xEE));
        case.expect_that(
            "nothing was written",
            kept(&self.first)? && kept(&self.second)? && kept(&self.other)?,
        );
        Ok(())
    }
}

/// Every form of copy and memset, with a size of one and a quarter blocks.
pub(super) fn of_every_form(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let (stream, blocks) = (Stream::non_blocking(d)?, Blocks::new(d)?);
    let (to, other, raw) = (blocks.first.address, blocks.other.address, stream.raw);
    let (host, bytes) = (Pinned::new(d, BYTES + OVER, 7)?, BYTES + OVER);
    let (context, wrong) = (primary.context, CUresult::INVALID_VALUE);
    let mut refused = |label: &str, code| case.expect_code(label, code, wrong);
    refused("host to device", cu!(d, cuMemcpyHtoD_v2(to, host.pointer, bytes)));
    refused("host to device, asynchronous", cu!(d, cuMemcpyHtoDAsync_v2(to, host.pointer, bytes, raw)));
    refused("device to host", cu!(d, cuMemcpyDtoH_v2(host.pointer, to, bytes)));
    refused("device to host, asynchronous", cu!(d, cuMemcpyDtoHAsync_v2(host.pointer, to, bytes, raw)));
    refused("within the device", cu!(d, cuMemcpyDtoD_v2(to, other, bytes)));
    refused("within the device, asynchronous", cu!(d, cuMemcpyDtoDAsync_v2(other, to, bytes, raw)));
    refused("by addresses", cu!(d, cuMemcpy(to, other, bytes)));
    refused("by addresses, asynchronous", cu!(d, cuMemcpyAsync(other, to, bytes, raw)));
    refused("between contexts", cu!(d, cuMemcpyPeer(to, context, other, context, bytes)));
    refused(
        "between contexts, asynchronous",
        cu!(d, cuMemcpyPeerAsync(other, context, to, context, bytes, raw)),
    );
    refused("memset of bytes", cu!(d, cuMemsetD8_v2(to, 1, bytes)));
    refused("memset of words", cu!(d, cuMemsetD32Async(to, 1, bytes / 4, raw)));
    refused("memset of rows", cu!(d, cuMemsetD2D16Async(to, 4096, 1, 64, bytes / 4096, raw)));
    let plane = CUDA_MEMCPY2D {
        srcMemoryType: CU_MEMORYTYPE_DEVICE,
        srcDevice: other,
        srcPitch: 4096,
        dstMemoryType: CU_MEMORYTYPE_DEVICE,
        dstDevice: to,
        dstPitch: 4096,
        WidthInBytes: 64,
        Height: bytes / 4096,
        // SAFETY: all-zero is a description.
        ..unsafe { std::mem::zeroed() }
    };
    refused("rows", cu!(d, cuMemcpy2D_v2(&plane)));
    refused("rows, asynchronous", cu!(d, cuMemcpy2DAsync_v2(&plane, raw)));
    let volume = straight(to, other, bytes);
    refused("layers", cu!(d, cuMemcpy3D_v2(&volume)));
    refused("layers, asynchronous", cu!(d, cuMemcpy3DAsync_v2(&volume, raw)));
    blocks.expect_untouched(case)
}

fn straight(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcMemoryType: CU_MEMORYTYPE_DEVICE,
        srcDevice: from,
        dstMemoryType: CU_MEMORYTYPE_DEVICE,
        dstDevice: to,
        WidthInBytes: bytes,
        Height: 1,
        Depth: 1,
        // SAFETY: all-zero is a description.
        ..unsafe { std::mem::zeroed() }
    }
}

/// Nodes are refused when they are made or changed, or when their graph is launched.
pub(super) fn of_nodes(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let blocks = Blocks::new(d)?;
    let (to, other, bytes) = (blocks.first.address, blocks.other.address, BYTES + OVER);
    let (mut graph, mut node) = (CUgraph::NULL, CUgraphNode::NULL);
    must!(d, cuGraphCreate(&mut graph, 0));
    let (good, bad) = (straight(to, other, BYTES), straight(to, other, bytes));
    let code = cu!(d, cuGraphAddMemcpyNode(&mut node, graph, null(), 0, &bad, primary.context));
    case.code("a copy is added", code);
    must!(d, cuGraphAddMemcpyNode(&mut node, graph, null(), 0, &good, primary.context));
    case.code("a copy is set", cu!(d, cuGraphMemcpyNodeSetParams(node, &bad)));
    let set =
        |width| CUDA_MEMSET_NODE_PARAMS { dst: to, pitch: 0, value: 1, elementSize: 1, width, height: 1 };
    let code = cu!(d, cuGraphAddMemsetNode(&mut node, graph, null(), 0, &set(bytes), primary.context));
    case.code("a memset is added", code);
    must!(d, cuGraphAddMemsetNode(&mut node, graph, null(), 0, &set(BYTES), primary.context));
    case.code("a memset is set", cu!(d, cuGraphMemsetNodeSetParams(node, &set(bytes))));
    must!(d, cuGraphDestroy(graph));
    blocks.expect_untouched(case)
}

/// The second of two copies is wrong: the case records which one the driver names, after it has
/// made the first one.
pub(super) fn of_a_batch(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (stream, blocks) = (Stream::non_blocking(d)?, Blocks::new(d)?);
    let host = Pinned::new(d, BYTES + OVER, 7)?;
    let mut to = [blocks.second.address, blocks.first.address];
    let (mut from, mut sizes) = ([host.address(); 2], [4096, BYTES + OVER]);
    let mut how = CUmemcpyAttributes { srcAccessOrder: 1, ..CUmemcpyAttributes::default() };
    let (mut first, mut failed) = (0, 77);
    let [to, from, sizes] = [to.as_mut_ptr(), from.as_mut_ptr(), sizes.as_mut_ptr().cast()];
    let code = cu!(
        d,
        cuMemcpyBatchAsync(to, from, sizes.cast(), 2, &mut how, &mut first, 1, &mut failed, stream.raw)
    );
    case.expect_code("submit", code, CUresult::INVALID_VALUE);
    case.observe("named", failed as u64);
    must!(d, cuCtxSynchronize());
    Ok(())
}
