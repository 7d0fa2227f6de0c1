//! Hazard (latency): copies in opposite directions each take the links that they believe to be
//! idle.

use wm_multipath::measured::{Rates, Topology};
use wm_multipath::{CopyOutcome, Engine, LinkDirection};

use super::model::Model;
use super::world::{Action, Program, RANGE, settings, topology};

fn copy(direction: LinkDirection, stream: usize) -> Action {
    Action { direction, pageable: false, waits: false, stream, offset: 0, bytes: RANGE }
}

/// In and out at once, twice, in streams that are held meanwhile; and once more after all have
/// ended.
fn answers(engine: &Engine<Model>) -> Vec<CopyOutcome> {
    let mut program = Program::new(engine, 0, Model::context(0));
    let both = [copy(LinkDirection::In, 0), copy(LinkDirection::Out, 1)];
    (0..2).for_each(|stream| engine.driver().hold(program.stream(stream), true));
    let mut answers: Vec<_> = both.iter().chain(&both).map(|action| program.run(action)).collect();
    (0..2).for_each(|stream| engine.driver().hold(program.stream(stream), false));
    (0..2).for_each(|stream| program.verify(stream));
    // Time is bytes moved: here enough for every record to expire.
    for _ in 0..4 {
        program.run(&copy(LinkDirection::In, 0));
        program.verify(0);
    }
    answers.push(program.run(&copy(LinkDirection::Out, 1)));
    program.verify(1);
    answers
}

#[test]
fn copies_that_meet_are_plain_until_they_no_longer_do() {
    use CopyOutcome::{Done, Plain};
    let engine = Engine::with_topology(Model::new(2, 3), settings(), topology(2));
    assert_eq!(answers(&engine), [Done, Plain, Plain, Plain, Done]);
}

#[test]
fn a_sibling_that_copies_the_other_way_is_no_relay() {
    // So slow that the claim outlasts the test.
    let slow = Rates { alone: vec![1e6; 2], together: vec![vec![2e6; 2]; 2], all: 2e6 };
    let slow = Topology { into: slow.clone(), out: slow, ..topology(2) };
    let engine = Engine::with_topology(Model::new(2, 3), settings(), slow);
    let mut own = Program::new(&engine, 1, Model::context(1));
    let mut program = Program::new(&engine, 0, Model::context(0));
    engine.driver().hold(own.stream(0), true);
    own.run(&copy(LinkDirection::Out, 0));
    assert_eq!(program.run(&copy(LinkDirection::In, 0)), CopyOutcome::Plain);
    engine.driver().hold(own.stream(0), false);
    own.verify(0);
    program.verify(0);
}
