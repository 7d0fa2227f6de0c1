//! Hazard (symbol interposition): cudarc, the client library of Rust programs, opens the driver
//! past the shim, or calls it in a way that the shim does not serve.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hazards::places::built;

fn run(configure: impl FnOnce(&mut Command)) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_client"));
    command.env("SIMCUDA_MEMORY", "256MiB").env_remove("LD_PRELOAD");
    configure(&mut command);
    command.output().expect("the program starts")
}

/// A folder in which the simulated driver has the driver's name.
fn driver_folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("driver");
    std::fs::create_dir_all(&folder).expect("a folder");
    let _ = symlink(built("libsimcuda.so"), folder.join("libcuda.so.1"));
    folder
}

#[test]
fn alone_it_runs_out_of_memory() {
    let output = run(|command| {
        command.env("LD_LIBRARY_PATH", driver_folder());
    });
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{said}");
}

#[test]
fn under_the_shim_it_ends_well_and_right() {
    let output = run(|command| {
        command.env("LD_PRELOAD", built("libwmshim.so")).env("WMSHIM_DRIVER", built("libsimcuda.so"));
        command.env("WMSHIM_STATS_SOCKET", "off");
    });
    let (said, complaints) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.ends_with("all right\n"), "{said}{complaints}");
}
