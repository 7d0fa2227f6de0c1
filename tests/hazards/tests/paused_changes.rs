//! Hazard (wrong result): a process is limited, detached or attached while it is paused, or paused
//! while it is detached, and bytes are lost. Hazard (deadlock): an operator waits for moves that a
//! paused process does not make. Hazard (out of memory): the driver serves a request of a paused
//! process with the memory that others were given.

use std::time::{Duration, Instant};

use hazards::Scratch;
use hazards::limited::Limited;
use hazards::paused::{PATIENCE, Served};
use serde_json::{Value, json};

const ON: (&str, &str) = ("WMSHIM_PAUSE", "on");
const MIB: u64 = 1 << 20;

/// What a step of a change may take beside its own 300 ms, on a busy machine.
const AT_ONCE: Duration = Duration::from_secs(3);

fn reasons(made: &Value) -> String {
    made["devices"][0]["stays"].to_string()
}

fn holding(scratch: &Scratch, variables: &[(&str, &str)]) -> Served {
    let mut program = Served::start(scratch, variables);
    assert_eq!((program.say("block 40"), program.say("block 24"), program.say("piece")), (1, 2, 3));
    program
}

fn await_call(program: &Served) {
    let begin = Instant::now();
    while program.ask("pause_state")["pause"]["is_awaited"] != true {
        assert!(begin.elapsed() < PATIENCE, "no call waits");
    }
}

#[test]
fn a_limit_that_comes_while_it_is_paused_holds_for_the_resume() {
    for migrate in ["off", "auto"] {
        let scratch = Scratch::new();
        let mut program = holding(&scratch, &[ON, ("WMSHIM_HEADROOM", "0"), ("WMSHIM_MIGRATE", migrate)]);
        assert_eq!(program.say("pause"), 0);
        let begin = Instant::now();
        let made = program.change(&format!("{{\"request\":\"limit\",\"bytes\":{}}}", 32 * MIB));
        assert!(begin.elapsed() < AT_ONCE && made["goes_on"] == false, "{made}");
        assert_eq!(
            (made["devices"][0]["held_bytes"].as_u64(), program.place().0),
            (Some(0), "paused".to_owned())
        );
        assert_eq!(program.say("resume"), 0);
        let (state, on_device, on_host) = program.place();
        assert!(state == "running" && on_device <= 32 && on_device + on_host == 72, "{on_device}, {on_host}");
        assert!(on_host > 0 && program.stats()["pause"]["left_bytes"].as_u64() >= Some(40 * MIB));
        program.say("touch");
        assert_eq!((program.say("join"), program.say("check")), (0, 1));
        // Lifted in a running process, the rest comes back by itself.
        let made = program.change("{\"request\":\"limit\",\"bytes\":\"none\"}");
        assert_eq!(program.place(), ("running".to_owned(), 72, 0), "{made}");
        assert_eq!(program.say("check"), 1);
        program.end();
    }
}

#[test]
fn a_limit_that_is_lifted_while_it_is_paused_moves_nothing_before_the_resume() {
    for migrate in ["off", "auto"] {
        let scratch = Scratch::new();
        let mut program = holding(
            &scratch,
            &[ON, ("WMSHIM_HEADROOM", "0"), ("WMSHIM_DEVICE_LIMIT", "48MiB"), ("WMSHIM_MIGRATE", migrate)],
        );
        assert!(program.place().2 > 0);
        assert_eq!(program.say("pause"), 0);
        let begin = Instant::now();
        let made = program.change("{\"request\":\"limit\",\"bytes\":\"none\"}");
        assert!(begin.elapsed() < AT_ONCE && made["goes_on"] == false, "{made}");
        assert!(reasons(&made).contains("is paused"), "{made}");
        assert_eq!(program.place(), ("paused".to_owned(), 0, 72));
        assert_eq!(program.say("resume"), 0);
        // What had no room before the pause is no part of it, and comes by the next step.
        program.change("{\"request\":\"limit\"}");
        assert_eq!(program.place(), ("running".to_owned(), 72, 0));
        assert_eq!(program.say("check"), 1);
        program.end();
    }
}

