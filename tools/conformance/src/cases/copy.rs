//! Copies in one dimension: every direction and form, synchronous and not, from pageable and pinned
//! memory.

use std::ptr::null_mut;

use wm_abi::*;

use crate::case::{Case, Verdict};
use crate::fixture::{Event, Memory, Pinned, Primary, Stream, pattern, read, synchronize};
use crate::{cu, must};

/// Sizes around the borders at which drivers change the way they copy.
const SIZES: &[usize] = &[1, 3, 64, 4095, 65_536, 65_537, 1 << 20, (4 << 20) + 1];

pub(super) fn round_trips(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    for size in SIZES {
        let contents = pattern(*size, 1);
        let (there, again) = (Memory::new(d, *size)?, Memory::new(d, *size)?);
        must!(d, cuMemcpyHtoD_v2(there.address, contents.as_ptr().cast(), *size));
        must!(d, cuMemcpyDtoD_v2(again.address, there.address, *size));
        case.expect(again.read()? == contents, format!("{size} bytes came back changed"));
    }
    Ok(())
}

pub(super) fn asynchronous(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    for size in SIZES {
        let (from, to) = (Pinned::new(d, *size, 0)?, Pinned::new(d, *size, 0)?);
        from.set(&pattern(*size, 2));
        let (there, again) = (Memory::new(d, *size)?, Memory::new(d, *size)?);
        must!(d, cuMemcpyHtoDAsync_v2(there.address, from.pointer, *size, stream.raw));
        must!(d, cuMemcpyDtoDAsync_v2(again.address, there.address, *size, stream.raw));
        must!(d, cuMemcpyDtoHAsync_v2(to.pointer, again.address, *size, stream.raw));
        synchronize(d, stream.raw)?;
        case.expect(to.get() == pattern(*size, 2), format!("{size} bytes came back changed"));
    }
    Ok(())
}

pub(super) fn pageable_asynchronous(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    for size in SIZES {
        let contents = pattern(*size, 3);
        let memory = Memory::new(d, *size)?;
        let mut back = vec![0_u8; *size];
        must!(d, cuMemcpyHtoDAsync_v2(memory.address, contents.as_ptr().cast(), *size, stream.raw));
        must!(d, cuMemcpyDtoHAsync_v2(back.as_mut_ptr().cast(), memory.address, *size, stream.raw));
        synchronize(d, stream.raw)?;
        case.expect(back == contents, format!("{size} bytes came back changed"));
    }
    Ok(())
}

pub(super) fn direction_by_address(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let size = 100_000;
    let (pinned, device) = (Pinned::new(d, size, 0)?, Memory::new(d, size)?);
    let pageable = pattern(size, 4);
    let mut back = vec![0_u8; size];
    must!(d, cuMemcpy(device.address, pageable.as_ptr() as u64, size));
    must!(d, cuMemcpy(pinned.address(), device.address, size));
    must!(d, cuCtxSynchronize());
    case.expect_that("pageable to device to pinned", pinned.get() == pageable);
    pinned.set(&pattern(size, 5));
    must!(d, cuMemcpyAsync(device.address, pinned.address(), size, stream.raw));
    must!(d, cuMemcpyAsync(back.as_mut_ptr() as u64, device.address, size, stream.raw));
    synchronize(d, stream.raw)?;
    case.expect_that("pinned to device to pageable", back == pattern(size, 5));
    must!(d, cuMemcpy(back.as_mut_ptr() as u64, pageable.as_ptr() as u64, size));
    must!(d, cuCtxSynchronize());
    case.expect_that("pageable to pageable", back == pageable);
    Ok(())
}

pub(super) fn offsets(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let memory = Memory::holding(d, &vec![0xEE; 10_000])?;
    let part = pattern(1234, 6);
    must!(d, cuMemcpyHtoD_v2(memory.address + 777, part.as_ptr().cast(), 1234));
    must!(d, cuMemcpyDtoD_v2(memory.address + 5001, memory.address + 777, 1234));
    let all = memory.read()?;
    case.expect_that("the parts are right", all[777..2011] == part && all[5001..6235] == part);
    let rest = [&all[..777], &all[2011..5001], &all[6235..]].concat();
    case.expect_that("the rest is untouched", rest.iter().all(|byte| *byte == 0xEE));
    Ok(())
}

pub(super) fn arguments(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let memory = Memory::new(d, 4096)?;
    let mut bytes = [7_u8; 64];
    let source = bytes.as_ptr().cast();
    let wrong = CUresult::INVALID_VALUE;
    case.expect_ok("size 0", cu!(d, cuMemcpyHtoD_v2(memory.address, source, 0)));
    case.expect_ok("size 0 to address 0", cu!(d, cuMemcpyHtoD_v2(0, source, 0)));
    case.expect_code("to address 0", cu!(d, cuMemcpyHtoD_v2(0, source, 64)), wrong);
    case.expect_code("to address 8", cu!(d, cuMemcpyHtoD_v2(8, source, 64)), wrong);
    case.expect_code("from address 8", cu!(d, cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), 8, 64)), wrong);
    case.expect_code("device to address 8", cu!(d, cuMemcpyDtoD_v2(8, memory.address, 64)), wrong);
    case.code("after a wrong argument", cu!(d, cuCtxSynchronize()));
    Ok(())
}

