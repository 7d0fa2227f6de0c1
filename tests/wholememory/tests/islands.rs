//! Hazard (wrong result): rows that pass between islands are other rows, or go to other places.
//! Ranks of one machine pose as islands, over the simulated NCCL.
//!
//! Hazard: more messages or bytes than the model of the page has, with more islands.
//!
//! Hazard: a rank that waits for ever in NCCL, or goes on after another one failed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hazards::places::built;
use hazards::{Scratch, said};

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
    // An island of two ranks, which read each other's copies, and one of one rank.
    passes(&["--ranks", "3", "--islands", "2"], &[]);
    // Two islands of one rank: the rest is played by islands of one rank among others.
    passes(&["--ranks", "2", "--islands", "2", "--filter", "crossings."], &[]);
}

#[test]
fn ranks_of_three_islands() {
    // All scenarios run with two islands and with four.
    for filter in ["crossings.", "dealt.", "drawn."] {
        passes(&["--ranks", "4", "--islands", "3", "--filter", filter], &[]);
    }
}

#[test]
fn ranks_of_four_islands() {
    // An island of two ranks, three of one.
    passes(&["--ranks", "5", "--islands", "4"], &[]);
    // These are played by four ranks at most.
    for filter in ["caches.holds_all", "repeats."] {
        passes(&["--ranks", "4", "--islands", "4", "--filter", filter], &[]);
    }
}

/// Messages and bytes that each rank has sent in a scenario, by rank.
fn sent(scenario: &str, ranks: usize, islands: usize, gathers: usize) -> Vec<(u64, u64)> {
    let scratch = Scratch::new();
    let file = scratch.path().join("sent");
    let settings = [
        ("SIMNCCL_STATS", file.to_str().expect("a plain path")),
        ("WHOLEMEMORY_SUITE_GATHERS", &*gathers.to_string()),
        ("SIMCUDA_DEVICES", "16"),
    ];
    let (ranks, islands) = (ranks.to_string(), islands.to_string());
    passes(&["--ranks", &ranks, "--islands", &islands, "--filter", scenario], &settings);
    let lines = std::fs::read_to_string(file).expect("counts");
    let number =
        |word: &str| word.split_once('=').and_then(|(_, number)| number.parse().ok()).expect("a count");
    let mut found: Vec<Vec<u64>> = lines.lines().map(|line| line.split(' ').map(number).collect()).collect();
    found.sort_unstable();
    let whole = (0..found.len()).all(|rank| found[rank][..2] == [rank as u64, found.len() as u64]);
    assert!(whole && found.len().to_string() == ranks, "a line a rank: {lines}");
    found.into_iter().map(|line| (line[2], line[3])).collect()
}

/// The model of docs/dev/measurements.md: a rank gathers 960 rows of 128 bytes, as many of each
/// island.
fn model(ranks: u64, islands: u64) -> (u64, u64) {
    let crossing = (islands - 1) * (960 / islands);
    // The first numbers are all, and rows come for them.
    let (messages, bytes) = model_without_rows(ranks, islands);
    (messages + islands - 1, bytes + crossing * 128)
}

/// A gather of which no row crosses.
fn model_without_rows(ranks: u64, islands: u64) -> (u64, u64) {
    let (others, record) = (ranks - 1, 8 * (8 + islands));
    let opening = (16384 / (islands - 1) / 256 * 256).max(2048);
    // A record to each rank, and a barrier's 8 bytes; the first numbers to each other island.
    (2 * others + islands - 1, others * (record + 8) + (islands - 1) * opening)
}

#[test]
fn messages_and_bytes_of_a_gather_are_those_of_the_model() {
    let all = [(2, 2), (4, 4), (8, 8), (16, 16), (16, 2), (16, 4), (16, 8)];
    are_those_of_the_model("crossings.counted", &all);
}

/// Hazard: a row that is named again crosses again, or its number does.
#[test]
fn rows_that_repeat_cross_once() {
    are_those_of_the_model("crossings.repeated", &[(2, 2), (4, 4), (8, 4), (16, 2)]);
}

