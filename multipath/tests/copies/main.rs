//! Hazard (stream order): a copy completes before its bytes arrive, overtakes other work, is
//! overtaken, delays an unrelated stream, or is lost when a relay fails. The streams of the model
//! run in any order.

mod calls;
mod lent;
mod making;
mod model;
mod opposed;
mod own;
mod world;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use model::Model;
use proptest::prelude::*;
use wm_multipath::measured::cache;
use wm_multipath::{CopyDriver as _, CopyOutcome, CopyRoute, Engine, LinkDirection};
use world::{Action, MIB, Program, RANGE, actions, engine, settings, topology};

fn action(direction: LinkDirection, stream: usize) -> Action {
    Action { direction, pageable: false, waits: false, stream, offset: 3, bytes: RANGE - 5 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_arrives_in_stream_order(actions in actions(), devices in 2..5_i32, seed in any::<u64>()) {
        let engine = engine(devices, seed);
        let mut program = Program::new(&engine, 1, Model::context(1));
        for action in &actions {
            program.run(action);
        }
        program.verify(1);
        program.verify(0);
    }

    #[test]
    fn a_call_that_fails_costs_no_byte(actions in actions(), seed in any::<u64>(), ahead in 1..400_u64) {
        let engine = engine(3, seed);
        let mut program = Program::new(&engine, 0, Model::context(0));
        engine.driver().fail_at(ahead);
        for action in &actions {
            program.run(action);
        }
        program.verify(0);
        program.verify(1);
    }
}

/// Calls all along one copy fail once, for each kind of copy.
#[test]
fn each_step_may_fail() {
    for (waits, pageable, mib) in [(false, false, 4), (true, false, 3), (true, false, 5), (true, true, 5)] {
        for direction in [LinkDirection::In, LinkDirection::Out] {
            let action = Action { waits, pageable, offset: 0, bytes: mib * MIB, ..action(direction, 0) };
            // Every third call, and other ones in the other direction.
            let first = 1 + direction as u64;
            (first..=calls_of(&action)).step_by(3).for_each(|ahead| fails_once(&action, ahead));
        }
    }
}

fn calls_of(action: &Action) -> u64 {
    let engine = engine(3, 5);
    let mut program = Program::sized(&engine, 0, Model::context(0), 1, action.bytes);
    let before = engine.driver().calls();
    assert_eq!(program.run(action), CopyOutcome::Done);
    engine.driver().calls() - before
}

fn fails_once(action: &Action, ahead: u64) {
    let engine = engine(3, ahead);
    let mut program = Program::sized(&engine, 0, Model::context(0), 1, action.bytes);
    engine.driver().fail_at(ahead);
    program.run(action);
    program.verify(0);
    // The next copy works after the failed one.
    program.run(&Action { direction: LinkDirection::In, ..action.clone() });
    program.verify(0);
}

/// One copy uses each of a lane's slots several times, for each kind of copy.
#[test]
fn a_long_copy_goes_round_the_slots() {
    const LONG: usize = 48 * MIB;
    for pageable in [false, true] {
        let engine = engine(2, 77);
        let mut program = Program::sized(&engine, 0, Model::context(0), 1, LONG);
        for direction in [LinkDirection::In, LinkDirection::Out] {
            let action = Action { pageable, waits: true, ..action(direction, 0) };
            program.run(&Action { offset: 1, bytes: LONG - 1, ..action });
            program.verify(0);
        }
        assert_eq!(program.plain, 0);
    }
}

#[test]
fn several_links_are_used_and_the_call_returns_at_once() {
    let engine = engine(4, 1);
    let mut program = Program::new(&engine, 0, Model::context(0));
    engine.driver().hold(program.stream(0), true);
    assert_eq!(program.run(&action(LinkDirection::In, 0)), CopyOutcome::Done);
    assert_eq!(engine.driver().traffic(), 0, "nothing may run before the stream gets there");
    engine.driver().hold(program.stream(0), false);
    program.verify(0);
    let flows = engine.traffic();
    assert_eq!(flows.len(), 4, "{flows:?}");
    assert_eq!(flows.iter().map(|flow| flow.bytes).sum::<u64>(), RANGE as u64 - 5);
}

#[test]
fn a_stream_that_is_held_back_holds_back_no_other() {
    let engine = engine(2, 9);
    let mut program = Program::new(&engine, 0, Model::context(0));
    engine.driver().hold(program.stream(0), true);
    // More copies than there are lanes, all behind the held stream.
    for _ in 0..6 {
        program.run(&action(LinkDirection::In, 0));
    }
    for direction in [LinkDirection::In, LinkDirection::Out] {
        program.run(&action(direction, 1));
        // A wait for the held stream would end the test: the model makes no step there.
        program.verify(1);
    }
    engine.driver().hold(program.stream(0), false);
    program.verify(0);
}

/// A driver's queue is finite: if a caller fills it behind a held stream, the caller is held too.
#[test]
fn a_held_stream_is_given_so_many_pieces_and_no_more() {
    let engine = engine(2, 9);
    let mut program = Program::new(&engine, 0, Model::context(0));
    engine.driver().hold(program.stream(0), true);
    for _ in 0..80 {
        program.run(&action(LinkDirection::In, 0));
    }
    let longest = engine.driver().longest_queue();
    assert!(longest < 128 * 3 + 80 * 2, "{longest} commands wait in one stream");
    engine.driver().hold(program.stream(0), false);
    program.verify(0);
    assert_eq!(program.run(&action(LinkDirection::In, 0)), CopyOutcome::Done);
    program.verify(0);
    let flows = engine.traffic();
    assert_eq!(flows.iter().map(|flow| flow.bytes).sum::<u64>(), 81 * (RANGE as u64 - 5), "{flows:?}");
}

/// Staging memory on each relay.
fn held(engine: &Engine<Model>) -> Vec<(i32, usize)> {
    engine.relays().iter().map(|relay| (relay.device, relay.staging)).collect()
}

#[test]
fn copies_of_one_stream_share_a_lane() {
    let engine = engine(2, 9);
    let mut program = Program::new(&engine, 0, Model::context(0));
    engine.driver().hold(program.stream(0), true);
    for _ in 0..6 {
        assert_eq!(program.run(&action(LinkDirection::In, 0)), CopyOutcome::Done);
    }
    assert_eq!(held(&engine), [(1, 16 * MIB)]);
    engine.driver().hold(program.stream(0), false);
    program.verify(0);
}

#[test]
fn a_dead_sibling_is_dropped_and_the_copy_ends() {
    let engine = engine(4, 3);
    let mut program = Program::new(&engine, 0, Model::context(0));
    program.run(&action(LinkDirection::In, 0));
    program.verify(0);
    engine.driver().kill(2);
    for waits in [false, true, false] {
        assert_eq!(program.run(&Action { waits, ..action(LinkDirection::Out, 0) }), CopyOutcome::Done);
        program.verify(0);
    }
    let through_the_dead = engine
        .traffic()
        .iter()
        .filter(|flow| flow.route == CopyRoute::Relay(2))
        .map(|flow| flow.count)
        .sum::<u64>();
    assert_eq!(through_the_dead, 1, "only the copy before its death");
}

/// An engine whose relay has just failed at its first piece, with its program.
fn failed_relay(engine: &Engine<Model>, ahead: u64) -> Option<Program<'_>> {
    let mut program = Program::new(engine, 0, Model::context(0));
    program.run(&action(LinkDirection::In, 0));
    program.verify(0);
    engine.driver().fail_at(ahead);
    let answer = program.run(&action(LinkDirection::In, 0));
    program.verify(0);
    (answer == CopyOutcome::Done && through(engine) == 1).then_some(program)
}

