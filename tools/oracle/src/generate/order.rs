//! Draws steps that tell an allocation or a free that orders too much from one that orders too
//! little.

use random::Choices;

use super::Generator;
use crate::program::{Action, Kind, Step, Way};

impl Generator {
    /// A stream is held before a free and after it, and another one allocates meanwhile: if it
    /// waits, then for no more than the free.
    pub(super) fn overtake(&mut self) -> Option<Vec<Step>> {
        let (block, other) = (self.block()?, self.stream()?);
        let (stream, bytes) = (self.near(block)?, self.random.pick(&self.bent.sizes)?);
        let (gate, later, fresh) = (self.number, self.number + 1, self.number);
        let actions = [
            Action::Close { gate, stream },
            Action::FreeIn { block, stream },
            Action::Close { gate: later, stream },
            Action::Allocate { block: fresh, bytes, way: Way::Async { stream: other } },
            Action::Open { gate },
            Action::SyncStream { stream: other },
        ];
        Some(actions.into_iter().map(|action| self.step(action)).collect())
    }

    /// Relies on the rule that an allocation or a free is an action: work behind it is behind the
    /// default stream's work too.
    pub(super) fn lean(&mut self) -> Option<Vec<Step>> {
        let (block, other) = (self.touched()?, self.stream()?);
        let stream = self.partner(block)?;
        let (event, bytes) = (self.number, self.random.pick(&self.bent.sizes)?);
        let action = match self.block().filter(|freed| *freed != block && self.random.one_in(2)) {
            Some(freed) => Action::FreeIn { block: freed, stream },
            None => Action::Allocate { block: self.number, bytes, way: Way::Async { stream } },
        };
        let mut steps = vec![self.step(action)];
        match self.random.below(3) {
            0 => {
                steps.push(self.step(Action::Record { event, stream }));
                steps.push(self.step(Action::Wait { event, stream: other }));
            }
            1 => steps.push(self.step(Action::SyncStream { stream })),
            // A free in the default stream is enough between two blocking streams.
            _ => {}
        }
        let action = self.use_of(block, other);
        steps.push(self.step(action));
        Some(steps)
    }

    /// A stream that has a barrier with the one in which a block was used last.
    fn partner(&mut self, block: usize) -> Option<usize> {
        let last = self.model.live().find(|(number, _)| *number == block)?.1.last_stream()?;
        let streams = &self.shape.streams;
        let is_partner = |stream: &usize| {
            let (one, other) = (streams[*stream], streams[last]);
            let kinds = [(one.kind, other.kind), (other.kind, one.kind)];
            let barrier = kinds.iter().any(|(one, other)| *one == Kind::Legacy && other.is_blocking());
            barrier && one.context == other.context
        };
        let partners: Vec<usize> = self.model.streams().into_iter().filter(is_partner).collect();
        self.random.pick(&partners)
    }
}
