//! Helpers of the tests of `wmctl`: the program, an installation, a directory of sockets, and an
//! endpoint that answers from a table.
#![allow(dead_code, reason = "each test file uses its part")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use serde_json::{Value, json};

/// `wmctl` with an environment in which nothing of the machine's own shows.
pub(crate) fn wmctl(scratch: &Scratch) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wmctl"));
    for name in ["WMSHIM_LIB", "WMSHIM_DRIVER", "LD_PRELOAD", "LD_LIBRARY_PATH", "XDG_RUNTIME_DIR"] {
        command.env_remove(name);
    }
    for name in ["WMSHIM_STATS_SOCKET", "WMSHIM_STATS_AT_EXIT", "WMSHIM_DISABLE", "SIMCUDA_MEMORY"] {
        command.env_remove(name);
    }
    command.env("XDG_CACHE_HOME", scratch.path().join("cache"));
    command.env("WMSHIM_STATS_DIR", scratch.path()).env("TMPDIR", scratch.path());
    command
}

/// An installation with a library that does nothing but carry wmshim's mark.
pub(crate) fn installation(scratch: &Scratch, with_dropin: bool) -> PathBuf {
    installation_in(scratch, scratch.path(), with_dropin)
}

/// The same in a folder of the scratch folder.
pub(crate) fn installation_in(scratch: &Scratch, folder: &Path, with_dropin: bool) -> PathBuf {
    let library = folder.join("lib/libwmshim.so");
    fs::create_dir_all(folder.join("lib")).expect("a folder");
    marked_library(scratch, &library, "");
    if with_dropin {
        fs::create_dir(folder.join("dropin")).expect("a folder");
        fs::copy(&library, folder.join("dropin/libcuda.so.1")).expect("copied");
        symlink("libwmshim.so", folder.join("lib/libcuda.so")).expect("a link");
    }
    library
}

/// Compiles a library of this code that carries wmshim's note, as `readelf --notes` shows it for
/// the real one.
pub(crate) fn marked_library(scratch: &Scratch, library: &Path, code: &str) {
    const NOTE: &str = "__attribute__((used, section(\".note.wmshim\"), aligned(4)))\n\
        static const struct { unsigned name_size, description_size, kind; char name[8]; } note = {8, 0, 1, \"wmshim\"};\n";
    let source = scratch.path().join("marked.c");
    fs::write(&source, format!("{NOTE}{code}")).expect("written");
    let compiled =
        Command::new("cc").args(["-shared", "-fPIC", "-Wl,-z,now", "-o"]).arg(library).arg(&source).status();
    assert!(compiled.expect("a C compiler").success());
}

/// Standard output as text.
pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

/// Standard error as text.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

/// A directory of this test's own, removed afterwards.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("wmctl-test-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::DirBuilder::new().mode(0o700).create(&path).expect("a fresh directory");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// An endpoint that gives these answers to these requests, under the name of a process. The
    /// receiver hears of every request, when it has been answered.
    pub(crate) fn serve(&self, pid: u32, answers: &Value) -> Receiver<String> {
        let listener = UnixListener::bind(self.0.join(format!("{pid}.sock"))).expect("bound");
        let answers = answers.clone();
        let (sender, asked) = mpsc::channel();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut line = String::new();
                let mut reader = BufReader::new(stream);
                if reader.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                    let request: Value = serde_json::from_str(&line).expect("a JSON request");
                    let request = request["request"].as_str().expect("a request");
                    let _ = writeln!(reader.get_mut(), "{}", answers[request]);
                    let _ = sender.send(request.to_owned());
                }
            }
        });
        asked
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The answer of a program with one device and an overflow.
pub(crate) fn answers(pid: u32) -> Value {
    let tier = |live: u64, reserved: u64| json!({ "live_bytes": live, "reserved_bytes": reserved, "peak_live_bytes": live, "peak_reserved_bytes": reserved });
    let gib = 1_u64 << 30;
    json!({
        "stats": {
            "schema": "wmshim-stats/2", "version": "0.1.0", "pid": pid, "program": "python3", "uptime_s": 83.4,
            "driver": { "path": "/usr/lib/libcuda.so.580", "version": 13000 }, "torch_allocator": "async",
            "devices": [{
                "ordinal": 0, "name": "NVIDIA H200", "total_bytes": 140 * gib, "limit_bytes": 140 * gib,
                "headroom_bytes": gib,
                "tiers": { "device": tier(130 * gib, 134 * gib), "peer": tier(0, 0), "host": tier(48 * gib, 50 * gib) },
                "utilization": 0.967, "largest_free_run_bytes": 512 << 20,
                "counters": { "allocations": 1_234_567, "hits": 1_200_000, "overflows": 96 },
            }],
            "calls": [
                { "name": "cuMemFreeAsync", "count": 7, "errors": 0 },
                { "name": "cuMemAllocAsync", "count": 12_345, "errors": 2 },
            ],
            "driver_calls": [{
                "name": "cuMemCreate", "count": 4, "errors": 0, "total_ns": 48_000,
                "histogram": [{ "le_ns": 16_000, "count": 3 }, { "le_ns": 64_000, "count": 1 }],
            }],
            "copies": [{ "path": "direct", "direction": "htod", "count": 3, "bytes": 3 << 20 }],
            "fail_open": { "count": 1, "reasons": [{ "reason": "capture", "count": 1 }] },
            "a_field_of_a_later_version": 7,
        },
        "blocks": { "pid": pid, "devices": [{ "ordinal": 0, "blocks": [
            { "address": 0x7f00_0000_0000_u64, "bytes": 1 << 20, "tiers": { "device": 1 << 20, "peer": 0, "host": 0 } },
            { "address": 0x7f00_4000_0000_u64, "bytes": 3 * gib, "tiers": { "device": gib, "peer": 0, "host": 2 * gib } },
        ] }] },
        "config": { "pid": pid, "settings": { "WMSHIM_STITCH": "on", "WMSHIM_DEVICE_LIMIT": null } },
        "final": { "program": "the program at its end", "pid": pid },
        "dump": { "path": "/run/user/1000/wmshim/7-1.json" },
    })
}
