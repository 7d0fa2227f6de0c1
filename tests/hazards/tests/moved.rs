//! Hazard (wrong result): memory that a program makes itself loses its bytes when it moves, or is
//! other memory by its handle than by its addresses, or has an access that nothing granted. Hazard
//! (wrong report): its bytes count twice, or where they were.

use std::path::PathBuf;

use hazards::{Host, Outcome, Scratch, c, driver, places};

const PIECE: u64 = 4 << 20;
const PIECES: u64 = 10;
/// Pieces that the device has room for.
const ROOM: u64 = 6;
const WRONG_BYTES: i32 = 70;
const CALL_FAILED: i32 = 80;

struct Mover {
    scratch: Scratch,
    program: PathBuf,
    driver: PathBuf,
}

impl Mover {
    fn new() -> Self {
        let scratch = Scratch::new();
        let text = |path: PathBuf| path.to_str().expect("a readable path").to_owned();
        let library = text(c::library("piece", scratch.folder("maker").join("libvmm.so"), &[]));
        let program = c::program(&scratch, "moved", &[&library, &text(places::shim()), "-pthread"]);
        let driver = driver::simulated(&scratch);
        Self { scratch, program, driver }
    }

    fn run(&self, words: &[&str], variables: &[(&str, &str)]) -> Outcome {
        let image = places::workspace("kernels/compiled/diagnostics.ptx");
        let host = Host::shimmed(&self.program, &self.scratch, &self.driver).args([image.as_os_str()]);
        let host = host.args(words).env("SIMCUDA_MEMORY", "128MiB").env("WMSHIM_MIGRATE", "on");
        let host = host.env("WMSHIM_DEVICE_LIMIT", "24MiB").env("WMSHIM_HEADROOM", "0");
        let host = host.env("SIMCUDA_RACES", "1");
        variables.iter().fold(host, |host, (name, value)| host.env(name, value)).run()
    }
}

fn device(outcome: &Outcome, when: &str) -> serde_json::Value {
    let line = outcome.stdout.lines().find_map(|line| line.strip_prefix(when)).expect(when);
    let stats: serde_json::Value = serde_json::from_str(line).expect("JSON");
    stats["devices"][0].clone()
}

fn figures<const N: usize>(of: &serde_json::Value, names: [&str; N]) -> [u64; N] {
    names.map(|name| of[name].as_u64().expect(name))
}

/// Each byte counts once, on the tier where it is, whatever has moved.
fn assert_counted(outcome: &Outcome) {
    outcome.expect_success();
    for when in ["full ", "then "] {
        let device = device(outcome, when);
        let [here, there] = figures(&device["pieces"], ["device_bytes", "host_bytes"]);
        assert_eq!(here + there, PIECES * PIECE, "{when}: {device}");
        assert!(here <= ROOM * PIECE, "{when}: {device}");
    }
    let empty = device(outcome, "empty ");
    assert_eq!(figures(&empty["pieces"], ["device_bytes", "host_bytes"]), [0, 0], "{empty}");
}

fn moved(outcome: &Outcome) -> [u64; 2] {
    figures(&device(outcome, "then ")["moves"], ["in_bytes", "out_bytes"])
}

#[test]
fn pieces_that_kernels_use_come_and_go_with_their_bytes() {
    let mover = Mover::new();
    let outcome = mover.run(&["rounds"], &[]);
    assert_counted(&outcome);
    assert!(moved(&outcome).iter().all(|bytes| *bytes > 0), "{}", outcome.stdout);
    let verified = mover.run(&["rounds"], &[("WMSHIM_VERIFY", "moves")]);
    assert_counted(&verified);
}

#[test]
fn what_the_program_does_with_a_piece_that_moves_is_what_it_does_bare() {
    let mover = Mover::new();
    for word in ["remap", "twice", "retain", "release", "rights", "graph", "fork"] {
        let outcome = mover.run(&["rounds", word, "rounds"], &[]);
        assert_counted(&outcome);
        assert!(moved(&outcome).iter().all(|bytes| *bytes > 0), "{word}: {}", outcome.stdout);
    }
}

#[test]
fn what_is_passed_on_is_the_same_memory_and_stays() {
    let outcome = Mover::new().run(&["export"], &[]);
    assert_counted(&outcome);
}

#[test]
fn an_access_of_a_peer_stays_as_it_was_granted() {
    let outcome = Mover::new().run(&["peer", "rounds"], &[("SIMCUDA_DEVICES", "2")]);
    assert_counted(&outcome);
}

#[test]
fn threads_change_pieces_while_others_move() {
    let mover = Mover::new();
    for seed in ["1", "2", "3"] {
        assert_counted(&mover.run(&["threads"], &[("SIMCUDA_SEED", seed)]));
    }
}

/// Hazard: a call of the library fails in the middle of a move. A call of the program's own that
/// fails ends the program.
#[test]
fn failing_calls_lose_no_byte() {
    let mover = Mover::new();
    let mut right = 0;
    for function in
        ["cuMemMap", "cuMemUnmap", "cuMemSetAccess", "cuMemCreate", "cuMemRelease", "cuMemcpyDtoDAsync"]
    {
        for call in [11, 19, 32, 47] {
            let fails = format!("{function}:{call},{function}:{}", call + 1);
            let outcome = mover.run(&["rounds", "remap"], &[("SIMCUDA_FAIL", &fails)]);
            let code = outcome.status.code();
            assert!(code != Some(WRONG_BYTES), "{fails}: {}", outcome.stderr);
            assert!(code == Some(0) || code == Some(CALL_FAILED), "{fails}: {code:?} {}", outcome.stderr);
            right += usize::from(code == Some(0));
        }
    }
    assert!(right >= 12, "{right} runs met no failure of a call of the program's");
}

/// Hazard (use after free): PyTorch's pieces keep mappings where the program has given them up, and
/// their memory has become another one's by a move.
#[test]
fn pieces_that_lie_now_here_now_there_have_their_bytes_when_they_move() {
    let mut moved = [0; 2];
    for seed in 0..4 {
        let scratch = Scratch::new();
        let text = |path: PathBuf| path.to_str().expect("a readable path").to_owned();
        let library = text(c::library("piece", scratch.folder("maker").join("libc10_cuda.so"), &[]));
        let program = c::program(&scratch, "shifted", &[&library, &text(places::shim())]);
        let image = places::workspace("kernels/compiled/diagnostics.ptx");
        let host = Host::shimmed(program, &scratch, &driver::simulated(&scratch));
        let host = host.args([image.as_os_str()]).args([&seed.to_string(), "300"]);
        let host = host.env("SIMCUDA_MEMORY", "128MiB").env("WMSHIM_MIGRATE", "on");
        let outcome = host.env("WMSHIM_HEADROOM", "0").env("WMSHIM_OVERFLOW", "host").run();
        outcome.expect_success();
        let [back, out] = figures(&device(&outcome, "then ")["moves"], ["in_bytes", "out_bytes"]);
        moved = [moved[0] + back, moved[1] + out];
    }
    assert!(moved.iter().all(|bytes| *bytes >= 12 * PIECE), "{moved:?}");
}
