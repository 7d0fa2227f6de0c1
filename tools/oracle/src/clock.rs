//! Vector clocks: the work that is certainly done, and the work that may be waited for, when a
//! stream has reached a place.

/// For each stream, a number of pieces of its work.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Clock(Vec<u32>);

impl Clock {
    pub(crate) fn has(&self, place: Place) -> bool {
        self.0.get(place.stream).is_some_and(|done| *done >= place.number)
    }

    pub(crate) fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(done, more)| *done = (*done).max(*more));
    }

    pub(crate) fn set(&mut self, place: Place) {
        if self.0.len() <= place.stream {
            self.0.resize(place.stream + 1, 0);
        }
        self.0[place.stream] = place.number;
    }
}

/// A piece of a stream's work, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) stream: usize,
    pub(crate) number: u32,
}

/// A place and the work before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) place: Place,
    pub(crate) before: Before,
}

/// The work before a place. The driver's promises are certain; its possible other waits may block a
/// program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Before {
    /// Certainly done: legal programs depend only on this.
    pub(crate) sure: Clock,
    /// All work that could be waited for.
    pub(crate) most: Clock,
}

impl Before {
    pub(crate) fn join(&mut self, other: &Self) {
        self.sure.join(&other.sure);
        self.most.join(&other.most);
    }
}

impl Stamp {
    /// Is it certainly done where the other begins?
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        other.before.sure.has(self.place)
    }
}
