//! Hazard (latency): the host memory of a pause is made while the program's calls wait, or while an
//! operator does. Hazard (out of memory): host memory that is made ahead stays when it is not
//! wanted, or goes beyond what the user allows. Hazard (deadlock): a pause waits for it.

use std::time::{Duration, Instant};

use hazards::Scratch;
use hazards::paused::{PATIENCE, Served, paused};
use serde_json::Value;

const ON: (&str, &str) = ("WMSHIM_PAUSE", "on");
const AHEAD: (&str, &str) = ("WMSHIM_PAUSE_ARENA", "auto");

/// A handle is made by it.
const CREATE: &str = "cuMemCreate";

/// The answer of the driver where memory is short.
const OUT_OF_MEMORY: i64 = 2;

fn mib(value: &Value) -> u64 {
    value.as_u64().expect("bytes") >> 20
}

/// Ready, and lacking.
fn arena(program: &mut Served) -> (u64, u64) {
    let arena = program.stats()["pause"]["arena"].clone();
    (mib(&arena["bytes"]), mib(&arena["lacking_bytes"]))
}

fn await_ready(program: &mut Served, ready: u64) {
    let begin = Instant::now();
    while arena(program).0 != ready {
        assert!(begin.elapsed() < PATIENCE, "{:?}", program.stats()["pause"]);
    }
}

/// Calls of a function so far.
fn made(program: &mut Served, function: &str) -> u64 {
    let calls = program.stats()["driver_calls"].clone();
    let found = calls.as_array().and_then(|calls| calls.iter().find(|call| call["name"] == function));
    found.map_or(0, |call| call["count"].as_u64().expect("a count"))
}

fn reserved_on_host(program: &mut Served) -> u64 {
    mib(&program.stats()["devices"][0]["memory"]["host"]["reserved_bytes"])
}

/// Pauses, and resumes: no handle of the host is made meanwhile, and all bytes are right.
fn cycle_without_a_handle(program: &mut Served, bytes: u64) {
    let before = made(program, CREATE);
    assert_eq!(program.say("pause"), 0);
    assert_eq!((made(program, CREATE), program.place()), (before, ("paused".to_owned(), 0, bytes)));
    assert_eq!((program.say("resume"), program.say("check")), (0, 1));
    assert_eq!(program.place(), ("running".to_owned(), bytes, 0));
}

#[test]
fn a_pause_that_was_prepared_makes_no_memory() {
    let scratch = Scratch::new();
    let mut program = Served::start(&scratch, &[ON]);
    for words in ["block 40", "block 1", "block 3", "piece"] {
        assert!(program.say(words) > 0);
    }
    assert_eq!(arena(&mut program), (0, 0), "it takes host memory, so it is made on request");
    assert_eq!(program.say("prepare"), 0);
    let (ready, lacking) = arena(&mut program);
    assert!(ready >= 52 && lacking == 0, "{ready} MiB");
    let handles = made(&mut program, CREATE);
    assert_eq!((program.say("prepare"), made(&mut program, CREATE)), (0, handles), "it is there");
    assert_eq!(program.place(), ("running".to_owned(), 52, 0));
    cycle_without_a_handle(&mut program, 52);
    // The client of the socket is answered at once, and asks again.
    assert!(program.say("block 16") > 0);
    let mut answer = program.ask("pause_prepare");
    let begin = Instant::now();
    while answer["pause"]["arena"]["is_filling"] == true {
        assert!(begin.elapsed() < PATIENCE, "{answer}");
        answer = program.ask("pause_state");
    }
    cycle_without_a_handle(&mut program, 68);
    program.end();
}

#[test]
fn it_follows_the_program_and_outlives_what_gives_idle_memory_back() {
    let scratch = Scratch::new();
    let mut program = Served::start(&scratch, &[ON, AHEAD]);
    assert_eq!((program.say("block 40"), program.say("block 24")), (1, 2));
    await_ready(&mut program, 64);
    assert_eq!(program.say("block 16"), 3);
    await_ready(&mut program, 80);
    assert_eq!((program.say("empty"), arena(&mut program).0), (0, 80), "a pool that is emptied");
    cycle_without_a_handle(&mut program, 80);
    program.end();
}

#[test]
fn a_size_bounds_what_is_made_by_itself() {
    let scratch = Scratch::new();
    let mut program = Served::start(&scratch, &[ON, ("WMSHIM_PAUSE_ARENA", "32MiB")]);
    for count in 1..=8 {
        assert_eq!(program.say("block 8"), count);
    }
    let begin = Instant::now();
    while program.stats()["pause"]["arena"]["lacking_bytes"] == 0 {
        assert!(begin.elapsed() < PATIENCE);
    }
    let (ready, lacking) = arena(&mut program);
    assert!((1..=32).contains(&ready) && lacking > 0, "{ready} and {lacking} MiB");
    assert_eq!(program.stats()["pause"]["arena"]["is_full"], false);
    assert_eq!((program.say("pause"), program.say("resume"), program.say("check")), (0, 0, 1));
    assert_eq!(program.say("prepare"), 0, "on request all of it is made");
    assert!(arena(&mut program).0 >= 64);
    program.end();
}