/// Bytes that went through relays.
fn through(engine: &Engine<Model>) -> u64 {
    engine
        .traffic()
        .iter()
        .filter(|flow| matches!(flow.route, CopyRoute::Relay(_)))
        .map(|flow| flow.count)
        .sum()
}

/// The cause of the failure may be over: another program's memory, a capture.
#[test]
fn a_relay_that_failed_is_tried_again_after_a_while() {
    for ahead in 1..40 {
        let engine = engine(2, 3);
        let Some(mut program) = failed_relay(&engine, ahead) else { continue };
        assert_eq!(program.run(&action(LinkDirection::In, 0)), CopyOutcome::Plain, "at first");
        program.verify(0);
        engine.driver().rest(Duration::from_secs(2));
        assert_eq!(program.run(&action(LinkDirection::In, 0)), CopyOutcome::Done);
        program.verify(0);
        assert_eq!(through(&engine), 2);
        assert_eq!(held(&engine), [(1, 16 * MIB)], "the lane that failed was given back");
        return;
    }
    panic!("the relay never failed");
}

#[test]
fn a_sibling_that_is_nearly_full_is_left_alone() {
    let engine = engine(3, 3);
    engine.driver().fill(1);
    let mut program = Program::new(&engine, 0, Model::context(0));
    for _ in 0..2 {
        assert_eq!(program.run(&action(LinkDirection::In, 0)), CopyOutcome::Done);
    }
    program.verify(0);
    assert_eq!(held(&engine), [(2, 16 * MIB)]);
    assert_eq!(engine.driver().live().0, 1, "its context was given up again");
}

