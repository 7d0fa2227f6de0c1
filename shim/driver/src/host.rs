//! How much host memory there is, and how much of it may be pinned without starving the machine.
//!
//! Sources are the kernel's own estimate (`MemAvailable`) and the limits of the process's control
//! groups: its own one and those around it. They are read again before memory is created: virtual
//! machines grow, and other processes come and go. That takes a dozen files. So a refusal may use a
//! figure that is some milliseconds old, unless the machine's free memory has grown since: a
//! program that tries ever smaller sizes is refused many times in a row.
//!
//! Processes that start together all see the same memory available. So the check is repeated after
//! memory was created; if less is left than the reserve, the process releases its memory. The last
//! process to check sees the memory of all. Processes do not know each other: the kernel counts for
//! all of them, also for those that are killed.

use crate::lock::lock;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

/// Always left to other processes: this many bytes, or a share of the machine if that is more.
const MARGIN: u64 = 1 << 30;
const MARGIN_SHARE: u64 = 32;

/// The greatest [`reserve`], as a share of the machine.
const RESERVE_SHARE: u64 = 4;

/// Where control groups are mounted.
pub(crate) const GROUPS: &str = "/sys/fs/cgroup";

/// The greatest age of a figure on which a request is refused.
const RECENT: Duration = Duration::from_millis(10);

/// While more than this is left, the host is measured again after this many created bytes, or after
/// this time; below it, after each piece of memory. Sixty devices for which memory is created at
/// the same speed do not miss the limit.
const FAR: i64 = 1 << 30;
const SELDOM: i64 = 16 << 20;
const FRESH: Duration = Duration::from_millis(100);

/// If less than the reserve is left, other processes may be about to release theirs. The check is
/// repeated this many times, each after a pause of up to this length. The process that gives up
/// first lets the others go on, so the pauses differ.
const LOOKS: u32 = 3;
const PAUSE_MS: u64 = 16;

/// The memory around one device, with the last measurement.
#[derive(Debug, Default)]
pub(crate) struct MachineMemory {
    reserve: u64,
    last: Mutex<Option<Figure>>,
}

#[derive(Debug, Clone, Copy)]
struct Figure {
    /// Bytes that may be pinned; if negative, less is left than the reserve.
    left: i64,
    /// Free pages of the machine, in bytes.
    free: u64,
    at: Instant,
    /// Bytes created since.
    made: i64,
}

impl MachineMemory {
    /// Memory of which `reserve` bytes stay available for all processes.
    pub(crate) fn leaving(reserve: u64) -> Self {
        Self { reserve, last: Mutex::default() }
    }

    /// Bytes that can be pinned now; 0 if the kernel does not report memory.
    pub(crate) fn available(&self) -> u64 {
        self.look().max(0) as u64
    }

    /// The same of some milliseconds ago, plus the memory that the machine has freed since.
    pub(crate) fn estimate(&self) -> u64 {
        let last = *self.last();
        match last.filter(|figure| figure.at.elapsed() < RECENT) {
            Some(figure) => {
                let left = figure.left.saturating_sub(figure.made).max(0) as u64;
                left.saturating_add(free_pages().saturating_sub(figure.free))
            }
            None => self.available(),
        }
    }

    /// `bytes` were created. Is the reserve still left?
    pub(crate) fn holds(&self, bytes: u64) -> bool {
        if self.is_far(bytes as i64) || self.look() >= 0 {
            return true;
        }
        (0..LOOKS).any(|_| {
            std::thread::sleep(pause());
            self.look() >= 0
        })
    }

    /// Is the limit too far away for a new measurement?
    fn is_far(&self, bytes: i64) -> bool {
        self.last().as_mut().is_some_and(|figure| {
            figure.made = figure.made.saturating_add(bytes);
            let is_fresh = figure.made < SELDOM && figure.at.elapsed() < FRESH;
            is_fresh && figure.left.saturating_sub(figure.made) > FAR
        })
    }

    fn look(&self) -> i64 {
        let (free, at) = (free_pages(), Instant::now());
        let left = left(self.reserve);
        *self.last() = Some(Figure { left, free, at, made: 0 });
        left
    }

