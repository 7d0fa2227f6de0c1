//! Chunks that were shared, and that no other process maps any more.

use super::{BlockFacts, ChunkState};
use crate::client::Lease;

impl BlockFacts {
    /// The broker has given up the chunks of some leases: no other process maps their memory, and
    /// none can come to map it. `takes` is asked about each lease, and takes those that are over.
    pub fn left_alone(&mut self, mut takes: impl FnMut(Lease) -> bool) {
        for state in self.chunks.values_mut().filter(|state| !state.is_waiting()) {
            if let (Some(handle), Some(lease)) = (state.handle(), state.lease())
                && takes(lease)
            {
                *state = ChunkState::Lone { handle };
            }
        }
    }

    /// Chunks that can be taken back, ascending.
    pub fn lone(&self) -> Vec<u64> {
        let lone = self.chunks.iter().filter(|(_, state)| matches!(state, ChunkState::Lone { .. }));
        lone.map(|(index, _)| *index).collect()
    }

    /// A chunk could not be taken back: it needs a copy, as one that the broker did not accept.
    pub fn not_taken_back(&mut self, index: u64) {
        if let Some(state) = self.chunks.get_mut(&index)
            && let ChunkState::Lone { handle } = *state
        {
            *state = ChunkState::Given { handle, lease: None };
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (data race): memory that other processes map is taken back. Hazard (silent
    //! degradation): a chunk that is taken back is not shared again.
    use std::time::Instant;

    use super::*;
    use crate::chunk::CHUNK_BYTES;

    fn facts() -> BlockFacts {
        let mut facts = BlockFacts::new(4 * CHUNK_BYTES, Instant::now());
        facts.shared(0, ChunkState::Given { handle: 10, lease: Some(Lease(1)) });
        facts.shared(1, ChunkState::Taken { handle: 11, lease: Lease(2) });
        facts.shared(2, ChunkState::Given { handle: 12, lease: None });
        facts.shared(3, ChunkState::Waiting { lease: Lease(3) });
        facts
    }

    #[test]
    fn chunks_with_leases_that_are_over_can_be_taken_back() {
        let mut facts = facts();
        facts.left_alone(|lease| lease == Lease(2) || lease == Lease(3));
        assert_eq!((facts.lone(), facts.handle(1)), (vec![1], Some(11)), "one that waits has no memory");
        assert_eq!(facts.usage().shared, 3 * CHUNK_BYTES, "none can be written yet");
        facts.left_alone(|_| true);
        assert_eq!(facts.lone(), [0, 1]);
        let (count, leases) = facts.became_private(|index| index > 1);
        assert_eq!((count, leases, facts.lone()), (2, vec![], vec![]), "their leases are over");
    }

    #[test]
    fn a_chunk_that_cannot_be_taken_back_needs_a_copy() {
        let mut facts = facts();
        facts.left_alone(|lease| lease == Lease(1));
        facts.not_taken_back(0);
        facts.not_taken_back(1);
        assert_eq!((facts.lone(), facts.unregistered()), (vec![], vec![0..1, 2..3]));
    }
}
