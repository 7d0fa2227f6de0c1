//! What the exit has to know of memory that is mapped at no address of the program.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::SeqCst};

/// Where such memory lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AwayPlace {
    /// In memory of the host, which only has to be mapped.
    Host,
    /// In files, and nowhere else.
    Files,
    /// Some of it in copies that processes have in common.
    Copies,
}

/// Read at exit, which takes no lock.
pub(super) struct UnmappedMemory {
    /// Memory may be unmapped.
    may_be: AtomicBool,
    place: AtomicU8,
    /// A step moves memory.
    moves: AtomicBool,
}

/// A step moves memory, until this is dropped.
pub(super) struct MovingStep<'a>(&'a UnmappedMemory);

impl MovingStep<'_> {
    /// Some of what has left lies elsewhere.
    pub(super) fn lies_in(&self, place: AwayPlace) {
        self.0.place.store(place as u8, SeqCst);
    }
}

impl Drop for MovingStep<'_> {
    fn drop(&mut self) {
        self.0.moves.store(false, SeqCst);
    }
}

impl UnmappedMemory {
    pub(super) const fn new() -> Self {
        Self {
            may_be: AtomicBool::new(false),
            place: AtomicU8::new(AwayPlace::Host as u8),
            moves: AtomicBool::new(false),
        }
    }

    /// A step begins that moves memory, after which some may be unmapped.
    #[must_use]
    pub(super) fn begin(&self, place: AwayPlace) -> MovingStep<'_> {
        self.moves.store(true, SeqCst);
        self.place.store(place as u8, SeqCst);
        self.may_be.store(true, SeqCst);
        MovingStep(self)
    }

    pub(super) fn may_be(&self) -> bool {
        self.may_be.load(SeqCst)
    }

    pub(super) fn place(&self) -> AwayPlace {
        match self.place.load(SeqCst) {
            1 => AwayPlace::Files,
            2 => AwayPlace::Copies,
            _ => AwayPlace::Host,
        }
    }

    pub(super) fn is_moving(&self) -> bool {
        self.moves.load(SeqCst)
    }

    /// All memory is mapped, and the gate is about to open.
    pub(super) fn has_ended(&self) {
        self.may_be.store(false, SeqCst);
        self.place.store(AwayPlace::Host as u8, SeqCst);
    }
}
