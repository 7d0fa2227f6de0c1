//! Hazard (process lifecycle): a rank that ends, is forked, or is in the wrong place, while others
//! wait.

use std::path::Path;
use std::process::Command;

use hazards::places::{built, emptied};
use hazards::said;

const SUITE: &str = env!("CARGO_BIN_EXE_wholememory-suite");

/// Ranks wait far longer than a test may: an error that comes is not that of the patience.
const PATIENCE: &str = "60";

/// Plays a scenario in a network namespace of its own, where the system allows it, and requires
/// that no abstract name is left there.
fn play((ranks, islands): (&str, &str), filter: &str, settings: &[(&str, &str)]) {
    let arguments = ["--ranks", ranks, "--islands", islands, "--filter", filter];
    // A child that keeps all descriptors keeps names, too.
    let own = !filter.contains("whole_child")
        && Command::new("unshare").args(["-Urn", "true"]).status().is_ok_and(|status| status.success());
    let mut command = Command::new(if own { "unshare" } else { "env" });
    if own {
        let script = "ip link set lo up; \"$@\" || exit 1; if grep wmshim-wholememory- /proc/net/unix; then exit 2; fi";
        command.args(["-Urn", "sh", "-c", script, "sh"]);
    }
    command.arg(SUITE).arg("--library").arg(built("libwholegraph.so")).args(arguments);
    command.arg("--driver").arg(built("libsimcuda.so"));
    command.env("SIMCUDA_DEVICES", "4").env("WMSHIM_WHOLEMEMORY_TIMEOUT", PATIENCE);
    // The folder of a rank that has ended stays there.
    command.env("TMPDIR", emptied(Path::new(env!("CARGO_TARGET_TMPDIR")).join(filter)));
    command.envs(settings.iter().copied());
    let output = command.output().expect("the suite starts");
    assert!(output.status.success(), "{filter}, {ranks} ranks, {settings:?}: {}", said(&output));
}

fn rounds(filter: &str, ranks: &[&str], seeds: u64) {
    let ranks: Vec<_> = ranks.iter().map(|ranks| (*ranks, "1")).collect();
    rounds_of(filter, &ranks, seeds);
}

fn rounds_of(filter: &str, ranks: &[(&str, &str)], seeds: u64) {
    for seed in 0..seeds {
        let ranks = ranks[seed as usize % ranks.len()];
        play(ranks, filter, &[("WHOLEMEMORY_SUITE_SEED", &seed.to_string())]);
    }
}

/// Ranks and islands.
const DEALT: [(&str, &str); 4] = [("2", "2"), ("5", "2"), ("5", "3"), ("8", "4")];

#[test]
fn a_rank_of_several_islands_ends() {
    rounds_of("islands.a_rank_ends", &DEALT, 16);
}

#[test]
fn a_rank_of_several_islands_ends_at_a_random_moment_of_a_split() {
    rounds_of("deaths.in_splits", &DEALT, 32);
}

#[test]
fn a_rank_ends_while_ranks_meet() {
    rounds_of("deaths.while_ranks_meet", &[("2", "1"), ("5", "1"), ("2", "2"), ("5", "2"), ("5", "3")], 25);
}

#[test]
fn a_rank_of_several_islands_ends_and_a_child_of_its_lives() {
    rounds_of("deaths.with_a_small_child", &DEALT, 8);
}

#[test]
fn a_rank_ends_at_a_random_moment_of_a_split() {
    rounds("deaths.in_splits", &["2", "3", "5"], 24);
}

#[test]
fn a_rank_ends_at_a_random_moment_of_hierarchy_malloc() {
    rounds("deaths.in_hierarchy", &["2", "3", "5"], 24);
}

#[test]
fn a_rank_ends_at_a_random_moment_of_any_call() {
    rounds("deaths.in_any_call", &["2", "3", "5"], 24);
}

#[test]
fn a_rank_ends_and_a_child_of_its_lives() {
    rounds("deaths.with_a_small_child", &["2", "3"], 6);
    rounds("deaths.with_a_whole_child", &["2", "3"], 6);
}