fn are_those_of_the_model(scenario: &str, all: &[(usize, usize)]) {
    for (ranks, islands) in all.iter().copied() {
        let [once, thrice] = [1, 3].map(|gathers| sent(scenario, ranks, islands, gathers));
        for (rank, (once, thrice)) in once.into_iter().zip(thrice).enumerate() {
            let two = (thrice.0 - once.0, thrice.1 - once.1);
            let (messages, bytes) = model(ranks as u64, islands as u64);
            assert_eq!(two, (2 * messages, 2 * bytes), "rank {rank} of {ranks} on {islands} islands");
        }
    }
}

/// Hazard: a row that several ranks of an island want crosses for each of them.
#[test]
fn rows_that_an_island_shares_cross_once() {
    for (ranks, islands) in [(4, 2), (6, 3)] {
        let all = |gathers| {
            let sent = sent("shared.counted", ranks, islands, gathers).into_iter();
            sent.fold((0, 0), |all, rank| (all.0 + rank.0, all.1 + rank.1))
        };
        let [once, thrice] = [1, 3].map(all);
        let (ranks, islands) = (ranks as u64, islands as u64);
        let mates = ranks / islands - 1;
        // Which rank asks for a row differs from run to run, not how many cross. Ranks meet three
        // times, as rows pass in one chunk.
        let (messages, bytes) = model_without_rows(ranks, islands);
        let (messages, bytes) = (ranks * (messages + 3 * mates), ranks * (bytes + 3 * mates * 8));
        let rows = islands * (960 - 960 / islands);
        assert_eq!(thrice.1 - once.1, 2 * (bytes + rows * 512), "{ranks} ranks on {islands} islands");
        let most = messages + ranks * (islands - 1);
        let few = (2 * messages..=2 * most).contains(&(thrice.0 - once.0));
        assert!(few, "{} messages, not up to {}", thrice.0 - once.0, 2 * most);
    }
}

#[test]
fn rows_that_an_island_shares() {
    // Messages come late, or at once.
    let late = [("SIMNCCL_DELAY_US", "2000"), ("SIMNCCL_SEED", "1"), ("SIMCUDA_SEED", "1")];
    for (ranks, islands, settings) in [("4", "2", &late[..]), ("6", "3", &[])] {
        passes(&["--ranks", ranks, "--islands", islands, "--filter", "shared."], settings);
    }
}

/// The launches of such a gather before a rank tells its counts: one claims rows, two divide the
/// numbers, one moves the rows of the rank's island.
#[test]
fn a_launch_fails_while_rows_are_claimed() {
    for number in 1..=4 {
        let fault = format!("1:cuLaunchKernel:{number}");
        let scenario = ["--filter", "shared.a_launch_fails", "--fault", &fault];
        passes(&[&["--ranks", "4", "--islands", "2"][..], &scenario].concat(), &[]);
    }
}

#[test]
fn a_rank_ends_while_others_borrow_its_rows() {
    for seed in 0..6_u64 {
        let (ranks, islands) = [("4", "2"), ("6", "3")][seed as usize % 2];
        let settings = [("WHOLEMEMORY_SUITE_SEED", &*seed.to_string())];
        let waits = if seed % 4 < 2 { "off" } else { "on" };
        let filter = ["--filter", "shared.a_rank_ends"];
        let arguments = [&["--ranks", ranks, "--islands", islands][..], &filter].concat();
        passes(&arguments, &[settings[0], ("WMSHIM_WHOLEMEMORY_WAIT", waits)]);
    }
}

