//! The machine around the GPUs: memory, and the limits that this shell's programs will inherit.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use wm_driver::host::{self, HostRoom, reserve};
use wm_schema::size::Quantity;

use super::finding::Finding;
use crate::human;

/// Memory sharing uses a descriptor a handle; below this a large program runs out.
const FEW_FILES: u64 = 4096;
/// Below this the doctor says what bounds the overflow.
const LITTLE: u64 = 4 << 30;
/// The default of container runtimes.
const SMALL_SHM: u64 = 1 << 30;

/// The host's memory and limits. Sizes are bytes; an absent limit is none.
#[derive(Debug, Serialize)]
pub(super) struct Host {
    memory_total_bytes: u64,
    memory_available_bytes: u64,
    cgroup_limit_bytes: Option<u64>,
    cgroup_used_bytes: Option<u64>,
    /// Most bytes that overflow pins now.
    usable_bytes: u64,
    locked_memory_limit_bytes: Option<u64>,
    open_files_limit: Option<u64>,
    shared_memory_bytes: Option<u64>,
    numa_nodes: usize,
}

/// Reads the kernel's figures. `limit` is WMSHIM_HOST_LIMIT of programs that start from here.
pub(super) fn examine(limit: Option<&str>, findings: &mut Vec<Finding>) -> Host {
    let mut host = survey();
    let whole = host::whole();
    let limit = limit_of(limit, whole);
    let room = host::room(reserve(limit, whole));
    host.usable_bytes = usable(room, limit);
    findings.push(judge_memory(room, limit));
    judge_limits(&host, findings);
    host
}

/// Bytes of a limit as the library shows it: `50%`, `64GiB`, or `64GiB, at most 50%`.
fn limit_of(shown: Option<&str>, whole: u64) -> u64 {
    let bytes = |text: &str| match Quantity::split(text)? {
        Quantity { number, unit: "%" } => Some((whole as f64 * number / 100.0) as u64),
        size => size.bytes().map(|bytes| bytes as u64),
    };
    let sizes = shown.into_iter().flat_map(|shown| shown.split(", at most ")).filter_map(bytes);
    sizes.min().unwrap_or(u64::MAX)
}

/// Most bytes that overflow pins now, by the library's own rule.
fn usable(room: HostRoom, limit: u64) -> u64 {
    room.free.saturating_sub(room.kept).min(limit)
}

fn survey() -> Host {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    Host {
        memory_total_bytes: field(&memory, "MemTotal:").unwrap_or(0),
        memory_available_bytes: field(&memory, "MemAvailable:").unwrap_or(0),
        cgroup_limit_bytes: cgroup("memory.max", "memory.limit_in_bytes").filter(|limit| *limit < 1 << 60),
        cgroup_used_bytes: cgroup("memory.current", "memory.usage_in_bytes"),
        usable_bytes: 0,
        locked_memory_limit_bytes: getrlimit(Resource::Memlock).current,
        open_files_limit: getrlimit(Resource::Nofile).current,
        shared_memory_bytes: shared_memory(),
        numa_nodes: numa_nodes(),
    }
}

/// A line of /proc/meminfo, in bytes.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// A figure of this process's memory control group, in its newer or older notation.
fn cgroup(newer: &str, older: &str) -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/").trim_start_matches('/');
    let root = Path::new("/sys/fs/cgroup");
    let places = [root.join(group).join(newer), root.join(newer), root.join("memory").join(older)];
    places.iter().find_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok())
}

fn shared_memory() -> Option<u64> {
    let status = rustix::fs::statvfs("/dev/shm").ok()?;
    Some(status.f_blocks.saturating_mul(status.f_frsize))
}

fn numa_nodes() -> usize {
    let entries = fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
    let is_node = |name: &str| name.strip_prefix("node").is_some_and(|rest| rest.parse::<u32>().is_ok());
    entries.filter(|entry| entry.file_name().to_str().is_some_and(is_node)).count().max(1)
}

impl Host {
    /// One line a figure.
    pub(super) fn render(&self) -> String {
        let size = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), human::bytes);
        let files = self.open_files_limit.map_or_else(|| "unlimited".to_owned(), |files| files.to_string());
        format!(
            "Host     {} of {} available, {} NUMA node(s), container limit {}\n\
             Limits   locked memory {}, open files {files}, /dev/shm {}\n",
            human::bytes(self.memory_available_bytes),
            human::bytes(self.memory_total_bytes),
            self.numa_nodes,
            self.cgroup_limit_bytes.map_or_else(|| "none".to_owned(), human::bytes),
            size(self.locked_memory_limit_bytes),
            self.shared_memory_bytes.map_or_else(|| "absent".to_owned(), human::bytes),
        )
    }
}

