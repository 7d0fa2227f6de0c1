//! Processes, and where each of them would have put its socket.
//!
//! A process decides by its own variables, in its own file system, under its own number: a job with
//! a `TMPDIR` of its own, a container, another user's program that root asks about. The kernel
//! reports all of it to a process with the right to read it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use wm_trust::node::{self, NodeFile};

/// The longest line of ancestors that is followed.
const DEEPEST: usize = 64;

/// A living process that this user may look into.
#[derive(Debug)]
pub(crate) struct RunningProcess {
    pub(crate) pid: u32,
    /// Its effective user.
    pub(crate) user: u32,
    /// Its number as it sees it itself.
    pub(super) inner: u32,
    /// Its user as it sees it itself: the number in the names of its folders.
    pub(crate) user_inside: u32,
    /// Its root folder, if that is not ours.
    pub(crate) root: Option<PathBuf>,
    environment: Vec<u8>,
}

/// A variable, or, for one of ours that is not set, the default of the node's file below a root.
pub(super) fn setting(
    variable: &dyn Fn(&str) -> Option<OsString>,
    root: Option<&Path>,
    name: &str,
) -> Option<OsString> {
    static OWN: OnceLock<Option<NodeFile>> = OnceLock::new();
    let set = variable(name).filter(|value| !value.is_empty());
    let Some(row) = name.strip_prefix("WMSHIM_").filter(|_| set.is_none()) else { return set };
    let default = |file: &NodeFile| file.default_of(&row.to_ascii_lowercase()).map(OsString::from);
    match root {
        Some(root) => default(&NodeFile::read(&root.join(node::PATH.trim_start_matches('/')))?),
        None => OWN.get_or_init(|| NodeFile::read(Path::new(node::PATH))).as_ref().and_then(default),
    }
}

/// Every process that this user may look into.
pub(crate) fn all() -> impl Iterator<Item = RunningProcess> {
    pids().filter_map(running)
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// One process. `None`: there is none, or it is not this user's to look into.
pub(super) fn running(pid: u32) -> Option<RunningProcess> {
    let folder = Path::new("/proc").join(pid.to_string());
    let environment = fs::read(folder.join("environ")).ok().filter(|text| !text.is_empty())?;
    let status = fs::read_to_string(folder.join("status")).ok()?;
    let user = effective_user(&status)?;
    let inner = words(&status, "NSpid:").last().and_then(|word| word.parse().ok()).unwrap_or(pid);
    let root = (!shares_our_files(&folder)).then(|| folder.join("root"));
    let map = fs::read_to_string(folder.join("uid_map")).unwrap_or_default();
    let user_inside = inside(&map, user).unwrap_or(user);
    Some(RunningProcess { pid, user, inner, user_inside, root, environment })
}

/// The processes that root may not look into, because it lacks a capability. Other users may not
/// look into most processes, and miss none of their own programs.
pub(crate) fn closed() -> usize {
    if !rustix::process::geteuid().is_root() {
        return 0;
    }
    // The kernel may show the variables of a process whose files it hides.
    let is_closed = |pid: &u32| {
        let root = fs::read_link(format!("/proc/{pid}/root"));
        root.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    };
    pids().filter(is_closed).count()
}

/// Does a process see this process's user under a number of its own? Where it does not, it takes
/// this process for a stranger.
pub(super) fn sees(pid: u32, user: u32) -> bool {
    let map = fs::read_to_string(format!("/proc/{pid}/uid_map")).unwrap_or_default();
    map.is_empty() || inside(&map, user).is_some()
}

/// A user's number in a namespace, by its map: a line for each range, with its first number inside,
/// its first number outside, and the count.
fn inside(map: &str, user: u32) -> Option<u32> {
    map.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().map(|word| word.parse::<u32>().ok());
        let (first, outside, count) = (words.next()??, words.next()??, words.next()??);
        let offset = user.checked_sub(outside).filter(|offset| *offset < count)?;
        first.checked_add(offset)
    })
}

/// Has it our mounts and our root?
fn shares_our_files(folder: &Path) -> bool {
    let same = |name: &str| {
        let ours = fs::read_link(Path::new("/proc/self").join(name)).ok();
        ours.is_some() && ours == fs::read_link(folder.join(name)).ok()
    };
    same("ns/mnt") && same("root")
}

impl RunningProcess {
    /// A variable as it was when the process started.
    pub(crate) fn variable(&self, name: &str) -> Option<OsString> {
        let pairs = self.environment.split(|byte| *byte == 0);
        let value = pairs.filter_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")).next()?;
        Some(OsStr::from_bytes(value).to_owned())
    }

    /// A variable of ours that it has, or its node's default of that setting.
    pub(super) fn setting(&self, name: &str) -> Option<OsString> {
        setting(&|name| self.variable(name), self.root.as_deref(), name)
    }

    /// Its number in the innermost namespace that it is in.
    pub(super) fn number_inside(&self) -> u32 {
        self.inner
    }

    /// Is the shim mapped into it? `None`: that cannot be seen.
    pub(super) fn is_shimmed(&self) -> Option<bool> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid)).ok()?;
        Some(maps.contains("libwmshim.so") || maps.contains("/dropin/libcuda.so.1"))
    }
}

/// A process's effective user, which every user may read.
pub(super) fn user_of(pid: u32) -> Option<u32> {
    effective_user(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn effective_user(status: &str) -> Option<u32> {
    words(status, "Uid:").nth(1)?.parse().ok()
}

/// A process's parent, the parent of that one, and so on to the first process.
pub(crate) fn ancestors(pid: u32) -> Vec<u32> {
    let parent = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        words(&status, "PPid:").next()?.parse().ok().filter(|parent| *parent > 0)
    };
    // Numbers that are given again while this looks must not make a circle.
    std::iter::successors(parent(&pid), parent).take(DEEPEST).collect()
}

/// Is there such a process?
pub(super) fn exists(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Is it stopped, by a signal or a debugger?
pub(crate) fn is_stopped(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    words(&status, "State:").next().is_some_and(|state| matches!(state, "T" | "t"))
}

/// The words of a line of `/proc/PID/status`.
fn words<'a>(status: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_ascii_whitespace()
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): the folder of a program in a user namespace is looked for under the
    //! number that its user has outside.
    use super::*;

    #[test]
    fn a_process_has_its_parent_and_the_first_process_has_none() {
        let ancestors = ancestors(std::process::id());
        assert_eq!(ancestors.first(), Some(&std::os::unix::process::parent_id()));
        assert_eq!(super::ancestors(u32::MAX), [] as [u32; 0]);
    }

    #[test]
    fn a_map_turns_the_number_outside_into_the_one_inside() {
        let rootless = "         0       1000          1\n         1     100000      65536\n";
        assert_eq!(inside(rootless, 1000), Some(0));
        assert_eq!(inside(rootless, 101_233), Some(1234));
        assert_eq!((inside(rootless, 0), inside(rootless, 165_536)), (None, None), "not mapped");
        assert_eq!(inside("0 0 4294967295\n", 1000), Some(1000));
        assert_eq!((inside("", 0), inside("0 x 1\n", 0)), (None, None));
    }
}