/// Hazard: a row that a rank has a copy of crosses all the same.
#[test]
fn rows_with_copies_do_not_cross() {
    for (ranks, islands) in [(2, 2), (4, 2), (4, 4)] {
        let [once, thrice] = [1, 3].map(|gathers| sent("caches.counted", ranks, islands, gathers));
        let (messages, bytes) = model_without_rows(ranks as u64, islands as u64);
        for (rank, (once, thrice)) in once.into_iter().zip(thrice).enumerate() {
            let two = (thrice.0 - once.0, thrice.1 - once.1);
            assert_eq!(two, (2 * messages, 2 * bytes), "rank {rank} of {ranks} on {islands} islands");
        }
    }
}

#[test]
fn messages_that_come_late() {
    for seed in ["1", "2", "3"] {
        let settings = [("SIMNCCL_DELAY_US", "2000"), ("SIMNCCL_SEED", seed), ("SIMCUDA_SEED", seed)];
        for filter in ["rows.", "crossings.different_calls", "crossings.repeated", "graph.not_as_the_others"]
        {
            passes(&["--ranks", "3", "--islands", "2", "--filter", filter], &settings);
        }
    }
}

/// Hazard: a wait for ranks that have not met yet takes the missing communicator for a lost one.
#[test]
fn ranks_that_meet_slowly() {
    for seed in ["1", "2", "3"] {
        let settings = [("SIMNCCL_DELAY_US", "1500000"), ("SIMNCCL_SEED", seed)];
        passes(&["--ranks", "2", "--islands", "2", "--filter", "crossings.without_nccl"], &settings);
    }
}

/// The bits of all rows and states after steps of training.
fn trained(ranks: &str, islands: &str, seed: &str) -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bits {ranks} {islands}"));
    let _from_before = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let settings = [
        ("WHOLEMEMORY_SUITE_BITS", folder.to_str().expect("a name")),
        ("SIMNCCL_DELAY_US", "2000"),
        ("SIMNCCL_SEED", seed),
        ("SIMCUDA_SEED", seed),
    ];
    passes(&["--ranks", ranks, "--islands", islands, "--filter", "training.steps"], &settings);
    // It compares its rows' bits with those. Four ranks at most play it.
    if ranks == "3" {
        passes(&["--ranks", ranks, "--islands", islands, "--filter", "training.through_a_cache"], &settings);
    }
    let files = std::fs::read_dir(&folder).expect("files").map(|file| file.expect("a file"));
    let bits = |path: &Path| std::fs::read_to_string(path).expect("bits");
    files.map(|file| (file.file_name().to_string_lossy().into_owned(), bits(&file.path()))).collect()
}

