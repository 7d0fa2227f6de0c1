//! Chooses PyTorch's allocator back end before PyTorch reads its environment.
//!
//! Under `cudaMallocAsync` every tensor's allocation reaches us with its stream, which is the best source there is.
//! But that back end lacks some of PyTorch's features. So `auto` chooses it unless the user chose already, or the
//! program is known or seen to need what it lacks: [`PROGRAMS`] and [`WORDS`], one row a reason.

use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::pluggable;
use crate::settings::{self, TorchAllocator};

/// PyTorch reads this one; when both are set the other is ignored.
const VARIABLE: &str = "PYTORCH_CUDA_ALLOC_CONF";
const OTHER: &str = "PYTORCH_ALLOC_CONF";

/// What we wrote there, so that a child does not take it for the user's word.
const WRITTEN: &str = "WMSHIM_TORCH_CHOICE";

/// How Python's own modules start a worker, which follows the program that started it.
const WORKERS: &[&str] =
    &["multiprocessing.spawn", "multiprocessing.forkserver", "multiprocessing.resource_tracker"];

/// Programs that need PyTorch's native allocator, by a component of the command's first words.
const PROGRAMS: &[(&str, &str)] = &[
    ("vllm", "memory pools and its own sleep mode"),
    ("sglang", "memory pools and CUDA tensor sharing"),
    ("ray", "CUDA tensor sharing between workers"),
    ("tritonserver", "several frameworks in one process"),
    ("lmdeploy", "memory pools"),
];

/// Words in the started script, or in code given with `-c`, that name a feature which `cudaMallocAsync` lacks.
const WORDS: &[(&str, &str)] = &[
    ("reduce-overhead", "CUDA graph trees check pool state"),
    ("max-autotune", "CUDA graph trees check pool state"),
    ("MemPool", "memory pools"),
    ("use_mem_pool", "memory pools"),
    ("memory_snapshot", "memory snapshots"),
    ("_record_memory_history", "memory history"),
    ("_dump_snapshot", "memory snapshots"),
    ("CUDAPluggableAllocator", "an allocator of its own"),
    ("wmshim.torch", "wmshim as an allocator of its own"),
    ("expandable_segments", "an allocator configuration of its own"),
    ("reduce_tensor", "CUDA tensor sharing"),
    ("torch.multiprocessing", "CUDA tensor sharing"),
    ("import vllm", "memory pools and its own sleep mode"),
    ("import sglang", "memory pools and CUDA tensor sharing"),
    ("from vllm", "memory pools and its own sleep mode"),
    ("from sglang", "memory pools and CUDA tensor sharing"),
];

/// A script is read no further than this.
const LARGEST_SCRIPT: u64 = 1 << 20;

/// This process made the choice, at load, and its parent none like it.
static CHOSEN: AtomicBool = AtomicBool::new(false);

/// What was decided, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Choice {
    allocator: Option<TorchAllocator>,
    reason: &'static str,
}

/// At load: writes the choice into the environment. Does nothing in a process that is no Python. What a parent chose for itself is
/// none of this program's, unless it is a worker.
pub(crate) fn choose() {
    let command = command_line();
    if !is_python(&command) || is_worker(&command) {
        return;
    }
    let parents = std::env::var(VARIABLE).ok().filter(|_| is_inherited());
    if parents.is_some() {
        // SAFETY: constructors run before main, on the only thread there is.
        unsafe { [VARIABLE, WRITTEN].into_iter().for_each(|name| std::env::remove_var(name)) };
    }
    if set(VARIABLE) || set(OTHER) {
        return;
    }
    let Some(value) = decide(&command).allocator.and_then(configuration) else { return };
    // SAFETY: as above.
    unsafe { [VARIABLE, WRITTEN].into_iter().for_each(|name| std::env::set_var(name, value)) };
    // What the parent has said need not be said again.
    CHOSEN.store(parents.as_deref() != Some(value), Ordering::Relaxed);
}

/// Is what stands in the environment a choice of ours, made in another process?
fn is_inherited() -> bool {
    set(WRITTEN) && std::env::var_os(WRITTEN) == std::env::var_os(VARIABLE)
}

fn is_worker(command: &[String]) -> bool {
    let code = source(command);
    WORKERS.iter().any(|module| code.contains(module))
}

/// When the first device memory is served in a process that has PyTorch: says what was chosen. Workers that only
/// inherited the variable, or never come to a device, have nothing to say.
pub(crate) fn announce() {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        let command = command_line();
        let inherited = !CHOSEN.load(Ordering::Relaxed) && (set(VARIABLE) || set(OTHER));
        if is_python(&command) && has_torch() && !inherited && !pluggable::in_use() {
            let (value, reason) = (std::env::var(VARIABLE).unwrap_or_default(), decide(&command).reason);
            log::warn!(
                "PyTorch's allocator: {VARIABLE}={value} ({reason}); WMSHIM_TORCH_ALLOCATOR=async|native|expandable changes it"
            );
        }
    });
}

