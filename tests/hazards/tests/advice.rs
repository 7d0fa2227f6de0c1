//! Hazard (data race): work uses memory while it migrates, pinned memory migrates, or a wrong call
//! of `wmshim_advise` changes something.

use std::path::Path;

use hazards::{Host, Outcome, Scratch, c, driver, places};

/// Runs `advised` on the simulated driver, which delays all work at random and ends the process at
/// a race.
fn advised(arguments: &[&str], variables: &[(&str, &str)]) -> Outcome {
    let scratch = Scratch::new();
    let text = |path: std::path::PathBuf| path.to_str().expect("a readable path").to_owned();
    let include = c::flag("-I", &places::workspace("shim/preload/include"));
    let program = c::program(&scratch, "advised", &[&include, &text(places::shim())]);
    let image = text(places::workspace("kernels/compiled/diagnostics.ptx"));
    let libraries = scratch.folder("libraries");
    if let ["kept", library, ..] = arguments
        && library.starts_with("lib")
    {
        c::library("block", libraries.join(library), &[&text(places::shim())]);
    }
    let host = Host::shimmed(program, &scratch, &driver::simulated(&scratch));
    let host = host.args([image.as_str()]).args(arguments).env("SIMCUDA_RACES", "1").env("SIMCUDA_SEED", "3");
    let host = host.env("LD_LIBRARY_PATH", libraries).env("WMSHIM_KEEP_IDLE", "0");
    variables.iter().fold(host, |host, (name, value)| host.env(name, value)).run()
}

const ON: (&str, &str) = ("WMSHIM_MIGRATE", "on");

/// Work is not delayed at random: calls wait a short time only until the GPU is idle.
const PROMPT: (&str, &str) = ("SIMCUDA_SEED", "");

fn figures(outcome: &Outcome) -> serde_json::Value {
    let line = outcome.expect_success().lines().last().expect("a line");
    serde_json::from_str(line).expect("JSON")
}

/// Bytes that moved in and out while threads of a program with these seeds worked.
fn moved(seeds: &[&str], memory: &str) -> [u64; 2] {
    let run = |seed: &&str| moved_by(&["threads", seed, "3", "60"], &[("SIMCUDA_MEMORY", memory)]);
    seeds.iter().map(run).fold([0, 0], |sum, one| [sum[0] + one[0], sum[1] + one[1]])
}

fn moved_by(arguments: &[&str], variables: &[(&str, &str)]) -> [u64; 2] {
    let outcome = advised(arguments, &[&[ON], variables].concat());
    eprintln!("{}", outcome.stderr);
    let moves = figures(&outcome)["devices"][0]["moves"].clone();
    ["in_bytes", "out_bytes"].map(|name| moves[name].as_u64().expect("bytes"))
}

#[test]
fn what_threads_fill_and_copy_is_what_they_read_while_it_moves() {
    let [here, away] = moved(&["1", "2", "3"], "512MiB");
    assert!(here > 0 && away > 0, "nothing moved: {here} in, {away} out");
}

/// On a device that is too small for most of the memory: blocks begin on the host, too.
#[test]
fn the_same_where_memory_overflows() {
    let [here, away] = moved(&["4", "5"], "96MiB");
    assert!(here + away > 0, "nothing moved");
}

/// Live bytes of the device and the host, and bytes that moved in and out, at each point that
/// `advised turns` reports.
fn turns(what: &str, variables: &[(&str, &str)]) -> Vec<[u64; 4]> {
    let outcome = advised(&["turns", what], &[&[("WMSHIM_HEADROOM", "0"), PROMPT], variables].concat());
    let line = |line: &str| {
        let device = serde_json::from_str::<serde_json::Value>(line).expect("JSON")["devices"][0].clone();
        let live = |tier: &str| device["tiers"][tier]["live_bytes"].as_u64().expect("bytes");
        let moved = |name: &str| device["moves"][name].as_u64().unwrap_or(0);
        [live("device"), live("host"), moved("in_bytes"), moved("out_bytes")].map(|bytes| bytes >> 20)
    };
    outcome.expect_success().lines().map(line).collect()
}

