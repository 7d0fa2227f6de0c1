//! Wrong frees, wrong sizes, and frees after the end of a context: the driver's own error, without
//! side effects.
//!
//! Every case has live memory with known contents beside its wrong call, and compares the accounts
//! before and after: an error that also frees, leaks or moves memory would be worse than a wrong
//! code.

use std::ptr::null_mut;

use wm_abi::*;

use crate::case::{Case, Verdict, short};
use crate::driver::Driver;
use crate::fixture::{Memory, Pinned, Primary, Range, Stream, alloc_async, pattern, synchronize};
use crate::{cu, must};

const WRONG: CUresult = CUresult::INVALID_VALUE;
const BYTES: usize = 3 << 20;

/// Live memory and the accounts of the default pool, which must stay unchanged.
struct Witness {
    driver: &'static Driver,
    memory: Vec<Memory>,
    used: u64,
}

impl Witness {
    /// One large and one small allocation that no call may touch.
    fn new(driver: &'static Driver) -> Verdict<Self> {
        let memory =
            vec![Memory::holding(driver, &pattern(BYTES, 1))?, Memory::holding(driver, &pattern(700, 2))?];
        Ok(Self { driver, memory, used: used(driver)? })
    }

    fn confirm(&self, case: &mut Case, after: &str) -> Verdict {
        let whole = self.memory[0].read()? == pattern(BYTES, 1) && self.memory[1].read()? == pattern(700, 2);
        case.expect_that(&format!("after {after}: live memory is untouched"), whole);
        let same = used(self.driver)? == self.used;
        case.expect_that(&format!("after {after}: the pool's accounts are the same"), same);
        Ok(())
    }
}

fn used(driver: &'static Driver) -> Verdict<u64> {
    let mut bytes = 0_u64;
    let (pool, place) = (super::pool::default_pool(driver)?, (&raw mut bytes).cast());
    must!(driver, cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, place));
    Ok(bytes)
}

/// For `cuMemAlloc` memory by `cuMemFree`, as in programs. Any other double free may end the
/// process inside a real driver, which does not check its argument.
pub(super) fn double_frees(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let witness = Witness::new(d)?;
    for bytes in [1000, BYTES] {
        let mut address = 0;
        must!(d, cuMemAlloc_v2(&mut address, bytes));
        case.expect_ok(&format!("{bytes} bytes"), cu!(d, cuMemFree_v2(address)));
        case.expect_code(&format!("{bytes} bytes again"), cu!(d, cuMemFree_v2(address)), WRONG);
        witness.confirm(case, &format!("double frees of {bytes} bytes"))?;
    }
    Ok(())
}

pub(super) fn interior_frees(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let ordered = alloc_async(d, BYTES, stream.raw)?;
    let (mut pitched, mut pitch) = (0, 0);
    must!(d, cuMemAllocPitch_v2(&mut pitched, &mut pitch, 1000, 100, 4));
    let plain = Memory::new(d, BYTES)?;
    synchronize(d, stream.raw)?;
    let witness = Witness::new(d)?;
    for (family, base) in [("plain", plain.address), ("pitched", pitched), ("pool", ordered)] {
        for offset in [1, 512, pitch as u64, 65_536] {
            let label = format!("{family} memory at {offset}");
            case.expect_code(&format!("cuMemFree of {label}"), cu!(d, cuMemFree_v2(base + offset)), WRONG);
            let code = cu!(d, cuMemFreeAsync(base + offset, stream.raw));
            case.expect_code(&format!("cuMemFreeAsync of {label}"), code, WRONG);
        }
        witness.confirm(case, &format!("interior frees of {family} memory"))?;
    }
    case.expect_ok("free of pool memory", cu!(d, cuMemFreeAsync(ordered, stream.raw)));
    case.expect_ok("free of pitched memory", cu!(d, cuMemFree_v2(pitched)));
    Ok(())
}

pub(super) fn foreign_frees(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let witness = Witness::new(d)?;
    let (on_stack, on_heap) = (0_u64, vec![0_u8; 4096]);
    let mapped = Range::of_device(d, 2 << 20, primary.device)?;
    let pinned = Pinned::new(d, 4096, 0)?;
    let code: fn(&mut Case) -> Verdict = foreign_frees;
    for (name, address) in [
        ("stack", (&raw const on_stack) as u64),
        ("heap", on_heap.as_ptr() as u64),
        ("code", code as usize as u64),
        ("address 8", 8),
        ("highest address", u64::MAX),
        ("mapped memory", mapped.address),
        ("pinned memory", pinned.address()),
    ] {
        let label = format!("cuMemFreeAsync of {name}");
        case.expect_code(&label, cu!(d, cuMemFreeAsync(address, stream.raw)), WRONG);
        case.expect_code(&format!("cuMemFree of {name}"), cu!(d, cuMemFree_v2(address)), WRONG);
    }
    witness.confirm(case, "foreign frees")
}

