//! Calls for host memory, with device memory of every family; and registrations of ranges that
//! begin and end anywhere, as in programs.

use std::ffi::c_void;

use wm_abi::*;

use super::host::Pages;
use crate::case::{Case, Verdict, short};
use crate::fixture::{Memory, Primary, Range, Stream, alloc_async, pattern, synchronize};
use crate::{cu, must};

const BYTES: usize = 2 << 20;

pub(super) fn host_calls_on_device_memory(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let plain = Memory::holding(d, &pattern(BYTES, 1))?;
    let mapped = Range::of_device(d, BYTES, primary.device)?;
    let ordered = alloc_async(d, BYTES, stream.raw)?;
    synchronize(d, stream.raw)?;
    for (family, address) in [("plain", plain.address), ("pool", ordered), ("mapped", mapped.address)] {
        let pointer = address as *mut c_void;
        let (mut device, mut flags) = (0, 0);
        for (call, code) in [
            ("register", cu!(d, cuMemHostRegister_v2(pointer, BYTES, CU_MEMHOSTREGISTER_DEVICEMAP))),
            ("unregister", cu!(d, cuMemHostUnregister(pointer))),
            ("device pointer", cu!(d, cuMemHostGetDevicePointer_v2(&mut device, pointer, 0))),
            ("flags", cu!(d, cuMemHostGetFlags(&mut flags, pointer))),
            ("free", cu!(d, cuMemFreeHost(pointer))),
        ] {
            case.observe_machine(format!("{call} of {family} memory"), short(code));
            // The driver answers some of these for mapped memory, regardless of the library that
            // mapped it.
            let refused = code != CUresult::SUCCESS || family == "mapped";
            case.expect(refused, format!("{call} took {family} memory for the host's"));
        }
    }
    case.expect_that("the memory is as it was", plain.read()? == pattern(BYTES, 1));
    case.expect_ok("free of pool memory", cu!(d, cuMemFreeAsync(ordered, stream.raw)));
    Ok(())
}

/// Ranges of one mapping, registered separately: within a page, over page borders, sharing a page
/// with another.
pub(super) fn odd_registrations(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let pages = Pages::new(256 << 10);
    let memory = Memory::new(d, 64 << 10)?;
    let at = |offset: usize| pages.pointer().wrapping_byte_add(offset);
    for (name, offset, bytes) in [
        ("one byte", 5, 1),
        ("two pages and some bytes", 8192 + 123, 8192 + 77),
        ("up to the last byte", (256 << 10) - 10_001, 10_001),
    ] {
        let flags = CU_MEMHOSTREGISTER_PORTABLE;
        case.expect_ok(&format!("register {name}"), cu!(d, cuMemHostRegister_v2(at(offset), bytes, flags)));
        let code = cu!(d, cuMemcpyHtoD_v2(memory.address, at(offset), bytes));
        case.expect_ok(&format!("copy of {name}"), code);
        let code = cu!(d, cuMemcpyHtoD_v2(memory.address, at(offset & !4095), 4096));
        case.observe_machine(format!("copy from before {name}"), short(code));
    }
    let beside = cu!(d, cuMemHostRegister_v2(at(600), 100, 0));
    case.observe_machine("register beside one byte, in its page", short(beside));
    for (name, offset) in [("one byte", 5), ("two pages", 8192 + 123), ("the end", (256 << 10) - 10_001)] {
        case.expect_ok(&format!("unregister {name}"), cu!(d, cuMemHostUnregister(at(offset))));
    }
    if beside == CUresult::SUCCESS {
        must!(d, cuMemHostUnregister(at(600)));
    }
    case.expect_ok("register all", cu!(d, cuMemHostRegister_v2(pages.pointer(), pages.bytes(), 0)));
    case.expect_ok("unregister all", cu!(d, cuMemHostUnregister(pages.pointer())));
    Ok(())
}

/// Calls of the virtual memory family on memory that is not the program's mapping. Pool memory is
/// only queried: a driver may have mapped it itself.
pub(super) fn mapping_calls_on_other_memory(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let plain = Memory::holding(d, &pattern(BYTES, 1))?;
    let ordered = alloc_async(d, BYTES, stream.raw)?;
    synchronize(d, stream.raw)?;
    let location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
    let no_access = [CUmemAccessDesc { location, flags: CU_MEM_ACCESS_FLAGS_PROT_NONE }];
    for (family, address) in [("plain", plain.address), ("pool", ordered)] {
        let (mut flags, mut handle) = (0_u64, 0_u64);
        let code = cu!(d, cuMemGetAccess(&mut flags, &location, address));
        case.observe_machine(format!("cuMemGetAccess of {family} memory"), short(code));
        let code = cu!(d, cuMemRetainAllocationHandle(&mut handle, address as *mut _));
        case.observe_machine(format!("cuMemRetainAllocationHandle of {family} memory"), short(code));
    }
    let code = cu!(d, cuMemSetAccess(plain.address, BYTES, no_access.as_ptr(), 1));
    case.expect_code("cuMemSetAccess of plain memory", code, CUresult::INVALID_VALUE);
    case.expect_that("the memory is as it was", plain.read()? == pattern(BYTES, 1));
    case.expect_ok("free of pool memory", cu!(d, cuMemFreeAsync(ordered, stream.raw)));
    Ok(())
}