/// Its handle is reused, without any object of the earlier context.
#[test]
fn a_context_that_ends_leaves_nothing_and_another_one_goes_on() {
    let engine = engine(3, 8);
    let second = Model::second_context(0);
    let mut program = Program::new(&engine, 0, second);
    for pageable in [false, true] {
        program.run(&Action { pageable, waits: true, ..action(LinkDirection::In, 0) });
    }
    program.verify(0);
    let [_, memory, streams, _] = live(&engine);
    engine.driver().end(second);
    engine.end_home(program.user[0].home);
    let mut program = Program::new(&engine, 0, Model::context(0));
    program.run(&action(LinkDirection::Out, 1));
    program.verify(1);
    let mut again = Program::new(&engine, 0, second);
    again.user.iter_mut().for_each(|user| user.home.life = 2);
    again.run(&action(LinkDirection::In, 0));
    again.verify(0);
    let [_, after, streams_after, _] = live(&engine);
    // Two programs' memory more, and their streams; there are as many staging and pinned buffers as
    // before.
    assert!(after <= memory + 2 * 6 + 2, "{memory} {after}");
    assert!(streams_after <= streams + 2 + 8, "{streams} {streams_after}");
}

fn live(engine: &Engine<Model>) -> [usize; 4] {
    engine.driver().live().into()
}

/// A program whose stream is held goes on while another context ends.
#[test]
fn the_end_of_a_context_waits_for_no_stream() {
    let engine = engine(2, 8);
    let mut program = Program::new(&engine, 0, Model::context(0));
    let second = Model::second_context(0);
    let mut ending = Program::new(&engine, 0, second);
    ending.run(&action(LinkDirection::In, 0));
    ending.verify(0);
    engine.driver().hold(program.stream(0), true);
    assert_eq!(program.run(&action(LinkDirection::Out, 0)), CopyOutcome::Done);
    // The model fails the test if a call waits for a stream that is held.
    engine.driver().end(second);
    engine.end_home(ending.user[0].home);
    program.run(&action(LinkDirection::In, 1));
    engine.driver().hold(program.stream(0), false);
    program.verify(0);
    program.verify(1);
}

