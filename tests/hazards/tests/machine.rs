//! Hazard (out of memory): processes that start together each see the whole host memory as free,
//! pin it together, and the kernel's OOM killer ends one of them.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout};

use hazards::{Host, Scratch, c, driver, places};

const GIB: u64 = 1 << 30;

/// The machine's memory, and the part of it in use.
const WHOLE: u64 = 16;
const OTHERS: u64 = 1;

struct Rank {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Rank {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        line.trim_end().to_owned()
    }
}

/// Bytes of the host that all processes have pinned: the first count of each row of the simulator's
/// ledger.
fn pinned(ledger: &Path) -> u64 {
    let bytes = std::fs::read(ledger).expect("the ledger");
    let rows = bytes.chunks_exact(65 * 8);
    rows.map(|row| u64::from_ne_bytes(row[..8].try_into().expect("eight bytes"))).sum()
}

/// The memory that `ranks` ranks pin together, with this many devices each, and the number of
/// blocks of this many MiB that each of them got.
fn together(ranks: usize, devices: &str, block: &str, variables: &[(&str, &str)]) -> (u64, Vec<u64>) {
    let scratch = Scratch::new();
    let (driver, ledger) = (driver::simulated(&scratch), scratch.path().join("shared"));
    let shim = places::shim();
    let program = c::program(&scratch, "ranks", &["-rdynamic", shim.to_str().expect("a readable path")]);
    let start = |_| {
        let host =
            Host::shimmed(&program, &scratch, &driver).args([devices, block]).env("SIMCUDA_SHARED", &ledger);
        let host =
            host.env("SIMCUDA_DEVICES", devices).env("SIMCUDA_MEMORY", "1GiB").env("SIMCUDA_HOST", "16GiB");
        let host =
            host.env("MACHINE_MIB", (WHOLE << 10).to_string()).env("OTHERS_MIB", (OTHERS << 10).to_string());
        let host = variables.iter().fold(host, |host, (name, value)| host.env(name, value));
        let mut child = host.env("WMSHIM_LOG", "off").start();
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        Rank { child, answers }
    };
    let mut all: Vec<Rank> = (0..ranks).map(start).collect();
    all.iter_mut().for_each(|rank| assert_eq!(rank.line(), "ready"));
    for rank in &mut all {
        rank.child.stdin.as_mut().expect("a pipe").write_all(b"x").expect("it listens");
    }
    let got = all.iter_mut().map(|rank| rank.line().parse().expect("a number")).collect();
    let pinned = pinned(&ledger);
    for mut rank in all {
        drop(rank.child.stdin.take());
        assert!(rank.child.wait().expect("it ends").success());
    }
    (pinned, got)
}

#[test]
fn ranks_that_start_together_leave_a_quarter_of_the_machine() {
    let (pinned, got) = together(8, "2", "64", &[]);
    assert!(pinned <= (WHOLE - WHOLE / 4 - OTHERS) * GIB, "{} MiB are pinned", pinned >> 20);
    assert!(pinned >= 9 * GIB, "{} MiB are pinned, of 11 GiB that may be", pinned >> 20);
    assert!(got.iter().all(|blocks| *blocks > 0), "{got:?}");
}

/// Hazard: each process checks before it makes a large block, and all see the same free memory.
#[test]
fn large_blocks_that_are_asked_for_at_once_leave_it_too() {
    let (pinned, _) = together(8, "2", "1024", &[]);
    assert!(pinned <= (WHOLE - WHOLE / 4 - OTHERS) * GIB, "{} MiB are pinned", pinned >> 20);
    assert!(pinned >= 6 * GIB, "{} MiB are pinned, of 11 GiB that may be", pinned >> 20);
}

/// Hazard: a program with several devices pins its limit once for each.
#[test]
fn the_limit_is_one_for_all_devices_of_a_process() {
    let (pinned, _) = together(1, "2", "64", &[("WMSHIM_HOST_LIMIT", "2GiB")]);
    assert!((GIB..=2 * GIB).contains(&pinned), "{} MiB are pinned", pinned >> 20);
}
