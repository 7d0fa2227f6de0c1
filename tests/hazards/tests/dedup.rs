//! Guards programs that share what they hold with others: each reads the bytes that it loaded, whatever the others write, free, or are killed in the middle of; and what is not
//! the same is not shared.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command};

use hazards::{Host, Scratch, c, driver, places};

/// MiB that three blocks hold.
const ALL: u64 = 12;

/// A program that obeys words, see `c/shared.c`.
struct Sharer {
    child: Child,
    words: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// A folder of sockets, and so a broker, of a test's own, with what is started there.
struct Neighbourhood {
    scratch: Scratch,
    program: PathBuf,
    driver: PathBuf,
}

impl Neighbourhood {
    fn new() -> Self {
        let scratch = Scratch::new();
        let shim = places::shim();
        let include = c::flag("-I", &places::workspace("shim/preload/include"));
        let program = c::program(&scratch, "shared", &[&include, shim.to_str().expect("a readable path")]);
        let driver = driver::simulated(&scratch);
        Self { scratch, program, driver }
    }
}

fn start(place: &Neighbourhood, seed: &str, mode: &str) -> Sharer {
    let image = places::workspace("kernels/compiled/diagnostics.ptx");
    let host = Host::shimmed(&place.program, &place.scratch, &place.driver).args([
        image.to_str().expect("a path"),
        seed,
        "3",
    ]);
    let broker = places::wmctl().with_file_name("wmshimd");
    let host = host.env("WMSHIM_DEDUP", mode).env("WMSHIM_DEDUP_PROOF", "4").env("WMSHIM_BROKER", broker);
    let mut child = host.env("SIMCUDA_MEMORY", "256MiB").start();
    let words = child.stdin.take().expect("a pipe");
    let answers = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut sharer = Sharer { child, words, answers };
    assert_eq!(sharer.line(), "ready");
    sharer
}

impl Sharer {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("an answer");
        line.trim().to_owned()
    }

    fn say(&mut self, word: &str) -> String {
        writeln!(self.words, "{word}").expect("it listens");
        self.line()
    }

    /// Shares until so many MiB are shared: how many are, and how many are saved.
    fn share(&mut self, mib: u64) -> [u64; 2] {
        let answer = self.say(&format!("share {mib}"));
        let numbers: Vec<u64> = answer.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        numbers.try_into().expect("two numbers")
    }

    fn is_right(&mut self) -> bool {
        self.say("verify") == "wrong 0"
    }

    fn end(mut self) {
        drop(self.words);
        assert!(self.child.wait().expect("its end").success());
    }
}

/// Chunks that the broker of a test holds, once so many are left.
fn chunks_left(place: &Neighbourhood, wanted: u64) -> u64 {
    let folder = place.scratch.path().join("stats");
    let look = || {
        let told =
            Command::new(places::wmctl()).args(["dedup", "--json"]).env("WMSHIM_STATS_DIR", &folder).output();
        let told: serde_json::Value = serde_json::from_slice(&told.expect("wmctl").stdout).expect("JSON");
        let devices = told["devices"].as_array().cloned().unwrap_or_default();
        devices.iter().filter_map(|device| device["chunks"].as_u64()).sum::<u64>()
    };
    (0..500).map(|_| look()).find(|chunks| *chunks == wanted).unwrap_or_else(look)
}

#[test]
fn the_same_bytes_are_stored_once_and_a_write_stays_ones_own() {
    for write in ["kernel", "memset", "htod", "dtod", "graph", "again"] {
        let place = Neighbourhood::new();
        let mut one = start(&place, "7", "on");
        assert_eq!(one.share(ALL), [ALL, 0], "{write}: it is the first");
        let mut other = start(&place, "7", "on");
        assert_eq!(other.share(ALL), [ALL, ALL], "{write}: all of it is there already");
        assert!(one.is_right() && other.is_right(), "{write}");
        for sharer in [&mut other, &mut one] {
            assert_eq!(sharer.say(write), "done");
            assert!(sharer.is_right(), "{write}: its own bytes");
        }
        assert!(one.is_right() && other.is_right(), "{write}: nobody else's");
        one.end();
        other.end();
        assert_eq!(chunks_left(&place, 0), 0, "{write}: nothing is left");
    }
}

#[test]
fn who_is_killed_leaves_nothing_and_harms_nobody() {
    let place = Neighbourhood::new();
    let mut one = start(&place, "7", "on");
    one.share(ALL);
    let mut other = start(&place, "7", "on");
    assert_eq!(other.share(ALL), [ALL, ALL]);
    // The first one's memory is what the other one has.
    one.child.kill().expect("a child");
    one.child.wait().expect("its end");
    assert!(other.is_right());
    assert_eq!(other.say("kernel"), "done");
    assert!(other.is_right());
    let mut third = start(&place, "7", "on");
    assert_eq!(third.share(ALL)[0], ALL);
    assert!(third.is_right() && other.is_right());
    other.end();
    third.end();
    assert_eq!(chunks_left(&place, 0), 0);
}

#[test]
fn other_bytes_are_not_shared_and_advice_changes_nothing() {
    let place = Neighbourhood::new();
    let mut one = start(&place, "7", "on");
    let mut other = start(&place, "8", "on");
    assert_eq!((one.share(ALL), other.share(ALL)), ([ALL, 0], [ALL, 0]));
    assert!(one.is_right() && other.is_right());
    one.end();
    other.end();
    let mut adviser = start(&place, "7", "advise");
    assert_eq!(adviser.say("memset"), "done");
    assert!(adviser.is_right());
    assert_eq!(adviser.say("stats"), "copied back 0 avoided 0");
    adviser.end();
}