/// For statistics: the back end this process was given.
pub(crate) fn back_end() -> &'static str {
    if pluggable::in_use() {
        return "pluggable";
    }
    match std::env::var(VARIABLE).unwrap_or_default().as_str() {
        "backend:cudaMallocAsync" => "async",
        "backend:native" => "native",
        "expandable_segments:True" => "expandable",
        _ => "untouched",
    }
}

fn set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

/// `None`: leave the environment alone.
fn configuration(allocator: TorchAllocator) -> Option<&'static str> {
    match allocator {
        TorchAllocator::Auto => None,
        TorchAllocator::Async => Some("backend:cudaMallocAsync"),
        TorchAllocator::Native => Some("backend:native"),
        TorchAllocator::Expandable => Some("expandable_segments:True"),
    }
}

fn decide(command: &[String]) -> Choice {
    match wanted() {
        Some(TorchAllocator::Auto) => automatic(command),
        Some(named) => Choice { allocator: Some(named), reason: "as WMSHIM_TORCH_ALLOCATOR says" },
        None => Choice { allocator: None, reason: "the memory manager is off" },
    }
}

/// The user's wish. The settings are read at the first call, which is later: here only what bears on PyTorch is.
fn wanted() -> Option<TorchAllocator> {
    let off = |name: &str, word: &[&str]| {
        std::env::var(name).is_ok_and(|v| word.contains(&v.to_ascii_lowercase().as_str()))
    };
    if off("WMSHIM_STITCH", &["off", "0", "false", "no"])
        || off("WMSHIM_DISABLE", &["on", "1", "true", "yes"])
    {
        return None;
    }
    let text = std::env::var("WMSHIM_TORCH_ALLOCATOR").unwrap_or_default();
    Some(settings::torch_allocator(&text).unwrap_or(TorchAllocator::Auto))
}

fn automatic(command: &[String]) -> Choice {
    match program(command).or_else(|| word(&source(command))) {
        Some(reason) => Choice { allocator: None, reason },
        None => {
            Choice { allocator: Some(TorchAllocator::Async), reason: "chosen so that tensors reach wmshim" }
        }
    }
}

/// What Python was told to run: the code behind `-c`, or the script's text.
fn source(command: &[String]) -> String {
    let code = command.iter().position(|word| word == "-c").and_then(|at| command.get(at + 1)).cloned();
    let script = || read(Path::new(command.iter().skip(1).find(|word| word.ends_with(".py"))?));
    code.or_else(script).unwrap_or_default()
}

/// The reason of the first row whose program is started: `vllm serve`, `python -m vllm...`, `.../bin/sglang`.
fn program(command: &[String]) -> Option<&'static str> {
    let started = command.iter().take(3).flat_map(|word| word.split(['/', '.']));
    let started: Vec<_> = started.collect();
    PROGRAMS.iter().find(|(name, _)| started.contains(name)).map(|(_, reason)| *reason)
}

fn word(script: &str) -> Option<&'static str> {
    WORDS.iter().find(|(word, _)| script.contains(word)).map(|(_, reason)| *reason)
}

fn read(script: &Path) -> Option<String> {
    let small = std::fs::metadata(script).ok()?.len() <= LARGEST_SCRIPT;
    small
        .then(|| std::fs::read(script).ok())
        .flatten()
        .map(|text| String::from_utf8_lossy(&text).into_owned())
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
    fn every_program_row_is_recognised_however_it_is_started() {
        for (name, reason) in PROGRAMS {
            for line in [vec!["python3", "-m", name], vec!["python", &format!("/opt/bin/{name}"), "serve"]] {
                assert_eq!(program(&command(&line)), Some(*reason), "{line:?}");
            }
        }
        assert_eq!(program(&command(&["python3", "train.py", "--ray"])), None);
    }

    #[test]
    fn every_word_row_is_recognised_in_a_script() {
        for (needle, reason) in WORDS {
            let found = word(&format!("x = 1\n{needle}\n"));
            assert!(found.is_some(), "{needle}");
            assert!(WORDS.iter().any(|(_, r)| Some(*r) == found), "{reason}");
        }
        assert_eq!(word("import torch\nmodel.cuda()\n"), None);
    }

    #[test]
    fn a_worker_follows_the_program_that_started_it() {
        let code = "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, pipe_handle=7)";
        assert!(is_worker(&command(&["python3", "-c", code, "--multiprocessing-fork"])));
        assert_eq!(source(&command(&["python3", "no-such-script.py"])), "");
    }

    #[test]
    fn only_python_is_touched() {
        assert!(is_python(&command(&["/usr/bin/python3.12", "x.py"])));
        assert!(!is_python(&command(&["bash", "-c", "python"])));
        assert!(!is_python(&command(&[])));
    }
}
