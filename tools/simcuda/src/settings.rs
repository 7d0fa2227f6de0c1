//! The simulator's settings from the environment.
//!
//! An unreadable value is one line on standard error that names the valid ones; the default is
//! used.

use std::fmt::Display;
use std::sync::OnceLock;

use wm_schema::size;

use crate::fail::{self, Rule};
use crate::visible;

/// The values of the `SIMCUDA_*` variables.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The devices of the machine that the process has, in its order.
    pub(crate) visible: Vec<usize>,
    /// Memory of each device, in bytes.
    pub(crate) memory: u64,
    /// Memory of the host that may be pinned. `None`: the machine's memory.
    pub(crate) host: Option<u64>,
    /// Bytes of host memory that `cuMemCreate` makes in a second. `None`: no limit.
    pub(crate) host_making: Option<f64>,
    /// The file in which processes that compete for memory count their bytes.
    pub(crate) shared: Option<std::path::PathBuf>,
    /// The folder in which processes are found that others may checkpoint.
    pub(crate) checkpoints: Option<std::path::PathBuf>,
    /// Speed of each device's link to the host, in bytes a second and direction. `None`: no limit.
    pub(crate) pcie: Option<f64>,
    /// Speed between two devices, in bytes a second and direction.
    pub(crate) nvlink: Option<f64>,
    /// Seed of the delays that reorder independent streams. `None`: no delays.
    pub(crate) seed: Option<u64>,
    /// Calls that will fail.
    pub(crate) failures: Vec<Rule>,
    /// The simulated machine: processes of different ones see different devices.
    pub(crate) machine: Option<u32>,
    /// Does the process appear to share devices through MPS?
    pub(crate) mps: bool,
    /// May a device have contexts of one process only?
    pub(crate) exclusive: bool,
    /// Do devices use the host's page tables?
    pub(crate) coherent: bool,
    /// Can devices use each other's memory?
    pub(crate) peers: bool,
    /// Can the CPU have access to memory that the program maps?
    pub(crate) cpu_access: bool,
    /// End the process if copies race?
    pub(crate) races: bool,
    /// Does a thread crash that is inside a call when the process's exit ends the driver, or that
    /// calls it later?
    pub(crate) exit_crashes: bool,
    /// Does `cuMemFree` keep other calls out while it waits?
    pub(crate) free_locks: bool,
    /// Are handles of removed objects reused?
    pub(crate) reuse_handles: bool,
    /// Suppress the lines about functions that are not simulated?
    pub(crate) quiet: bool,
}

/// The settings, read from the environment at the first call.
pub(crate) fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| Settings::read(|name| std::env::var(name).ok(), |line| complain(&line)))
}

/// One line on standard error.
#[allow(clippy::print_stderr, reason = "the simulator's only voice")]
pub(crate) fn complain(line: &dyn Display) {
    let line = format!("simcuda: {line}\n");
    eprint!("{line}");
}

impl Settings {
    /// The number on the machine of the device with an ordinal.
    pub(crate) fn unit(&self, ordinal: usize) -> usize {
        self.visible.get(ordinal).copied().unwrap_or(ordinal)
    }

    /// The ordinal of a device of the machine; `None` for one that the process does not have.
    pub(crate) fn ordinal(&self, unit: usize) -> Option<usize> {
        self.visible.iter().position(|visible| *visible == unit)
    }

    fn read(get: impl Fn(&str) -> Option<String>, warn: impl Fn(String)) -> Self {
        let links = value(&get, &warn, "SIMCUDA_LINKS", LINKS, (None, None), links);
        let count = value(&get, &warn, "SIMCUDA_DEVICES", "a number from 1 to 64", 1, devices);
        let machine =
            value(&get, &warn, "SIMCUDA_MACHINE", "a number", None, |text| text.parse().ok().map(Some));
        Self {
            visible: visible::units(get("CUDA_VISIBLE_DEVICES").as_deref(), count, machine),
            memory: value(
                &get,
                &warn,
                "SIMCUDA_MEMORY",
                "a size such as 512MiB or 2GiB",
                2 << 30,
                size::parse,
            ),
            host: value(&get, &warn, "SIMCUDA_HOST", "a size such as 8GiB", None, |text| {
                size::parse(text).map(Some)
            }),
            host_making: value(&get, &warn, "SIMCUDA_HOST_MAKING", "a speed such as 6GB/s", None, |text| {
                speed(text).map(Some)
            }),
            shared: get("SIMCUDA_SHARED").filter(|path| !path.is_empty()).map(Into::into),
            checkpoints: get("SIMCUDA_CHECKPOINTS").filter(|path| !path.is_empty()).map(Into::into),
            pcie: links.0,
            nvlink: links.1,
            seed: value(&get, &warn, "SIMCUDA_SEED", "a number", None, |text| text.parse().ok().map(Some)),
            failures: value(&get, &warn, "SIMCUDA_FAIL", fail::SYNTAX, Vec::new(), fail::rules),
            machine,
            mps: value(&get, &warn, "SIMCUDA_MPS", "on or off", false, switch),
            coherent: value(&get, &warn, "SIMCUDA_COHERENT", "on or off", false, switch),
            exclusive: value(&get, &warn, "SIMCUDA_EXCLUSIVE", "on or off", false, switch),
            peers: value(&get, &warn, "SIMCUDA_PEERS", "on or off", true, switch),
            cpu_access: value(&get, &warn, "SIMCUDA_CPU_ACCESS", "on or off", true, switch),
            races: value(&get, &warn, "SIMCUDA_RACES", "on or off", false, switch),
            exit_crashes: value(&get, &warn, "SIMCUDA_EXIT", "answer or crash", false, exit),
            free_locks: value(&get, &warn, "SIMCUDA_FREE_LOCKS", "on or off", false, switch),
            reuse_handles: value(&get, &warn, "SIMCUDA_REUSE_HANDLES", "on or off", false, switch),
            quiet: value(&get, &warn, "SIMCUDA_QUIET", "on or off", false, switch),
        }
    }
}

