//! Hazard (stream order): a pageable copy over the target's own link loses bytes when a call
//! fails, uses a sibling GPU or another process, or takes the cores that computing threads need.
//! Every process makes such copies.

use std::time::Duration;

use proptest::prelude::*;
use wm_multipath::{CopyOutcome, CopyRoute, Engine, EngineSettings, LinkDirection};

use super::model::Model;
use super::world::{Action, MIB, Program, RANGE, actions, settings};

fn alone(devices: i32, cores: usize) -> Engine<Model> {
    let settings = EngineSettings { relays: Some(Vec::new()), prompt: false, cores, ..settings() };
    Engine::new(Model::new(devices, 3), settings)
}

fn pageable(direction: LinkDirection) -> Action {
    Action { direction, pageable: true, waits: true, stream: 0, offset: 3, bytes: RANGE - 5 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_arrives_with_one_device(actions in actions(), cores in 4..20_usize, ahead in prop::option::of(1..300_u64)) {
        let engine = alone(1, cores);
        let mut program = Program::new(&engine, 0, Model::context(0));
        ahead.into_iter().for_each(|ahead| engine.driver().fail_at(ahead));
        for action in &actions {
            // Most copies are pageable.
            program.run(&Action { pageable: action.pageable || action.stream == 0, ..action.clone() });
        }
        program.verify(0);
        program.verify(1);
    }
}

#[test]
fn nothing_but_the_target_takes_part() {
    let engine = alone(3, 8);
    let mut program = Program::new(&engine, 1, Model::context(1));
    for direction in [LinkDirection::In, LinkDirection::Out] {
        assert_eq!(program.run(&pageable(direction)), CopyOutcome::Done);
        program.verify(0);
    }
    let flows: Vec<_> =
        engine.traffic().iter().map(|flow| (flow.route, flow.direction, flow.count, flow.bytes)).collect();
    let bytes = RANGE as u64 - 5;
    let (into, out) = (LinkDirection::In, LinkDirection::Out);
    assert_eq!(flows, [(CopyRoute::Threads, into, 1, bytes), (CopyRoute::Threads, out, 1, bytes)]);
    assert!(engine.topology().is_none() && engine.relays().is_empty(), "nothing was measured or opened");
}

/// It publishes no claim, and writes no file.
#[test]
fn no_page_and_no_cache_is_touched() {
    let folder = std::env::temp_dir().join(format!("wm-own-{}", std::process::id()));
    let (page, kept) = (folder.join("page"), folder.join("cache"));
    let places =
        EngineSettings { page: Some(page), cache: Some(kept), relays: Some(Vec::new()), ..settings() };
    let engine = Engine::new(Model::new(2, 3), places);
    let mut program = Program::new(&engine, 0, Model::context(0));
    assert_eq!(program.run(&pageable(LinkDirection::In)), CopyOutcome::Done);
    assert!(!folder.exists());
}

#[test]
fn pinned_and_small_copies_make_no_call() {
    let engine = alone(1, 8);
    let mut program = Program::new(&engine, 0, Model::context(0));
    let pinned = Action { pageable: false, ..pageable(LinkDirection::In) };
    let small = Action { bytes: MIB - 1, ..pageable(LinkDirection::Out) };
    for action in [pinned, small] {
        let before = engine.driver().calls();
        let plain = Action { waits: false, ..action };
        assert_eq!(program.run(&plain), CopyOutcome::Plain);
        // The plain copy is the model's own.
        assert!(engine.driver().calls() - before <= 1, "{plain:?}");
    }
}

#[test]
fn with_few_cores_copies_are_plain() {
    for (cores, answer) in
        [(1, CopyOutcome::Plain), (3, CopyOutcome::Plain), (4, CopyOutcome::Done), (64, CopyOutcome::Done)]
    {
        let engine = alone(1, cores);
        let mut program = Program::new(&engine, 0, Model::context(0));
        assert_eq!(program.run(&pageable(LinkDirection::In)), answer, "{cores} cores");
        program.verify(0);
    }
}

/// A thread may be pinned to a core at any time, and its threads with it.
#[test]
fn cores_are_counted_for_each_copy() {
    for engine in [alone(1, 64), super::world::engine(3, 5)] {
        let mut program = Program::new(&engine, 0, Model::context(0));
        assert_eq!(program.run(&pageable(LinkDirection::In)), CopyOutcome::Done);
        engine.driver().pin_to(1);
        assert_eq!(program.run(&pageable(LinkDirection::In)), CopyOutcome::Plain);
        program.verify(0);
    }
}

/// There are as many pinned buffers and streams as threads, and they are reused.
#[test]
fn what_copies_hold_is_bounded() {
    let engine = alone(1, 64);
    let mut program = Program::new(&engine, 0, Model::context(0));
    program.run(&pageable(LinkDirection::In));
    let held = engine.driver().live();
    for direction in [LinkDirection::Out, LinkDirection::In] {
        (0..3).for_each(|_| assert_eq!(program.run(&pageable(direction)), CopyOutcome::Done));
    }
    assert_eq!(engine.driver().live(), held);
}

#[test]
fn in_a_crowd_copies_are_the_drivers_for_a_while() {
    let engine = alone(1, 64);
    let mut program = Program::new(&engine, 0, Model::context(0));
    let mut copy = || program.run(&pageable(LinkDirection::In));
    engine.driver().crowd(Duration::from_millis(1), Duration::from_millis(1));
    assert_eq!([copy(), copy(), copy()], [CopyOutcome::Done, CopyOutcome::Done, CopyOutcome::Plain]);
    engine.driver().rest(Duration::from_secs(1));
    engine.driver().crowd(Duration::from_millis(1), Duration::ZERO);
    assert_eq!([copy(), copy()], [CopyOutcome::Done; 2]);
    program.verify(0);
}
