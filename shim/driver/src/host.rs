//! How much host memory there is, and how much of it may be pinned without starving the machine.
//!
//! The kernel's own estimate (`MemAvailable`), and the limits of the process's control groups: its own one and those around it. Read anew
//! before memory is made: virtual machines grow, and other processes come and go. It takes a dozen files, so a refusal may rest on
//! a figure that is some milliseconds old, if the machine has not got more free memory since: a program that tries ever smaller sizes
//! is refused many times in a row.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Left to everybody else, always: this much, or a share of the machine if that is more.
const MARGIN: u64 = 1 << 30;
const MARGIN_SHARE: u64 = 32;

/// Where control groups are mounted.
const GROUPS: &str = "/sys/fs/cgroup";

/// So old may the figure be that a request is refused by.
const RECENT: Duration = Duration::from_millis(10);

/// The memory around one device, and what was seen of it last.
#[derive(Debug, Default)]
pub(crate) struct MachineMemory {
    last: Mutex<Option<Figure>>,
}

#[derive(Debug, Clone, Copy)]
struct Figure {
    available: u64,
    /// Free pages of the machine, in bytes.
    free: u64,
    at: Instant,
}

impl MachineMemory {
    /// Bytes that can be pinned now; 0 where the kernel does not tell.
    pub(crate) fn available(&self) -> u64 {
        let (free, at) = (free_pages(), Instant::now());
        let available = available();
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Figure { available, free, at });
        available
    }

    /// The same of some milliseconds ago, with what was freed on the machine since.
    pub(crate) fn estimate(&self) -> u64 {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match last.filter(|figure| figure.at.elapsed() < RECENT) {
            Some(figure) => figure.available.saturating_add(free_pages().saturating_sub(figure.free)),
            None => self.available(),
        }
    }
}

/// Free pages of the machine, in bytes: one system call, where `MemAvailable` takes a file.
fn free_pages() -> u64 {
    let mut info = std::mem::MaybeUninit::<libc::sysinfo>::zeroed();
    // SAFETY: the kernel fills the structure; all zeroes is a valid one, should it refuse.
    let info = unsafe {
        libc::sysinfo(info.as_mut_ptr());
        info.assume_init()
    };
    info.freeram.saturating_mul(info.mem_unit.into())
}

/// Bytes that can be pinned now; 0 where the kernel does not tell.
fn available() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = field(&machine, "MemAvailable:").unwrap_or(0);
    let margin = MARGIN.max(field(&machine, "MemTotal:").unwrap_or(0) / MARGIN_SHARE);
    let left = groups().iter().filter_map(MemoryGroup::left).min();
    free.saturating_sub(margin).min(left.map_or(u64::MAX, |left| left.saturating_sub(MARGIN)))
}

/// Bytes of memory that the process could have if it were alone: the machine's, or its control groups' limit; 0 where the kernel does not tell.
pub fn whole() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| field(&text, "MemTotal:"));
    let limit = groups().iter().filter_map(MemoryGroup::limit).min();
    machine.unwrap_or(0).min(limit.unwrap_or(u64::MAX))
}

/// A line of /proc/meminfo, in bytes.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// The files of a control group that count memory.
struct MemoryGroup {
    folder: PathBuf,
    limit: &'static str,
    used: &'static str,
    /// In `memory.stat`: pages of files that the kernel gives up before it kills anybody.
    cache: &'static str,
}

impl MemoryGroup {
    fn limit(&self) -> Option<u64> {
        self.number(self.limit)
    }

    /// Bytes that the group may still take; `None` without a limit.
    fn left(&self) -> Option<u64> {
        let (limit, used) = (self.limit()?, self.number(self.used)?);
        let stat = fs::read_to_string(self.folder.join("memory.stat")).unwrap_or_default();
        let cached = stat.lines().find_map(|line| line.strip_prefix(self.cache)?.trim().parse().ok());
        Some(limit.saturating_sub(used.saturating_sub(cached.unwrap_or(0))))
    }

    fn number(&self, file: &str) -> Option<u64> {
        fs::read_to_string(self.folder.join(file)).ok()?.trim().parse().ok()
    }
}

fn groups() -> Vec<MemoryGroup> {
    groups_of(&fs::read_to_string("/proc/self/cgroup").unwrap_or_default(), Path::new(GROUPS))
}

/// The groups that a process is in, its own one first, from what `/proc/self/cgroup` says. Those that are not there under that name, as seen from
/// a container, are left out when they are read.
fn groups_of(listed: &str, mounted: &Path) -> Vec<MemoryGroup> {
    listed.lines().filter_map(|line| named(line, mounted)).flatten().collect()
}

/// A line `0::PATH` of the second version, or `N:memory:PATH` of the first.
fn named(line: &str, mounted: &Path) -> Option<Vec<MemoryGroup>> {
    let mut parts = line.splitn(3, ':');
    let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let within = Path::new(path.trim_start_matches('/'));
    let (root, limit, used, cache) = if (number, controllers) == ("0", "") {
        (mounted.to_owned(), "memory.max", "memory.current", "inactive_file ")
    } else if controllers.split(',').any(|controller| controller == "memory") {
        (mounted.join("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ")
    } else {
        return None;
    };
    Some(within.ancestors().map(|path| MemoryGroup { folder: root.join(path), limit, used, cache }).collect())
}

#[cfg(test)]
mod tests {
    //! Hazard: a container's limit is not seen, and the kernel kills the program.
    use super::*;

    #[test]
    fn reads_the_kernels_notation() {
        assert_eq!(field("MemTotal:  10 kB\nMemAvailable:   8 kB\n", "MemAvailable:"), Some(8 << 10));
        assert_eq!(field("MemTotal:  10 kB\n", "MemAvailable:"), None);
        assert!(whole() > 0);
    }

    fn write(folder: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(folder).expect("a folder");
        files.iter().for_each(|(name, text)| fs::write(folder.join(name), text).expect("a file"));
    }

    #[test]
    fn the_groups_around_the_process_count_too_and_files_that_are_cached_do_not() {
        let folder = std::env::temp_dir().join(format!("wmshim-groups-{}", std::process::id()));
        write(&folder.join("a"), &[("memory.max", "900\n"), ("memory.current", "100\n")]);
        write(&folder.join("a/b"), &[("memory.max", "max\n"), ("memory.current", "80\n")]);
        write(
            &folder.join("memory/c"),
            &[
                ("memory.limit_in_bytes", "700\n"),
                ("memory.usage_in_bytes", "300\n"),
                ("memory.stat", "cache 9\ntotal_inactive_file 50\n"),
            ],
        );
        let left = |listed: &str| groups_of(listed, &folder).iter().filter_map(MemoryGroup::left).min();
        assert_eq!(left("0::/a/b\n"), Some(800));
        assert_eq!(left("9:name=systemd:/a\n4:cpu,memory:/c/seen/from/outside\n"), Some(450));
        assert_eq!(left("0::/elsewhere\n3:cpu:/c\n"), None);
        fs::remove_dir_all(&folder).expect("ours");
    }
}
