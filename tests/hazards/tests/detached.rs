//! Hazard (use after free): memory that the library served before a detach is not the driver's to
//! free. Hazard (wrong result): bytes are lost when a program is detached or attached.

use std::time::{Duration, Instant};

use hazards::limited::{self, Limited};
use hazards::sharers::{CHUNK, SOON, Stage, share};
use serde_json::json;

const MIB: u64 = 1 << 20;

const ASKED: (&str, &str) = ("WMSHIM_MIGRATE", "asked");
const ON: (&str, &str) = ("WMSHIM_MIGRATE", "on");

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
    let mut program = Limited::holding(&[ASKED, ("WMSHIM_KEEP_IDLE", "1GiB")]);
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
    let mut program = Limited::holding(&[ASKED]);
    program.limit(80 * MIB);
    let made = program.detach();
    let remains = made.last["remains"].to_string();
    assert!(remains.contains("elsewhere"), "{remains}");
    assert!(made.reasons().iter().any(|reason| reason.contains("no room")), "{made:?}");
    program.expect_right();
    program.end();
}

#[test]
fn the_program_detaches_and_attaches_itself() {
    let mut program = Limited::holding(&[ON]);
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

/// The leases go first, and the others keep the memory.
#[test]
fn a_detached_program_shares_no_memory_and_has_its_bytes() {
    let stage = Stage::new();
    let sockets = stage.sockets();
    let mut sharers = stage.loaded::<2>(&[(0, 7, 8), (1, 8, 4)]);
    share(&mut sharers, 12);
    let socket = sockets.join(format!("{}.sock", sharers[0].id()));
    let begin = Instant::now();
    while limited::ask(&socket, &json!({ "request": "detach" }))["goes_on"] == true {
        assert!(begin.elapsed() < SOON, "it goes on sharing");
    }
    assert_eq!(sharers[0].figure("shared_bytes"), 0);
    stage.expect_held("one was detached", |(_, leases, _)| leases <= 12 / CHUNK);
    sharers.iter_mut().for_each(|sharer| sharer.expect_right("one was detached"));
    sharers[0].obey("write kernel 0 99");
    sharers.iter_mut().for_each(|sharer| sharer.expect_right("it has written"));
    stage.end(sharers);
}