const LINKS: &str = "pcie=25GB/s, nvlink=300GB/s or both with a comma between";

/// One variable: its parsed value, or the default with a warning.
fn value<T>(
    get: &impl Fn(&str) -> Option<String>,
    warn: &impl Fn(String),
    name: &str,
    valid: &str,
    default: T,
    parse: impl Fn(&str) -> Option<T>,
) -> T {
    let Some(text) = get(name) else { return default };
    parse(text.trim()).unwrap_or_else(|| {
        warn(format!("{name}={text} is not valid and is ignored: it takes {valid}"));
        default
    })
}

fn devices(text: &str) -> Option<usize> {
    text.parse().ok().filter(|count| (1..=64).contains(count))
}

fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "0" | "off" | "no" | "false" | "" => Some(false),
        "1" | "on" | "yes" | "true" => Some(true),
        _ => None,
    }
}

/// The effect of the exit on a thread inside the driver.
fn exit(text: &str) -> Option<bool> {
    match text {
        "answer" | "" => Some(false),
        "crash" => Some(true),
        _ => None,
    }
}

/// `pcie=25GB/s,nvlink=300GB/s` as (pcie, nvlink).
fn links(text: &str) -> Option<(Option<f64>, Option<f64>)> {
    let mut links = (None, None);
    for entry in text.split(',') {
        let (name, speed) = entry.split_once('=')?;
        let speed = self::speed(speed)?;
        match name.trim() {
            "pcie" => links.0 = Some(speed),
            "nvlink" => links.1 = Some(speed),
            _ => return None,
        }
    }
    Some(links)
}

/// Bytes in a second.
fn speed(text: &str) -> Option<f64> {
    Some(size::parse(text.trim().strip_suffix("/s")?)? as f64)
}

#[cfg(test)]
mod tests {
    //! Hazard: a setting that is misread silently makes every test that relies on it vacuous.
    use std::cell::RefCell;

    use super::*;

    fn read(name: &'static str, text: &'static str) -> (Settings, Vec<String>) {
        let lines = RefCell::new(Vec::new());
        let get = |asked: &str| (asked == name).then(|| text.to_owned());
        let settings = Settings::read(get, |line| lines.borrow_mut().push(line));
        (settings, lines.into_inner())
    }

    #[test]
    fn sizes_take_units() {
        for (text, bytes) in
            [("2GiB", 2 << 30), ("512MiB", 512 << 20), ("1.5KiB", 1536), ("3GB", 3_000_000_000)]
        {
            let (settings, lines) = read("SIMCUDA_MEMORY", text);
            assert_eq!((settings.memory, lines.len()), (bytes, 0), "{text}");
        }
    }

    #[test]
    fn a_bad_value_is_one_line_and_the_default() {
        for (name, text) in [
            ("SIMCUDA_MEMORY", "lots"),
            ("SIMCUDA_MEMORY", "-1GiB"),
            ("SIMCUDA_DEVICES", "0"),
            ("SIMCUDA_DEVICES", "65"),
            ("SIMCUDA_SEED", "x"),
            ("SIMCUDA_LINKS", "usb=3GB/s"),
            ("SIMCUDA_LINKS", "pcie=25"),
            ("SIMCUDA_HOST_MAKING", "fast"),
            ("SIMCUDA_FAIL", "cuNoSuchFunction:1"),
            ("SIMCUDA_FAIL", "cuMemCreate:0"),
            ("SIMCUDA_MACHINE", "here"),
            ("SIMCUDA_MPS", "2"),
            ("SIMCUDA_EXCLUSIVE", "3"),
            ("SIMCUDA_COHERENT", "2"),
            ("SIMCUDA_PEERS", "some"),
            ("SIMCUDA_RACES", "find"),
            ("SIMCUDA_EXIT", "late"),
            ("SIMCUDA_QUIET", "maybe"),
        ] {
            let (settings, lines) = read(name, text);
            assert_eq!(lines.len(), 1, "{name}={text}: {lines:?}");
            assert!(lines[0].contains(name) && lines[0].contains("it takes"), "{}", lines[0]);
            assert_eq!((&settings.visible[..], settings.memory), (&[0][..], 2 << 30));
            assert!(settings.failures.is_empty());
        }
    }

    #[test]
    fn a_switch_takes_the_words_of_the_librarys() {
        for (text, on) in [("1", true), ("On", true), ("yes", true), ("true", true), ("off", false)] {
            let (settings, lines) = read("SIMCUDA_MPS", text);
            assert_eq!((settings.mps, lines.len()), (on, 0), "{text}");
        }
    }

    #[test]
    fn links_are_named() {
        let (settings, lines) = read("SIMCUDA_LINKS", "pcie=25GB/s,nvlink=300GB/s");
        assert_eq!((settings.pcie, settings.nvlink, lines.len()), (Some(25e9), Some(300e9), 0));
    }

    #[test]
    fn host_memory_is_made_at_a_speed() {
        let (settings, lines) = read("SIMCUDA_HOST_MAKING", "6GB/s");
        assert_eq!((settings.host_making, lines.len()), (Some(6e9), 0));
    }
}
