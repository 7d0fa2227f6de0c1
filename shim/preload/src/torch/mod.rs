//! Chooses PyTorch's allocator before PyTorch reads its environment.
//!
//! `auto` takes PyTorch's own allocator with expandable segments, which of all allocators with
//! PyTorch's complete features pack memory best. With them tensors that are shared go to the other
//! process as file descriptors, which it takes out of this one (`pidfd_getfd`). If the kernel would
//! forbid that, if the program passes addresses of tensors on by means of its own ([`started`]), or
//! if the user chose, the environment is left alone.

mod started;
mod tensor_users;

use std::ffi::OsString;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use wm_abi::CUdevice;
use wm_driver::share::may_fetch_descriptors;
use wm_trust::environment;

use crate::jax;
use crate::process::{DeviceSet, DeviceValues};
use crate::settings::{self, TorchAllocator};
use tensor_users::TensorUsers;

pub(crate) use tensor_users::TensorUser;

/// Every PyTorch reads this one.
const VARIABLE: &str = "PYTORCH_CUDA_ALLOC_CONF";

/// PyTorch reads this one from 2.9 on, if the other is not set. `auto` writes its choice here, so a
/// program's own setting of the other name goes before it, and earlier versions keep their default:
/// they refuse memory pools with allocators of their own beside expandable segments. It is not
/// written under the other name as well: PyTorch logs that that name is deprecated.
const NEWER: &str = "PYTORCH_ALLOC_CONF";

/// Our choice once more, so that a child process does not take it for the user's.
const WRITTEN: &str = "WMSHIM_TORCH_CHOICE";

/// How Python's own modules start a worker, which follows the program that started it.
const WORKERS: &[&str] =
    &["multiprocessing.spawn", "multiprocessing.forkserver", "multiprocessing.resource_tracker"];

/// PyTorch's allocator in this process: the choice, and the pluggable allocator's devices.
#[derive(Debug)]
pub(crate) struct TorchMemory {
    /// The choice at load, unless the parent process had chosen the same and has logged it.
    choice: OnceLock<Choice>,
    was_announced: AtomicBool,
    /// The choice was expandable segments: this process's, or that of the parent of a worker.
    has_segments: AtomicBool,
    /// Devices on which the pluggable allocator has allocated. Their pools keep freed memory.
    pub(crate) keeping: DeviceSet,
    /// Devices whose primary context is retained by us: once, and until the program resets the
    /// device, as the CUDA runtime retains it.
    pub(crate) retained: DeviceSet,
    /// The share of each device that the pluggable allocator may give out, bytes.
    pub(crate) limits: DeviceValues,
    /// Other streams that use memory of the pluggable allocator.
    pub(crate) users: TensorUsers,
}

/// A choice, and its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Choice {
    /// The variable and the value that make it so; `None`: the environment is left alone.
    written: Option<TorchVariable>,
    reason: &'static str,
}

type TorchVariable = (&'static str, &'static str);

/// A variable of the environment and its value; `None`: it is removed.
pub(crate) type EnvironmentChange = (&'static str, Option<&'static str>);

impl TorchMemory {
    pub(crate) const fn new() -> Self {
        Self {
            choice: OnceLock::new(),
            was_announced: AtomicBool::new(false),
            has_segments: AtomicBool::new(false),
            keeping: DeviceSet::new(),
            retained: DeviceSet::new(),
            limits: DeviceValues::new(u64::MAX),
            users: TensorUsers::new(),
        }
    }

    /// At load: writes the choice, and JAX's, into the environment.
    pub(crate) fn choose(&self) {
        // A library that is loaded late, as a drop-in is, may not write to an environment that
        // other threads read. If PyTorch is there already, it may have read its own.
        if environment::is_withheld() || !is_python(&command_line()) || !is_single_threaded() || has_torch() {
            return;
        }
        for (name, value) in self.changes() {
            // SAFETY: the process has one thread, so no other reads the environment meanwhile.
            unsafe { environment::set(name, value) };
        }
    }

