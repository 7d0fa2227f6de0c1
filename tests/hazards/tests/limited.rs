//! Hazard (out of memory): an operator limits a running program, and the memory does not come free
//! for others, or later allocations take it again. Hazard (wrong result): bytes are lost when it
//! does. Hazard (deadlock): the program or the operator waits for the other.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use hazards::limited::{Limited, Made};
use hazards::{Scratch, skip};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

const ASKED: (&str, &str) = ("WMSHIM_MIGRATE", "asked");
const ON: (&str, &str) = ("WMSHIM_MIGRATE", "on");

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

/// The GPU is never idle by itself: calls of the program are held until it is.
#[test]
fn so_it_is_while_the_gpu_always_works() {
    let mut program = Limited::start(&[ASKED, ("SIMCUDA_RACES", "0")]);
    (0..10).for_each(|_| program.obey("take 8"));
    program.expect_right();
    program.obey("work 30");
    let made = program.limit(32 * MIB);
    assert!(made.device("held_bytes") <= 32 * MIB && made.out >= 48 * MIB, "{made:?}");
    program.expect_right();
    program.end();
}

#[test]
fn what_left_comes_back_when_the_limit_is_lifted() {
    let mut program = Limited::holding(&[ASKED]);
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
    let mut program = Limited::holding(&[("WMSHIM_MIGRATE", "off")]);
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
    let mut program = Limited::holding(&[ASKED]);
    (0..5).for_each(|block| program.obey(&format!("pin {block}")));
    let made = program.limit(0);
    assert!(made.device("held_bytes") >= 200 * MIB && made.device("held_bytes") < 260 * MIB, "{made:?}");
    assert!(made.reasons().contains(&"others rely on where a block is"), "{made:?}");
    program.expect_right();
    program.end();
}

#[test]
fn a_limit_of_nothing_leaves_nothing() {
    let mut program = Limited::holding(&[ASKED]);
    let made = program.limit(0);
    assert_eq!(made.device("held_bytes"), 0, "{made:?}");
    program.obey("take 5");
    program.expect_right();
    assert_eq!(program.on_device(), 0);
    program.end();
}

/// Hazard (thrashing): what has left comes back into the memory that the program frees and makes
/// again, and then that has no room.
#[test]
fn at_the_limit_nothing_comes_back_into_what_is_made_again() {
    let mut program = Limited::start(&[ASKED]);
    (0..40).for_each(|_| program.obey("take 2"));
    program.obey("drop 3");
    let made = program.limit(48 * MIB);
    assert!(made.out >= 28 * MIB && made.device("held_bytes") <= 48 * MIB, "{made:?}");
    let again = program.change(&json!({ "request": "limit" }), &json!({ "request": "limit" }));
    assert_eq!((again.out, again.back), (0, 0), "{again:?}");
    let before = program.live("host");
    program.obey("take 2");
    assert_eq!(program.live("host"), before, "it lies on the device");
    program.expect_right();
    program.end();
}

/// Nothing that may overflow: the limit ends the program's growth, and moves nothing.
#[test]
fn where_the_user_allows_no_other_tier_nothing_leaves() {
    let program = Limited::holding(&[ASKED, ("WMSHIM_OVERFLOW", "off")]);
    let made = program.limit(160 * MIB);
    assert_eq!(made.out, 0, "{made:?}");
    assert!(made.reasons().contains(&"it cannot move there"), "{made:?}");
    program.end();
}

/// Hazard (deadlock): the operator waits for memory of the host that never comes.
#[test]
fn where_the_host_is_full_the_rest_stays_and_the_command_ends() {
    let mut program = Limited::holding(&[ASKED, ("WMSHIM_HOST_LIMIT", "80MiB")]);
    let made = program.limit(160 * MIB);
    assert!(made.out >= 60 * MIB && made.device("beyond_bytes") > 0, "{made:?}");
    assert!(made.reasons().contains(&"the other tier is full"), "{made:?}");
    assert_eq!(made.last["goes_on"], false, "{made:?}");
    program.expect_right();
    program.end();
}

