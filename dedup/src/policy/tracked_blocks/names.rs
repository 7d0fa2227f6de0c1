//! The names under which a block's memory is shared: of each chunk, or of all chunks of one
//! physical memory together.
//!
//! Invariant: a memory of several chunks has a name only while each of its chunks has a
//! fingerprint.

use super::{BlockFacts, Fingerprint};

impl BlockFacts {
    /// The name of the memory that begins with a chunk, if its bytes are known.
    pub(in crate::policy) fn name(&self, index: u64) -> Option<Fingerprint> {
        if self.unit == 1 {
            return self.fingerprints.get(&index).copied();
        }
        let is_known = index == 0 && self.fingerprints.len() as u64 == self.unit;
        is_known.then(|| {
            let of_chunks: Vec<Fingerprint> = self.fingerprints.values().copied().collect();
            Fingerprint::of_chunks(&of_chunks)
        })
    }

    /// All names, by the index of the first chunk, whether the memory may be shared or not.
    pub fn named(&self) -> impl Iterator<Item = (u64, Fingerprint)> {
        let is_each = self.unit == 1;
        let each = self.fingerprints.iter().filter(move |_| is_each);
        let whole = self.name(0).filter(|_| !is_each).map(|name| (0, name));
        each.map(|(index, name)| (*index, *name)).chain(whole)
    }

    /// Chunks of the memory that is shared at once.
    pub fn unit(&self) -> u64 {
        self.unit
    }

    /// The index under which a chunk is shared.
    pub(in crate::policy) fn first_of(&self, index: u64) -> u64 {
        index / self.unit * self.unit
    }

    /// Did all that is shared at once arrive by copies?
    pub(in crate::policy) fn arrived_whole(&self) -> bool {
        self.unit == 1 || self.candidates.chunks().count() as u64 == self.unit
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a memory of several chunks is shared by the name of some of them.
    use std::time::Instant;

    use super::*;
    use crate::chunk::CHUNK_BYTES;
    use crate::client::Lease;
    use crate::policy::tracked_blocks::ChunkState;

    fn piece(prints: impl IntoIterator<Item = u128>) -> BlockFacts {
        let mut facts = BlockFacts::of_one_memory(4 * CHUNK_BYTES, Instant::now());
        facts.candidates.loaded(0..4 * CHUNK_BYTES);
        facts.fingerprints = (0..).zip(prints.into_iter().map(Fingerprint)).collect();
        facts
    }

    #[test]
    fn a_memory_of_several_chunks_has_one_name_that_each_chunk_changes() {
        let name = piece(0..4).name(0).expect("all is known");
        assert_eq!(piece(0..4).ask(9), [(0, name)]);
        assert_eq!(piece(0..4).fingerprints().collect::<Vec<_>>(), [name]);
        assert_eq!(piece(0..4).name(1), None);
        assert_eq!(piece(0..3).fingerprints().count(), 0, "a part of it is not known");
        for changed in 0..4 {
            let prints = (0..4).map(|index| if index == changed { 9 } else { index });
            assert_ne!(piece(prints).name(0), Some(name), "chunk {changed}");
        }
        assert_ne!(piece([1, 0, 2, 3]).name(0), Some(name), "the order counts");
    }

    #[test]
    fn it_counts_as_all_of_its_bytes_and_waits_by_its_name() {
        let mut facts = piece(0..4);
        let name = facts.ask(1)[0].1;
        facts.waits(0, name, Lease(1));
        facts.arrived(|other| other != name);
        assert_eq!(facts.withdrawn(), []);
        facts.arrived(|other| other == name);
        assert_eq!((facts.withdrawn(), facts.ask(1)), (vec![Lease(1)], vec![(0, name)]));
        facts.shared(0, ChunkState::Taken { handle: 7, lease: Lease(2) });
        assert_eq!((facts.usage().shared, facts.usage().saved), (4 * CHUNK_BYTES, 4 * CHUNK_BYTES));
        assert_eq!(facts.became_private(|_| false), (4, vec![Lease(2)]));
    }

    #[test]
    fn a_part_that_was_written_leaves_all_of_it_private() {
        let mut facts = piece(0..4);
        assert!(facts.arrived_whole());
        facts.candidates.written(3 * CHUNK_BYTES..3 * CHUNK_BYTES + 1);
        assert!(!facts.arrived_whole());
        assert_eq!(facts.first_of(3), 0);
        assert_eq!(BlockFacts::new(4 * CHUNK_BYTES, Instant::now()).first_of(3), 3);
    }
}