/// The pause goes on: a launch waits, and so does a request for memory that the driver serves.
#[test]
fn detached_while_it_is_paused_it_stays_paused() {
    let scratch = Scratch::new();
    let mut program = holding(&scratch, &[ON]);
    assert_eq!(program.request("pause")["pause"]["state"], "paused");
    let begin = Instant::now();
    let made = program.change("detach");
    assert!(begin.elapsed() < AT_ONCE && made["goes_on"] == false && made["detached"] == true, "{made}");
    assert!(made["remains"].to_string().contains("elsewhere"), "{made}");
    assert_eq!(program.place(), ("paused".to_owned(), 0, 72));
    program.say("ask 16");
    await_call(&program);
    assert_eq!(program.say("touched"), 0, "the driver has not given out what others have now");
    assert_eq!(program.request("resume")["pause"]["state"], "running");
    assert_eq!((program.say("join"), program.say("check")), (0, 1));
    assert_eq!(program.place(), ("running".to_owned(), 72, 0), "the new block is the driver's");
    // Attached while it is paused, it serves again after the resume.
    assert_eq!(program.say("pause"), 0);
    assert_eq!(program.change("attach")["detached"], false);
    assert_eq!(program.place().0, "paused");
    assert_eq!(program.say("resume"), 0);
    program.say("block 8");
    assert_eq!((program.say("check"), program.place()), (1, ("running".to_owned(), 80, 0)));
    program.end();
}

/// Hazard (silent degradation): after a detach the order of a resume is not that of the last uses,
/// or the host memory of a pause stays with a process that the library does not serve.
#[test]
fn a_detached_process_is_paused_and_what_it_used_last_comes_back_first() {
    let scratch = Scratch::new();
    let shared = scratch.path().join("machine").to_string_lossy().into_owned();
    let machine = [ON, ("SIMCUDA_MEMORY", "128MiB"), ("SIMCUDA_SHARED", &shared), ("WMSHIM_HEADROOM", "0")];
    let mut program = Served::start(&scratch, &machine);
    assert_eq!((program.say("block 40"), program.say("block 40")), (1, 2));
    // A pause that leaves host memory behind.
    assert_eq!((program.say("pause"), program.say("resume")), (0, 0));
    let on_host = |program: &mut Served| {
        let stats = program.stats();
        stats["devices"][0]["memory"]["host"]["reserved_bytes"].as_u64().expect("bytes") / MIB
    };
    assert!(on_host(&mut program) >= 80, "the next pause finds it");
    program.change("detach");
    assert_eq!(on_host(&mut program), 0, "it serves no pause of the library");
    let first = program.blocks();
    assert_eq!(first, [(40, 0), (40, 0)]);
    for used in [0, 1] {
        // The other one was used last before.
        program.say(&format!("use {}", 1 - used));
        program.say(&format!("use {used}"));
        assert_eq!(program.say("pause"), 0);
        let beside = Scratch::new();
        let mut other = Served::start(&beside, &machine);
        assert_eq!(other.say("block 80"), 1);
        assert_eq!(program.say("resume"), 0);
        let address = program.say(&format!("at {used}")).cast_unsigned();
        let blocks = program.ask("blocks")["devices"][0]["blocks"].clone();
        let lies = |block: &Value| (block["address"] == address, block["tiers"]["device"] == 40 * MIB);
        let places: Vec<(bool, bool)> = blocks.as_array().expect("a list").iter().map(lies).collect();
        assert!(places.iter().all(|(is_it, is_on_device)| is_it == is_on_device), "block {used}: {blocks}");
        assert_eq!(program.say("check"), 1);
        other.end();
        assert_eq!((program.say("resume"), program.say("check")), (0, 1));
        assert_eq!(program.blocks(), [(40, 0), (40, 0)]);
    }
    program.end();
}

/// Pauses, limits, detaches and attaches at random moments, while threads allocate, free, fill and
/// copy.
#[test]
fn random_changes_of_all_kinds_lose_no_byte_of_a_program_with_threads() {
    for (seed, setting) in [(5_u64, "asked"), (6, "on")] {
        let mut program = Limited::start(&[
            ON,
            ("WMSHIM_MIGRATE", setting),
            ("SIMCUDA_SEED", "3"),
            ("WMSHIM_KEEP_IDLE", "0"),
        ]);
        program.obey("take 30");
        program.obey(&format!("threads {seed} 3"));
        let mut state = seed;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut pauses = 0;
        for _ in 0..60 {
            let request = match draw(7) {
                0 => json!({ "request": "detach" }),
                1 => json!({ "request": "attach" }),
                2 | 3 => json!({ "request": "limit", "bytes": draw(200) * MIB }),
                4 => json!({ "request": "resume" }),
                _ => json!({ "request": "pause", "deadline_s": 0.5 }),
            };
            let answer = program.ask(&request);
            pauses = answer["pause"]["pauses"].as_u64().unwrap_or(pauses).max(pauses);
            std::thread::sleep(Duration::from_millis(draw(30)));
        }
        program.ask(&json!({ "request": "resume" }));
        assert_eq!(program.say("join"), "right", "seed {seed}");
        assert!(pauses > 0, "it was never paused");
        program.attach();
        program.limit("none");
        program.obey("take 10");
        program.expect_right();
        program.end();
    }
}
