//! How much host memory may be pinned without starving the machine.
//!
//! The kernel's own estimate (`MemAvailable`), and a container's limit where there is one. Read anew at each need:
//! virtual machines grow, and other processes come and go.

use std::fs;

/// Left to everybody else, always.
const MARGIN: u64 = 1 << 30;

/// Bytes that can be pinned now; 0 where the kernel does not tell.
pub(crate) fn available() -> u64 {
    let machine =
        fs::read_to_string("/proc/meminfo").ok().and_then(|text| field(&text, "MemAvailable:")).unwrap_or(0);
    machine.min(container().unwrap_or(u64::MAX)).saturating_sub(MARGIN)
}

/// A line of /proc/meminfo, in bytes.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// What this process's control group may still take; `None` without a limit.
fn container() -> Option<u64> {
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let limit = number("/sys/fs/cgroup/memory.max")
        .or_else(|| number("/sys/fs/cgroup/memory/memory.limit_in_bytes"))?;
    let used = number("/sys/fs/cgroup/memory.current")
        .or_else(|| number("/sys/fs/cgroup/memory/memory.usage_in_bytes"))?;
    Some(limit.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_notation() {
        assert_eq!(field("MemTotal:  10 kB\nMemAvailable:   8 kB\n", "MemAvailable:"), Some(8 << 10));
        assert_eq!(field("MemTotal:  10 kB\n", "MemAvailable:"), None);
    }
}