/// Hazard: a new block, which is used next, is placed on the host while the device holds unused
/// blocks; or a block that went to the host stays there for good.
#[test]
fn what_was_not_used_for_longest_leaves_for_a_new_block_and_comes_back_when_it_is_missed() {
    for bound in ["SIMCUDA_MEMORY", "WMSHIM_DEVICE_LIMIT"] {
        let room = (bound, "64MiB");
        let [full, freed, missed] = turns("moves", &[room, ON])[..] else { panic!("three lines") };
        assert!(full[0] >= 40 && full[1] <= 36 && full[2] == 0 && full[3] >= 12, "{bound}: {full:?}");
        assert_eq!(freed[2], 0, "no other allocation has used it: {bound}: {freed:?}");
        assert_eq!((missed[0], missed[1], missed[2]), (44, 0, full[1]), "{bound}: {missed:?}");
        let [full, freed, missed] = turns("stays", &[room])[..] else { panic!("three lines") };
        assert_eq!([full[3], freed[3], missed[3]], [0; 3], "it was not asked for");
    }
}

/// Hazard: a program that uses more than the device has, one block after the other, moves all of it
/// over the link in each period, because the least recently used block is the next one to be used.
/// Only the excess has to move.
#[test]
fn of_what_is_used_in_turn_only_the_excess_crosses_the_link() {
    const PERIODS: usize = 12;
    let room = [ON, PROMPT, ("SIMCUDA_MEMORY", "128MiB"), ("WMSHIM_HEADROOM", "0")];
    let outcome = advised(&["layers", "24", &PERIODS.to_string()], &room);
    let moved = |line: &str| {
        let device = serde_json::from_str::<serde_json::Value>(line).expect("JSON")["devices"][0].clone();
        ["in_bytes", "out_bytes"].map(|name| device["moves"][name].as_u64().expect("bytes") >> 20)
    };
    let moved: Vec<[u64; 2]> = outcome.expect_success().lines().map(moved).collect();
    // 194 MiB on 128. A simulated kernel is equally fast on every memory. So the mover fetches
    // blocks before their use while it tests whether that helps, and the program is no faster.
    let each = |way: usize| moved.windows(2).map(move |pair| pair[1][way] - pair[0][way]);
    assert!(each(0).chain(each(1)).all(|mib| mib <= 110) && each(0).any(|mib| mib >= 8), "MiB: {moved:?}");
}

/// Hazard: memory that fits on another GPU is moved to the host and back, at a seventh of the
/// speed; or that GPU has no room left for contexts of its own.
#[test]
fn another_gpus_memory_goes_before_moves() {
    let layers = |limit: &str| {
        let two = [
            ON,
            PROMPT,
            ("SIMCUDA_DEVICES", "2"),
            ("SIMCUDA_MEMORY", "128MiB"),
            ("WMSHIM_HEADROOM", "16MiB"),
            ("WMSHIM_OVERFLOW", "peer,host"),
            ("WMSHIM_PEER_LIMIT", limit),
        ];
        let device = figures(&advised(&["layers", "24", "4"], &two))["devices"][0].clone();
        let live = |tier: &str| device["tiers"][tier]["live_bytes"].as_u64().expect("bytes") >> 20;
        let moved = |way: &str| device["moves"][way].as_u64().expect("bytes") >> 20;
        [live("peer"), live("host"), moved("out_bytes")]
    };
    // 196 MiB on a device with room for 112, and another one with as much.
    let [peer, host, out] = layers("off");
    assert!((84..=112).contains(&peer) && host == 0 && out == 0, "{peer} {host} {out}");
    let [peer, host, out] = layers("32MiB");
    assert!((24..=32).contains(&peer) && host >= 40 && out >= 8, "{peer} {host} {out}");
}

