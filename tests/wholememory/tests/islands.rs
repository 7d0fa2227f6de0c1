//! Hazard (wrong result): rows that pass between islands are other rows, or go to other places.
//! Ranks of one machine pose as islands, over the simulated NCCL.
//!
//! Hazard: a rank that waits for ever in NCCL, or goes on after another one failed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hazards::places::built;
use hazards::said;

const SUITE: &str = env!("CARGO_BIN_EXE_wholememory-suite");

/// A folder with the simulated NCCL, under the name that libraries ask for.
fn folder_of_nccl() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nccl");
    std::fs::create_dir_all(&folder).expect("a folder");
    let _linked_before = std::os::unix::fs::symlink(built("libsimnccl.so"), folder.join("libnccl.so.2"));
    folder
}

fn play(arguments: &[&str], settings: &[(&str, &str)]) -> Output {
    let mut command = Command::new(SUITE);
    command.arg("--library").arg(built("libwholegraph.so")).args(arguments);
    command.arg("--driver").arg(built("libsimcuda.so")).env("LD_LIBRARY_PATH", folder_of_nccl());
    // NCCL refuses ranks that share a GPU.
    command.env("SIMCUDA_DEVICES", "8").env("WMSHIM_WHOLEMEMORY_TIMEOUT", "60");
    command.envs(settings.iter().copied()).output().expect("the suite starts")
}

fn passes(arguments: &[&str], settings: &[(&str, &str)]) {
    let output = play(arguments, settings);
    assert!(output.status.success(), "{arguments:?}, {settings:?}: {}", said(&output));
}

#[test]
fn ranks_of_two_islands() {
    passes(&["--ranks", "2", "--islands", "2"], &[]);
    passes(&["--ranks", "5", "--islands", "2"], &[]);
}

#[test]
fn ranks_of_three_islands() {
    passes(&["--ranks", "4", "--islands", "3"], &[]);
}

#[test]
fn ranks_of_four_islands() {
    passes(&["--ranks", "8", "--islands", "4"], &[]);
}

#[test]
fn messages_that_come_late() {
    for seed in ["1", "2", "3"] {
        let settings = [("SIMNCCL_DELAY_US", "2000"), ("SIMNCCL_SEED", seed), ("SIMCUDA_SEED", seed)];
        for filter in ["rows.", "crossings.different_calls"] {
            passes(&["--ranks", "3", "--islands", "2", "--filter", filter], &settings);
        }
    }
}

/// A call that goes on for longer than a rank is given whose end was seen.
#[test]
fn ranks_that_leave_while_rows_of_another_pass() {
    passes(
        &["--ranks", "4", "--islands", "2", "--filter", "crossings.others_leave"],
        &[("SIMNCCL_DELAY_US", "300000"), ("SIMNCCL_SEED", "1")],
    );
}

#[test]
fn an_nccl_that_is_too_old() {
    passes(
        &["--ranks", "2", "--islands", "2", "--filter", "crossings.without_nccl"],
        &[("SIMNCCL_VERSION", "21803")],
    );
}

/// The simulator serves four GPUs of which none reaches another.
#[test]
fn gpus_without_peer_access() {
    for ranks in ["2", "4"] {
        passes(&["--ranks", ranks, "--filter", "deaths.without_peers"], &[("SIMCUDA_PEERS", "0")]);
    }
}

/// A rank's operation fails in NCCL: all ranks get an error.
#[test]
fn a_network_that_fails() {
    for fault in ["send@1:2", "recv@0:3", "send@2:5", "allgather@1:2", "allgather@0:4", "init@1:1"] {
        let settings = [("SIMNCCL_FAIL", fault)];
        passes(&["--ranks", "3", "--islands", "2", "--filter", "crossings.network_fails"], &settings);
    }
}

/// The network between ranks is cut, and closes nothing.
#[test]
fn a_network_that_is_cut() {
    for after in ["6@1", "9@0"] {
        let settings = [("SIMNCCL_DROP", after), ("WMSHIM_WHOLEMEMORY_TIMEOUT", "3")];
        passes(&["--ranks", "3", "--islands", "2", "--filter", "crossings.network_fails"], &settings);
    }
}

#[test]
fn a_rank_ends_at_a_random_moment() {
    for seed in 0..12_u64 {
        let (ranks, islands) = [("2", "2"), ("3", "2"), ("4", "3"), ("5", "2")][seed as usize % 4];
        let settings = [("WHOLEMEMORY_SUITE_SEED", &*seed.to_string())];
        passes(&["--ranks", ranks, "--islands", islands, "--filter", "crossings.a_rank_ends"], &settings);
    }
}
