//! Guards the way from a program's call to several links: every form of call through the preloaded library, on the
//! simulated driver.
//!
//! The library is opened by path and asked for its exports, as a program under `LD_PRELOAD` gets them. Each test runs in
//! a process of its own: the library reads its settings once.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use wm_abi::*;
use wm_driver::{Loader, Table};

const MIB: usize = 1 << 20;
const BYTES: usize = 12 * MIB;
const INNER: &str = "WM_MULTIPATH_PRELOADED";

fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    let path = test.ancestors().nth(2).expect("target/<profile>").join(name);
    assert!(path.is_file(), "run `cargo build -p wmshim -p simcuda` first: {} is missing", path.display());
    path
}

/// Runs `body` under these settings, in a process of its own.
fn alone(name: &str, links: &str, body: fn()) {
    if std::env::var_os(INNER).is_some() {
        body();
        std::process::exit(0);
    }
    let cache = std::env::temp_dir().join(format!("wmshim-preloaded-{}-{name}", std::process::id()));
    let mut command = Command::new(std::env::current_exe().expect("this test has a path"));
    command.args(["--exact", name, "--nocapture"]).env(INNER, built("libwmshim.so"));
    command
        .env("WMSHIM_DRIVER", built("libsimcuda.so"))
        .env("SIMCUDA_DEVICES", "2")
        .env("XDG_CACHE_HOME", &cache);
    command
        .env("WMSHIM_MULTIPATH", links)
        .env("WMSHIM_MULTIPATH_MIN", "2MiB")
        .env("WMSHIM_STATS_SOCKET", "off");
    // Without limits the processor's own speed is measured, and a second link may add nothing.
    command.env("SIMCUDA_LINKS", "pcie=600MB/s,nvlink=20GB/s");
    let output = command.output().expect("it can be started");
    let _ = std::fs::remove_dir_all(cache);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stdout));
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let path = std::env::var_os(INNER).expect("set by `alone`");
        Table::open(&Loader::system(), path.as_ref()).expect("the library opens")
    })
}

macro_rules! cu {
    ($name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: handles and ranges of this test's own.
        unsafe { table().get::<symbol::$name>()($($argument),*) }.ok().expect(stringify!($name))
    };
}

/// Buffers of a program: on a device, pinned, and pinned again for what comes back.
struct Program {
    stream: CUstream,
    device: u64,
    from: u64,
    to: u64,
}

impl Program {
    fn new() -> Self {
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

    fn fill(&self, seed: usize) {
        let all = bytes(self.from).iter_mut().enumerate();
        all.for_each(|(index, byte)| *byte = ((index + index / 4099) * seed % 251) as u8);
        bytes(self.to).fill(0);
    }

    fn verify(&self, form: &str) {
        cu!(cuStreamSynchronize(self.stream));
        assert!(bytes(self.to) == bytes(self.from), "{form}");
    }
}

/// A pinned buffer of the program.
fn bytes(address: u64) -> &'static mut [u8] {
    // SAFETY: BYTES bytes that are never freed, and that no call uses while a test looks at them.
    unsafe { std::slice::from_raw_parts_mut(address as *mut u8, BYTES) }
}

/// Copies by path and direction, as the library counts them.
fn copies() -> BTreeMap<(String, String), u64> {
    // SAFETY: the library is open for good; its function takes nothing and returns a C string.
    let text = unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        let function = libc::dlsym(library, c"wmshim_stats_json".as_ptr());
        let function: extern "C" fn() -> *const c_char = std::mem::transmute(function);
        CStr::from_ptr(function())
    };
    let stats: serde_json::Value = serde_json::from_slice(text.to_bytes()).expect("JSON");
    let rows = stats["copies"].as_array().expect("a list").iter();
    let text = |row: &serde_json::Value, field: &str| row[field].as_str().expect("text").to_owned();
    rows.map(|row| ((text(row, "path"), text(row, "direction")), row["count"].as_u64().unwrap_or(0)))
        .collect()
}

fn relayed() -> u64 {
    copies().iter().filter(|((path, _), _)| path == "relay 1").map(|(_, count)| count).sum()
}

/// Makes one form of call and tells how many of its copies went through the relay.
fn form(program: &Program, name: &str, seed: usize, call: impl FnOnce(&Program)) -> u64 {
    let before = relayed();
    program.fill(seed);
    call(program);
    program.verify(name);
    relayed() - before
}

