//! Hazard (out of memory): a program that outgrows its GPU fails, or succeeds with wrong bytes,
//! under the shim. The program runs preloaded and as a drop-in on a simulated device of 512 MiB.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use hazards::places::{self, built};
use hazards::said;

const DEMO: &str = env!("CARGO_BIN_EXE_demo");

/// A folder in which `library` is called `libcuda.so.1`.
fn folder_with(library: &Path, test: &str) -> PathBuf {
    let folder = places::emptied(Path::new(env!("CARGO_TARGET_TMPDIR")).join(test));
    symlink(library, folder.join("libcuda.so.1")).expect("a link");
    folder
}

fn program(libraries: &Path) -> Command {
    let mut command = Command::new(DEMO);
    command.env("LD_LIBRARY_PATH", libraries);
    command.envs([("SIMCUDA_DEVICES", "1"), ("SIMCUDA_MEMORY", "512MiB"), ("WMSHIM_STATS_SOCKET", "off")]);
    command
}

#[test]
fn alone_it_runs_out_of_memory() {
    let folder = folder_with(&built("libsimcuda.so"), "alone");
    let output = program(&folder).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("CUDA_ERROR_OUT_OF_MEMORY"), "{}", said(&output));
}

#[test]
fn preloaded_it_completes() {
    let simulated = built("libsimcuda.so");
    let mut command = program(&folder_with(&simulated, "preloaded"));
    command.env("LD_PRELOAD", built("libwmshim.so")).env("WMSHIM_DRIVER", simulated);
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("all as written"), "{}", said(&output));
}

#[test]
fn as_a_drop_in_it_completes() {
    let mut command = program(&folder_with(&built("libwmshim.so"), "drop-in"));
    command.env("WMSHIM_DRIVER", built("libsimcuda.so"));
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("all as written"), "{}", said(&output));
}