/// No call waits for a lane that fails behind a held stream. Its remaining work is over before the
/// copy is, and it is destroyed then.
#[test]
fn a_relay_that_fails_behind_a_held_stream_is_not_waited_for() {
    for direction in [LinkDirection::In, LinkDirection::Out] {
        let mut seen = 0;
        for ahead in (1 + direction as u64..).step_by(2) {
            let engine = engine(2, ahead);
            let mut program = Program::new(&engine, 0, Model::context(0));
            program.run(&action(direction, 0));
            program.verify(0);
            engine.driver().hold(program.stream(0), true);
            let before = engine.driver().calls();
            engine.driver().fail_at(ahead);
            program.run(&action(direction, 0));
            if engine.driver().calls() - before < ahead {
                break;
            }
            seen += 1;
            engine.driver().hold(program.stream(0), false);
            program.verify(0);
            program.run(&action(direction, 1));
            program.verify(1);
        }
        assert!(seen > 5, "{seen} calls failed, one in each run");
    }
}

#[test]
fn threads_copy_at_once() {
    let engine = engine(4, 11);
    let plain = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for device in 0..3 {
            let (engine, plain) = (&engine, &plain);
            scope.spawn(move || {
                let mut program = Program::new(engine, device, Model::context(device));
                for direction in [LinkDirection::In, LinkDirection::Out, LinkDirection::In] {
                    program.run(&action(direction, 0));
                    program.run(&Action { waits: true, ..action(direction, 1) });
                }
                program.verify(0);
                program.verify(1);
                plain.fetch_add(program.plain, Ordering::Relaxed);
            });
        }
    });
    assert!(plain.load(Ordering::Relaxed) < 18, "no copy took several paths");
}

#[test]
fn small_copies_and_impatient_ones_are_plain() {
    let engine = engine(2, 1);
    let mut program = Program::new(&engine, 0, Model::context(0));
    assert_eq!(program.run(&Action { bytes: MIB - 1, ..action(LinkDirection::In, 0) }), CopyOutcome::Plain);
    let patient = wm_multipath::EngineSettings { patience: 20 * MIB as u64, ..settings() };
    let engine = Engine::with_topology(Model::new(2, 1), patient, topology(2));
    let mut program = Program::new(&engine, 0, Model::context(0));
    let answers: Vec<_> = (0..3).map(|_| program.run(&action(LinkDirection::In, 0))).collect();
    assert_eq!(answers, [CopyOutcome::Plain, CopyOutcome::Plain, CopyOutcome::Done]);
    program.verify(0);
}

/// A context of our own costs memory there.
#[test]
fn siblings_are_opened_when_that_pays() {
    let frugal = wm_multipath::EngineSettings { eager: false, ..settings() };
    let engine = Engine::with_topology(Model::new(2, 1), frugal, topology(2));
    let mut program = Program::new(&engine, 0, Model::context(0));
    // Each copy misses 0.13 ms; a context opens in 0.3 ms.
    let answers: Vec<_> = (0..4).map(|_| program.run(&action(LinkDirection::In, 0))).collect();
    assert_eq!(answers, [CopyOutcome::Plain, CopyOutcome::Plain, CopyOutcome::Done, CopyOutcome::Done]);
    program.verify(0);
    let [relay] = engine.relays()[..] else { panic!("one relay") };
    assert_eq!((relay.device, relay.staging, relay.context), (1, 16 * MIB, 10 << 20));
}

#[test]
fn only_named_devices_relay() {
    let named = wm_multipath::EngineSettings { relays: Some(vec![0, 3]), ..settings() };
    let engine = Engine::with_topology(Model::new(4, 1), named, topology(4));
    let mut program = Program::new(&engine, 0, Model::context(0));
    program.run(&action(LinkDirection::In, 0));
    program.verify(0);
    let ways: Vec<_> = engine.traffic().iter().map(|flow| flow.route).collect();
    assert_eq!(ways, [CopyRoute::Direct, CopyRoute::Relay(3)]);
}

#[test]
fn the_machine_is_measured_once_and_nothing_is_left_behind() {
    let engine = Engine::new(Model::weightless(3), settings());
    let measured = engine.measured().expect("three devices").clone();
    assert_eq!(engine.driver().live(), (0, 0, 0, 0));
    assert!(measured.into.alone.iter().chain(&measured.out.alone).all(|rate| *rate > 0.0));
    let calls = engine.driver().calls();
    assert_eq!(engine.measured(), Some(&measured));
    assert_eq!(engine.driver().calls(), calls);
}

