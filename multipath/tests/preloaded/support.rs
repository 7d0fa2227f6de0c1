//! A program under the preloaded library, on the simulated driver, in a process of its own.
//!
//! The library is opened by path and asked for its exports, as a program under `LD_PRELOAD` gets them. Each test runs in
//! a process of its own: the library reads its settings once.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use wm_abi::*;
use wm_driver::{Loader, Table};
use wm_multipath::plan::Costs;
use wm_multipath::topology::{Identity, Key, Rates, Topology, cache};

pub(crate) const MIB: usize = 1 << 20;
pub(crate) const BYTES: usize = 12 * MIB;
pub(crate) const INNER: &str = "WM_MULTIPATH_PRELOADED";

pub(crate) fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    let path = test.ancestors().nth(2).expect("target/<profile>").join(name);
    assert!(path.is_file(), "run `cargo build -p wmshim -p simcuda` first: {} is missing", path.display());
    path
}

/// Runs `body` under these settings, in a process of its own.
pub(crate) fn alone(name: &str, links: &str, variables: &[(&str, &str)], body: fn()) {
    if std::env::var_os(INNER).is_some() {
        body();
        std::process::exit(0);
    }
    let cache = std::env::temp_dir().join(format!(
        "wmshim-preloaded-{}-{}",
        std::process::id(),
        name.replace("::", "-")
    ));
    remember(&cache);
    let mut command = Command::new(std::env::current_exe().expect("this test has a path"));
    command.args(["--exact", name, "--nocapture"]).env(INNER, built("libwmshim.so"));
    command
        .env("WMSHIM_DRIVER", built("libsimcuda.so"))
        .env("SIMCUDA_DEVICES", "2")
        // A machine of its own: tests that run at once would keep off each other's links.
        .env("SIMCUDA_MACHINE", std::process::id().to_string())
        .env("XDG_CACHE_HOME", &cache);
    command
        .env("WMSHIM_MULTIPATH", links)
        .env("WMSHIM_MULTIPATH_MIN", "2MiB")
        .env("WMSHIM_STATS_SOCKET", "off");
    command.env("WMSHIM_LOG", "error").envs(variables.iter().copied());
    let output = command.output().expect("it can be started");
    let _ = std::fs::remove_dir_all(cache);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stdout));
}

/// Keeps a measurement of two links that are alike, for it takes a test's time and other tests do it. The devices are the
/// simulator's; of others nothing would be known, and they would be measured.
fn remember(folder: &Path) {
    let identity = |ordinal: usize| Identity {
        uuid: format!("{:08x}d-gpu-{ordinal:02}", std::process::id())
            .bytes()
            .map(|byte| format!("{byte:02x}"))
            .collect(),
        pci: format!("0000:{:02x}:00.0", ordinal + 1),
        numa: Some(0),
    };
    let key = Key { driver: 13_000, devices: (0..2).map(identity).collect() };
    let rates = Rates { alone: vec![6e8; 2], together: vec![vec![12e8; 2]; 2], all: 12e8 };
    let costs = Costs { fixed: 1e-4, lag: 5e-5, step: 1e-5, open: 1e-2 };
    let topology = Topology { key, reach: vec![vec![true; 2]; 2], into: rates.clone(), out: rates, costs };
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

/// Buffers of a program: on a device, pinned, and pinned again for what comes back.
pub(crate) struct Program {
    pub(crate) stream: CUstream,
    pub(crate) device: u64,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Program {
    pub(crate) fn new() -> Self {
        cu!(cuInit(0));
        let (mut context, mut stream, mut device) = (CUcontext::NULL, CUstream::NULL, 0);
        cu!(cuDevicePrimaryCtxRetain(&mut context, 0));
        cu!(cuCtxSetCurrent(context));
        cu!(cuStreamCreate(&mut stream, CU_STREAM_DEFAULT));
        cu!(cuMemAlloc_v2(&mut device, BYTES));
        let pin = || {
            let mut address = std::ptr::null_mut();
            cu!(cuMemHostAlloc(&mut address, BYTES, 0));
            address as u64
        };
        Self { stream, device, from: pin(), to: pin() }
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
    // SAFETY: BYTES bytes that are never freed, and that no call uses while a test looks at them.
    unsafe { std::slice::from_raw_parts_mut(address as *mut u8, BYTES) }
}

/// What the library says of itself.
fn statistics() -> serde_json::Value {
    // SAFETY: the library is open for good; its function takes nothing and returns a C string.
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

/// Memory that copies hold on the relay: staging, and its context at most.
pub(crate) fn held() -> (u64, u64) {
    let relay = &statistics()["relays"][0];
    let bytes = |field: &str| relay[field].as_u64().expect("bytes");
    (bytes("staging_bytes"), bytes("context_bytes_at_most"))
}

pub(crate) fn relayed() -> u64 {
    copies().iter().filter(|((path, _), _)| path == "relay 1").map(|(_, count)| count).sum()
}

/// Makes one form of call and tells how many of its copies went through the relay.
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
