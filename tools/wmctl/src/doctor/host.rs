//! The machine around the GPUs: memory, and the limits that this shell's programs will inherit.

use std::fs;
use std::path::Path;

use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use wm_driver::host::{GROUP_MARGIN, margin, reserve};

use super::finding::Finding;
use crate::human;

/// Memory sharing uses a descriptor a handle; below this a large program runs out.
const FEW_FILES: u64 = 4096;
/// The default of container runtimes.
const SMALL_SHM: u64 = 1 << 30;

/// The host's memory and limits. Sizes are bytes; an absent limit is none.
#[derive(Debug, Serialize)]
pub(super) struct Host {
    memory_total_bytes: u64,
    memory_available_bytes: u64,
    cgroup_limit_bytes: Option<u64>,
    cgroup_used_bytes: Option<u64>,
    locked_memory_limit_bytes: Option<u64>,
    open_files_limit: Option<u64>,
    shared_memory_bytes: Option<u64>,
    numa_nodes: usize,
}

/// Reads the kernel's figures.
pub(super) fn examine(findings: &mut Vec<Finding>) -> Host {
    let host = survey();
    judge_memory(&host, findings);
    judge_limits(&host, findings);
    host
}

fn survey() -> Host {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    Host {
        memory_total_bytes: field(&memory, "MemTotal:").unwrap_or(0),
        memory_available_bytes: field(&memory, "MemAvailable:").unwrap_or(0),
        cgroup_limit_bytes: cgroup("memory.max", "memory.limit_in_bytes").filter(|limit| *limit < 1 << 60),
        cgroup_used_bytes: cgroup("memory.current", "memory.usage_in_bytes"),
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
    /// The machine's memory, or its container's limit.
    fn whole(&self) -> u64 {
        self.memory_total_bytes.min(self.cgroup_limit_bytes.unwrap_or(u64::MAX))
    }

    /// Most bytes that overflow pins by default: half of the whole, and no more than the available
    /// memory less the reserve.
    fn usable(&self) -> u64 {
        let limit = self.whole() / 2;
        let used = self.cgroup_used_bytes.unwrap_or(0);
        let container = self.cgroup_limit_bytes.map_or(u64::MAX, |limit| limit.saturating_sub(used));
        let machine = self.memory_available_bytes.saturating_sub(self.stays(margin(self.memory_total_bytes)));
        machine.min(container.saturating_sub(self.stays(GROUP_MARGIN))).min(limit)
    }

    /// The reserve, which stays available: at least `margin`.
    fn stays(&self, margin: u64) -> u64 {
        margin.max(reserve(self.whole() / 2, self.whole()))
    }

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

fn judge_memory(host: &Host, findings: &mut Vec<Finding>) {
    let usable = human::bytes(host.usable());
    if host.usable() < 4 << 30 {
        let (limits, stays) = match host.cgroup_limit_bytes.filter(|limit| *limit < host.memory_total_bytes) {
            Some(limit) => {
                (format!("the container may have {}", human::bytes(limit)), host.stays(GROUP_MARGIN))
            }
            None => (
                format!("{} are available", human::bytes(host.memory_available_bytes)),
                host.stays(margin(host.memory_total_bytes)),
            ),
        };
        findings.push(Finding::note(
            format!(
                "only {usable} of host memory can take what overflows: {limits}, of which {} stay free",
                human::bytes(stays)
            ),
            "free memory, or raise the container's memory limit; overflow ends where this ends",
        ));
    } else {
        findings.push(Finding::good(format!(
            "{usable} of host memory can take what overflows (WMSHIM_HOST_LIMIT)"
        )));
    }
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

    /// A machine with so much, of which so much is available, and a container with a limit, of
    /// which so much is used; in GiB.
    fn machine(total: u64, available: u64, container: Option<(u64, u64)>) -> Host {
        Host {
            memory_total_bytes: total * GIB,
            memory_available_bytes: available * GIB,
            cgroup_limit_bytes: container.map(|(limit, _)| limit * GIB),
            cgroup_used_bytes: container.map(|(_, used)| used * GIB),
            ..survey()
        }
    }

    #[test]
    fn a_container_limit_bounds_what_is_usable_and_a_part_of_it_stays() {
        let usable = |machine: Host| machine.usable() / GIB;
        assert_eq!(usable(machine(300, 200, Some((60, 40)))), 5, "a quarter of the container's stays");
        assert_eq!(usable(machine(300, 200, Some((60, 10)))), 30, "half of the container's");
        assert_eq!(usable(machine(300, 100, None)), 25, "a quarter of the machine's stays");
        assert_eq!(usable(machine(300, 290, None)), 150, "half of the machine's");
        assert_eq!(usable(machine(300, 290, Some((1, 0)))), 0, "the least that stays");
    }

    /// Hazard: a container in which nothing can overflow is said to be ready for it.
    #[test]
    fn a_container_that_is_too_small_is_named_with_its_limit() {
        let mut findings = Vec::new();
        judge_memory(&machine(300, 290, Some((1, 0))), &mut findings);
        let said = format!("{:?}", findings[0]);
        assert!(
            said.contains("only 0 B") && said.contains("may have 1.0 GiB, of which 1.0 GiB stay"),
            "{said}"
        );
    }

    #[test]
    fn reads_the_kernels_notation() {
        assert_eq!(field("MemTotal:  10 kB\n", "MemTotal:"), Some(10 << 10));
        assert_eq!(field("MemTotal:  10 kB\n", "MemAvailable:"), None);
    }
}
