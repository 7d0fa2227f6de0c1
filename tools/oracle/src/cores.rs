//! A simulated number of cores in the answers to affinity queries. The library lets threads carry
//! pageable copies only if they have cores, and test machines have two. The run-queue delay of
//! threads is then hidden too.
//!
//! The names are the C library's, so every query of this process comes here.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The simulated number of cores; 0 for the real one.
static CORES: AtomicUsize = AtomicUsize::new(0);

/// Simulates this many cores from now on.
pub(crate) fn pretend(cores: usize) {
    CORES.store(cores, Ordering::Relaxed);
}

/// Replaces the C library's function.
///
/// # Safety
/// `set` is `size` bytes that can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn sched_getaffinity(
    thread: libc::pid_t,
    size: libc::size_t,
    set: *mut libc::cpu_set_t,
) -> libc::c_int {
    // SAFETY: as the caller promises.
    let asked = unsafe {
        set.cast::<u8>().write_bytes(0, size);
        libc::syscall(libc::SYS_sched_getaffinity, thread, size, set)
    };
    if asked < 0 {
        return -1;
    }
    let cores = CORES.load(Ordering::Relaxed).min(8 * size);
    for core in 0..cores {
        // SAFETY: within the set, whose bits are in the order of its bytes.
        unsafe { *set.cast::<u8>().add(core / 8) |= 1 << (core % 8) };
    }
    0
}

/// Opens a file like the C library. `mode` is present if `flags` say so; otherwise its register has
/// another value.
///
/// # Safety
/// `path` is a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn open64(
    path: *const libc::c_char,
    flags: libc::c_int,
    mode: libc::mode_t,
) -> libc::c_int {
    // SAFETY: as the caller promises.
    let is_theirs = unsafe { CStr::from_ptr(path) } == c"/proc/thread-self/schedstat";
    if is_theirs && CORES.load(Ordering::Relaxed) > 0 {
        // SAFETY: this thread's own.
        unsafe { *libc::__errno_location() = libc::ENOENT };
        return -1;
    }
    // SAFETY: as the caller promises.
    unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, mode) as libc::c_int }
}
