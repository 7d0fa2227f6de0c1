//! Pinned host memory: allocated by the driver, and registered by the program.

use std::ffi::c_void;
use std::ptr::null_mut;

use wm_abi::*;

use crate::case::{Case, Verdict};
use crate::driver::Driver;
use crate::fixture::{Kernels, Memory, Pinned, Primary, pattern};
use crate::{cu, must};

/// Pages of the program's own, aligned for registration.
#[derive(Debug)]
pub(super) struct Pages {
    pointer: *mut c_void,
    bytes: usize,
}

impl Pages {
    /// Zeroed private pages.
    pub(super) fn new(bytes: usize) -> Self {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let pointer = unsafe { libc::mmap(null_mut(), bytes, protection, flags, -1, 0) };
        assert!(pointer != libc::MAP_FAILED, "no memory for {bytes} bytes of pages");
        Self { pointer, bytes }
    }

    pub(super) fn pointer(&self) -> *mut c_void {
        self.pointer
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn fill(&self, contents: &[u8]) {
        assert!(contents.len() <= self.bytes, "more contents than pages");
        // SAFETY: the mapping has `bytes` bytes, and the device is idle.
        unsafe { self.pointer.cast::<u8>().copy_from_nonoverlapping(contents.as_ptr(), contents.len()) };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, not used afterwards.
        unsafe { libc::munmap(self.pointer, self.bytes) };
    }
}

fn device_pointer(driver: &'static Driver, pointer: *mut c_void) -> (CUresult, CUdeviceptr) {
    let mut address = 0;
    (cu!(driver, cuMemHostGetDevicePointer_v2(&mut address, pointer, 0)), address)
}

pub(super) fn alloc(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    for (name, flags) in [("0", 0), ("portable", 1), ("mapped", 2), ("write-combined", 4), ("all", 7)] {
        let mut pointer = null_mut();
        case.expect_ok(&format!("flags {name}"), cu!(d, cuMemHostAlloc(&mut pointer, 10_000, flags)));
        let mut answered = u32::MAX;
        must!(d, cuMemHostGetFlags(&mut answered, pointer));
        case.observe(format!("flags {name} come back as"), answered);
        case.expect(answered & flags == flags, format!("flags {flags} came back as {answered}"));
        let (code, address) = device_pointer(d, pointer);
        case.expect_ok(&format!("device pointer of {name}"), code);
        case.expect(address == pointer as u64, "the device pointer is another address");
        case.expect_ok(&format!("free {name}"), cu!(d, cuMemFreeHost(pointer)));
    }
    let mut pointer = null_mut();
    case.expect_ok("cuMemAllocHost", cu!(d, cuMemAllocHost_v2(&mut pointer, 5000)));
    case.expect_ok("free", cu!(d, cuMemFreeHost(pointer)));
    Ok(())
}

pub(super) fn alloc_arguments(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let mut pointer = null_mut();
    let wrong = CUresult::INVALID_VALUE;
    case.expect_code("null", cu!(d, cuMemHostAlloc(null_mut(), 4096, 0)), wrong);
    case.code("size 0", cu!(d, cuMemHostAlloc(&mut pointer, 0, 0)));
    case.expect_code("flags 2^20", cu!(d, cuMemHostAlloc(&mut pointer, 4096, 1 << 20)), wrong);
    let code = cu!(d, cuMemHostAlloc(&mut pointer, 1 << 46, 0));
    case.expect_one_of("64 TiB", code, &[CUresult::OUT_OF_MEMORY, wrong]);
    case.code("free null", cu!(d, cuMemFreeHost(null_mut())));
    let heap = vec![0_u8; 4096];
    case.expect_code("free heap memory", cu!(d, cuMemFreeHost(heap.as_ptr().cast_mut().cast())), wrong);
    let mut flags = 0;
    case.expect_code(
        "flags of heap memory",
        cu!(d, cuMemHostGetFlags(&mut flags, heap.as_ptr().cast_mut().cast())),
        wrong,
    );
    must!(d, cuMemHostAlloc(&mut pointer, 8192, 0));
    let inside = pointer.wrapping_byte_add(4096);
    case.code("free interior", cu!(d, cuMemFreeHost(inside)));
    case.expect_ok("free", cu!(d, cuMemFreeHost(pointer)));
    case.expect_code("free twice", cu!(d, cuMemFreeHost(pointer)), wrong);
    Ok(())
}

pub(super) fn kernels_reach_it(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let kernels = Kernels::load(d)?;
    let pinned = Pinned::new(d, 64 << 10, CU_MEMHOSTALLOC_DEVICEMAP)?;
    kernels.fill(CUstream::NULL, pinned.address(), 16 << 10, 0x0505_0505)?;
    must!(d, cuCtxSynchronize());
    case.expect_that("the host reads what a kernel wrote", pinned.get() == vec![5; 64 << 10]);
    Ok(())
}

pub(super) fn register(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (pages, memory) = (Pages::new(256 << 10), Memory::new(d, 256 << 10)?);
    pages.fill(&pattern(256 << 10, 1));
    let whole = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    case.expect_ok("register", cu!(d, cuMemHostRegister_v2(pages.pointer, pages.bytes, whole)));
    let code = cu!(d, cuMemHostRegister_v2(pages.pointer, pages.bytes, whole));
    case.expect_code("register again", code, CUresult::HOST_MEMORY_ALREADY_REGISTERED);
    let (code, address) = device_pointer(d, pages.pointer);
    case.expect_ok("device pointer", code);
    must!(d, cuMemcpyDtoD_v2(memory.address, address, pages.bytes));
    must!(d, cuCtxSynchronize());
    case.expect_that("the device reads it", memory.read()? == pattern(256 << 10, 1));
    let code = cu!(d, cuMemFreeHost(pages.pointer));
    case.expect_code("free of registered memory", code, CUresult::INVALID_VALUE);
    case.expect_ok("unregister", cu!(d, cuMemHostUnregister(pages.pointer)));
    let code = cu!(d, cuMemHostUnregister(pages.pointer));
    case.expect_code("unregister again", code, CUresult::HOST_MEMORY_NOT_REGISTERED);
    Ok(())
}

pub(super) fn register_arguments(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let pages = Pages::new(64 << 10);
    let wrong = CUresult::INVALID_VALUE;
    let register = |offset: usize, bytes, flags| {
        cu!(d, cuMemHostRegister_v2(pages.pointer.wrapping_byte_add(offset), bytes, flags))
    };
    case.expect_code("null", cu!(d, cuMemHostRegister_v2(null_mut(), 4096, 0)), wrong);
    case.expect_code("size 0", register(0, 0, 0), wrong);
    case.expect_code("flags 2^20", register(0, 4096, 1 << 20), wrong);
    case.expect_ok("a part that is not whole pages", register(100, 5000, 0));
    case.expect_code("an overlapping part", register(200, 5000, 0), CUresult::HOST_MEMORY_ALREADY_REGISTERED);
    let inside = pages.pointer.wrapping_byte_add(4000);
    case.code("unregister interior", cu!(d, cuMemHostUnregister(inside)));
    must!(d, cuMemHostUnregister(pages.pointer.wrapping_byte_add(100)));
    let pinned = Pinned::new(d, 4096, 0)?;
    let code = cu!(d, cuMemHostUnregister(pinned.pointer));
    case.expect_code("unregister of the driver's own", code, wrong);
    case.code("register of the driver's own", cu!(d, cuMemHostRegister_v2(pinned.pointer, 4096, 0)));
    Ok(())
}
