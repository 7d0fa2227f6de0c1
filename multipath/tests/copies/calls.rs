//! Hazard (latency): a copy loses in driver calls what it gains in links. A call takes
//! microseconds of the caller's time, and two links save only 600 us on 64 MiB. The number of
//! calls does not depend on the machine's speed.

use super::model::{Model, Place};
use super::world::{MIB, topology};
use wm_multipath::{
    CopyOutcome, CopyRequest, Engine, EngineSettings, Home, HostDeviceCopy, HostMemory, LinkDirection,
    ProgramStream, StreamOrdering,
};

/// Driver calls of one copy, after everything has been made and used before.
fn calls(devices: i32, mib: usize, direction: LinkDirection, waits: bool) -> (CopyOutcome, u64) {
    let settings = EngineSettings { patience: 0, eager: true, prompt: true, ..EngineSettings::default() };
    let engine = Engine::with_topology(Model::weightless(devices), settings, topology(devices));
    let (model, context) = (engine.driver(), Model::context(0));
    let user = ProgramStream {
        home: Home { context, life: 1 },
        device: 0,
        stream: model.user_stream(context),
        kind: StreamOrdering::Alone,
    };
    let host = model.allocate(Place::Pinned, vec![0; mib * MIB]);
    let device = model.allocate(Place::Device(0), vec![0; mib * MIB]);
    let copy = HostDeviceCopy { user, direction, host, device, bytes: mib * MIB };
    let request = CopyRequest { copy, memory: HostMemory::Pinned, waits };
    // The lane remembers the start of the last copy, so the second one makes an event of its own;
    // from then on they take turns.
    (0..2).for_each(|_| assert!(engine.copy(&request) == CopyOutcome::Done || mib < 4));
    let before = model.calls();
    let answer = engine.copy(&request);
    (answer, model.calls() - before)
}

#[test]
fn an_asynchronous_copy_of_64_mib_makes_34_calls() {
    // The start's record, the direct copy, the lane's wait for the start, the stream's wait for the
    // lane; and six for each of the relay's pieces: four full slots and a short one.
    for direction in [LinkDirection::In, LinkDirection::Out] {
        assert_eq!(calls(2, 64, direction, false), (CopyOutcome::Done, 4 + 5 * 6));
    }
}

#[test]
fn waiting_for_it_takes_two_more() {
    assert_eq!(calls(2, 64, LinkDirection::In, true), (CopyOutcome::Done, 4 + 5 * 6 + 2));
}

#[test]
fn each_relay_costs_14_calls() {
    // Its two for the copy, and two pieces; the start is recorded once for all.
    assert_eq!(calls(8, 64, LinkDirection::In, false), (CopyOutcome::Done, 2 + 7 * (2 + 2 * 6)));
}

#[test]
fn a_plain_copy_makes_none() {
    for (devices, mib) in [(2, 1), (8, 3)] {
        assert_eq!(calls(devices, mib, LinkDirection::In, false), (CopyOutcome::Plain, 0));
    }
}
