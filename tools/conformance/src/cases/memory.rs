//! `cuMemAlloc` and its family: sizes, wrong arguments, contents, accounts.

use std::ptr::null_mut;
use std::time::Duration;

use wm_abi::*;

use crate::case::{Case, Verdict};
use crate::fixture::{Gate, Memory, Pinned, Primary, Range, Stream, pattern, read, write};
use crate::{cu, must};

/// More than any machine has.
const ABSURD: usize = 1 << 46;

pub(super) fn size_zero(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let mut address = 0;
    case.expect_code("size 0", cu!(d, cuMemAlloc_v2(&mut address, 0)), CUresult::INVALID_VALUE);
    Ok(())
}

pub(super) fn size_absurd(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let mut address = 0;
    case.expect_code("64 TiB", cu!(d, cuMemAlloc_v2(&mut address, ABSURD)), CUresult::OUT_OF_MEMORY);
    for (label, size) in [("2^63", 1 << 63), ("2^64 - 1", usize::MAX), ("2^64 - 4096", usize::MAX - 4095)] {
        let code = cu!(d, cuMemAlloc_v2(&mut address, size));
        case.expect_one_of(label, code, &[CUresult::OUT_OF_MEMORY, CUresult::INVALID_VALUE]);
    }
    let kept = Memory::holding(d, &pattern(4096, 1))?;
    case.expect_that("the context lives on", kept.read()? == pattern(4096, 1));
    Ok(())
}

pub(super) fn null_out(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let wrong = CUresult::INVALID_VALUE;
    case.expect_code("cuMemAlloc", cu!(d, cuMemAlloc_v2(null_mut(), 4096)), wrong);
    let (mut address, mut pitch) = (0, 0);
    case.expect_code("pitch address", cu!(d, cuMemAllocPitch_v2(null_mut(), &mut pitch, 64, 4, 4)), wrong);
    case.expect_code("pitch pitch", cu!(d, cuMemAllocPitch_v2(&mut address, null_mut(), 64, 4, 4)), wrong);
    Ok(())
}

pub(super) fn free_null(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    case.expect_ok("cuMemFree(0)", cu!(d, cuMemFree_v2(0)));
    Ok(())
}

pub(super) fn free_twice(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let mut address = 0;
    must!(d, cuMemAlloc_v2(&mut address, 1 << 20));
    case.expect_ok("first", cu!(d, cuMemFree_v2(address)));
    case.expect_code("second", cu!(d, cuMemFree_v2(address)), CUresult::INVALID_VALUE);
    Ok(())
}

pub(super) fn free_interior(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let memory = Memory::holding(d, &pattern(4 << 20, 4))?;
    for offset in [1, 512, 2 << 20] {
        let code = cu!(d, cuMemFree_v2(memory.address + offset));
        case.expect_code(&format!("free at offset {offset}"), code, CUresult::INVALID_VALUE);
    }
    case.expect_that("the memory is still there", memory.read()? == pattern(4 << 20, 4));
    Ok(())
}

pub(super) fn free_foreign(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let on_stack = 0_u64;
    let wrong = CUresult::INVALID_VALUE;
    case.expect_code("stack", cu!(d, cuMemFree_v2((&raw const on_stack) as u64)), wrong);
    case.expect_code("address 8", cu!(d, cuMemFree_v2(8)), wrong);
    case.expect_code("highest address", cu!(d, cuMemFree_v2(u64::MAX)), wrong);
    Ok(())
}

/// Sizes around the borders at which allocators round.
const SIZES: &[usize] = &[
    1, 2, 255, 256, 257, 511, 512, 513, 4095, 4096, 4097, 65_535, 65_536, 65_537, 1_048_575, 1_048_576,
    1_048_577, 2_097_151, 2_097_152, 2_097_153, 3_333_333, 4_194_304, 10_485_761, 20_971_520, 33_554_431,
];

pub(super) fn many_sizes(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let all = SIZES.iter().map(|size| Memory::new(d, *size)).collect::<Verdict<Vec<_>>>()?;
    let mut ranges: Vec<_> = all.iter().map(|memory| (memory.address, memory.bytes as u64)).collect();
    ranges.sort_unstable();
    let apart = ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0);
    case.expect_that("no two overlap", apart);
    let aligned = all.iter().all(|memory| memory.address % 256 == 0);
    case.expect_that("all are aligned to 256", aligned);
    case.observe("all are aligned to 512", all.iter().all(|memory| memory.address % 512 == 0));
    for memory in &all {
        let (mut base, mut bytes) = (0, 0);
        must!(d, cuMemGetAddressRange_v2(&mut base, &mut bytes, memory.address + memory.bytes as u64 - 1));
        case.expect(base == memory.address, format!("the base of {} bytes is another", memory.bytes));
        case.expect_eq(&format!("range of {} bytes", memory.bytes), bytes as u64, memory.bytes as u64);
    }
    Ok(())
}