/// Hazard (wrong result): a step over islands gives other bits than within one.
#[test]
fn training_gives_the_bits_of_one_island() {
    // Islands of one rank and of two; of two and of three.
    for (ranks, islands, seed) in [("3", "2", "1"), ("5", "2", "2")] {
        let wanted = trained(ranks, "1", "0");
        // Of each rank: rows of four optimizers and five states, and rows of two types of 16 bits.
        assert_eq!(wanted.len(), ranks.parse::<usize>().expect("a number") * (9 + 2 * 4));
        assert!(trained(ranks, islands, seed) == wanted, "{ranks} ranks on {islands} islands");
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

/// Hazard (stream order): the host waits for rows that a stream could wait for. Hazard (process
/// lifecycle): a process ends while it has rows for others under way.
#[test]
fn a_call_that_returns_before_its_rows_have_come() {
    let late = [("SIMNCCL_DELAY_US", "20000"), ("SIMNCCL_SEED", "2")];
    for (ranks, scenario) in [("3", "a_call_returns_early"), ("4", "others_end")] {
        let filter = format!("crossings.{scenario}");
        passes(&["--ranks", ranks, "--islands", "2", "--filter", &filter], &late);
    }
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

/// The launches of a gather before a rank tells its counts: one finds numbers that repeat, two
/// divide the numbers, one moves the rows of the rank's island.
#[test]
fn a_launch_fails_before_the_counts_are_told() {
    for number in 1..=4 {
        let fault = format!("1:cuLaunchKernel:{number}");
        let scenario = ["--filter", "crossings.a_launch_fails", "--fault", &fault];
        passes(&[&["--ranks", "3", "--islands", "2"][..], &scenario].concat(), &[]);
    }
}

/// The same of a sampling of few centers: one launch lists row numbers, one divides them, and one
/// moves the rows of the rank's island.
#[test]
fn a_launch_fails_before_row_pointers_are_gathered() {
    for number in 1..=3 {
        let fault = format!("1:cuLaunchKernel:{number}");
        let scenario = ["--filter", "graph.a_launch_fails", "--fault", &fault];
        passes(&[&["--ranks", "3", "--islands", "2"][..], &scenario].concat(), &[]);
    }
}

/// The same through copies of all islands' rows, which are taken first, and to which lines are
/// added behind the rows.
#[test]
fn a_launch_fails_in_a_gather_through_copies() {
    for (number, failed) in [(1, "3"), (2, "3"), (3, "3"), (8, "1"), (9, "1")] {
        let fault = format!("1:cuLaunchKernel:{number}");
        let scenario = ["--filter", "caches.a_launch_fails", "--fault", &fault];
        let settings = [("WHOLEMEMORY_SUITE_FAILED", failed)];
        passes(&[&["--ranks", "3", "--islands", "2"][..], &scenario].concat(), &settings);
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

/// The same in a step of training, and while ranks sample.
#[test]
fn a_network_that_fails_in_another_call() {
    for filter in ["training.network_fails", "graph.network_fails"] {
        for fault in ["send@1:2", "recv@0:3", "send@2:5", "allgather@1:2"] {
            let settings = [("SIMNCCL_FAIL", fault)];
            passes(&["--ranks", "3", "--islands", "2", "--filter", filter], &settings);
        }
        let settings = [("SIMNCCL_DROP", "6@1"), ("WMSHIM_WHOLEMEMORY_TIMEOUT", "3")];
        passes(&["--ranks", "3", "--islands", "2", "--filter", filter], &settings);
    }
}

/// The network between ranks is cut, and closes nothing: ranks wait for their whole patience, so
/// the cases are played at once.
#[test]
fn a_network_that_is_cut() {
    let play = |after| {
        let settings = [("SIMNCCL_DROP", after), ("WMSHIM_WHOLEMEMORY_TIMEOUT", "3")];
        passes(&["--ranks", "3", "--islands", "2", "--filter", "crossings.network_fails"], &settings);
    };
    std::thread::scope(|scope| ["6@1", "9@0"].map(|after| drop(scope.spawn(move || play(after)))));
}

/// Hazard (deadlock): a thread of the program waits for rows inside a call of the driver that lets
/// no other one in, and a lost rank is looked for by such calls.
#[test]
fn a_rank_ends_while_memory_is_freed() {
    for seed in 0..6_u64 {
        let settings = [
            ("WHOLEMEMORY_SUITE_SEED", &*seed.to_string()),
            ("SIMCUDA_FREE_LOCKS", "1"),
            ("SIMNCCL_DELAY_US", "3000"),
        ];
        passes(&["--ranks", "2", "--islands", "2", "--filter", "graph.a_rank_ends"], &settings);
    }
}

#[test]
fn a_rank_ends_at_a_random_moment() {
    for seed in 0..8_u64 {
        let (ranks, islands) = [("2", "2"), ("3", "2"), ("4", "3"), ("5", "2")][seed as usize % 4];
        let settings = [("WHOLEMEMORY_SUITE_SEED", &*seed.to_string())];
        for filter in
            ["crossings.a_rank_ends", "caches.a_rank_ends", "training.a_rank_ends", "graph.a_rank_ends"]
        {
            let arguments = ["--ranks", ranks, "--islands", islands, "--filter", filter];
            // A call returns before its rows have come, or afterwards.
            let waits = if seed.is_multiple_of(2) { "off" } else { "on" };
            passes(&arguments, &[settings[0], ("WMSHIM_WHOLEMEMORY_WAIT", waits)]);
        }
    }
}