fn scratch(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("wmshim-copies-{name}-{}", std::process::id()))
}

/// Measurements in a folder.
fn kept_files(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "json")).collect()
}

#[test]
fn a_steady_measurement_is_kept_and_a_disturbed_one_is_not() {
    let folder = scratch("kept");
    let kept = || wm_multipath::EngineSettings { cache: Some(folder.clone()), ..settings() };
    let noisy = Engine::new(Model::noisy(2), kept());
    assert!(noisy.measured().is_some(), "it serves the process that made it");
    assert_eq!(kept_files(&folder).len(), 0, "nobody else is misled by it");
    let quiet = Engine::new(Model::weightless(2), kept());
    quiet.measured().expect("two devices");
    let again = Engine::new(Model::weightless(2), kept());
    assert!(again.measured().is_some());
    assert_eq!(again.driver().calls(), 0, "it was read");
    std::fs::write(&kept_files(&folder)[0], "{}").expect("writes");
    let damaged = Engine::new(Model::weightless(2), kept());
    assert!(damaged.measured().is_some());
    assert!(damaged.driver().calls() > 0, "a damaged file is measured again");
    std::fs::remove_dir_all(folder).expect("removes");
}

#[test]
fn a_measurement_while_others_copy_is_not_kept() {
    let (folder, page) = (scratch("busy"), scratch("page"));
    // Another process publishes that it copies.
    let claims = wm_multipath::parts::ClaimsRecord {
        pid: std::os::unix::process::parent_id(),
        start: 1,
        links: vec![(wm_multipath::parts::Link(7), u64::MAX)],
    };
    let mut bytes = vec![0; 8192];
    bytes[..256].copy_from_slice(&claims.encode());
    std::fs::write(&page, bytes).expect("writes");
    let shared =
        wm_multipath::EngineSettings { cache: Some(folder.clone()), page: Some(page.clone()), ..settings() };
    assert!(Engine::new(Model::weightless(2), shared).measured().is_some());
    assert_eq!(kept_files(&folder).len(), 0);
    std::fs::remove_dir_all(folder).expect("removes");
    std::fs::remove_file(page).expect("removes");
}

/// Ranks of a job start together.
#[test]
fn one_process_measures_and_others_wait_for_what_it_finds() {
    let folder = scratch("turn");
    let shared = || wm_multipath::EngineSettings { cache: Some(folder.clone()), ..settings() };
    let turn = cache::turn(&folder);
    let engine = Engine::new(Model::weightless(2), shared());
    assert!(engine.measured().is_none(), "copies are plain meanwhile");
    assert_eq!(engine.driver().calls(), 0);
    let found = topology(2);
    cache::store(&folder, &wm_multipath::measured::Topology { key: model_key(2), ..found }).expect("writes");
    drop(turn);
    assert!(engine.measured().is_some());
    assert_eq!(engine.driver().calls(), 0, "it was read");
    std::fs::remove_dir_all(folder).expect("removes");
}

fn model_key(devices: i32) -> wm_multipath::measured::MachineKey {
    Model::weightless(devices).survey().expect("a model").key
}

#[test]
fn one_device_is_not_measured() {
    let engine = Engine::new(Model::weightless(1), settings());
    assert!(engine.measured().is_none());
    assert_eq!(engine.driver().calls(), 0);
}

#[test]
fn a_measurement_that_fails_at_any_call_leaves_nothing_behind() {
    let total = {
        let engine = Engine::new(Model::weightless(3), settings());
        engine.measured();
        engine.driver().calls()
    };
    for ahead in 1..=total {
        let engine = Engine::new(Model::weightless(3), settings());
        engine.driver().fail_at(ahead);
        engine.measured();
        let (open, memory, streams, _) = engine.driver().live();
        assert_eq!((open, memory, streams), (0, 0, 0), "call {ahead}");
    }
}