pub(super) fn contents_survive(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let mut held: Vec<_> = (0..SIZES.len() * 2)
        .map(|i| {
            Ok((i as u64, Memory::holding(d, &pattern(SIZES[i % SIZES.len()] % 4_000_000 + 1, i as u64))?))
        })
        .collect::<Verdict<_>>()?;
    held.retain(|(seed, _)| seed % 2 == 0);
    let fresh = Memory::holding(d, &pattern(3 << 20, 999))?;
    for (seed, memory) in &held {
        let same = memory.read()? == pattern(memory.bytes, *seed);
        case.expect(same, format!("{} bytes with seed {seed} changed when others were freed", memory.bytes));
    }
    case.expect_that("new memory holds what was written", fresh.read()? == pattern(3 << 20, 999));
    Ok(())
}

pub(super) fn reuse_many_times(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let lasting = Memory::holding(d, &pattern(1 << 20, 7))?;
    for round in 0..200_usize {
        let bytes = 1 + (round * 104_729) % (6 << 20);
        let memory = Memory::new(d, bytes)?;
        let end = pattern(bytes.min(64), round as u64);
        let at = memory.address + (bytes - end.len()) as u64;
        write(d, at, &end)?;
        case.expect(read(d, at, end.len())? == end, format!("round {round}: the last bytes differ"));
    }
    case.expect_that("a neighbour is untouched", lasting.read()? == pattern(1 << 20, 7));
    Ok(())
}

pub(super) fn info_accounts(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (mut free, mut total, mut after) = (0, 0, 0);
    let live = Memory::new(d, 96 << 20)?;
    must!(d, cuMemGetInfo_v2(&mut free, &mut total));
    case.expect_that("free and live are at most total", free + live.bytes <= total);
    drop(live);
    must!(d, cuMemGetInfo_v2(&mut after, &mut total));
    case.expect_that("free is at most total after freeing", after <= total);
    case.expect_that("freeing does not lower free", after >= free);
    Ok(())
}

pub(super) fn info_null(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (mut free, mut total) = (usize::MAX, usize::MAX);
    case.code("free is null", cu!(d, cuMemGetInfo_v2(null_mut(), &mut total)));
    case.code("total is null", cu!(d, cuMemGetInfo_v2(&mut free, null_mut())));
    case.code("both are null", cu!(d, cuMemGetInfo_v2(null_mut(), null_mut())));
    Ok(())
}

pub(super) fn pitch(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    for (width, element) in [(1, 4), (100, 4), (511, 8), (512, 8), (513, 16), (100_000, 16)] {
        let (mut address, mut pitch) = (0, 0);
        must!(d, cuMemAllocPitch_v2(&mut address, &mut pitch, width, 33, element));
        case.observe(format!("pitch of {width}"), pitch as u64);
        case.expect(pitch >= width, format!("pitch {pitch} is less than the width {width}"));
        case.expect(pitch % 256 == 0, format!("pitch {pitch} suits no texture"));
        let last = address + (pitch * 32 + width - 1) as u64;
        write(d, last, &[0xA5])?;
        case.expect(read(d, last, 1)? == [0xA5], format!("the last byte of width {width} is lost"));
        case.expect_ok("free", cu!(d, cuMemFree_v2(address)));
    }
    Ok(())
}

pub(super) fn pitch_arguments(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (mut address, mut pitch) = (0, 0);
    let mut ask =
        |width, height, element| cu!(d, cuMemAllocPitch_v2(&mut address, &mut pitch, width, height, element));
    case.expect_code("width 0", ask(0, 4, 4), CUresult::INVALID_VALUE);
    case.expect_code("height 0", ask(64, 0, 4), CUresult::INVALID_VALUE);
    case.expect_code("element 0", ask(64, 4, 0), CUresult::INVALID_VALUE);
    case.expect_code("element 3", ask(64, 4, 3), CUresult::INVALID_VALUE);
    let code = ask(ABSURD, 4, 4);
    case.expect_one_of("width 64 TiB", code, &[CUresult::OUT_OF_MEMORY, CUresult::INVALID_VALUE]);
    Ok(())
}

