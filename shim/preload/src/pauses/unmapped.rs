//! What the exit has to know of memory that is mapped at no address of the program.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Read at exit, which takes no lock.
pub(super) struct UnmappedMemory {
    /// Memory may be unmapped.
    may_be: AtomicBool,
    /// It lies in files.
    in_files: AtomicBool,
    /// A step moves memory.
    moves: AtomicBool,
}

/// A step moves memory, until this is dropped.
pub(super) struct MovingStep<'a>(&'a UnmappedMemory);

impl Drop for MovingStep<'_> {
    fn drop(&mut self) {
        self.0.moves.store(false, SeqCst);
    }
}

impl UnmappedMemory {
    pub(super) const fn new() -> Self {
        Self {
            may_be: AtomicBool::new(false),
            in_files: AtomicBool::new(false),
            moves: AtomicBool::new(false),
        }
    }

    /// A step begins that moves memory, after which some may be unmapped.
    #[must_use]
    pub(super) fn begin(&self, in_files: bool) -> MovingStep<'_> {
        self.moves.store(true, SeqCst);
        self.in_files.store(in_files, SeqCst);
        self.may_be.store(true, SeqCst);
        MovingStep(self)
    }

    pub(super) fn may_be(&self) -> bool {
        self.may_be.load(SeqCst)
    }

    pub(super) fn is_in_files(&self) -> bool {
        self.in_files.load(SeqCst)
    }

    pub(super) fn is_moving(&self) -> bool {
        self.moves.load(SeqCst)
    }

    /// All memory is mapped, and the gate is about to open.
    pub(super) fn has_ended(&self) {
        self.may_be.store(false, SeqCst);
        self.in_files.store(false, SeqCst);
    }
}
