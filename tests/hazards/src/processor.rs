//! Processor time: on a machine that is busy the clock shows the time of other processes too.

use std::time::Duration;

/// Processor time of all children that were waited for.
///
/// # Panics
/// If the system does not tell.
pub fn used_by_children() -> Duration {
    // SAFETY: all zeros are a valid value, which the call replaces.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage), 0);
        usage
    };
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, 1000 * time.tv_usec as u32);
    time(usage.ru_utime) + time(usage.ru_stime)
}
