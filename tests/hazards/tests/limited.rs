//! Hazard (out of memory): an operator limits a running program, and the memory does not come free
//! for others, or later allocations take it again. Hazard (wrong result): bytes are lost when it
//! does. Hazard (deadlock): the program or the operator waits for the other.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use hazards::{Host, Scratch, c, driver, host, places};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

/// A program that obeys, and its socket.
struct Limited {
    child: Option<Child>,
    words: ChildStdin,
    answers: BufReader<ChildStdout>,
    socket: PathBuf,
    _scratch: Scratch,
}

/// The sum of an answer's steps.
#[derive(Debug)]
struct Made {
    last: Value,
    out: u64,
    back: u64,
    took: Duration,
}

impl Made {
    fn device(&self, name: &str) -> u64 {
        self.last["devices"][0][name].as_u64().unwrap_or_default()
    }

    /// Reasons of what stays.
    fn reasons(&self) -> Vec<&str> {
        let stays = self.last["devices"][0]["stays"].as_array().expect("a list");
        stays.iter().map(|one| one["reason"].as_str().expect("words")).collect()
    }
}

impl Limited {
    fn start(variables: &[(&str, &str)]) -> Self {
        let scratch = Scratch::new();
        let text = |path: PathBuf| path.to_str().expect("a readable path").to_owned();
        let include = c::flag("-I", &places::workspace("shim/preload/include"));
        let program = c::program(&scratch, "limited", &[&include, &text(places::shim())]);
        let image = text(places::workspace("kernels/compiled/diagnostics.ptx"));
        let host = Host::shimmed(program, &scratch, &driver::simulated(&scratch));
        let host = host.args([image.as_str()]).env("SIMCUDA_RACES", "1").env("SIMCUDA_MEMORY", "512MiB");
        let host = host.env("WMSHIM_HEADROOM", "0");
        let mut child = variables.iter().fold(host, |host, (name, value)| host.env(name, value)).start();
        let words = child.stdin.take().expect("a pipe");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let socket = scratch.path().join("stats").join(format!("{}.sock", child.id()));
        let mut started = Self { child: Some(child), words, answers, socket, _scratch: scratch };
        assert_eq!(started.hear(), "done");
        started
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.words, "{line}").expect("the program listens");
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("a pipe can be read");
        if line.is_empty() {
            let ended = host::watched(self.child.take().expect("not ended"));
            panic!("{:?}:\n{}", ended.status, String::from_utf8_lossy(&ended.stderr));
        }
        line.trim().to_owned()
    }

    fn say(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear()
    }

    #[track_caller]
    fn obey(&mut self, line: &str) {
        assert_eq!(self.say(line), "done", "{line}");
    }

    #[track_caller]
    fn expect_right(&mut self) {
        assert_eq!(self.say("check"), "right");
    }

    fn ask(&self, request: &Value) -> Value {
        let mut stream = UnixStream::connect(&self.socket).expect("the program listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
        writeln!(stream, "{request}").expect("the program reads");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("an answer");
        serde_json::from_str(&line).expect("JSON")
    }

    /// Makes a change in steps, for ten seconds at most.
    fn change(&self, first: &Value, next: &Value) -> Made {
        let begin = Instant::now();
        let mut made = Made { last: self.ask(first), out: 0, back: 0, took: Duration::ZERO };
        loop {
            made.out += made.device("out_bytes");
            made.back += made.device("back_bytes");
            let goes_on = made.last["goes_on"].as_bool().expect("a change");
            if !goes_on || begin.elapsed() > Duration::from_secs(10) {
                made.took = begin.elapsed();
                return made;
            }
            made.last = self.ask(next);
        }
    }

    fn limit(&self, bytes: impl Into<Value>) -> Made {
        let request = json!({ "request": "limit", "bytes": bytes.into() });
        self.change(&request, &json!({ "request": "limit" }))
    }

    fn stats(&self) -> Value {
        self.ask(&json!({ "request": "stats" }))
    }

    /// Bytes that the driver has given out of the device.
    fn on_device(&self) -> u64 {
        self.stats()["devices"][0]["memory"]["device"]["reserved_bytes"].as_u64().expect("bytes")
    }

    fn live(&self, tier: &str) -> u64 {
        self.stats()["devices"][0]["memory"][tier]["live_bytes"].as_u64().expect("bytes")
    }

    /// Blocks of the program that the library serves.
    fn blocks(&self) -> usize {
        let answer = self.ask(&json!({ "request": "blocks" }));
        answer["devices"][0]["blocks"].as_array().map_or(0, Vec::len)
    }

    fn detach(&self) -> Made {
        self.change(&json!({ "request": "detach" }), &json!({ "request": "detach" }))
    }

    fn attach(&self) -> Value {
        self.ask(&json!({ "request": "attach" }))
    }

    fn end(mut self) {
        self.tell("end");
        let ended = host::watched(self.child.take().expect("not ended"));
        assert!(ended.status.success(), "{}", host::said(&ended));
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // A failed test must leave no process behind.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

const ASKED: (&str, &str) = ("WMSHIM_MIGRATE", "asked");
const ON: (&str, &str) = ("WMSHIM_MIGRATE", "on");

/// A program that holds 400 MiB of 512.
fn holding(variables: &[(&str, &str)]) -> Limited {
    let mut program = Limited::start(variables);
    (0..10).for_each(|_| program.obey("take 40"));
    program.expect_right();
    assert!(program.on_device() >= 400 * MIB);
    program
}

/// A neighbour asks for 60 % of what the program holds. On a busy machine the copies alone take
/// their time, so that of plain copies is added to the half second.
#[test]
fn a_lower_limit_is_kept_in_half_a_second_and_no_byte_is_lost() {
    for setting in [ASKED, ON] {
        let mut program = Limited::start(&[setting, ("SIMCUDA_RACES", "0")]);
        (0..10).for_each(|_| program.obey("take 8"));
        let begin = Instant::now();
        program.expect_right();
        let copies = begin.elapsed();
        assert!(program.on_device() >= 80 * MIB);
        let made = program.limit(32 * MIB);
        assert!(made.device("held_bytes") <= 32 * MIB, "{made:?}");
        assert!(made.out >= 48 * MIB, "{made:?}");
        assert!(made.took < Duration::from_millis(500) + copies, "{copies:?} of copies: {made:?}");
        assert!(program.on_device() <= 32 * MIB);
        program.expect_right();
        program.obey("take 8");
        assert!(program.on_device() <= 32 * MIB, "at the limit the program spills");
        program.expect_right();
        program.end();
    }
}

/// The program's kernels run all the time: its calls are held until they have ended.
#[test]
fn so_it_is_while_the_gpu_works() {
    let mut program = holding(&[ASKED]);
    (0..20).for_each(|_| program.obey("busy 50"));
    let made = program.limit(160 * MIB);
    assert!(made.device("held_bytes") <= 160 * MIB, "{made:?}");
    assert!(made.took < Duration::from_secs(3), "a second of work: {made:?}");
    program.expect_right();
    program.end();
}

#[test]
fn what_left_comes_back_when_the_limit_is_lifted() {
    let mut program = holding(&[ASKED]);
    program.limit(80 * MIB);
    let made = program.limit("none");
    assert_eq!((made.back >= 320 * MIB, program.live("host")), (true, 0), "{made:?}");
    assert_eq!(made.last["devices"][0]["limit_bytes"], Value::Null);
    program.expect_right();
    program.end();
}

/// Hazard (wrong result): calls of the program are in flight that no gate knows of.
#[test]
fn without_the_gate_no_block_moves_and_the_limit_holds_for_later_ones() {
    let mut program = holding(&[]);
    let made = program.limit(160 * MIB);
    assert_eq!((made.out, made.device("beyond_bytes") >= 240 * MIB), (0, true), "{made:?}");
    assert!(made.reasons().iter().any(|reason| reason.contains("WMSHIM_MIGRATE=off")), "{made:?}");
    let before = program.on_device();
    program.obey("take 40");
    assert!(program.on_device() <= before, "the new block lies on the host");
    program.obey("drop 0");
    program.limit(160 * MIB);
    assert!(program.on_device() <= 360 * MIB, "what is freed goes");
    program.expect_right();
    program.end();
}

#[test]
fn a_limit_below_what_is_pinned_says_what_stays_and_why() {
    let mut program = holding(&[ASKED]);
    (0..5).for_each(|block| program.obey(&format!("pin {block}")));
    let made = program.limit(0);
    assert!(made.device("held_bytes") >= 200 * MIB && made.device("held_bytes") < 260 * MIB, "{made:?}");
    assert!(made.reasons().contains(&"others rely on where a block is"), "{made:?}");
    program.expect_right();
    program.end();
}

#[test]
fn a_limit_of_nothing_leaves_nothing() {
    let mut program = holding(&[ASKED]);
    let made = program.limit(0);
    assert_eq!(made.device("held_bytes"), 0, "{made:?}");
    program.obey("take 5");
    program.expect_right();
    assert_eq!(program.on_device(), 0);
    program.end();
}

/// Nothing that may overflow: the limit ends the program's growth, and moves nothing.
#[test]
fn where_the_user_allows_no_other_tier_nothing_leaves() {
    let program = holding(&[ASKED, ("WMSHIM_OVERFLOW", "off")]);
    let made = program.limit(160 * MIB);
    assert_eq!(made.out, 0, "{made:?}");
    assert!(made.reasons().contains(&"it cannot move there"), "{made:?}");
    program.end();
}

/// Hazard (deadlock): the host holds a stream, and the calls that let it go on are held.
#[test]
fn a_stream_that_waits_for_the_host_is_waited_for_and_no_call_is_held() {
    let mut program = holding(&[ASKED]);
    program.obey("hold");
    let begin = Instant::now();
    let answer = program.ask(&json!({ "request": "limit", "bytes": 160 * MIB }));
    assert!(begin.elapsed() < Duration::from_secs(2), "a step is bounded");
    assert_eq!(answer["goes_on"], true);
    assert_eq!(answer["devices"][0]["out_bytes"], 0, "work may be touching it");
    let begin = Instant::now();
    program.obey("take 1");
    assert!(begin.elapsed() < Duration::from_secs(1), "no call waits");
    program.obey("release");
    let made = program.change(&json!({ "request": "limit" }), &json!({ "request": "limit" }));
    assert!(made.device("held_bytes") <= 160 * MIB, "{made:?}");
    program.expect_right();
    program.end();
}

#[test]
fn the_program_limits_and_trims_itself() {
    let mut program = holding(&[ASKED]);
    assert_eq!(program.say(&format!("limit {}", 160 * MIB)), "0");
    assert!(program.on_device() <= 160 * MIB);
    assert_eq!(program.say(&format!("limit {}", u64::MAX)), "0");
    assert_eq!(program.live("host"), 0);
    (0..9).for_each(|block| program.obey(&format!("drop {block}")));
    assert_eq!(program.say("trim"), "0");
    assert!(program.on_device() <= 42 * MIB, "{} MiB", program.on_device() >> 20);
    assert_eq!(program.say("fork"), "child 0");
    program.expect_right();
    program.end();
}

#[test]
fn trimmed_memory_is_the_drivers_at_once() {
    let mut program = holding(&[("WMSHIM_KEEP_IDLE", "1GiB")]);
    (0..9).for_each(|block| program.obey(&format!("drop {block}")));
    assert!(program.on_device() >= 400 * MIB, "it was kept");
    let made = program.change(&json!({ "request": "trim" }), &json!({ "request": "trim" }));
    assert!(made.device("given_bytes") >= 340 * MIB && program.on_device() <= 60 * MIB, "{made:?}");
    program.expect_right();
    program.end();
}

/// A limit that comes before the first allocation.
#[test]
fn a_program_that_holds_nothing_yet_is_limited_all_the_same() {
    let mut program = Limited::start(&[]);
    program.limit(60 * MIB);
    (0..3).for_each(|_| program.obey("take 40"));
    assert!(program.on_device() <= 60 * MIB);
    program.expect_right();
    program.end();
}

/// Limits at random moments of a program whose threads allocate, free, fill and copy.
#[test]
fn fifty_random_limits_lose_no_byte_of_a_program_with_threads() {
    for (seed, setting) in [(1_u64, ASKED), (2, ON)] {
        let mut program = Limited::start(&[setting, ("SIMCUDA_SEED", "3"), ("WMSHIM_KEEP_IDLE", "0")]);
        program.obey("take 30");
        program.obey(&format!("threads {seed} 3"));
        let (mut state, mut out) = (seed, 0);
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..50 {
            let bytes = match draw(8) {
                0 => json!("none"),
                1 => json!(0),
                _ => json!(draw(200) * MIB),
            };
            let answer = program.ask(&json!({ "request": "limit", "bytes": bytes }));
            out += answer["devices"][0]["out_bytes"].as_u64().expect("a change");
            std::thread::sleep(Duration::from_millis(draw(20)));
        }
        assert_eq!(program.say("join"), "right", "seed {seed}");
        assert!(out > 0, "nothing moved");
        let made = program.limit(40 * MIB);
        assert!(made.device("held_bytes") <= 40 * MIB, "{made:?}");
        program.expect_right();
        program.end();
    }
}

/// Hazard (data race): several operators limit one program at once.
#[test]
fn requests_at_once_end_with_one_limit_in_force() {
    let mut program = holding(&[ASKED]);
    std::thread::scope(|scope| {
        for bytes in [300, 200, 100, 0, 250].map(|mib| mib * MIB) {
            let program = &program;
            scope.spawn(move || program.limit(bytes));
        }
    });
    let made = program.limit(120 * MIB);
    assert!(made.device("held_bytes") <= 120 * MIB, "{made:?}");
    program.expect_right();
    program.end();
}

/// Hazard (use after free): memory that the library served before is not the driver's to free.
#[test]
fn what_is_allocated_after_a_detach_is_the_drivers_and_what_was_before_is_served_as_before() {
    for setting in [ASKED, ON, ("WMSHIM_MIGRATE", "off")] {
        let mut program = Limited::start(&[setting]);
        (0..4).for_each(|_| program.obey("take 20"));
        let made = program.detach();
        assert_eq!(made.last["detached"], true, "{made:?}");
        assert!(!made.last["remains"].as_array().expect("a list").is_empty());
        let (blocks, held) = (program.blocks(), program.on_device());
        (0..2).for_each(|_| program.obey("take 20"));
        assert_eq!((program.blocks(), program.on_device()), (blocks, held), "they are the driver's");
        assert_eq!(program.stats()["detached"], true);
        program.expect_right();
        ["drop 0", "drop 4"].iter().for_each(|line| program.obey(line));
        assert_eq!(program.blocks(), blocks - 1);
        assert!(program.on_device() < held, "what is freed is the driver's at once");
        assert_eq!(program.attach()["detached"], false);
        program.obey("take 20");
        assert_eq!(program.blocks(), blocks);
        program.obey("drop 5");
        program.expect_right();
        program.end();
    }
}

#[test]
fn a_detach_brings_back_what_lies_on_the_host_and_gives_back_what_is_unused() {
    let mut program = holding(&[ASKED, ("WMSHIM_KEEP_IDLE", "1GiB")]);
    (0..3).for_each(|block| program.obey(&format!("drop {block}")));
    program.limit(80 * MIB);
    assert!(program.live("host") > 0);
    program.limit("none");
    program.obey("take 40");
    let made = program.detach();
    assert_eq!((program.live("host"), made.last["goes_on"].as_bool()), (0, Some(false)), "{made:?}");
    let live = program.live("device");
    assert!(program.on_device() <= live + 2 * MIB, "{} of {live}", program.on_device());
    program.expect_right();
    program.end();
}

/// Hazard (silent degradation): a limit that was set before keeps memory on the host, and no line
/// says so.
#[test]
fn what_stays_elsewhere_after_a_detach_is_said() {
    let mut program = holding(&[ASKED]);
    program.limit(80 * MIB);
    let made = program.detach();
    let remains = made.last["remains"].to_string();
    assert!(remains.contains("elsewhere"), "{remains}");
    assert!(made.reasons().contains(&"the other tier is full"), "{made:?}");
    program.expect_right();
    program.end();
}

#[test]
fn the_program_detaches_and_attaches_itself() {
    let mut program = holding(&[ON]);
    assert_eq!((program.say("detach"), program.say("detach")), ("0".to_owned(), "0".to_owned()));
    let blocks = program.blocks();
    program.obey("take 20");
    assert_eq!(program.blocks(), blocks);
    assert_eq!((program.say("attach"), program.say("attach")), ("0".to_owned(), "0".to_owned()));
    program.obey("take 20");
    assert_eq!(program.blocks(), blocks + 1);
    assert_eq!(program.say("fork"), "child 0");
    program.expect_right();
    program.end();
}

/// Detached and attached at random moments, with limits between, while threads allocate, free, fill
/// and copy.
#[test]
fn random_detaches_lose_no_byte_of_a_program_with_threads() {
    for (seed, setting) in [(3_u64, ASKED), (4, ON)] {
        let mut program = Limited::start(&[setting, ("SIMCUDA_SEED", "3"), ("WMSHIM_KEEP_IDLE", "0")]);
        program.obey("take 30");
        program.obey(&format!("threads {seed} 3"));
        let mut state = seed;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..40 {
            match draw(3) {
                0 => drop(program.ask(&json!({ "request": "detach" }))),
                1 => drop(program.attach()),
                _ => drop(program.ask(&json!({ "request": "limit", "bytes": draw(200) * MIB }))),
            }
            std::thread::sleep(Duration::from_millis(draw(20)));
        }
        program.detach();
        assert_eq!(program.say("join"), "right", "seed {seed}");
        let blocks = program.blocks();
        program.obey("take 10");
        assert_eq!(program.blocks(), blocks);
        program.expect_right();
        program.end();
    }
}
