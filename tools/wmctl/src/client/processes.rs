//! Processes, and where each of them would have put its socket.
//!
//! A process decides by its own variables, in its own file system, under its own number: a job with
//! a `TMPDIR` of its own, a container, another user's program that root asks about. The kernel
//! reports all of it to a process with the right to read it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A living process that this user may look into.
#[derive(Debug)]
pub(super) struct RunningProcess {
    pub(super) pid: u32,
    /// Its effective user.
    pub(super) user: u32,
    /// Its number as it sees it itself.
    pub(super) inner: u32,
    /// Its root folder, if that is not ours.
    pub(super) root: Option<PathBuf>,
    environment: Vec<u8>,
}

/// Every process that this user may look into.
pub(super) fn all() -> impl Iterator<Item = RunningProcess> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(running)
}

/// One process. `None`: there is none, or it is not this user's to look into.
pub(super) fn running(pid: u32) -> Option<RunningProcess> {
    let folder = Path::new("/proc").join(pid.to_string());
    let environment = fs::read(folder.join("environ")).ok().filter(|text| !text.is_empty())?;
    let status = fs::read_to_string(folder.join("status")).ok()?;
    let user = effective_user(&status)?;
    let inner = words(&status, "NSpid:").last().and_then(|word| word.parse().ok()).unwrap_or(pid);
    let root = (!shares_our_files(&folder)).then(|| folder.join("root"));
    Some(RunningProcess { pid, user, inner, root, environment })
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
    pub(super) fn variable(&self, name: &str) -> Option<OsString> {
        let pairs = self.environment.split(|byte| *byte == 0);
        let value = pairs.filter_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")).next()?;
        Some(OsStr::from_bytes(value).to_owned())
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

/// Is there such a process?
pub(super) fn exists(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Is it stopped, by a signal or a debugger?
pub(super) fn is_stopped(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    words(&status, "State:").next().is_some_and(|state| matches!(state, "T" | "t"))
}

/// The words of a line of `/proc/PID/status`.
fn words<'a>(status: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_ascii_whitespace()
}
