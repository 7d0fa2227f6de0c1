//! A program under the preloaded library, on the simulated driver, in a process of its own.
//!
//! The library is opened by path and its exports are used, as a program under `LD_PRELOAD` gets
//! them. Each test runs in a process of its own: the library reads its settings once.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hazards::places::built;
use hazards::{Scratch, c};
use wm_abi::*;
use wm_driver::{Loader, Table};
use wm_multipath::measured::{Costs, Identity, MachineKey, Rates, Topology, cache};

pub(crate) const MIB: usize = 1 << 20;
pub(crate) const BYTES: usize = 12 * MIB;
pub(crate) const INNER: &str = "WM_MULTIPATH_PRELOADED";

/// A machine with cores for pageable copies.
pub(crate) const CORES: (&str, &str) = ("TEST_CORES", "8");

/// The exit code of a process that ran a test's body. A harness that finds no test of the name ends
/// with 0.
const DONE: i32 = 94;

/// Runs `body` under these settings, in a process of its own.
pub(crate) fn alone(name: &str, links: &str, variables: &[(&str, &str)], body: fn()) {
    on_machine(name, links, Some(Machine { devices: 2, rate: FAST }), variables, body);
}

/// The links that the library is told of: their number and their rate in bytes a second.
#[derive(Clone, Copy)]
pub(crate) struct Machine {
    pub(crate) devices: usize,
    pub(crate) rate: f64,
}

/// Links so fast that, by the measurement, a copy is over at once. The expected duration of a copy
/// decides which copies count as in flight, and so which relays are unused: a test whose copies
/// follow each other must not depend on the speed of its machine.
pub(crate) const FAST: f64 = 1e12;

/// The same on a machine with this measurement, or without one.
pub(crate) fn on_machine(
    name: &str,
    links: &str,
    measured: Option<Machine>,
    variables: &[(&str, &str)],
    body: fn(),
) {
    if std::env::var_os(INNER).is_some() {
        // With Rust's own handlers, which report a stack overflow, this would be a program that
        // handles faults.
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            // SAFETY: the default disposition.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        body();
        std::process::exit(DONE);
    }
    let cache = std::env::temp_dir().join(format!(
        "wmshim-preloaded-{}-{}",
        std::process::id(),
        name.replace("::", "-")
    ));
    measured.iter().for_each(|machine| remember(&cache, *machine));
    let devices = measured.map_or(2, |machine| machine.devices).to_string();
    let mut command = Command::new(std::env::current_exe().expect("this test has a path"));
    command.args(["--exact", name, "--nocapture"]).env(INNER, built("libwmshim.so"));
    command
        .env("WMSHIM_DRIVER", built("libsimcuda.so"))
        .env("SIMCUDA_DEVICES", devices)
        // A machine of its own: tests that run at once would avoid each other's links.
        .env("SIMCUDA_MACHINE", std::process::id().to_string())
        .env("XDG_CACHE_HOME", &cache);
    command
        .env("WMSHIM_MULTIPATH", links)
        .env("WMSHIM_MULTIPATH_MIN", "2MiB")
        .env("WMSHIM_STATS_SOCKET", "off");
    command.env("WMSHIM_LOG", "error").envs(variables.iter().copied());
    let scratch = Scratch::new();
    if let Some((_, "8")) = variables.iter().find(|(name, _)| *name == CORES.0) {
        command.env("LD_PRELOAD", c::library("cores", scratch.path().join("cores.so"), &[]));
    }
    let output = command.output().expect("it can be started");
    let _ = std::fs::remove_dir_all(cache);
    let text = String::from_utf8_lossy(&output.stderr);
    let is_done = output.status.code() == Some(DONE);
    assert!(is_done, "{name}\n{text}{}", String::from_utf8_lossy(&output.stdout));
}

/// Hazard: a test that was renamed runs nothing, and passes.
#[test]
#[should_panic(expected = "no_test_has_this_name")]
fn a_name_that_no_test_has_is_a_failure() {
    alone("no_test_has_this_name", "off", &[], || {});
}

/// Stores a measurement of equal links, because a real one takes a test's time and other tests make
/// it. The devices are the simulator's; other ones would be unknown, and would be measured.
fn remember(folder: &Path, machine: Machine) {
    let Machine { devices: count, rate } = machine;
    let identity = |ordinal: usize| Identity {
        uuid: format!("{:08x}d-gpu-{ordinal:02}", std::process::id())
            .bytes()
            .map(|byte| format!("{byte:02x}"))
            .collect(),
        pci: format!("0000:{:02x}:00.0", ordinal + 1),
        numa: Some(0),
    };
    let key = MachineKey { driver: 13_000, devices: (0..count).map(identity).collect() };
    let all = rate * count as f64;
    let rates = Rates { alone: vec![rate; count], together: vec![vec![2.0 * rate; count]; count], all };
    let costs = Costs { fixed: 1e-7, lag: 1e-7, step: 1e-8, open: 1e-2 };
    let topology =
        Topology { key, reach: vec![vec![true; count]; count], into: rates.clone(), out: rates, costs };
    cache::store(&folder.join("wmshim"), &topology).expect("a writable folder");
}

pub(crate) fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let path = std::env::var_os(INNER).expect("set by `alone`");
        Table::open(&Loader::system(), path.as_ref()).expect("the library opens")
    })
}

macro_rules! cu {
    ($name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: handles and ranges of this test's own.
        unsafe { $crate::support::table().get::<wm_abi::symbol::$name>()($($argument),*) }.ok().expect(stringify!($name))
    };
}

pub(crate) use cu;

