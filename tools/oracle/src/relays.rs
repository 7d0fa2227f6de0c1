//! Copies over several links: a simulated machine on which the library uses them, and the library's
//! statistics about them.
//!
//! The library divides copies by its measurement of the machine. On a simulated machine the rates
//! are those of the processor, and each process would measure them again. So the oracle writes a
//! measurement of equal links.
//!
//! Invariant: no two processes have the same machine. Those of one machine keep off each other's
//! links.

use std::ffi::{CStr, c_char, c_void};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use random::{Choices, Random};
use serde_json::Value;
use wm_multipath::measured::{Costs, Identity, MachineKey, Rates, Topology, cache};

/// Devices of the simulated machine: one more than programs use, so that two links are there
/// besides each device's own.
pub(crate) const DEVICES: usize = 3;
/// Smallest copy that is cut up, for the library; a share is at least half of it.
const LEAST: &str = "2MiB";
/// Cores of the simulated machine: pageable copies are cut up by threads.
const CORES: &str = "8";
/// Bytes a second of each link, for the library: as much as one thread carries, so that a pageable
/// copy has one for each link.
const RATE: f64 = 6e9;
/// The real rates of the links: so low that each thread of a pageable copy begins before the
/// first has carried all of it.
const LINKS: &str = "pcie=1GB/s,nvlink=20GB/s";

/// Where simulated machines' measurements are kept, for as long as this value.
#[derive(Debug)]
pub(crate) struct Machines {
    folder: PathBuf,
    count: AtomicU32,
}

impl Machines {
    pub(crate) fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("oracle-machines-{}", std::process::id()));
        Self { folder, count: AtomicU32::new(0) }
    }

    /// Puts a process of the library's on a machine of its own.
    pub(crate) fn furnish(&self, command: &mut Command, failing: bool) {
        let machine = (std::process::id() << 10) | (self.count.fetch_add(1, Ordering::Relaxed) & 0x3ff);
        // Without it the library measures: the process then tells that nothing was relayed.
        let _kept = cache::store(&self.folder.join("wmshim"), &measured(machine));
        let devices: Vec<String> = (0..DEVICES).map(|device| device.to_string()).collect();
        if std::env::var_os("SIMCUDA_LINKS").is_none() {
            command.env("SIMCUDA_LINKS", LINKS);
        }
        command.env("XDG_CACHE_HOME", &self.folder);
        give_cores(command);
        if failing {
            command.env("SIMCUDA_FAIL", failures(machine.into()));
        }
        command.env("SIMCUDA_MACHINE", machine.to_string()).env("SIMCUDA_DEVICES", DEVICES.to_string());
        command.env("WMSHIM_MULTIPATH", devices.join(",")).env("WMSHIM_MULTIPATH_MIN", LEAST);
    }
}

/// Calls that fail on the sibling that programs do not use: the library makes them, for copies of
/// others.
fn failures(seed: u64) -> String {
    const CALLS: [&str; 7] = [
        "cuMemcpyHtoDAsync",
        "cuMemcpyDtoHAsync",
        "cuEventRecord",
        "cuStreamWaitEvent",
        "cuEventQuery",
        "cuStreamCreate",
        "cuEventCreate",
    ];
    let mut random = Random::with_seed(seed);
    let mut one = || {
        let (call, at) = (CALLS[random.below(CALLS.len())], 12 + random.below(120));
        format!("{call}@{}:{at}", DEVICES - 1)
    };
    (0..24).map(|_| one()).collect::<Vec<_>>().join(",")
}

/// A simulated machine whose programs' copies are large, and whose threads have cores.
pub(crate) fn let_threads_copy(command: &mut Command) {
    give_cores(command);
    if std::env::var_os("WMSHIM_MULTIPATH_MIN").is_none() {
        command.env("WMSHIM_MULTIPATH_MIN", LEAST);
    }
}

fn give_cores(command: &mut Command) {
    command.args(["--cores", CORES]);
}

impl Drop for Machines {
    fn drop(&mut self) {
        // It may never have been made.
        let _removed = std::fs::remove_dir_all(&self.folder);
    }
}

/// The library's measurement of the simulator's machine of this number.
fn measured(machine: u32) -> Topology {
    let identity = |ordinal: usize| Identity {
        uuid: format!("{machine:08x}d-gpu-{ordinal:02}").bytes().map(|byte| format!("{byte:02x}")).collect(),
        pci: format!("0000:{:02x}:00.0", ordinal + 1),
        numa: Some(0),
    };
    let key = MachineKey { driver: 13_000, devices: (0..DEVICES).map(identity).collect() };
    let rates = Rates {
        alone: vec![RATE; DEVICES],
        together: vec![vec![2.0 * RATE; DEVICES]; DEVICES],
        all: RATE * DEVICES as f64,
    };
    let costs = Costs { fixed: 1e-7, lag: 1e-7, step: 1e-8, open: 1e-2 };
    Topology { key, reach: vec![vec![true; DEVICES]; DEVICES], into: rates.clone(), out: rates, costs }
}

/// The library's statistics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Statistics(extern "C" fn() -> *mut c_char);

impl Statistics {
    /// Of the library that this process runs under.
    pub(crate) fn find() -> Option<Self> {
        // SAFETY: looks a name up in the loaded libraries.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"wmshim_stats_json".as_ptr()) };
        if found.is_null() {
            return None;
        }
        // SAFETY: the library's function takes nothing and returns a C string, or null.
        Some(Self(unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> *mut c_char>(found) }))
    }

    /// Parts of copies that took a path whose name begins so.
    pub(crate) fn carried(self, by: &str) -> u64 {
        let document = self.document();
        let rows = document["copies"].as_array().map_or(&[][..], Vec::as_slice);
        let carried = rows.iter().filter(|row| row["path"].as_str().is_some_and(|path| path.starts_with(by)));
        carried.filter_map(|row| row["count"].as_u64()).sum()
    }

    /// Bytes that moved between devices and the host.
    pub(crate) fn moved(self) -> u64 {
        let document = self.document();
        let devices = document["devices"].as_array().map_or(&[][..], Vec::as_slice);
        let ways = |device: &Value| ["in_bytes", "out_bytes"].map(|way| device["moves"][way].as_u64());
        devices.iter().flat_map(ways).flatten().sum()
    }

    /// How often the process has asked for its turn at a GPU.
    pub(crate) fn asks(self) -> u64 {
        self.document()["turn"]["asks"].as_u64().unwrap_or(0)
    }

    fn document(self) -> Value {
        let text = (self.0)();
        if text.is_null() {
            return Value::Null;
        }
        // SAFETY: a C string, which is ours to free.
        let document = unsafe { serde_json::from_slice(CStr::from_ptr(text).to_bytes()) };
        // SAFETY: it came from the C allocator, and no reference to it is left.
        unsafe { libc::free(text.cast()) };
        document.unwrap_or_default()
    }
}