pub(super) fn past_the_end(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let memory = Memory::new(d, 64 << 20)?;
    let bytes = vec![1_u8; 128 << 20];
    let code = cu!(d, cuMemcpyHtoD_v2(memory.address, bytes.as_ptr().cast(), bytes.len()));
    case.code("128 MiB into 64 MiB", code);
    Ok(())
}

pub(super) fn freed_memory(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let mut address = 0;
    must!(d, cuMemAlloc_v2(&mut address, 64 << 20));
    must!(d, cuMemFree_v2(address));
    let bytes = [1_u8; 64];
    case.code("copy into freed memory", cu!(d, cuMemcpyHtoD_v2(address, bytes.as_ptr().cast(), 64)));
    Ok(())
}

/// A small allocation shares its pages with others: a driver notices its free only with the pages.
pub(super) fn freed_small_memory(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (_neighbour, mut address) = (Memory::new(d, 4096)?, 0);
    must!(d, cuMemAlloc_v2(&mut address, 4096));
    must!(d, cuMemFree_v2(address));
    let bytes = [1_u8; 64];
    let code = cu!(d, cuMemcpyHtoD_v2(address, bytes.as_ptr().cast(), 64));
    case.observe_machine("copy into freed memory", crate::case::short(code));
    Ok(())
}

pub(super) fn in_stream_order(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (first, second) = (Stream::non_blocking(d)?, Stream::non_blocking(d)?);
    let size = 1 << 20;
    let (memory, out) = (Memory::new(d, size)?, Pinned::new(d, size, 0)?);
    let written = Event::new(d, CU_EVENT_DISABLE_TIMING)?;
    for round in 0..40_u8 {
        must!(d, cuMemsetD8Async(memory.address, round, size, first.raw));
        written.record(first.raw)?;
        must!(d, cuStreamWaitEvent(second.raw, written.raw, 0));
        must!(d, cuMemcpyDtoHAsync_v2(out.pointer, memory.address, size, second.raw));
        synchronize(d, second.raw)?;
        case.expect(out.get() == vec![round; size], format!("round {round} read other bytes"));
    }
    Ok(())
}

pub(super) fn per_thread_variants(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let size = 50_000;
    let (first, second) = (Memory::new(d, size)?, Memory::new(d, size)?);
    let contents = pattern(size, 8);
    let mut back = vec![0_u8; size];
    must!(d, cuMemcpyHtoD_v2_ptds(first.address, contents.as_ptr().cast(), size));
    must!(d, cuMemcpyDtoD_v2_ptds(second.address, first.address, size));
    must!(d, cuStreamSynchronize(CUstream::PER_THREAD));
    must!(d, cuMemcpyDtoH_v2_ptds(back.as_mut_ptr().cast(), second.address, size));
    case.expect_that("synchronous forms", back == contents);
    must!(d, cuMemsetD8_v2_ptds(first.address, 9, size));
    must!(d, cuMemcpyDtoHAsync_v2_ptsz(back.as_mut_ptr().cast(), first.address, size, CUstream::NULL));
    must!(d, cuStreamSynchronize_ptsz(CUstream::NULL));
    case.expect_that("asynchronous forms", back == vec![9; size]);
    must!(d, cuMemcpy_ptds(second.address, contents.as_ptr() as u64, size));
    must!(d, cuStreamSynchronize_ptsz(CUstream::NULL));
    case.expect_that("direction by address", read(d, second.address, size)? == contents);
    Ok(())
}

pub(super) fn batch(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let size = 64 << 10;
    let sources = (0..4).map(|seed| Memory::holding(d, &pattern(size, seed))).collect::<Verdict<Vec<_>>>()?;
    let targets = (0..4).map(|_| Memory::new(d, size)).collect::<Verdict<Vec<_>>>()?;
    let mut from: Vec<u64> = sources.iter().map(|memory| memory.address).collect();
    let mut to: Vec<u64> = targets.iter().map(|memory| memory.address).collect();
    let mut sizes = [size; 4];
    // Access in stream order, for all four copies.
    let mut attributes = CUmemcpyAttributes { srcAccessOrder: 1, ..CUmemcpyAttributes::default() };
    let (mut first, mut failed) = (0, usize::MAX);
    let mut submit = |attributes: *mut CUmemcpyAttributes, count, stream| {
        let (to, from, sizes) = (to.as_mut_ptr(), from.as_mut_ptr(), sizes.as_mut_ptr());
        cu!(d, cuMemcpyBatchAsync(to, from, sizes, 4, attributes, &mut first, count, &mut failed, stream))
    };
    case.expect_ok("submit", submit(&raw mut attributes, 1, stream.raw));
    let code = submit(null_mut(), 0, CUstream::NULL);
    case.expect_code("on the default stream, without attributes", code, CUresult::INVALID_VALUE);
    synchronize(d, stream.raw)?;
    for (seed, memory) in targets.iter().enumerate() {
        case.expect(
            memory.read()? == pattern(size, seed as u64),
            format!("copy {seed} of the batch is wrong"),
        );
    }
    Ok(())
}

pub(super) fn host_to_host(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let (from, to) = (Pinned::new(d, 70_000, 0)?, Pinned::new(d, 70_000, 0)?);
    from.set(&pattern(70_000, 9));
    must!(d, cuMemcpyAsync(to.address(), from.address(), 70_000, stream.raw));
    synchronize(d, stream.raw)?;
    case.expect_that("pinned to pinned", to.get() == pattern(70_000, 9));
    Ok(())
}