/// Buffers of a program: on a device, pinned, and pinned again for the bytes that come back.
pub(crate) struct Program {
    pub(crate) stream: CUstream,
    pub(crate) device: u64,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Program {
    pub(crate) fn new() -> Self {
        cu!(cuInit(0));
        let (mut context, mut stream) = (CUcontext::NULL, CUstream::NULL);
        cu!(cuDevicePrimaryCtxRetain(&mut context, 0));
        cu!(cuCtxSetCurrent(context));
        cu!(cuStreamCreate(&mut stream, CU_STREAM_DEFAULT));
        Self::buffers(stream)
    }

    /// The same in the current context, around a stream.
    pub(crate) fn buffers(stream: CUstream) -> Self {
        let mut device = 0;
        cu!(cuMemAlloc_v2(&mut device, BYTES));
        let pin = || {
            let mut address = std::ptr::null_mut();
            cu!(cuMemHostAlloc(&mut address, BYTES, 0));
            address as u64
        };
        Self { stream, device, from: pin(), to: pin() }
    }

    /// The same, once relays are in use: their contexts are opened beside the first copies.
    pub(crate) fn warm() -> Self {
        let program = Self::new();
        assert!(program.warm_within(Duration::from_secs(300)), "no relay is in use");
        program
    }

    /// Copies until relays are in use. Later relayed copies count from here.
    pub(crate) fn warm_within(&self, patience: Duration) -> bool {
        let start = Instant::now();
        while relayed() == 0 && start.elapsed() < patience {
            cu!(cuMemcpyHtoD_v2(self.device, self.from as *const _, BYTES));
        }
        let warm = relayed();
        WARM.store(warm, Ordering::Relaxed);
        warm > 0
    }

    /// A pattern whose period is a prime, so that no misplaced piece hides in it.
    pub(crate) fn fill(&self, seed: usize) {
        let tile: Vec<u8> =
            (0..65_537_usize).map(|index| ((index + index / 4099) * seed % 251) as u8).collect();
        bytes(self.from).chunks_mut(tile.len()).for_each(|part| part.copy_from_slice(&tile[..part.len()]));
        bytes(self.to).fill(0);
    }

    pub(crate) fn verify(&self, form: &str) {
        cu!(cuStreamSynchronize(self.stream));
        assert!(bytes(self.to) == bytes(self.from), "{form}");
    }
}

/// A pinned buffer of the program.
pub(crate) fn bytes(address: u64) -> &'static mut [u8] {
    // SAFETY: BYTES bytes that are never freed, and that no call uses while a test reads them.
    unsafe { std::slice::from_raw_parts_mut(address as *mut u8, BYTES) }
}

/// The library's statistics.
fn statistics() -> serde_json::Value {
    // SAFETY: the library stays open; its function takes no argument and returns a C string.
    let text = unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        let function = libc::dlsym(library, c"wmshim_stats_json".as_ptr());
        let function: extern "C" fn() -> *const c_char = std::mem::transmute(function);
        CStr::from_ptr(function())
    };
    serde_json::from_slice(text.to_bytes()).expect("JSON")
}

/// Copies by path and direction, as the library counts them.
pub(crate) fn copies() -> BTreeMap<(String, String), u64> {
    let stats = statistics();
    let rows = stats["copies"].as_array().expect("a list").iter();
    let text = |row: &serde_json::Value, field: &str| row[field].as_str().expect("text").to_owned();
    rows.map(|row| ((text(row, "path"), text(row, "direction")), row["count"].as_u64().unwrap_or(0)))
        .collect()
}

/// Threads of this process with this name, as folders of `/proc`.
pub(crate) fn threads_called(name: &str) -> Vec<PathBuf> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("this process").flatten();
    let is_it = |task: &PathBuf| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|other| other.trim_end() == name)
    };
    tasks.map(|task| task.path()).filter(is_it).collect()
}

/// Copies that had a part on a path, in either direction.
pub(crate) fn carried(path: &str) -> u64 {
    copies().iter().filter(|((other, _), _)| other == path).map(|(_, count)| count).sum()
}

/// Memory that copies hold on the relay: staging, and the upper bound of its context.
pub(crate) fn held() -> (u64, u64) {
    let relay = &statistics()["relays"][0];
    let bytes = |field: &str| relay[field].as_u64().expect("bytes");
    (bytes("staging_bytes"), bytes("context_bytes_at_most"))
}

/// Copies through relays that preceded the test.
static WARM: AtomicU64 = AtomicU64::new(0);

/// Copies through relays since.
pub(crate) fn relayed() -> u64 {
    let relayed: u64 =
        copies().iter().filter(|((path, _), _)| path.starts_with("relay")).map(|(_, count)| count).sum();
    relayed - WARM.load(Ordering::Relaxed)
}

/// Have copies opened a context on a sibling?
pub(crate) fn is_touched() -> bool {
    !statistics()["relays"].as_array().expect("a list").is_empty()
}

/// Makes one form of call. Returns how many of its copies went through the relay.
pub(crate) fn form(program: &Program, name: &str, seed: usize, call: impl FnOnce(&Program)) -> u64 {
    let before = relayed();
    program.fill(seed);
    call(program);
    program.verify(name);
    relayed() - before
}

pub(crate) fn is_active(device: CUdevice) -> bool {
    let (mut flags, mut active) = (0, 0);
    cu!(cuDevicePrimaryCtxGetState(device, &mut flags, &mut active));
    active != 0
}

/// How often a function was intercepted since the start.
pub(crate) fn calls(name: &str) -> u64 {
    let stats = statistics();
    let mut rows = stats["calls"].as_array().expect("a list").iter();
    rows.find(|row| row["name"] == name).and_then(|row| row["count"].as_u64()).unwrap_or(0)
}
