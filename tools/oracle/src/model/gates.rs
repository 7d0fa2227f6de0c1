//! Gates: the work that they hold, and whether it can go on without the host.
//!
//! Invariant: the streams that open gates do not wait for each other in a circle.

use super::state::{Gate, Model, Verdict, require};
use crate::clock::{Clock, Stamp};

impl Model {
    /// Gates that only the host can open.
    pub(crate) fn closed(&self) -> Vec<usize> {
        let closed = self.gates.iter().filter(|(_, gate)| !gate.open && gate.opener.is_none());
        closed.map(|(number, _)| *number).collect()
    }

    pub(super) fn close(&mut self, gate: usize, stream: usize) -> Verdict {
        let place = self.push(stream, &[]).place;
        let fresh = self.gates.insert(gate, Gate { place, open: false, opener: None }).is_none();
        require(fresh, "a gate is closed once")
    }

    pub(super) fn open(&mut self, gate: usize) -> Verdict {
        let gate = self.gates.get_mut(&gate).ok_or("no such gate")?;
        require(gate.opener.is_none(), "a stream opens the gate")?;
        require(!std::mem::replace(&mut gate.open, true), "a gate is opened once")
    }

    /// A stream opens a gate. Work behind the gate then comes after that stream's work, but no rule
    /// depends on that.
    pub(super) fn unlock(&mut self, number: usize, stream: usize) -> Verdict {
        let stamp = self.call_host(stream);
        let gate = self.gates.get(&number).ok_or("no such gate")?;
        require(!gate.open && gate.opener.is_none(), "a gate is opened once")?;
        require(!self.needs(&stamp, number), "the stream waits for the gate itself")?;
        self.gates.entry(number).and_modify(|gate| gate.opener = Some(stamp));
        Ok(())
    }

    /// May a place wait for a gate, directly or through others?
    fn needs(&self, stamp: &Stamp, gate: usize) -> bool {
        self.gates.iter().any(|(number, other)| {
            let waits = !other.open && stamp.before.most.has(other.place);
            waits && (*number == gate || other.opener.as_ref().is_some_and(|opener| self.needs(opener, gate)))
        })
    }

    /// Does a closed gate certainly hold a place with this work before it?
    pub(super) fn is_held(&self, clock: &Clock) -> bool {
        self.gates.values().any(|gate| !gate.open && gate.opener.is_none() && clock.has(gate.place))
    }

    /// May one of these places be held until the host opens a gate?
    pub(super) fn holds(&self, stamps: &[Stamp]) -> bool {
        stamps.iter().any(|stamp| self.needs_host(&stamp.before.most))
    }

    fn needs_host(&self, clock: &Clock) -> bool {
        self.gates
            .values()
            .filter(|gate| !gate.open && clock.has(gate.place))
            .any(|gate| gate.opener.as_ref().is_none_or(|opener| self.needs_host(&opener.before.most)))
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: a legal program hangs for ever, or one is refused although a stream releases it.
    use crate::model::Model;
    use crate::program::{Action, Context, Kind, Rules, Shape, Step, Stream};

    fn model() -> Model {
        let stream = Stream { context: Context::First, kind: Kind::NonBlocking, late: false };
        let rules = Rules { allocation_is_action: true, free_is_action: true, short: false, lawless: false };
        Model::new(&Shape {
            threads: 1,
            streams: vec![stream; 3],
            keep: true,
            internal: true,
            rules,
            hosts: Vec::new(),
        })
    }

    fn are_legal(actions: &[Action]) -> bool {
        let mut model = model();
        let step = |action: &Action| Step {
            thread: 0,
            current: Context::First,
            detached: false,
            action: action.clone(),
        };
        actions.iter().all(|action| model.apply(&step(action)).is_ok())
    }

    const CLOSE: Action = Action::Close { gate: 0, stream: 0 };
    const WAIT: Action = Action::SyncStream { stream: 0 };

    #[test]
    fn the_host_waits_for_a_gate_only_if_a_stream_will_open_it() {
        let unlock = Action::Unlock { gate: 0, stream: 1 };
        assert!(!are_legal(&[CLOSE, WAIT]));
        assert!(are_legal(&[CLOSE, unlock.clone(), WAIT]));
        let held = Action::Close { gate: 1, stream: 1 };
        assert!(!are_legal(&[CLOSE, held.clone(), unlock.clone(), WAIT]), "the opener is held");
        assert!(are_legal(&[CLOSE, held, unlock.clone(), Action::Open { gate: 1 }, WAIT]));
        let opened = Action::Open { gate: 0 };
        assert!(!are_legal(&[CLOSE, unlock, opened]), "opened twice");
    }

    #[test]
    fn no_stream_opens_what_it_waits_for() {
        assert!(!are_legal(&[CLOSE, Action::Unlock { gate: 0, stream: 0 }]));
        let other = Action::Close { gate: 1, stream: 1 };
        let (first, second) = (Action::Unlock { gate: 1, stream: 0 }, Action::Unlock { gate: 0, stream: 1 });
        assert!(!are_legal(&[CLOSE, other, first, second]), "a circle");
    }

    #[test]
    fn a_held_stream_is_busy_for_certain_only_while_the_host_alone_can_open() {
        let busy = Action::Busy { stream: 0 };
        assert!(are_legal(&[CLOSE, busy.clone()]));
        assert!(!are_legal(&[CLOSE, Action::Unlock { gate: 0, stream: 1 }, busy]));
    }
}