#[test]
fn without_room_on_the_host_it_ends_there_and_the_program_goes_on() {
    let scratch = Scratch::new();
    let mut program = Served::start(&scratch, &[ON, AHEAD, ("WMSHIM_HOST_LIMIT", "20MiB")]);
    for _ in 0..8 {
        program.say("block 8");
    }
    assert_eq!(program.say("prepare"), OUT_OF_MEMORY);
    let arena = program.stats()["pause"]["arena"].clone();
    assert!(arena["is_full"] == true && (1..=20).contains(&mib(&arena["bytes"])), "{arena}");
    program.say("touch");
    assert_eq!((program.say("join"), program.say("check")), (0, 1));
    assert_eq!(program.place(), ("running".to_owned(), 64, 0));
    program.end();
}

/// What is given back on request is not made again by itself. A test cannot wait for that which
/// does not come: half a second is more than twice as long as it would take.
#[test]
fn it_goes_by_trim_and_by_detach() {
    for request in ["trim", "detach"] {
        let scratch = Scratch::new();
        let mut program = Served::start(&scratch, &[ON, AHEAD]);
        assert_eq!(program.say("block 40"), 1);
        await_ready(&mut program, 40);
        program.change(request);
        assert_eq!((arena(&mut program), reserved_on_host(&mut program)), ((0, 0), 0), "{request}");
        program.say("block 8");
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(reserved_on_host(&mut program), 0, "{request}");
        if request == "detach" {
            assert!(program.say("prepare") > 0, "a detached process is told so");
            program.change("attach");
            program.say("block 8");
        } else {
            assert_eq!(program.say("prepare"), 0);
        }
        await_ready(&mut program, 48);
        assert_eq!(program.say("check"), 1);
        program.end();
    }
}

#[test]
fn a_pause_does_not_wait_for_it_and_what_it_lacks_is_made_after_the_resume() {
    let scratch = Scratch::new();
    let mut program = Served::start(&scratch, &[ON]);
    for _ in 0..30 {
        program.say("block 2");
    }
    for round in 0..20 {
        program.ask("pause_prepare");
        assert_eq!(program.request("pause")["pause"]["state"], "paused", "round {round}");
        // Of a paused process nothing is made.
        program.ask("pause_prepare");
        assert_eq!(program.request("resume")["pause"]["state"], "running", "round {round}");
        if round % 3 == 0 {
            assert_eq!(program.say("trim"), 0);
        }
    }
    assert_eq!((program.say("prepare"), program.say("check")), (0, 1));
    assert!(arena(&mut program).0 >= 60);
    program.end();
}

#[test]
fn what_threads_write_is_what_they_read_while_it_is_filled() {
    let scratch = Scratch::new();
    let variables = [ON, AHEAD, ("SIMCUDA_RACES", "1"), ("SIMCUDA_SEED", "3")];
    let outcome = paused(&scratch, &["threads", "3", "3", "20"], &variables).run();
    let line = outcome.expect_success().lines().last().expect("a line").to_owned();
    let figures: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(figures["pause"]["pauses"], 20, "{figures}");
}

/// Hazard (error handling): a call of the driver fails while it is filled.
#[test]
fn a_call_of_the_driver_that_fails_ends_it_and_the_next_request_goes_on() {
    let start = |scratch: &Scratch, failing: &str| {
        let mut program = Served::start(scratch, &[ON, ("SIMCUDA_FAIL", failing)]);
        for words in ["block 40", "block 2", "block 24"] {
            assert!(program.say(words) > 0, "{failing}: {words}");
        }
        program
    };
    let scratch = Scratch::new();
    let mut whole = start(&scratch, "");
    let mut refused = 0;
    for function in ["cuMemCreate", "cuMemMap", "cuMemSetAccess"] {
        let earlier = made(&mut whole, function);
        for later in [1, 2] {
            let scratch = Scratch::new();
            let mut program = start(&scratch, &format!("{function}:{}", earlier + later));
            refused += i64::from(program.say("prepare") != 0);
            assert_eq!((program.say("prepare"), program.say("check")), (0, 1), "{function}");
            cycle_without_a_handle(&mut program, 66);
            program.end();
        }
    }
    assert!(refused >= 4, "calls failed in {refused} requests");
    whole.end();
}

/// Hazard (process lifecycle): a process ends, or forks, while it is filled.
#[test]
fn a_process_ends_while_it_is_filled() {
    let scratch = Scratch::new();
    let mut program = Served::start(&scratch, &[ON, AHEAD, ("SIMCUDA_EXIT", "crash")]);
    for _ in 0..30 {
        program.say("block 2");
    }
    program.ask("pause_prepare");
    program.tell("fork");
    assert!(program.hear().starts_with("3 3 "));
    program.ask("pause_prepare");
    program.end();
}
