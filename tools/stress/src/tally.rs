//! Counts of operations by kind, while the run goes on.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// An operation that a thread can draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Allocate,
    Check,
    Mark,
    Read,
    Write,
    Copy,
    Move,
    Hand,
    Take,
    Free,
    WaitStream,
    WaitDevice,
    Renew,
}

/// Every operation, with its name.
const NAMES: [(Operation, &str); 13] = [
    (Operation::Allocate, "allocate"),
    (Operation::Check, "check"),
    (Operation::Mark, "mark"),
    (Operation::Read, "read"),
    (Operation::Write, "write"),
    (Operation::Copy, "copy"),
    (Operation::Move, "move"),
    (Operation::Hand, "hand"),
    (Operation::Take, "take"),
    (Operation::Free, "free"),
    (Operation::WaitStream, "wait_stream"),
    (Operation::WaitDevice, "wait_device"),
    (Operation::Renew, "renew"),
];

/// Counts of all threads.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    done: [AtomicU64; NAMES.len()],
    sum: AtomicU64,
    refused: AtomicU64,
}

impl Tally {
    pub(crate) fn count(&self, operation: Operation) {
        self.done[operation as usize].fetch_add(1, Relaxed);
        self.sum.fetch_add(1, Relaxed);
    }

    /// An allocation failed with out of memory.
    pub(crate) fn refuse(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Operations of all kinds.
    pub(crate) fn sum(&self) -> u64 {
        self.sum.load(Relaxed)
    }

    /// Name and count of each kind.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.iter().map(|(operation, name)| (*name, self.done[*operation as usize].load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_has_its_own_row() {
        for (position, (operation, _)) in NAMES.iter().enumerate() {
            assert_eq!(*operation as usize, position);
        }
        let tally = Tally::default();
        tally.count(Operation::Renew);
        assert_eq!(
            tally.rows().filter(|(_, count)| *count == 1).map(|(name, _)| name).collect::<Vec<_>>(),
            ["renew"]
        );
    }
}