/// The codes of `advised calls`, in its order.
fn codes(variables: &[(&str, &str)]) -> (Vec<u32>, serde_json::Value, String) {
    let outcome = advised(&["calls"], variables);
    let lines =
        outcome.expect_success().lines().filter(|line| line.starts_with("wmshim") || line.starts_with("say"));
    let codes = lines.map(|line| line.rsplit(' ').next().and_then(|code| code.parse().ok()).expect("a code"));
    (codes.collect(), figures(&outcome)["devices"][0].clone(), outcome.stderr.clone())
}

#[test]
fn wrong_calls_are_errors_and_right_ones_move_what_they_say() {
    let (told, device, said) = codes(&[ON, ("SIMCUDA_MEMORY", "64MiB"), ("WMSHIM_HEADROOM", "0")]);
    let wrong = [0, 1, 1, 1, 2, 0, 1, 1, 1, 1, 1, 1, 801];
    assert_eq!(told, [&wrong[..], &[0, 0, 0, 800, 0, 0, 0, 1]].concat(), "{said}");
    assert!(device["moves"]["out_bytes"].as_u64() >= Some(13 << 20), "{device}");
    let pinned = device["moves"]["refused"].as_array().expect("a list");
    assert!(pinned.iter().any(|reason| reason["reason"] == "a block is pinned to the device"), "{pinned:?}");
}

#[test]
fn without_the_setting_nothing_moves_and_one_line_names_it() {
    let (told, device, said) =
        codes(&[("WMSHIM_MIGRATE", "off"), ("SIMCUDA_MEMORY", "64MiB"), ("WMSHIM_HEADROOM", "0")]);
    let wrong = [0, 1, 1, 1, 2, 0, 1, 1, 1, 1, 1, 1, 801];
    assert_eq!(told, [&wrong[..], &[800, 800, 800, 800, 800, 0, 0, 1]].concat(), "{said}");
    assert_eq!(device["moves"]["out_bytes"], 0);
    assert_eq!(said.matches("WMSHIM_MIGRATE=on").count(), 1, "{said}");
}

#[test]
fn what_others_rely_on_comes_back_and_stays_and_the_rest_moves() {
    for what in ["nothing", "capture", "context"] {
        assert_eq!(advised(&["kept", what], &[ON]).expect_success(), "0 0 0 0 0", "{what}");
    }
    for what in ["syncmemops", "ipc"] {
        // A block does not come back where the device is not seen to be idle in time.
        let tried = |_| advised(&["kept", what], &[ON, PROMPT]).expect_success().to_owned();
        let answers: Vec<String> = (0..4).map(tried).collect();
        let is_kept = |answer: &String| ["0 0 800 0 0", "0 0 0 800 0"].contains(&answer.as_str());
        assert!(answers.iter().all(is_kept), "{what}: {answers:?}");
        assert!(answers.iter().any(|answer| answer == "0 0 800 0 0"), "{what}: {answers:?}");
    }
    for what in ["nothing", "device", "peers"] {
        let two = [ON, ("SIMCUDA_DEVICES", "2")];
        assert_eq!(advised(&["kept", what], &two).expect_success(), "0 0 0 0 0", "{what}");
    }
}

/// Hazard (data race): work of another context touches a block that moves; or a context is
/// destroyed that copies of the library are in.
#[test]
fn memory_moves_beside_contexts_of_one_device_that_come_and_go() {
    let run = |seed| moved_by(&["contexts", seed, "3", "100", "0"], &[("SIMCUDA_MEMORY", "512MiB")]);
    let bytes: u64 = ["6", "8"].into_iter().flat_map(run).sum();
    assert!(bytes > 0, "nothing moved");
}

/// Kernels of another device use the memory, too.
#[test]
fn memory_moves_beside_a_device_that_reaches_it() {
    let two = [("SIMCUDA_MEMORY", "512MiB"), ("SIMCUDA_DEVICES", "2")];
    let bytes: u64 =
        ["7", "9"].into_iter().flat_map(|seed| moved_by(&["contexts", seed, "3", "100", "1"], &two)).sum();
    assert!(bytes > 0, "nothing moved");
}