    /// What the choice, and JAX's, change in the environment: variables with their values; `None`:
    /// the variable is removed. Nothing in a process that is no Python. A parent's choice holds for
    /// workers of Python's own modules only.
    pub(crate) fn changes(&self) -> Vec<EnvironmentChange> {
        let command = command_line();
        if environment::is_withheld() || !is_python(&command) {
            return Vec::new();
        }
        if is_worker(&started::text(&command)) {
            self.has_segments.store(inherited().is_some_and(|(_, value)| value == EXPANDABLE), Relaxed);
            return Vec::new();
        }
        let mut changes: Vec<EnvironmentChange> = jax::changes();
        let parents = inherited();
        let parents_name = parents.as_ref().map(|(name, _)| *name);
        if let Some(name) = parents_name {
            changes.extend([(name, None), (WRITTEN, None)]);
        }
        if [VARIABLE, NEWER].into_iter().any(|name| Some(name) != parents_name && is_set(name)) {
            return changes;
        }
        let choice = decide(&command);
        self.has_segments.store(choice.written.is_some_and(|(_, value)| value == EXPANDABLE), Relaxed);
        if let Some((name, value)) = choice.written {
            changes.extend([(name, Some(value)), (WRITTEN, Some(value))]);
        }
        let is_known = parents
            .zip(choice.written)
            .is_some_and(|(parents, (name, value))| parents == (name, value.into()));
        if !is_known {
            self.choice.get_or_init(|| choice);
        }
        changes
    }

    /// Logs the choice when the first device memory is served in a process that has PyTorch.
    /// Workers that only inherited the variable, or never come to a device, log nothing.
    pub(crate) fn announce(&self) {
        if self.was_announced.swap(true, Relaxed) || !has_torch() {
            return;
        }
        if let Some((level, line)) = self.announcement() {
            log::log!(level, "{line}");
        }
    }

    /// The line about the choice, and its level: a warning if the chosen allocator lacks features.
    fn announcement(&self) -> Option<(log::Level, String)> {
        let choice = self.choice.get().filter(|_| self.keeping.is_empty())?;
        let value =
            choice.written.map_or("left as it is".into(), |(variable, value)| format!("{variable}={value}"));
        let (level, lacks) = match choice.written {
            Some((_, ASYNC)) => {
                (log::Level::Warn, "; without CUDA graph trees, memory pools, snapshots and shared tensors")
            }
            _ => (log::Level::Info, ""),
        };
        let line = format!(
            "PyTorch's allocator: {value} ({}{lacks}); WMSHIM_TORCH_ALLOCATOR=native|expandable|async changes it",
            choice.reason
        );
        Some((level, line))
    }

    /// Has PyTorch expandable segments in this process, because the library chose them?
    pub(crate) fn chose_segments(&self) -> bool {
        self.has_segments.load(Relaxed)
    }

    /// For statistics: the allocator of this process.
    pub(crate) fn back_end(&self) -> &'static str {
        if !self.keeping.is_empty() {
            return "pluggable";
        }
        let named = [VARIABLE, NEWER].into_iter().find_map(environment::text);
        match named.unwrap_or_default().as_str() {
            ASYNC => "async",
            NATIVE => "native",
            EXPANDABLE => "expandable",
            _ => "untouched",
        }
    }

    /// The program has reset a device: its primary context is retained no more, by us neither.
    pub(crate) fn forget_retained(&self, device: CUdevice) {
        self.retained.remove(device);
    }
}

/// The variable and value in the environment that another process of ours has chosen.
fn inherited() -> Option<(&'static str, OsString)> {
    let written = environment::variable(WRITTEN).filter(|value| !value.is_empty())?;
    let ours =
        [VARIABLE, NEWER].into_iter().find(|name| environment::variable(name).as_ref() == Some(&written))?;
    Some((ours, written))
}

fn is_single_threaded() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}

fn is_worker(code: &str) -> bool {
    WORKERS.iter().any(|module| code.contains(module))
}

fn is_set(variable: &str) -> bool {
    environment::variable(variable).is_some_and(|value| !value.is_empty())
}

const EXPANDABLE: &str = "expandable_segments:True";
const ASYNC: &str = "backend:cudaMallocAsync";
const NATIVE: &str = "backend:native";