fn every_form() {
    let p = &Program::new();
    let (device, from, to, stream) = (p.device, p.from, p.to, p.stream);
    let mut seen = BTreeMap::new();
    let mut check = |name: &'static str, call: &dyn Fn()| {
        let through = form(p, name, 7 + seen.len(), |_| call());
        seen.insert(name, through);
    };
    check("linear, asynchronous", &|| {
        cu!(cuMemcpyHtoDAsync_v2(device, from as *const _, BYTES, stream));
        cu!(cuMemcpyDtoHAsync_v2(to as *mut _, device, BYTES, stream));
    });
    check("linear, waiting", &|| {
        cu!(cuMemcpyHtoD_v2(device, from as *const _, BYTES));
        cu!(cuMemcpyDtoH_v2(to as *mut _, device, BYTES));
    });
    check("per-thread", &|| {
        cu!(cuMemcpyHtoD_v2_ptds(device, from as *const _, BYTES));
        cu!(cuMemcpyDtoH_v2_ptds(to as *mut _, device, BYTES));
    });
    check("by address", &|| {
        cu!(cuMemcpy(device, from, BYTES));
        cu!(cuMemcpyAsync(to, device, BYTES, stream));
    });
    check("rows", &|| {
        let rows = |to_device: bool| CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: if to_device { CU_MEMORYTYPE_HOST } else { CU_MEMORYTYPE_DEVICE },
            srcHost: from as *const _,
            srcDevice: device,
            srcArray: CUarray::NULL,
            srcPitch: 4096,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: if to_device { CU_MEMORYTYPE_DEVICE } else { CU_MEMORYTYPE_HOST },
            dstHost: to as *mut _,
            dstDevice: device,
            dstArray: CUarray::NULL,
            dstPitch: 4096,
            WidthInBytes: 4096,
            Height: BYTES / 4096,
        };
        cu!(cuMemcpy2D_v2(&rows(true)));
        cu!(cuMemcpy2DAsync_v2(&rows(false), stream));
    });
    check("batch", &|| {
        let half = BYTES / 2;
        let mut attributes = CUmemcpyAttributes { srcAccessOrder: 1, ..CUmemcpyAttributes::default() };
        let (mut first, mut failed) = (0, 0);
        for [mut tos, mut froms] in [
            [[device, device + half as u64], [from, from + half as u64]],
            [[to, to + half as u64], [device, device + half as u64]],
        ] {
            let (tos, froms, mut sizes) = (tos.as_mut_ptr(), froms.as_mut_ptr(), [half; 2]);
            cu!(cuMemcpyBatchAsync(
                tos,
                froms,
                sizes.as_mut_ptr(),
                2,
                &mut attributes,
                &mut first,
                1,
                &mut failed,
                stream
            ));
        }
    });
    let unserved: Vec<_> = seen.iter().filter(|(_, through)| **through < 2).collect();
    assert!(unserved.is_empty(), "not both ways through the relay: {unserved:?}");
}

#[test]
fn every_form_of_call_takes_several_links() {
    alone("every_form_of_call_takes_several_links", "0,1", every_form);
}

#[test]
fn off_means_off() {
    alone("off_means_off", "off", || {
        let p = &Program::new();
        let through = form(p, "linear", 5, |p| {
            cu!(cuMemcpyHtoD_v2(p.device, p.from as *const _, BYTES));
            cu!(cuMemcpyDtoH_v2(p.to as *mut _, p.device, BYTES));
        });
        assert_eq!(through, 0);
        assert!(!is_active(1), "the sibling is not touched");
    });
}

fn is_active(device: CUdevice) -> bool {
    let (mut flags, mut active) = (0, 0);
    cu!(cuDevicePrimaryCtxGetState(device, &mut flags, &mut active));
    active != 0
}

#[test]
fn a_capture_is_the_drivers() {
    alone("a_capture_is_the_drivers", "0,1", || {
        let p = &Program::new();
        let mut graph = CUgraph::NULL;
        cu!(cuStreamBeginCapture_v2(p.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        cu!(cuMemcpyHtoDAsync_v2(p.device, p.from as *const _, BYTES, p.stream));
        cu!(cuStreamEndCapture(p.stream, &mut graph));
        assert_eq!(relayed(), 0);
    });
}

#[test]
fn a_program_may_reset_and_release_a_relay() {
    alone("a_program_may_reset_and_release_a_relay", "0,1", || {
        let p = &Program::new();
        let both = |p: &Program| {
            cu!(cuMemcpyHtoDAsync_v2(p.device, p.from as *const _, BYTES, p.stream));
            cu!(cuMemcpyDtoHAsync_v2(p.to as *mut _, p.device, BYTES, p.stream));
        };
        assert_eq!(form(p, "before", 3, both), 2);
        cu!(cuDevicePrimaryCtxReset_v2(1));
        assert_eq!(form(p, "after a reset", 5, both), 2);
        let mut context = CUcontext::NULL;
        cu!(cuDevicePrimaryCtxRetain(&mut context, 1));
        cu!(cuDevicePrimaryCtxRelease_v2(1));
        assert!(!is_active(1), "the program's last claim ended its context");
        assert_eq!(form(p, "after a release", 7, both), 2);
    });
}
