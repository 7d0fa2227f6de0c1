//! Hazard (wrong result): a piece that lies on the host is passed on as device memory, loses bytes
//! when it becomes that, or becomes it under work that uses it.

use std::path::PathBuf;

use hazards::{Host, Outcome, Scratch, c, driver, places};

const PIECE: u64 = 4 << 20;
const OUT_OF_MEMORY: &str = "2";
/// The simulated driver has no dma-buf.
const NOT_SUPPORTED: &str = "801";
const MOVES: (&str, &str) = ("WMSHIM_MIGRATE", "on");

/// The program, whose pieces a library of some name makes and exports.
struct Passer {
    scratch: Scratch,
    program: PathBuf,
    driver: PathBuf,
}

impl Passer {
    fn new(library: &str) -> Self {
        let scratch = Scratch::new();
        let text = |path: PathBuf| path.to_str().expect("a readable path").to_owned();
        let library = text(c::library("piece", scratch.folder("maker").join(library), &[]));
        let program = c::program(&scratch, "passed", &[&library, &text(places::shim())]);
        let driver = driver::simulated(&scratch);
        Self { scratch, program, driver }
    }

    fn pass(&self, words: &[&str], variables: &[(&str, &str)]) -> Outcome {
        let host = Host::shimmed(&self.program, &self.scratch, &self.driver).args(words);
        let host = host.env("SIMCUDA_MEMORY", "64MiB").env("WMSHIM_DEVICE_LIMIT", "16MiB");
        let host = host.env("WMSHIM_HEADROOM", "0").env("SIMCUDA_RACES", "1");
        variables.iter().fold(host, |host, (name, value)| host.env(name, value)).run()
    }
}

fn line<'a>(outcome: &'a Outcome, when: &str) -> &'a str {
    outcome.stdout.lines().find_map(|line| line.strip_prefix(when)).expect(when)
}

/// Bytes of pieces on the device and on the host.
fn pieces(outcome: &Outcome, when: &str) -> [u64; 2] {
    let stats: serde_json::Value = serde_json::from_str(line(outcome, when)).expect("JSON");
    let pieces = &stats["devices"][0]["pieces"];
    ["device_bytes", "host_bytes"].map(|field| pieces[field].as_u64().expect(field))
}

fn assert_stays(outcome: &Outcome, released: u64) {
    outcome.expect_success();
    assert_eq!(line(outcome, "export "), OUT_OF_MEMORY, "{}", outcome.stderr);
    assert_eq!(pieces(outcome, "then "), [(4 - released) * PIECE, 2 * PIECE]);
    assert_eq!(pieces(outcome, "empty "), [0, 0]);
    let said: Vec<_> = outcome.log().into_iter().filter(|line| line.contains("not passed on")).collect();
    assert!(said.len() == 1 && said[0].contains("WMSHIM_OVERFLOW_CREATED=torch"), "{}", outcome.stderr);
}

fn assert_comes(outcome: &Outcome, released: u64) {
    outcome.expect_success();
    assert_eq!(line(outcome, "export "), "0", "{}", outcome.stderr);
    assert_eq!(pieces(outcome, "full "), [(4 - released) * PIECE, 2 * PIECE]);
    assert_eq!(pieces(outcome, "then "), [(5 - released) * PIECE, PIECE]);
    assert_eq!(pieces(outcome, "empty "), [0, 0]);
}

#[test]
fn a_piece_that_is_mapped_nowhere_comes_where_there_is_room() {
    for library in ["libvmm.so", "xla_cuda_plugin.so"] {
        let passer = Passer::new(library);
        assert_comes(&passer.pass(&["unmapped", "1"], &[]), 1);
        assert_stays(&passer.pass(&["unmapped"], &[]), 0);
    }
}

#[test]
fn a_piece_that_is_mapped_comes_where_memory_may_move_and_nothing_uses_it() {
    let passer = Passer::new("libvmm.so");
    let outcome = passer.pass(&["mapped", "1"], &[MOVES]);
    assert_comes(&outcome, 1);
    assert_eq!(line(&outcome, "range "), NOT_SUPPORTED, "the driver's answer");
    let outcome = passer.pass(&["mapped", "1"], &[("WMSHIM_MIGRATE", "off")]);
    assert_stays(&outcome, 1);
    assert!(outcome.stderr.contains("WMSHIM_MIGRATE=on"), "{}", outcome.stderr);
    assert_eq!(line(&outcome, "range "), OUT_OF_MEMORY, "nor by its address");
}

/// Hazard (error handling): an export is refused because the GPU has work for longer than a wait of
/// other calls.
#[test]
fn a_piece_comes_once_the_work_beside_it_is_over() {
    let links = ("SIMCUDA_LINKS", "pcie=40MB/s,nvlink=20GB/s");
    assert_comes(&Passer::new("libvmm.so").pass(&["busy", "1"], &[MOVES, links]), 1);
}

/// Hazard (data race): work writes to memory that the piece has left.
#[test]
fn a_piece_that_may_be_in_use_stays() {
    let passer = Passer::new("libvmm.so");
    for how in ["held", "captured", "open"] {
        assert_stays(&passer.pass(&[how, "1"], &[MOVES]), 1);
    }
    assert_stays(&passer.pass(&["peer", "1"], &[MOVES, ("SIMCUDA_DEVICES", "2")]), 1);
}

/// Hazard: calls of the library fail in the middle, and the piece is lost. The library asks three
/// times. Where a call of the program fails too, the program ends.
#[test]
fn failing_calls_leave_the_piece_as_it_is() {
    let passer = Passer::new("libvmm.so");
    let calls = [
        ("cuMemCreate", 5..=6),
        ("cuMemAddressReserve", 2..=3),
        ("cuMemMap", 7..=10),
        ("cuMemSetAccess", 7..=13),
        ("cuMemUnmap", 2..=6),
    ];
    let mut stayed = 0;
    for (function, call) in calls.into_iter().flat_map(|(name, calls)| calls.map(move |call| (name, call))) {
        for (how, moves) in [("unmapped", "off"), ("mapped", "on")] {
            let fails = [0, 1, 2].map(|later| format!("{function}:{}", call + later)).join(",");
            let outcome = passer.pass(&[how, "1"], &[("SIMCUDA_FAIL", &fails), ("WMSHIM_MIGRATE", moves)]);
            if outcome.status.code() == Some(80) {
                continue;
            }
            outcome.expect_success();
            stayed += usize::from(line(&outcome, "export ") == OUT_OF_MEMORY);
            assert_eq!(pieces(&outcome, "empty "), [0, 0], "{function} {call} {how}");
        }
    }
    assert!(stayed >= 6, "{stayed} exports were refused");
}
