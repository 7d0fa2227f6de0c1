//! Helpers of the tests of `bench`: the program on the simulated driver, and its answer.

use std::process::{Command, Output};

use hazards::{Scratch, places};
use serde_json::Value;

/// `bench` on the simulated driver, with caches and temporary files in `scratch`.
pub(crate) fn bench(scratch: &Scratch) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    for name in ["LD_PRELOAD", "LD_LIBRARY_PATH", "SIMCUDA_MEMORY"] {
        command.env_remove(name);
    }
    command.env("XDG_CACHE_HOME", scratch.path().join("cache")).env("TMPDIR", scratch.path());
    command.env("WMSHIM_DRIVER", places::simulated_driver());
    command
}

/// The JSON of a run that succeeds.
pub(crate) fn answer(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Standard error as text.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}
