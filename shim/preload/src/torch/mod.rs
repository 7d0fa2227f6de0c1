//! Chooses PyTorch's allocator before PyTorch reads its environment.
//!
//! `auto` takes PyTorch's own allocator with expandable segments, which pack memory best of all that lack none of its features. With
//! them tensors that are shared go to the other process as file descriptors, which it takes out of this one (`pidfd_getfd`). Where the
//! kernel would forbid that, or the program passes addresses of tensors on by means of its own ([`started`]), and wherever the
//! user chose, the environment is left alone.

pub(crate) mod devices;
mod started;

use std::ffi::OsString;
use std::sync::{Once, OnceLock};

use wm_driver::share::may_fetch_descriptors;
use wm_trust::environment;

use crate::settings::{self, TorchAllocator};

/// Every PyTorch reads this one.
const VARIABLE: &str = "PYTORCH_CUDA_ALLOC_CONF";

/// PyTorch reads this one from 2.9 on, where the other is not set. So what a program sets there itself goes before what `auto` chooses,
/// which is written here; and earlier versions keep their default: they refuse memory pools with allocators of their own beside
/// expandable segments. It is not written under the other name as well, which PyTorch says is deprecated where it reads it.
const NEWER: &str = "PYTORCH_ALLOC_CONF";

/// What we wrote there, so that a child does not take it for the user's word.
const WRITTEN: &str = "WMSHIM_TORCH_CHOICE";

/// How Python's own modules start a worker, which follows the program that started it.
const WORKERS: &[&str] =
    &["multiprocessing.spawn", "multiprocessing.forkserver", "multiprocessing.resource_tracker"];

/// What this process chose at load, unless its parent had chosen the same and has said so.
static NEWS: OnceLock<Choice> = OnceLock::new();

/// What was decided, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Choice {
    /// The variable and the value that make it so; `None`: the environment is left alone.
    written: Option<TorchVariable>,
    reason: &'static str,
}

type TorchVariable = (&'static str, &'static str);

/// At load: writes the choice into the environment. Does nothing in a process that is no Python. What a parent chose for itself is
/// none of this program's, unless it is a worker.
pub(crate) fn choose() {
    if environment::is_withheld() {
        return;
    }
    let command = command_line();
    // A library that is loaded late, as a drop-in is, may not write to an environment that other threads read.
    if !is_python(&command) || !is_single_threaded() {
        return;
    }
    if is_worker(&started::text(&command)) {
        return;
    }
    let parents = inherited();
    if let Some((variable, _)) = &parents {
        // SAFETY: this is the only thread there is.
        unsafe { [variable, WRITTEN].into_iter().for_each(|name| environment::set(name, None)) };
    }
    if set(VARIABLE) || set(NEWER) {
        return;
    }
    let choice = decide(&command);
    let written = choice.written;
    if let Some((variable, value)) = written {
        // SAFETY: as above.
        unsafe { [variable, WRITTEN].into_iter().for_each(|name| environment::set(name, Some(value))) };
    }
    let known = parents.zip(written).is_some_and(|(before, (name, value))| before == (name, value.into()));
    if !known {
        NEWS.get_or_init(|| choice);
    }
}

/// What stands in the environment, if it is a choice of ours that was made in another process.
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

/// When the first device memory is served in a process that has PyTorch: says what was chosen, and louder what it lacks. Workers that
/// only inherited the variable, or never come to a device, have nothing to say.
pub(crate) fn announce() {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        let Some(choice) = NEWS.get().filter(|_| has_torch() && !devices::is_any_keeping()) else { return };
        let what = choice.written.map_or("left as it is".into(), |(variable, value)| format!("{variable}={value}"));
        let lacks = match choice.written {
            Some((_, ASYNC)) => "; without CUDA graph trees, memory pools, snapshots and shared tensors",
            _ => "",
        };
        let level = if lacks.is_empty() { log::Level::Info } else { log::Level::Warn };
        log::log!(
            level,
            "PyTorch's allocator: {what} ({}{lacks}); WMSHIM_TORCH_ALLOCATOR=native|expandable|async changes it",
            choice.reason
        );
    });
}

/// For statistics: the allocator this process was given.
pub(crate) fn back_end() -> &'static str {
    if devices::is_any_keeping() {
        return "pluggable";
    }
    let named = [VARIABLE, NEWER].into_iter().find_map(environment::text);
    match named.unwrap_or_default().as_str() {
        ASYNC => "async",
        NATIVE | MOVABLE => "native",
        EXPANDABLE => "expandable",
        _ => "untouched",
    }
}

fn set(variable: &str) -> bool {
    environment::variable(variable).is_some_and(|value| !value.is_empty())
}

const EXPANDABLE: &str = "expandable_segments:True";
const ASYNC: &str = "backend:cudaMallocAsync";
const NATIVE: &str = "backend:native";

/// PyTorch's own allocator, each of whose large tensors has a block to itself (the least that it takes): so a block is used by few kernels, and one that
/// PyTorch does not need goes back to us when memory is short.
const MOVABLE: &str = "max_split_size_mb:21";

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

/// The user's wish. The settings are read at the first call, which is later: here only what bears on PyTorch is.
fn wanted() -> Option<TorchAllocator> {
    let off = |name: &str, word: &[&str]| {
        environment::text(name).is_some_and(|v| word.contains(&v.to_ascii_lowercase().as_str()))
    };
    if off("WMSHIM_STITCH", &["off", "0", "false", "no"])
        || off("WMSHIM_DISABLE", &["on", "1", "true", "yes"])
    {
        return None;
    }
    let text = environment::text("WMSHIM_TORCH_ALLOCATOR").unwrap_or_default();
    Some(settings::torch_allocator(&text).unwrap_or(TorchAllocator::Auto))
}

fn automatic(command: &[String]) -> Choice {
    if environment::text("WMSHIM_DEDUP").is_some_and(|value| value.eq_ignore_ascii_case("on")) {
        return Choice { written: None, reason: "blocks of its own allocator can be shared" };
    }
    let forbidden = "expandable segments could not be shared between processes here";
    let reason = started::reason(command).or_else(|| (!may_fetch_descriptors()).then_some(forbidden));
    match reason {
        Some(reason) => Choice { written: None, reason },
        None if migrates() => Choice { written: Some((NEWER, MOVABLE)), reason: "its blocks can move" },
        None => Choice { written: Some((NEWER, EXPANDABLE)), reason: "packs memory best" },
    }
}

/// Does the user want memory to move? What makes its memory itself, as expandable segments do, does not move.
fn migrates() -> bool {
    environment::text("WMSHIM_MIGRATE").is_some_and(|value| settings::migrates(&value))
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
    //! Hazard: a program that ran before does not run with the back end chosen for it.
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
}
