//! The blocks that PyTorch's allocator makes and frees, as it reports them.
//!
//! For each block that goes to a tensor, or comes back, the allocator calls a function of `libc10`
//! that tells PyTorch's profiler. The function is exported here, too, so the loader finds it here
//! first in a program that is started under the library; it notes the block, and calls PyTorch's.
//! A program that links PyTorch otherwise, or has loaded it before, has its own function, and
//! nothing is known of its blocks.
//!
//! Source: `c10/core/Allocator.h` since PyTorch 2.0, where the sizes became unsigned.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use crate::process::preserve_errno;
use crate::subsystems::PROCESS;

/// `c10::reportMemoryUsageToProfiler(void *, int64_t, size_t, size_t, c10::Device)`.
const NAME: &CStr = c"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";

const LIBRARY: &CStr = c"libc10.so";

/// `c10::DeviceType::CUDA`, the lower byte of a device. The upper one is its number.
const CUDA: u16 = 1;

/// Smaller blocks lie in segments of their own, with pieces that are too small to be shared.
const LEAST: u64 = 1 << 20;

type Report = unsafe extern "C" fn(*mut c_void, i64, usize, usize, u16);

static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// A block of `bytes` bytes, at `block`, goes to a tensor; below 0: it comes back.
#[unsafe(export_name = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE")]
unsafe extern "C" fn report(block: *mut c_void, bytes: i64, live: usize, held: usize, device: u16) {
    if device & 0xff == CUDA && bytes.unsigned_abs() > LEAST {
        let start = block as u64;
        match u64::try_from(bytes) {
            Ok(bytes) => {
                PROCESS.sharing.object_made(start..start.saturating_add(bytes));
                PROCESS.moves.tensor_made(start..start.saturating_add(bytes));
            }
            Err(_) => {
                PROCESS.sharing.object_freed(start);
                PROCESS.moves.tensor_freed(start);
            }
        }
    }
    if let Some(real) = real() {
        // SAFETY: PyTorch's function of this name, with the arguments of its caller.
        unsafe { real(block, bytes, live, held, device) }
    }
}

/// PyTorch's own function.
fn real() -> Option<Report> {
    let mut found = REAL.load(Relaxed);
    if found.is_null() {
        found = preserve_errno(find);
        REAL.store(found, Relaxed);
    }
    // SAFETY: the function of this name has this type, by its mangled name.
    (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Report>(found) })
}

/// The definition behind this library, or that of `libc10`, which Python loads for itself alone.
fn find() -> *mut c_void {
    // SAFETY: texts that end with 0; `libc10` is loaded already, or not found, and stays loaded.
    unsafe {
        let next = libc::dlsym(libc::RTLD_NEXT, NAME.as_ptr());
        if !next.is_null() {
            return next;
        }
        let library = libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if library.is_null() { library } else { libc::dlsym(library, NAME.as_ptr()) }
    }
}
