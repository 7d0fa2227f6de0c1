//! Hazard (deadlock): ranks of several machines do not find each other, or wait for a
//! machine that is lost. Machines are network namespaces that are joined by a bridge.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

use hazards::places::built;
use hazards::said;

const SUITE: &str = env!("CARGO_BIN_EXE_wholememory-suite");

/// Ranks wait far longer than a test may: an error that comes is not that of the patience.
const PATIENCE: &str = "20";

/// Makes `$1` machines with an interface `net`, and runs the rest of the line on the first one.
const MACHINES: &str = r#"
set -e
mount -t tmpfs tmpfs /run && mkdir /run/netns
ip link add name bridge0 type bridge && ip link set bridge0 up
machines=$1; shift
for m in $(seq 0 $((machines - 1))); do
    ip netns add m$m
    ip link add port$m type veth peer name net netns m$m
    ip link set port$m master bridge0 up
    ip -n m$m addr add ${PREFIX:-10.99.7.}$((m + 1))/${BITS:-24} dev net $NODAD
    ip -n m$m link set lo up && ip -n m$m link set net up
done
# Not by exec: the bridge's namespace lives as long as a process is in it.
nsenter --net=/run/netns/m0 "$@"
"#;

/// A folder with the simulated NCCL, under the name that libraries ask for.
fn folder_of_nccl() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nccl");
    std::fs::create_dir_all(&folder).expect("a folder");
    let _linked_before = std::os::unix::fs::symlink(built("libsimnccl.so"), folder.join("libnccl.so.2"));
    folder
}

fn on_machines(machines: &str, command: &[&str], settings: &[(&str, &str)]) -> Output {
    let mut made = Command::new("unshare");
    made.args(["-Urnm", "sh", "-c", MACHINES, "sh", machines]).args(command);
    made.env("SIMCUDA_DEVICES", "4")
        .env("WMSHIM_WHOLEMEMORY_TIMEOUT", PATIENCE)
        .envs(settings.iter().copied());
    made.output().expect("it starts")
}

/// May this system's user make machines?
fn can_make_machines() -> bool {
    let can = on_machines("2", &["true"], &[]).status.success();
    if !can {
        hazards::skip("no network namespaces");
    }
    can
}

fn play(ranks: &str, machines: &str, filter: &str, settings: &[(&str, &str)]) {
    let (library, driver) = (built("libwholegraph.so"), built("libsimcuda.so"));
    let (library, driver) = (library.to_str().expect("a path"), driver.to_str().expect("a path"));
    let enter = "nsenter --net=/run/netns/m{}";
    let places = ["--library", library, "--driver", driver, "--enter", enter, "--filter", filter];
    let command = [&[SUITE, "--ranks", ranks, "--islands", machines][..], &places].concat();
    let output = on_machines(machines, &command, settings);
    assert!(output.status.success(), "{filter}, {ranks} ranks on {machines}: {}", said(&output));
}

/// Plays cases at once, which do little but wait for a machine that is lost.
fn side_by_side<T: Send, const CASES: usize>(cases: [T; CASES], play: impl Fn(T) + Sync) {
    let play = &play;
    thread::scope(|scope| cases.into_iter().for_each(|case| drop(scope.spawn(move || play(case)))));
}

#[test]
fn ranks_of_machines_meet_and_split() {
    if !can_make_machines() {
        return;
    }
    for (ranks, machines) in [("2", "2"), ("5", "2"), ("4", "3"), ("8", "4")] {
        play(ranks, machines, "islands.", &[]);
    }
}

#[test]
fn ranks_of_machines_meet_over_the_newer_protocol() {
    if !can_make_machines() {
        return;
    }
    let settings = [("PREFIX", "fd00:99::"), ("BITS", "64"), ("NODAD", "nodad")];
    play("4", "2", "islands.", &settings);
}

/// Rows pass between machines by the simulated NCCL, which connects over the bridge, too.
#[test]
fn rows_pass_between_machines() {
    if !can_make_machines() {
        return;
    }
    let folder = folder_of_nccl();
    let folder = folder.to_str().expect("a path");
    // NCCL refuses ranks that share a GPU.
    let settings = [("LD_LIBRARY_PATH", folder), ("SIMCUDA_DEVICES", "8"), ("NCCL_SOCKET_IFNAME", "net")];
    for (ranks, machines) in [("2", "2"), ("5", "2"), ("4", "3")] {
        for filter in ["rows.", "crossings.different_calls", "crossings.a_rank_ends", "files.loads"] {
            play(ranks, machines, filter, &settings);
        }
    }
}

#[test]
fn a_machine_that_is_lost_while_rows_pass() {
    if !can_make_machines() {
        return;
    }
    let folder = folder_of_nccl();
    let folder = folder.to_str().expect("a path");
    side_by_side([("2", "2", "1"), ("5", "3", "2"), ("4", "2", "3")], |(ranks, machines, seed)| {
        let settings = [
            ("LD_LIBRARY_PATH", folder),
            ("SIMCUDA_DEVICES", "8"),
            ("NCCL_SOCKET_IFNAME", "net"),
            ("WHOLEMEMORY_SUITE_LINK", "net"),
            ("WHOLEMEMORY_SUITE_SEED", seed),
        ];
        play(ranks, machines, "crossings.a_machine_is_lost", &settings);
    });
}

#[test]
fn a_machine_that_is_lost_is_an_error_of_all_others() {
    if !can_make_machines() {
        return;
    }
    side_by_side([("2", "2"), ("5", "3"), ("8", "4")], |(ranks, machines)| {
        play(ranks, machines, "islands.a_machine_is_lost", &[("WHOLEMEMORY_SUITE_LINK", "net")]);
    });
}

#[test]
fn a_rank_of_several_machines_ends_at_a_random_moment() {
    if !can_make_machines() {
        return;
    }
    for seed in 0..8 {
        let ranks = ["2", "4", "7"][seed % 3];
        play(ranks, "2", "deaths.in_splits", &[("WHOLEMEMORY_SUITE_SEED", &seed.to_string())]);
        play(ranks, "2", "deaths.while_ranks_meet", &[("WHOLEMEMORY_SUITE_SEED", &seed.to_string())]);
    }
}
