//! Hazard (out of memory): a program that makes physical memory itself, as PyTorch's expandable
//! segments do, fails past the end of the device, or a caller that relies on device memory, such
//! as NCCL, gets host memory.

use hazards::{Host, Outcome, Scratch, c, driver, places};

const PIECE: u64 = 4 << 20;
const OUT_OF_MEMORY: i32 = 2;

/// Runs the program for twelve pieces, 48 MiB, on a device of 26 MiB.
fn run(kind: &str, variables: &[(&str, &str)]) -> Outcome {
    start(&["12", kind], variables)
}

fn start(arguments: &[&str], variables: &[(&str, &str)]) -> Outcome {
    start_with("libc10_cuda.so", arguments, variables)
}

/// The program, whose pieces a library of this name makes and exports.
fn start_with(library: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Outcome {
    let scratch = Scratch::new();
    let library = c::library("piece", scratch.folder("maker").join(library), &[]);
    let [library, shim] =
        [library, places::shim()].map(|path| path.to_str().expect("a readable path").to_owned());
    let program = c::program(&scratch, "expandable", &[&library, &shim]);
    let host = Host::shimmed(program, &scratch, &driver::simulated(&scratch)).args(arguments);
    let host = host.env("SIMCUDA_MEMORY", "26MiB").env("WMSHIM_HEADROOM", "0");
    variables.iter().fold(host, |host, (name, value)| host.env(name, value)).run()
}

/// The library's own figures for the device, on the line that starts with `when`.
fn device(outcome: &Outcome, when: &str) -> serde_json::Value {
    let line = outcome.stdout.lines().find_map(|line| line.strip_prefix(when)).expect(when);
    let stats: serde_json::Value = serde_json::from_str(line).expect("JSON");
    stats["devices"][0].clone()
}

/// Bytes of pieces on the device, on the host, and how many overflowed.
fn pieces(outcome: &Outcome, when: &str) -> [u64; 3] {
    let pieces = &device(outcome, when)["pieces"];
    ["device_bytes", "host_bytes", "overflows"].map(|field| pieces[field].as_u64().expect(field))
}

/// The program made `before` pieces, and for the next one got the bare driver's answer.
fn assert_refused(outcome: &Outcome, before: u64) {
    assert_eq!(outcome.status.code(), Some(OUT_OF_MEMORY), "{}{}", outcome.stdout, outcome.stderr);
    assert!(outcome.stdout.starts_with(&format!("piece {before}: 2\n")), "{}", outcome.stdout);
    assert_eq!(pieces(outcome, "then"), [before * PIECE, 0, 0]);
}

#[test]
fn past_the_device_it_goes_on_in_host_memory_and_all_is_counted() {
    for kind in ["plain", "descriptor"] {
        let outcome = run(kind, &[]);
        outcome.expect_success();
        let [device, host, overflows] = pieces(&outcome, "full");
        assert_eq!((device + host, overflows), (12 * PIECE, host / PIECE), "{kind}");
        assert!((4 * PIECE..=6 * PIECE).contains(&device), "{kind}: the device comes first: {device}");
        assert_eq!(pieces(&outcome, "shrunk"), [device, host - PIECE, overflows], "{kind}");
        assert_eq!(pieces(&outcome, "empty"), [0, 0, overflows + 1], "{kind}");
    }
}

/// The driver needs memory of the device, too, for example for the code of a kernel at its first
/// launch.
#[test]
fn the_headroom_is_left_to_the_driver_while_the_host_has_room() {
    let outcome = run("plain", &[("WMSHIM_HEADROOM", "10MiB")]);
    outcome.expect_success();
    assert_eq!(pieces(&outcome, "full"), [4 * PIECE, 8 * PIECE, 8]);
    // The host has room for two, and the use of the device's last bytes is better than an error.
    let outcome = run("plain", &[("WMSHIM_HEADROOM", "10MiB"), ("WMSHIM_HOST_LIMIT", "10MiB")]);
    assert_eq!(outcome.status.code(), Some(OUT_OF_MEMORY), "{}", outcome.stderr);
    assert_eq!(pieces(&outcome, "then"), [6 * PIECE, 2 * PIECE, 2]);
    // Bare, a program can use these bytes.
    assert_refused(&run("plain", &[("WMSHIM_HEADROOM", "10MiB"), ("WMSHIM_OVERFLOW", "off")]), 6);
}

/// The number of exports that were refused to the program itself, which did not make the pieces,
/// and to the library that made them.
fn refused(outcome: &Outcome) -> [u64; 2] {
    ["refused ", "unshared "].map(|word| {
        let line = outcome.stdout.lines().find_map(|line| line.strip_prefix(word)).expect("a count");
        line.parse().expect("a number")
    })
}

#[test]
fn what_is_on_the_host_is_exported_to_pytorch_alone() {
    let outcome = run("descriptor", &[]);
    outcome.expect_success();
    assert_eq!(refused(&outcome), [pieces(&outcome, "full")[2], 0]);
    assert_eq!(refused(&run("descriptor", &[("SIMCUDA_MEMORY", "2GiB")])), [0, 0]);
}

#[test]
fn who_needs_the_device_gets_the_drivers_answer() {
    for library in ["libnccl.so.2", "libtorch_cuda.so", "libnvshmem_host.so.3", "libmscclpp.so.0"] {
        assert_refused(&start_with(library, &["12", "descriptor"], &[]), 6);
    }
    assert_refused(&run("plain", &[("WMSHIM_OVERFLOW_CREATED", "off")]), 6);
    let torch_alone = [("WMSHIM_OVERFLOW_CREATED", "torch")];
    assert_refused(&start_with("xla_cuda_plugin.so", &["12", "descriptor"], &torch_alone), 6);
}

/// A program of its own memory, as JAX is: it asks for a descriptor and for use by network cards,
/// of all its memory.
#[test]
fn the_memory_of_other_callers_goes_on_in_host_memory_too() {
    for library in ["xla_cuda_plugin.so", "libvmm.so"] {
        for kind in ["plain", "descriptor", "unflagged"] {
            let outcome = start_with(library, &["12", kind], &[]);
            outcome.expect_success();
            let [device, host, overflows] = pieces(&outcome, "full");
            assert_eq!((device, host, overflows), (6 * PIECE, 6 * PIECE, 6), "{library} {kind}");
            if kind == "descriptor" {
                assert_eq!(refused(&outcome), [6, 6], "{library}");
                assert_eq!(outcome.stderr.matches("not passed on").count(), 1, "{}", outcome.stderr);
            }
        }
    }
}

/// Hazard: a network card writes to memory that is not where it was registered.
#[test]
fn memory_for_network_cards_stays_on_the_device_where_one_may_be_used() {
    let scratch = Scratch::new();
    // Verbs count where a network card has a node, and this machine has none.
    let verbs = c::library("plugin", scratch.path().join("libpsm2.so.2"), &[]);
    let verbs = ("HAZARD_BESIDE", verbs.to_str().expect("a readable path"));
    for kind in ["plain", "descriptor"] {
        assert_refused(&start_with("xla_cuda_plugin.so", &["12", kind], &[verbs]), 6);
    }
    let outcome = start_with("xla_cuda_plugin.so", &["12", "unflagged"], &[verbs]);
    outcome.expect_success();
    assert_eq!(pieces(&outcome, "full"), [6 * PIECE, 6 * PIECE, 6]);
    // PyTorch asks for it whether there is a card or not.
    run("plain", &[verbs]).expect_success();
}

/// A copy that touches both kinds of pieces and goes to another device would crash inside the
/// driver.
#[test]
fn pieces_on_both_tiers_go_to_another_device() {
    let outcome = start(
        &["8", "plain", "0", "0", "peer"],
        &[("SIMCUDA_DEVICES", "2"), ("SIMCUDA_MEMORY", "48MiB"), ("WMSHIM_DEVICE_LIMIT", "14MiB")],
    );
    outcome.expect_success();
    assert_eq!(pieces(&outcome, "full"), [3 * PIECE, 5 * PIECE, 5]);
}

/// Before it refuses a request, the library releases its idle memory.
#[test]
fn unused_memory_of_ours_makes_room_for_everybody() {
    let outcome = start_with("libnccl.so.2", &["6", "plain", "0", "6"], &[]);
    outcome.expect_success();
    assert_eq!(pieces(&outcome, "full"), [6 * PIECE, 0, 0]);
}

#[test]
fn the_user_may_say_that_all_bear_it() {
    let outcome = start_with("libnccl.so.2", &["12", "descriptor"], &[("WMSHIM_OVERFLOW_CREATED", "all")]);
    outcome.expect_success();
    assert!(pieces(&outcome, "full")[1] > 0 && refused(&outcome) == [0, 0]);
}

#[test]
fn a_limit_on_the_device_sends_it_elsewhere_sooner() {
    let outcome = run("descriptor", &[("SIMCUDA_MEMORY", "2GiB"), ("WMSHIM_DEVICE_LIMIT", "12MiB")]);
    outcome.expect_success();
    assert_eq!(pieces(&outcome, "full"), [3 * PIECE, 9 * PIECE, 9]);
}

/// Three pieces, and then six blocks: together they stay within the limit, and the other blocks
/// overflow.
#[test]
fn a_limit_holds_for_pieces_and_blocks_together() {
    let limits = [("SIMCUDA_MEMORY", "256MiB"), ("WMSHIM_DEVICE_LIMIT", "18MiB")];
    let outcome = start(&["3", "plain", "6"], &limits);
    outcome.expect_success();
    let figures = device(&outcome, "mixed");
    let reserved = |tier: &str| figures["tiers"][tier]["reserved_bytes"].as_u64().expect(tier);
    assert_eq!(pieces(&outcome, "mixed"), [3 * PIECE, 0, 0]);
    assert_eq!((reserved("device"), reserved("host")), (6 << 20, 18 << 20));
}

#[test]
fn where_overflow_is_off_the_driver_answers() {
    assert_refused(&run("plain", &[("WMSHIM_OVERFLOW", "off")]), 6);
    let limited = [("WMSHIM_OVERFLOW", "off"), ("WMSHIM_DEVICE_LIMIT", "10MiB")];
    assert_refused(&run("plain", &limited), 2);
}

#[test]
fn a_limit_on_the_host_holds() {
    let outcome = run("plain", &[("WMSHIM_HOST_LIMIT", "10MiB")]);
    assert_eq!(outcome.status.code(), Some(OUT_OF_MEMORY), "{}", outcome.stderr);
    let [device, host, overflows] = pieces(&outcome, "then");
    assert_eq!((device, host, overflows), (6 * PIECE, 2 * PIECE, 2));
}

/// The device reports no room for a seventh; the seventh create is for the host, and the eighth
/// tries the device once more.
#[test]
fn where_the_host_fails_too_the_first_answer_stands() {
    assert_refused(&run("plain", &[("SIMCUDA_FAIL", "cuMemCreate:7")]), 6);
}

/// Memory that only a device has is not served from elsewhere, and no limit of ours refuses it.
#[test]
fn what_can_only_be_device_memory_is_the_drivers_business() {
    let outcome = run("fabric", &[("WMSHIM_DEVICE_LIMIT", "1MiB")]);
    assert!(outcome.stdout.starts_with("piece 0: 801\n"), "NOT_SUPPORTED, by the driver: {}", outcome.stdout);
}

#[test]
fn without_the_memory_manager_all_is_the_drivers() {
    let outcome = run("plain", &[("WMSHIM_STITCH", "off")]);
    assert_eq!(outcome.status.code(), Some(OUT_OF_MEMORY));
    assert!(outcome.stdout.starts_with("piece 6: 2\n"), "{}", outcome.stdout);
}

/// The memory of a program that releases pages and makes them again, on a device that has room for
/// nine of them.
fn rounds(count: &str, pieces: &str) -> u64 {
    let scratch = Scratch::new();
    let text = |path: std::path::PathBuf| path.to_str().expect("a readable path").to_owned();
    let library = text(c::library("piece", scratch.folder("maker").join("libc10_cuda.so"), &[]));
    let program = c::program(&scratch, "segments", &[&library, &text(places::shim())]);
    let host = Host::shimmed(program, &scratch, &driver::simulated(&scratch)).args([count]);
    let host =
        host.env("SIMCUDA_MEMORY", "38MiB").env("WMSHIM_HEADROOM", "0MiB").env("WMSHIM_OVERFLOW", "off");
    let outcome = host.env("WMSHIM_TORCH_PIECES", pieces).run();
    let stats: serde_json::Value = serde_json::from_str(outcome.expect_success()).expect("JSON");
    let device = &stats["devices"][0];
    let idle = device["pieces"]["idle_bytes"].as_u64().expect("bytes");
    // A page that is given up is idle, and counts once.
    let bytes = |of: &serde_json::Value, name: &str| of[name].as_u64().expect("bytes");
    let [blocks, all] = [&device["tiers"]["device"], &device["memory"]["device"]];
    let held = bytes(&device["pieces"], "device_bytes") + idle + bytes(blocks, "reserved_bytes");
    assert_eq!(bytes(all, "reserved_bytes"), held, "{device}");
    assert!(
        held <= bytes(all, "peak_reserved_bytes") && bytes(all, "peak_reserved_bytes") <= 38 << 20,
        "{device}"
    );
    idle
}

/// Hazard: idle memory is given to two owners, is missing for others, or is lost.
#[test]
fn pages_that_are_given_up_serve_the_next_ones() {
    assert_eq!(rounds("7", "release"), 0);
    // Of six, one was exported: it is not kept.
    assert_eq!(rounds("1", "keep"), 5 * PIECE);
    assert_eq!(rounds("7", "keep"), 5 * PIECE);
}

#[test]
fn pages_that_are_kept_change_no_answer() {
    let keep = ("WMSHIM_TORCH_PIECES", "keep");
    for kind in ["plain", "descriptor"] {
        let outcome = run(kind, &[keep]);
        outcome.expect_success();
        let [device, host, overflows] = pieces(&outcome, "full");
        assert_eq!((device + host, overflows), (12 * PIECE, host / PIECE), "{kind}");
        assert_eq!(pieces(&outcome, "empty"), [0, 0, overflows + 1], "{kind}");
    }
    assert_refused(&run("plain", &[keep, ("WMSHIM_OVERFLOW", "off")]), 6);
    let both =
        [keep, ("SIMCUDA_DEVICES", "2"), ("SIMCUDA_MEMORY", "48MiB"), ("WMSHIM_DEVICE_LIMIT", "14MiB")];
    start(&["8", "plain", "0", "0", "peer"], &both).expect_success();
}

/// Two of four pieces are on the host. The cases differ in the receiver of a shared handle and in
/// the name of the calling library.
fn shared(how: &str, library: &str, variables: &[(&str, &str)]) -> Outcome {
    let scratch = Scratch::new();
    let text = |path: std::path::PathBuf| path.to_str().expect("a readable path").to_owned();
    let library = text(c::library("piece", scratch.folder("maker").join(library), &[]));
    let program = c::program(&scratch, "imported", &[&library, &text(places::shim())]);
    let host = Host::shimmed(program, &scratch, &driver::simulated(&scratch)).args([how]);
    let host = host.env("SIMCUDA_DEVICES", "2").env("SIMCUDA_MEMORY", "256MiB").env("WMSHIM_HEADROOM", "0");
    let host = host.env("WMSHIM_DEVICE_LIMIT", "40MiB").env("SIMCUDA_RACES", "1");
    variables.iter().fold(host, |host, (name, value)| host.env(name, value)).run()
}

/// Hazard: a process crashes, or treats device memory as host memory, because another process's
/// device is full.
#[test]
fn another_process_sees_device_memory_and_copies_it_over_every_border() {
    for how in ["there", "here"] {
        for (library, created) in [("libc10_cuda.so", "torch"), ("libvmm.so", "all")] {
            let outcome = shared(how, library, &[("WMSHIM_OVERFLOW_CREATED", created)]);
            outcome.expect_success();
            let made = device(&outcome, "made")["pieces"].clone();
            assert_eq!(
                (&made["device_bytes"], &made["host_bytes"]),
                (&(40 << 20).into(), &(40 << 20).into())
            );
            // An imported piece counts for its owner.
            let [before, after] = ["imported", "done"].map(|when| pieces(&outcome, when));
            let mine = if how == "here" { [40 << 20, 40 << 20, 2] } else { [0, 0, 0] };
            assert_eq!((before, after), (mine, mine), "{how} {created}");
        }
    }
}

/// Hazard: a graph is refused memory that is idle, though `cuMemGetInfo` reports it as free.
#[test]
fn a_graphs_memory_node_gets_what_lies_idle() {
    let scratch = Scratch::new();
    let text = |path: std::path::PathBuf| path.to_str().expect("a readable path").to_owned();
    let library = text(c::library("piece", scratch.folder("maker").join("libc10_cuda.so"), &[]));
    let program = c::program(&scratch, "nodes", &[&library, &text(places::shim())]);
    let driver = driver::simulated(&scratch);
    for given_up in ["pieces", "blocks"] {
        for way in ["0", "1", "2"] {
            for device in ["0", "1"] {
                let words = [given_up, way, device];
                let host = Host::shimmed(&program, &scratch, &driver).args(words).env("SIMCUDA_DEVICES", "2");
                let outcome = host.env("SIMCUDA_MEMORY", "640MiB").run();
                assert_eq!(outcome.expect_success(), "0 1 1", "{words:?}");
            }
        }
    }
}

/// Hazard: a legal sequence of calls loses a piece's bytes, without an error.
#[test]
fn a_piece_that_is_mapped_again_keeps_its_bytes() {
    for library in ["libc10_cuda.so", "libvmm.so"] {
        let scratch = Scratch::new();
        let text = |path: std::path::PathBuf| path.to_str().expect("a readable path").to_owned();
        let library = text(c::library("piece", scratch.folder("maker").join(library), &[]));
        let program = c::program(&scratch, "remapped", &[&library, &text(places::shim())]);
        Host::shimmed(program, &scratch, &driver::simulated(&scratch)).run().expect_success();
    }
}

/// Runs the program for pieces that are kept, on a device of 64 MiB, once with each list of
/// variables.
fn kept(library: &str, what: &str, runs: &[Vec<(&str, String)>]) {
    let scratch = Scratch::new();
    let text = |path: std::path::PathBuf| path.to_str().expect("a readable path").to_owned();
    let library = text(c::library("piece", scratch.folder("maker").join(library), &[]));
    let program = c::program(&scratch, "kept", &[&library, &text(places::shim())]);
    let driver = driver::simulated(&scratch);
    for variables in runs {
        let host = Host::shimmed(&program, &scratch, &driver).args([what]).env("SIMCUDA_MEMORY", "64MiB");
        let host = host.env("WMSHIM_HEADROOM", "0").env("WMSHIM_OVERFLOW", "off");
        variables.iter().fold(host, |host, (name, value)| host.env(name, value)).run().expect_success();
    }
}

/// Hazard: handles belong to no context, and a reset takes the program's pieces, whose memory the
/// device never gets back.
#[test]
fn pieces_live_on_when_their_device_is_reset() {
    for library in ["libc10_cuda.so", "libvmm.so"] {
        kept(library, "reset", &[vec![], vec![("WMSHIM_KEEP_IDLE", "0".into())]]);
    }
}

/// Hazard: the driver fails once to unmap memory that lies idle, and the program's addresses are
/// lost.
#[test]
fn a_call_that_fails_once_loses_neither_memory_nor_addresses() {
    let functions = ["cuMemUnmap", "cuMemMap", "cuMemSetAccess", "cuMemRelease", "cuMemCreate"];
    let of = |function: &str, call: u32| vec![("SIMCUDA_FAIL", format!("{function}:{call}"))];
    let runs: Vec<_> = functions.iter().flat_map(|function| (1..=8).map(|call| of(function, call))).collect();
    ["libc10_cuda.so", "libvmm.so"].into_iter().for_each(|library| kept(library, "unmap", &runs));
}