pub(super) fn range_arguments(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let memory = Memory::new(d, 3 << 20)?;
    let (mut base, mut bytes) = (0, 0);
    case.expect_ok("size is null", cu!(d, cuMemGetAddressRange_v2(&mut base, null_mut(), memory.address)));
    case.expect_ok("base is null", cu!(d, cuMemGetAddressRange_v2(null_mut(), &mut bytes, memory.address)));
    case.code("both are null", cu!(d, cuMemGetAddressRange_v2(null_mut(), null_mut(), memory.address)));
    must!(d, cuMemGetAddressRange_v2(&mut base, &mut bytes, memory.address + (2 << 20) + 77));
    case.expect_that("an interior address leads to the base", base == memory.address);
    let on_stack = 0_u64;
    let code = cu!(d, cuMemGetAddressRange_v2(&mut base, &mut bytes, (&raw const on_stack) as u64));
    case.expect_code("stack", code, CUresult::NOT_FOUND);
    let code = cu!(d, cuMemGetAddressRange_v2(&mut base, &mut bytes, 0));
    case.expect_code("address 0", code, CUresult::NOT_FOUND);
    let freed = memory.address;
    drop(memory);
    let code = cu!(d, cuMemGetAddressRange_v2(&mut base, &mut bytes, freed));
    case.expect_code("freed memory", code, CUresult::NOT_FOUND);
    Ok(())
}

pub(super) fn free_and_running_work(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let mut address = 0;
    must!(d, cuMemAlloc_v2(&mut address, 2 << 20));
    let gate = Gate::close(d, stream.raw)?;
    must!(d, cuMemsetD8Async(address, 1, 2 << 20, stream.raw));
    gate.open_after(Duration::from_millis(50));
    case.expect_ok("free", cu!(d, cuMemFree_v2(address)));
    case.observe("free waited for the work in flight", gate.is_open());
    case.expect_ok("the work ended well", cu!(d, cuStreamSynchronize(stream.raw)));
    Ok(())
}

pub(super) fn managed(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let mut address = 0;
    must!(d, cuMemAllocManaged(&mut address, 1 << 20, CU_MEM_ATTACH_GLOBAL));
    must!(d, cuMemsetD8_v2(address, 0x5A, 1 << 20));
    must!(d, cuCtxSynchronize());
    // SAFETY: the host may read managed memory once the device is idle.
    let byte = unsafe { (address as *const u8).add(12_345).read() };
    case.expect_eq("the host reads what the device wrote", byte, 0x5A);
    case.expect_ok("free", cu!(d, cuMemFree_v2(address)));
    let mut wrong = |bytes, flags| cu!(d, cuMemAllocManaged(&mut address, bytes, flags));
    case.expect_code("size 0", wrong(0, CU_MEM_ATTACH_GLOBAL), CUresult::INVALID_VALUE);
    case.expect_code("flags 0", wrong(4096, 0), CUresult::INVALID_VALUE);
    Ok(())
}

pub(super) fn frees_of_other_families(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let wrong = CUresult::INVALID_VALUE;
    let mapped = Range::of_device(d, 2 << 20, primary.device)?;
    case.expect_code("cuMemFree of mapped memory", cu!(d, cuMemFree_v2(mapped.address)), wrong);
    let code = cu!(d, cuMemFreeAsync(mapped.address, CUstream::NULL));
    case.expect_code("cuMemFreeAsync of mapped memory", code, wrong);
    let pinned = Pinned::new(d, 4096, 0)?;
    case.expect_code("cuMemFree of pinned memory", cu!(d, cuMemFree_v2(pinned.address())), wrong);
    let memory = Memory::holding(d, &pattern(4 << 20, 1))?;
    let code = cu!(d, cuMemFreeHost(memory.address as *mut _));
    case.expect_code("cuMemFreeHost of device memory", code, wrong);
    let code = cu!(d, cuMemUnmap(memory.address, 4 << 20));
    case.expect_code("cuMemUnmap of cuMemAlloc memory", code, wrong);
    let code = cu!(d, cuMemAddressFree(memory.address, 4 << 20));
    case.expect_code("cuMemAddressFree of cuMemAlloc memory", code, wrong);
    case.expect_that("all are still there", memory.read()? == pattern(4 << 20, 1));
    Ok(())
}

/// Calls for managed memory, on other memory. The answers are recorded, because they differ between
/// driver versions.
pub(super) fn managed_calls(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let (memory, mapped) = (Memory::new(d, 2 << 20)?, Range::of_device(d, 2 << 20, primary.device)?);
    for (name, address) in [("cuMemAlloc memory", memory.address), ("mapped memory", mapped.address)] {
        let (mut answer, location) = (0_u32, CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 });
        // Advice 1 and attribute 1: "read mostly".
        let code = cu!(d, cuMemAdvise_v2(address, 2 << 20, 1, location));
        case.code(format!("advice for {name}"), code);
        let code = cu!(d, cuMemPrefetchAsync_v2(address, 2 << 20, location, 0, CUstream::NULL));
        case.code(format!("prefetch of {name}"), code);
        let code = cu!(d, cuMemRangeGetAttribute((&raw mut answer).cast(), 4, 1, address, 2 << 20));
        case.code(format!("range attribute of {name}"), code);
    }
    Ok(())
}
