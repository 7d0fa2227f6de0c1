//! The system call of the broker that no safe wrapper makes.

/// Numbers that are tried one by one, if the kernel does not close a range.
const TRIED: u64 = 1 << 16;

/// Closes all inherited descriptors: a daemon that keeps a pipe keeps its reader waiting.
pub(super) fn close_inherited() {
    // SAFETY: called first of all in `main`, when nothing in this process owns a descriptor beyond
    // the standard three.
    if unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) } == 0 {
        return;
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    for number in 3..limit.unwrap_or(TRIED).min(TRIED) as i32 {
        // SAFETY: as above; a number that is not open is an error.
        unsafe { libc::close(number) };
    }
}