fn judge_memory(room: HostRoom, limit: u64) -> Finding {
    let usable = usable(room, limit);
    let shown = human::bytes(usable);
    if usable >= LITTLE {
        return Finding::good(format!("{shown} of host memory can take what overflows (WMSHIM_HOST_LIMIT)"));
    }
    let only = format!("only {shown} of host memory can take what overflows");
    if usable == limit {
        return Finding::note(
            format!("{only}: WMSHIM_HOST_LIMIT allows no more"),
            "raise it; overflow ends where this ends",
        );
    }
    let bound = match room.container {
        Some(limit) => format!("the container may have {}", human::bytes(limit)),
        None => format!("{} are available", human::bytes(room.free)),
    };
    let (free, kept) = (human::bytes(room.free), human::bytes(room.kept));
    let free = if room.container.is_some() { format!(", has {free} left") } else { String::new() };
    Finding::note(
        format!("{only}: {bound}{free}, and {kept} stay free"),
        "free memory, or raise the container's memory limit; overflow ends where this ends",
    )
}

fn judge_limits(host: &Host, findings: &mut Vec<Finding>) {
    if let Some(limit) = host.locked_memory_limit_bytes.filter(|limit| *limit < 1 << 30) {
        findings.push(Finding::note(
            format!("locked memory is limited to {}: RDMA libraries may fail to register memory", human::bytes(limit)),
            "`ulimit -l unlimited`, or `docker run --ulimit memlock=-1`; the driver's own pinning is not affected",
        ));
    }
    if let Some(limit) = host.open_files_limit.filter(|limit| *limit < FEW_FILES) {
        findings.push(Finding::note(
            format!("{limit} open files are allowed: sharing memory between processes takes one a handle"),
            format!("`ulimit -n {FEW_FILES}` or more"),
        ));
    }
    if host.shared_memory_bytes.unwrap_or(0) < SMALL_SHM {
        let size = host.shared_memory_bytes.map_or_else(|| "absent".to_owned(), human::bytes);
        findings.push(Finding::note(
            format!("/dev/shm is {size}: data loaders and NCCL need more"),
            "`docker run --shm-size=8g` or `--ipc=host`",
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn room(free: u64, kept: u64, container: Option<u64>) -> HostRoom {
        HostRoom { free: free * GIB, kept: kept * GIB, container: container.map(|limit| limit * GIB) }
    }

    /// Hazard: a container in which nothing can overflow is said to be ready for it.
    #[test]
    fn what_bounds_the_overflow_is_named() {
        for (room, limit, said) in [
            (
                room(1, 1, Some(1)),
                GIB / 2,
                "only 0 B of host memory can take what overflows: the container may have 1.0 GiB, has 1.0 GiB left, and 1.0 GiB stay free",
            ),
            (
                room(3, 2, None),
                8 * GIB,
                "only 1.0 GiB of host memory can take what overflows: 3.0 GiB are available, and 2.0 GiB stay free",
            ),
            (
                room(9, 1, None),
                2 * GIB,
                "only 2.0 GiB of host memory can take what overflows: WMSHIM_HOST_LIMIT allows no more",
            ),
            (
                room(9, 1, None),
                0,
                "only 0 B of host memory can take what overflows: WMSHIM_HOST_LIMIT allows no more",
            ),
            (
                room(9, 1, None),
                20 * GIB,
                "8.0 GiB of host memory can take what overflows (WMSHIM_HOST_LIMIT)",
            ),
        ] {
            let finding = judge_memory(room, limit);
            assert_eq!((finding.text.as_str(), finding.remedy.is_some()), (said, said.starts_with("only")));
        }
    }

    #[test]
    fn the_limit_is_read_as_the_library_shows_it() {
        let limit = |shown| limit_of(shown, 100 * GIB) / GIB;
        assert_eq!((limit(Some("50%")), limit(Some("64GiB")), limit(Some("0B"))), (50, 64, 0));
        assert_eq!((limit(Some("64GiB, at most 50%")), limit(Some("4GiB, at most 50%"))), (50, 4));
        assert_eq!(limit_of(None, GIB), u64::MAX);
    }

    #[test]
    fn reads_the_kernels_notation() {
        assert_eq!(field("MemTotal:  10 kB\n", "MemTotal:"), Some(10 << 10));
        assert_eq!(field("MemTotal:  10 kB\n", "MemAvailable:"), None);
    }
}