/// Hazard (data race): an engine of the GPU or a network card uses memory that was registered
/// with it while the memory moves, with no stream in between.
#[test]
fn memory_stays_beside_libraries_that_register_it_with_engines_and_cards() {
    let registering = [
        "libpsm2.so.2",
        "libnvidia-encode.so.1",
        "libnvcuvid.so.1",
        "libnvidia-opticalflow.so.1",
        "libnvoptix.so.1",
        "libnvjpeg.so.11",
    ];
    let expect_pinned = |arguments: &[&str], why: &str| {
        let outcome = advised(&[&["kept"], arguments].concat(), &[ON, ("WMSHIM_LOG", "debug")]);
        assert_eq!(outcome.expect_success(), "0 0 800 800 800", "{arguments:?}");
        assert!(outcome.stderr.contains(why), "{}", outcome.stderr);
    };
    for library in registering {
        let named = library.split(".so").next().expect("a name");
        expect_pinned(&[library], &format!("{named} is loaded"));
    }
    if Path::new("/dev/infiniband").exists() {
        expect_pinned(&["libibverbs.so.1"], "libibverbs is loaded");
    } else {
        assert_eq!(advised(&["kept", "libibverbs.so.1"], &[ON]).expect_success(), "0 0 0 0 0");
    }
    assert_eq!(advised(&["kept", "libother.so.1", "look_up"], &[ON]).expect_success(), "0 0 0 0 0");
}

/// torchvision loads the decoder of pictures in every program.
#[test]
fn memory_moves_beside_a_decoder_until_it_is_used() {
    for file in ["libnvjpeg.so.13", "libnvjpeg.4a0b5c81.so.13"] {
        assert_eq!(advised(&["kept", file], &[ON]).expect_success(), "0 0 0 0 0", "{file}");
        let outcome = advised(&["kept", file, "look_up"], &[ON, ("WMSHIM_LOG", "debug")]);
        assert_eq!(outcome.expect_success(), "0 0 800 800 800", "{file}");
        assert!(outcome.stderr.contains("libnvjpeg is in use"), "{}", outcome.stderr);
    }
}

/// NCCL gives its own memory to other devices.
#[test]
fn what_a_communication_library_makes_stays_and_the_rest_moves() {
    for file in ["libnccl.so.2", "libnvshmem_host.so.3"] {
        assert_eq!(advised(&["kept", file, "take_block"], &[ON]).expect_success(), "0 0 800 0 0", "{file}");
    }
    assert_eq!(advised(&["kept", "libother.so.1", "take_block"], &[ON]).expect_success(), "0 0 0 0 0");
}

/// Hazard: a mover waits for a thread that waits for another one, which waits for the mover.
#[test]
fn a_copy_that_does_not_end_keeps_memory_where_it_is_and_nobody_waiting() {
    let outcome = advised(&["hold"], &[ON]);
    assert_eq!(outcome.expect_success(), "600 0");
}

/// Hazard (out of memory): the driver has no room for its own needs, while idle blocks lie on the
/// device.
#[test]
fn blocks_leave_a_device_that_has_nothing_to_do_for_what_only_the_driver_can_give() {
    let room = |what, migrate| {
        let variables = [("WMSHIM_MIGRATE", migrate), ("SIMCUDA_MEMORY", "64MiB"), ("WMSHIM_HEADROOM", "0")];
        advised(&["room", what], &variables).expect_success().to_owned()
    };
    assert_eq!(room("idle", "off"), "2");
    assert_eq!(room("busy", "on"), "2");
    assert_eq!(room("idle", "on"), "0");
}

/// Hazard (deadlock): the thread that closed the gate does not exist in a forked child, and the
/// child waits for it.
#[test]
fn a_child_that_is_forked_while_memory_moves_is_answered() {
    let outcome = advised(&["fork"], &[ON, ("SIMCUDA_SEED", "")]);
    assert_eq!(outcome.expect_success().lines().next(), Some("40"));
    assert!(figures(&outcome)["devices"][0]["moves"]["out_bytes"].as_u64() > Some(0));
}