    fn last(&self) -> MutexGuard<'_, Option<Figure>> {
        lock(&self.last)
    }
}

/// A time that differs between processes.
fn pause() -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mixed =
        (u64::from(now.subsec_nanos()) ^ u64::from(std::process::id())).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    Duration::from_millis(1 + (mixed >> 32) % PAUSE_MS)
}

/// The bytes that stay available on a machine of `whole` bytes if each process pins up to `limit`:
/// half of the bytes beyond the limit, at most a quarter of the machine, and at most the limit.
pub fn reserve(limit: u64, whole: u64) -> u64 {
    limit.min(whole.saturating_sub(limit) / 2).min(whole / RESERVE_SHARE)
}

/// The bytes that are left to others on a machine of `total` bytes in any case.
fn margin(total: u64) -> u64 {
    MARGIN.max(total / MARGIN_SHARE)
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

/// Bytes that can be pinned now while the reserve stays; 0 if the kernel does not report memory.
fn left(reserve: u64) -> i64 {
    room(reserve).left()
}

/// The bound of the host memory that can be pinned now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostRoom {
    /// Free bytes, by the kernel's estimate; 0 if it reports none.
    pub free: u64,
    /// The part of them that is left to others.
    pub kept: u64,
    /// The limit of the control group of `free`; `None` for the machine.
    pub container: Option<u64>,
}

impl HostRoom {
    fn left(&self) -> i64 {
        (self.free.min(i64::MAX as u64) as i64).saturating_sub(self.kept.min(i64::MAX as u64) as i64)
    }
}

/// The machine's bound or that of the process's control groups, whichever is lower, with this
/// reserve.
pub fn room(reserve: u64) -> HostRoom {
    let machine = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let Some(free) = field(&machine, "MemAvailable:") else {
        return HostRoom { free: 0, kept: 0, container: None };
    };
    let kept = margin(field(&machine, "MemTotal:").unwrap_or(0)).max(reserve);
    let of_group = |group: &MemoryGroup| {
        Some(HostRoom { free: group.left()?, kept: MARGIN.max(reserve), container: group.limit() })
    };
    let groups = groups();
    let rooms = groups.iter().filter_map(of_group);
    rooms.fold(HostRoom { free, kept, container: None }, |least, next| {
        if next.left() < least.left() { next } else { least }
    })
}

/// Bytes of memory that the process could have if it were alone: the machine's, or the limit of its
/// control groups; 0 if the kernel does not report memory.
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
    /// In `memory.stat`: file pages, which the kernel drops before it kills a process.
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

/// The groups of a process, its own one first, from `/proc/self/cgroup`. A group whose folder is
/// missing, as inside a container, is skipped when it is read.
fn groups_of(listed: &str, mounted: &Path) -> Vec<MemoryGroup> {
    listed.lines().filter_map(|line| named(line, mounted)).flatten().collect()
}

/// The folders of a process's groups of the second version, its own first.
pub(crate) fn group_folders(listed: &str, mounted: &Path) -> Vec<PathBuf> {
    let second = listed.lines().filter(|line| line.starts_with("0::"));
    second.filter_map(|line| named(line, mounted)).flatten().map(|group| group.folder).collect()
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

    #[test]
    fn a_quarter_stays_by_default_and_less_where_the_user_says_so() {
        assert_eq!(reserve(50, 100), 25);
        assert_eq!(reserve(80, 100), 10);
        assert_eq!(reserve(30, 100), 25);
        assert_eq!(reserve(10, 100), 10);
        assert_eq!((reserve(u64::MAX, 100), reserve(0, 100)), (0, 0));
    }

    #[test]
    fn the_end_is_looked_for_more_often_the_nearer_it_is() {
        let memory = MachineMemory::leaving(0);
        let figure = |left| Some(Figure { left, free: 0, at: Instant::now(), made: 0 });
        assert!(!memory.is_far(1), "nothing is known");
        *memory.last() = figure(2 * FAR);
        assert!(memory.is_far(SELDOM / 2) && !memory.is_far(SELDOM / 2));
        *memory.last() = figure(FAR);
        assert!(!memory.is_far(1));
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