pub(super) fn absurd_sizes(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let pool = super::pool::default_pool(d)?;
    let witness = Witness::new(d)?;
    let (mut address, mut pitch) = (77, 77);
    for (name, bytes) in [("2^46", 1_usize << 46), ("2^63", 1 << 63), ("2^64 - 1", usize::MAX)] {
        let either = [CUresult::OUT_OF_MEMORY, WRONG];
        let code = cu!(d, cuMemAllocAsync(&mut address, bytes, stream.raw));
        case.expect_one_of(&format!("cuMemAllocAsync of {name}"), code, &either);
        let code = cu!(d, cuMemAllocFromPoolAsync(&mut address, bytes, pool, stream.raw));
        case.expect_one_of(&format!("cuMemAllocFromPoolAsync of {name}"), code, &either);
        let code = cu!(d, cuMemAllocPitch_v2(&mut address, &mut pitch, bytes, 2, 4));
        case.expect_one_of(&format!("cuMemAllocPitch, {name} wide"), code, &either);
        let code = cu!(d, cuMemAllocPitch_v2(&mut address, &mut pitch, 512, bytes, 4));
        case.expect_one_of(&format!("cuMemAllocPitch, {name} high"), code, &either);
        let code = cu!(d, cuMemAlloc_v2(&mut address, bytes));
        case.expect_one_of(&format!("cuMemAlloc of {name}"), code, &either);
    }
    witness.confirm(case, "absurd sizes")?;
    case.expect_ok("the stream lives on", cu!(d, cuStreamSynchronize(stream.raw)));
    Ok(())
}

/// Memory of a destroyed context, queried and freed with another current context, and with none.
pub(super) fn after_the_context(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let witness = Witness::new(d)?;
    let mut gone = CUcontext::NULL;
    must!(d, cuCtxCreate_v2(&mut gone, 0, 0));
    let (mut large, mut small, mut pitched, mut pitch) = (0, 0, 0, 0);
    must!(d, cuMemAlloc_v2(&mut large, BYTES));
    must!(d, cuMemAlloc_v2(&mut small, 700));
    must!(d, cuMemAllocPitch_v2(&mut pitched, &mut pitch, 1000, 100, 4));
    must!(d, cuCtxDestroy_v2(gone));
    primary.enter()?;
    for (name, address) in [("large", large), ("small", small), ("pitched", pitched)] {
        let (mut type_, mut bytes) = (0_u32, 0);
        let code = cu!(d, cuMemGetAddressRange_v2(null_mut(), &mut bytes, address));
        case.expect_code(&format!("range of {name} memory"), code, CUresult::NOT_FOUND);
        let place = (&raw mut type_).cast();
        let code = cu!(d, cuPointerGetAttribute(place, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
        case.expect_code(&format!("attribute of {name} memory"), code, WRONG);
        case.expect_code(&format!("cuMemFree of {name} memory"), cu!(d, cuMemFree_v2(address)), WRONG);
        let code = cu!(d, cuMemFreeAsync(address, CUstream::NULL));
        case.expect_code(&format!("cuMemFreeAsync of {name} memory"), code, WRONG);
    }
    witness.confirm(case, "frees after the end of their context")?;
    must!(d, cuCtxSetCurrent(CUcontext::NULL));
    let code = cu!(d, cuMemFree_v2(large));
    case.observe_machine("cuMemFree without a context", short(code));
    case.expect(code != CUresult::SUCCESS, "memory of a destroyed context was freed");
    must!(d, cuCtxSetCurrent(primary.context));
    Ok(())
}

/// A reset ends all objects of the primary context; a program that goes on makes new ones.
pub(super) fn after_a_reset(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let (mut large, mut small) = (0, 0);
    must!(d, cuMemAlloc_v2(&mut large, BYTES));
    must!(d, cuMemAlloc_v2(&mut small, 700));
    case.expect_ok("reset", cu!(d, cuDevicePrimaryCtxReset_v2(0)));
    std::mem::forget(primary);
    let _again = Primary::new(d)?;
    for (name, address) in [("large", large), ("small", small)] {
        case.expect_code(&format!("cuMemFree of {name} memory"), cu!(d, cuMemFree_v2(address)), WRONG);
        let mut bytes = 0;
        let code = cu!(d, cuMemGetAddressRange_v2(null_mut(), &mut bytes, address));
        case.expect_code(&format!("range of {name} memory"), code, CUresult::NOT_FOUND);
    }
    let fresh = Memory::holding(d, &pattern(BYTES, 9))?;
    case.expect_that("new memory holds what was written", fresh.read()? == pattern(BYTES, 9));
    let kernels = crate::fixture::Kernels::load(d)?;
    kernels.fill(CUstream::NULL, fresh.address, 64, 0x0404_0404)?;
    must!(d, cuCtxSynchronize());
    case.expect_that("kernels write new memory", fresh.read()?[..256] == [4; 256]);
    Ok(())
}

/// Live memory, freed by a thread without a context: recorded; the memory is gone in either case.
pub(super) fn without_a_context(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let mut address = 0;
    must!(d, cuMemAlloc_v2(&mut address, BYTES));
    must!(d, cuCtxSetCurrent(CUcontext::NULL));
    let code = cu!(d, cuMemFree_v2(address));
    case.observe_machine("cuMemFree", short(code));
    must!(d, cuCtxSetCurrent(primary.context));
    let wanted = if code == CUresult::SUCCESS { WRONG } else { CUresult::SUCCESS };
    let again = cu!(d, cuMemFree_v2(address));
    case.expect(again == wanted, format!("after {code}, the free in the context is {again}"));
    Ok(())
}
