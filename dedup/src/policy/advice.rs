//! The bytes that sharing would save, from the number of copies of each chunk.

use crate::chunk::CHUNK_BYTES;

/// This process's part of the bytes that several processes have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SharingAdvice {
    /// Bytes of this process that other processes have, too.
    pub duplicated: u64,
    /// This process's part of the bytes that one copy for all would save.
    pub saved: u64,
}

impl SharingAdvice {
    /// `copies` has an entry for each chunk of this process: the chunks of that name, this one
    /// included.
    pub fn of(copies: &[u32]) -> Self {
        let several = || copies.iter().map(|count| u64::from(*count)).filter(|count| *count > 1);
        Self {
            duplicated: several().count() as u64 * CHUNK_BYTES,
            saved: several().map(|count| CHUNK_BYTES - CHUNK_BYTES / count).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): advice counts a chunk that no other process has, or one copy twice.
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_chunk_without_a_second_copy_saves_nothing() {
        assert_eq!(SharingAdvice::of(&[0, 1, 1]), SharingAdvice::default());
    }

    #[test]
    fn two_copies_save_half_of_each() {
        let advice = SharingAdvice::of(&[2, 1, 4]);
        assert_eq!(advice.duplicated, 2 * CHUNK_BYTES);
        assert_eq!(advice.saved, CHUNK_BYTES / 2 + CHUNK_BYTES / 4 * 3);
    }

    proptest! {
        #[test]
        fn the_parts_of_all_processes_leave_one_copy(copies in 2..64_u32) {
            let saved = u64::from(copies) * SharingAdvice::of(&[copies]).saved;
            let left = u64::from(copies) * CHUNK_BYTES - saved;
            prop_assert!((CHUNK_BYTES - u64::from(copies)..=CHUNK_BYTES).contains(&left), "{left}");
        }
    }
}