/// Hazard (deadlock): the host holds a stream, and the calls that let it go on are held.
#[test]
fn a_stream_that_waits_for_the_host_is_waited_for_and_no_call_is_held() {
    let mut program = Limited::holding(&[ASKED]);
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
    let mut program = Limited::holding(&[ASKED]);
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
    let mut program = Limited::holding(&[("WMSHIM_KEEP_IDLE", "1GiB")]);
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
    let mut program = Limited::holding(&[ASKED]);
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

/// Words that start a program with this folder in place of another; `None`: namespaces are missing.
fn starter(folder: &Path, place: &str) -> Option<Vec<String>> {
    // SAFETY: a plain question.
    let flags = if unsafe { libc::geteuid() } == 0 { "-m" } else { "-rm" };
    let script = format!("mount --bind \"$0\" {place} && exec \"$@\"");
    let words = ["unshare", flags, "sh", "-c", &script, folder.to_str().expect("a readable path")];
    let words = words.map(str::to_owned).to_vec();
    let tried = Command::new(&words[0]).args(&words[1..]).arg("true").output();
    if tried.is_ok_and(|output| output.status.success()) {
        return Some(words);
    }
    skip("needs mount namespaces");
    None
}

/// The limit in force in MiB, and what it comes from.
fn limit(made: &Made) -> (u64, String) {
    let source = made.last["devices"][0]["limit_source"].as_str().expect("words");
    (made.device("limit_bytes") / MIB, source.to_owned())
}

/// Hazard (out of memory): a request passes the node's ceiling.
#[test]
fn the_nodes_ceiling_holds_whatever_is_asked_for() {
    let scratch = Scratch::new();
    let etc = scratch.folder("etc");
    fs::write(etc.join("wmshim.toml"), "[ceilings]\ndevice_limit = \"60MiB\"\n").expect("written");
    let Some(words) = starter(&etc, "/etc") else { return };
    let mut program = Limited::start_by(scratch, &words, &[ASKED]);
    (0..3).for_each(|_| program.obey("take 40"));
    for asked in [json!("none"), json!(100 * MIB)] {
        assert_eq!(limit(&program.limit(asked)), (60, "/etc/wmshim.toml".to_owned()));
    }
    assert_eq!(limit(&program.limit(30 * MIB)), (30, "asked".to_owned()));
    assert!(program.on_device() <= 30 * MIB);
    program.expect_right();
    program.end();
}

/// Hazard (out of memory): a container's limit is not seen, or a request passes it.
#[test]
fn the_control_groups_limit_holds_whatever_is_asked_for() {
    let scratch = Scratch::new();
    let groups = scratch.folder("groups");
    let write = |file: &str, mib: u64| {
        let lines = format!("drm/0000:09:00.0/vram0 1\ndrm/0000:01:00.0/vram0 {}\n", mib * MIB);
        fs::write(groups.join(file), lines).expect("written");
    };
    write("dmem.max", 60);
    let listed = fs::read_to_string("/proc/self/cgroup").expect("a file of the kernel's");
    if !listed.lines().any(|line| line.starts_with("0::")) {
        return skip("needs control groups of the second version");
    }
    let Some(words) = starter(&groups, "/sys/fs/cgroup") else { return };
    let mut program = Limited::start_by(scratch, &words, &[ASKED]);
    (0..3).for_each(|_| program.obey("take 40"));
    assert!(program.on_device() <= 60 * MIB, "{} MiB", program.on_device() >> 20);
    for asked in [json!("none"), json!(100 * MIB)] {
        assert_eq!(limit(&program.limit(asked)), (60, "dmem.max".to_owned()));
    }
    write("dmem.max", 30);
    let made = program.change(&json!({ "request": "limit" }), &json!({ "request": "limit" }));
    assert_eq!((limit(&made), made.device("beyond_bytes")), ((30, "dmem.max".to_owned()), 0), "{made:?}");
    write("dmem.min", 20);
    let made = program.limit(0);
    assert_eq!(limit(&made), (20, "dmem.min".to_owned()), "others do not take it");
    assert_eq!(limit(&program.limit(25 * MIB)), (25, "asked".to_owned()));
    program.expect_right();
    program.end();
}