fn decide(command: &[String]) -> Choice {
    match wanted() {
        Some(TorchAllocator::Auto) => automatic(command),
        Some(TorchAllocator::Async) => named(ASYNC),
        Some(TorchAllocator::Native) => named(NATIVE),
        Some(TorchAllocator::Expandable) => named(EXPANDABLE),
        None => Choice { written: None, reason: "the memory manager is off" },
    }
}

fn named(value: &'static str) -> Choice {
    Choice { written: Some((VARIABLE, value)), reason: "as WMSHIM_TORCH_ALLOCATOR says" }
}

/// The user's setting. The settings are read at the first call, which is later: here only those
/// about PyTorch are.
fn wanted() -> Option<TorchAllocator> {
    let switch = |name: &str| settings::text(name).and_then(|text| environment::switch(&text));
    if switch("WMSHIM_STITCH") == Some(false) || switch("WMSHIM_DISABLE") == Some(true) {
        return None;
    }
    let text = settings::text("WMSHIM_TORCH_ALLOCATOR").unwrap_or_default();
    Some(settings::torch_allocator(&text).unwrap_or(TorchAllocator::Auto))
}

fn automatic(command: &[String]) -> Choice {
    if settings::text("WMSHIM_DEDUP").is_some_and(|value| environment::switch(&value) == Some(true)) {
        return Choice { written: None, reason: "blocks of its own allocator can be shared" };
    }
    let forbidden = "expandable segments could not be shared between processes here";
    let reason = started::reason(command).or_else(|| (!may_fetch_descriptors()).then_some(forbidden));
    match reason {
        Some(reason) => Choice { written: None, reason },
        None => Choice { written: Some((NEWER, EXPANDABLE)), reason: "packs memory best" },
    }
}

fn command_line() -> Vec<String> {
    let bytes = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// `python`, `python3.12`, or a script that the kernel started through one.
fn is_python(command: &[String]) -> bool {
    let name = command.first().map(|word| word.rsplit('/').next().unwrap_or(word));
    name.is_some_and(|name| name.starts_with("python") || name.starts_with("pypy"))
}

/// Has this process loaded PyTorch's CUDA core?
fn has_torch() -> bool {
    std::fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.contains("libc10_cuda"))
}

#[cfg(test)]
mod tests {
    //! Hazard (error handling): a program that ran before does not run with the back end chosen for
    //! it.
    use super::*;

    fn command(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_worker_follows_the_program_that_started_it() {
        let code = "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, pipe_handle=7)";
        assert!(is_worker(&started::text(&command(&["python3", "-c", code, "--multiprocessing-fork"]))));
        assert_eq!(started::text(&command(&["python3", "no-such-script.py"])), "");
    }

    #[test]
    fn only_python_is_touched() {
        assert!(is_python(&command(&["/usr/bin/python3.12", "x.py"])));
        assert!(!is_python(&command(&["bash", "-c", "python"])));
        assert!(!is_python(&command(&[])));
    }

    fn chosen(written: Option<TorchVariable>) -> TorchMemory {
        let torch = TorchMemory::new();
        torch.choice.get_or_init(|| Choice { written, reason: "a reason" });
        torch
    }

    #[test]
    fn an_allocator_that_lacks_features_is_a_warning() {
        let (level, line) = chosen(Some((VARIABLE, ASYNC))).announcement().expect("a line");
        assert!(level == log::Level::Warn && line.contains("without CUDA graph trees"), "{line}");
        let (level, line) = chosen(Some((NEWER, EXPANDABLE))).announcement().expect("a line");
        assert!(level == log::Level::Info && line.contains(EXPANDABLE), "{line}");
        let (_, line) = chosen(None).announcement().expect("a line");
        assert!(line.contains("left as it is (a reason)"), "{line}");
    }

    #[test]
    fn a_pluggable_allocator_is_its_own_announcement() {
        let torch = chosen(Some((NEWER, EXPANDABLE)));
        torch.keeping.insert(1);
        assert_eq!((torch.announcement(), torch.back_end()), (None, "pluggable"));
        assert_eq!(TorchMemory::new().announcement(), None, "nothing was chosen");
    }

    #[test]
    fn a_retained_context_is_forgotten_with_its_device() {
        let torch = TorchMemory::new();
        assert!(torch.retained.insert(2) && !torch.retained.insert(2));
        torch.forget_retained(2);
        assert!(torch.retained.insert(2));
    }
}
