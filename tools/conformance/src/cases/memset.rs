//! Memsets of every width, in one and two dimensions, synchronous and not.

use wm_abi::*;

use crate::case::{Case, Verdict};
use crate::fixture::{Memory, Primary, Stream, synchronize};
use crate::{cu, must};

const BACKGROUND: u8 = 0xEE;

/// Does `memory` hold `value` over and over in `set`, and the background elsewhere?
fn holds(memory: &Memory, value: &[u8], set: std::ops::Range<usize>) -> Verdict<bool> {
    let bytes = memory.read()?;
    let wanted =
        |at: usize| if set.contains(&at) { value[(at - set.start) % value.len()] } else { BACKGROUND };
    Ok(bytes.iter().enumerate().all(|(at, byte)| *byte == wanted(at)))
}

pub(super) fn widths(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let memory = Memory::new(d, 100_000)?;
    let at = memory.address + 1000;
    let (two, four) = (0x1234_u16, 0x1234_5678_u32);
    for form in ["8", "16", "32", "8 async", "16 async", "32 async"] {
        must!(d, cuMemsetD8_v2(memory.address, BACKGROUND, 100_000));
        must!(d, cuCtxSynchronize());
        let (code, value, bytes) = match form {
            "8" => (cu!(d, cuMemsetD8_v2(at, 7, 5001)), vec![7], 5001),
            "16" => (cu!(d, cuMemsetD16_v2(at, two, 5001)), two.to_ne_bytes().to_vec(), 10_002),
            "32" => (cu!(d, cuMemsetD32_v2(at, four, 5001)), four.to_ne_bytes().to_vec(), 20_004),
            "8 async" => (cu!(d, cuMemsetD8Async(at, 7, 5001, stream.raw)), vec![7], 5001),
            "16 async" => {
                (cu!(d, cuMemsetD16Async(at, two, 5001, stream.raw)), two.to_ne_bytes().to_vec(), 10_002)
            }
            _ => (cu!(d, cuMemsetD32Async(at, four, 5001, stream.raw)), four.to_ne_bytes().to_vec(), 20_004),
        };
        case.expect_ok(form, code);
        synchronize(d, stream.raw)?;
        case.expect_that(&format!("{form}: bytes"), holds(&memory, &value, 1000..1000 + bytes)?);
    }
    Ok(())
}

pub(super) fn planes(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let memory = Memory::new(d, 256 * 10)?;
    for (form, element) in [("8", 1), ("16", 2), ("32", 4), ("8 async", 1), ("16 async", 2), ("32 async", 4)]
    {
        must!(d, cuMemsetD8_v2(memory.address, BACKGROUND, memory.bytes));
        must!(d, cuCtxSynchronize());
        let (at, stream) = (memory.address, stream.raw);
        let code = match form {
            "8" => cu!(d, cuMemsetD2D8_v2(at, 256, 0x11, 20, 10)),
            "16" => cu!(d, cuMemsetD2D16_v2(at, 256, 0x1111, 20, 10)),
            "32" => cu!(d, cuMemsetD2D32_v2(at, 256, 0x1111_1111, 20, 10)),
            "8 async" => cu!(d, cuMemsetD2D8Async(at, 256, 0x11, 20, 10, stream)),
            "16 async" => cu!(d, cuMemsetD2D16Async(at, 256, 0x1111, 20, 10, stream)),
            _ => cu!(d, cuMemsetD2D32Async(at, 256, 0x1111_1111, 20, 10, stream)),
        };
        case.expect_ok(form, code);
        synchronize(d, stream)?;
        let wanted = |at: usize| if at % 256 < 20 * element { 0x11 } else { BACKGROUND };
        let right = memory.read()?.iter().enumerate().all(|(at, byte)| *byte == wanted(at));
        case.expect_that(&format!("{form}: bytes"), right);
    }
    Ok(())
}

pub(super) fn arguments(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let memory = Memory::new(d, 4096)?;
    let wrong = CUresult::INVALID_VALUE;
    case.expect_ok("count 0", cu!(d, cuMemsetD8_v2(memory.address, 0, 0)));
    case.expect_code("address 8", cu!(d, cuMemsetD8_v2(8, 0, 16)), wrong);
    case.expect_code("address 0", cu!(d, cuMemsetD8_v2(0, 0, 16)), wrong);
    case.expect_code("16 bits at an odd address", cu!(d, cuMemsetD16_v2(memory.address + 1, 0, 16)), wrong);
    case.expect_code("32 bits at address 2", cu!(d, cuMemsetD32_v2(memory.address + 2, 0, 16)), wrong);
    let code = cu!(d, cuMemsetD2D8_v2(memory.address, 8, 0, 16, 4));
    case.expect_code("pitch below width", code, wrong);
    Ok(())
}

pub(super) fn of_host_memory(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let pinned = crate::fixture::Pinned::new(d, 10_000, CU_MEMHOSTALLOC_DEVICEMAP)?;
    case.expect_ok("pinned memory", cu!(d, cuMemsetD8_v2(pinned.address(), 0x44, 10_000)));
    must!(d, cuCtxSynchronize());
    case.expect_that("bytes", pinned.get() == vec![0x44; 10_000]);
    let mut heap = vec![0_u8; 4096];
    case.code("pageable memory", cu!(d, cuMemsetD8_v2(heap.as_mut_ptr() as u64, 1, 4096)));
    Ok(())
}
