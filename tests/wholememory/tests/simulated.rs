//! Hazard (API conformance): a function of WholeMemory's C API gives a wrong row, code or order on
//! the simulated driver. Ranks are threads and processes, calls fail at every step, and the
//! preloaded library serves the memory.
//!
//! Hazard: a rank that waits for ever, or goes on after another one failed; memory that is leaked.

use std::process::{Command, Output};

use hazards::places::built;
use hazards::said;

const SUITE: &str = env!("CARGO_BIN_EXE_wholememory-suite");

/// Driver calls in the creation of memory, each of which fails once.
const CALLS: [&str; 8] = [
    "cuMemGetAllocationGranularity",
    "cuMemCreate",
    "cuMemExportToShareableHandle",
    "cuMemAddressReserve",
    "cuMemImportFromShareableHandle",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemHostRegister",
];

fn suite(arguments: &[&str]) -> Command {
    let mut command = Command::new(SUITE);
    command.arg("--library").arg(built("libwholegraph.so")).args(arguments);
    // More ranks than devices: some share one.
    command.env("SIMCUDA_DEVICES", "4").env("WMSHIM_WHOLEMEMORY_TIMEOUT", "60");
    command
}

fn bare(arguments: &[&str]) -> Output {
    suite(arguments).arg("--driver").arg(built("libsimcuda.so")).output().expect("the suite starts")
}

fn passes(output: &Output) {
    assert!(output.status.success(), "{}", said(output));
}

#[test]
fn a_rank_alone() {
    passes(&bare(&["--ranks", "1"]));
}

#[test]
fn three_ranks_that_are_threads() {
    passes(&bare(&["--threads", "--ranks", "3"]));
}

#[test]
fn five_ranks_that_are_processes() {
    passes(&bare(&["--ranks", "5"]));
}

fn preloaded(arguments: &[&str]) -> Output {
    let mut command = suite(arguments);
    command.env("LD_PRELOAD", built("libwmshim.so")).env("WMSHIM_DRIVER", built("libsimcuda.so"));
    command.output().expect("the suite starts")
}

#[test]
fn three_threads_under_the_preloaded_library() {
    passes(&preloaded(&["--threads", "--ranks", "3"]));
}

#[test]
fn two_processes_under_the_preloaded_library() {
    passes(&preloaded(&["--ranks", "2"]));
}

#[test]
fn a_call_that_fails_on_one_rank() {
    for call in CALLS {
        for rank in ["0", "1"] {
            // The second failure to import is that of a rank without others.
            let fault = format!("{rank}:{call}:1");
            passes(&bare(&["--ranks", "2", "--filter", "memory.a_call_fails", "--fault", &fault]));
        }
    }
}

#[test]
fn four_ranks_with_caches() {
    passes(&bare(&["--ranks", "4", "--filter", "cache"]));
}

/// A row of the host has no memory on GPUs except its cache; each call fails in one of its first
/// uses there.
#[test]
fn a_call_that_fails_while_a_cache_is_made() {
    for call in ["cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuMemsetD8Async"] {
        for (rank, time) in [("0", "1"), ("1", "1"), ("1", "3")] {
            let fault = format!("{rank}:{call}:{time}");
            passes(&bare(&["--ranks", "2", "--filter", "caches.a_call_fails", "--fault", &fault]));
        }
    }
}

#[test]
fn files_by_several_threads() {
    for arguments in [["--threads", "--ranks", "3"].as_slice(), &["--ranks", "2"]] {
        let mut command = suite(arguments);
        command.args(["--filter", "files."]).arg("--driver").arg(built("libsimcuda.so"));
        command.env("WG_LOAD_THREADS_PER_RANK", "4").env("WG_LOAD_BUFFER_SIZE_MB", "1");
        passes(&command.output().expect("the suite starts"));
    }
}

/// The folder's file system may not support such reads: then the result is the same as without.
#[test]
fn files_past_the_cache() {
    let mut command = suite(&["--ranks", "2", "--filter", "files."]);
    command.arg("--driver").arg(built("libsimcuda.so"));
    command.env("WG_LOAD_USE_DIRECTIO", "1").env("WG_LOAD_BUFFER_SIZE_MB", "1");
    passes(&command.output().expect("the suite starts"));
}

/// Ranks wait for two seconds, and one reads three MiB at 1.2 MB a second.
#[test]
fn a_load_that_takes_longer_than_ranks_wait() {
    let mut command = suite(&["--threads", "--ranks", "2", "--filter", "files.longer"]);
    command.arg("--driver").arg(built("libsimcuda.so")).env("SIMCUDA_LINKS", "pcie=1200KB/s,nvlink=300GB/s");
    command.env("WMSHIM_WHOLEMEMORY_TIMEOUT", "2").env("WG_LOAD_BUFFER_SIZE_MB", "1");
    let start = std::time::Instant::now();
    passes(&command.output().expect("the suite starts"));
    assert!(start.elapsed().as_secs() >= 2, "the links are not slow: nothing was tried");
}

#[test]
fn a_copy_of_a_file_that_fails_on_one_rank() {
    for rank in ["0", "1"] {
        // The first is in loading, the second in storing.
        for time in ["1", "2"] {
            let fault = format!("{rank}:cuMemcpy2DUnaligned:{time}");
            passes(&bare(&["--ranks", "2", "--filter", "a_copy_fails", "--fault", &fault]));
        }
    }
}
