//! The places of a memory's bytes: which rank backs which range, and at which distance from the
//! start each rank's part begins. Pure.
//!
//! *Pieces* are physical, and whole pages; a rank has one at most. *Parts* are those of the
//! partition. In continuous memory a part begins where the one before it ends, in the middle of a
//! page if need be; in the other types each part has pages of its own.
//!
//! Invariants: pieces follow each other without gaps and cover all parts; a part's first byte is in
//! its own rank's piece, or in the page before it.

use crate::vocabulary::codes::{Location, MemoryType};
use crate::vocabulary::partition::Partition;

/// From this size on continuous memory has pages of [`LARGE_PAGE`]: with small ones, random reads
/// of large memory wait for the translation of addresses and not for the links.
const LARGE: u64 = 16 << 30;
/// Bytes of a large page.
pub const LARGE_PAGE: u64 = 512 << 20;

/// The physical memory of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayoutPiece {
    /// Bytes from the start.
    pub offset: u64,
    /// Whole pages; 0 for a rank that backs nothing.
    pub bytes: u64,
}

/// The places of all pieces and parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageLayout {
    /// By rank.
    pub pieces: Vec<LayoutPiece>,
    /// By rank, bytes from the start to its part.
    pub parts: Vec<u64>,
    /// All pieces together, bytes.
    pub bytes: u64,
    /// Alignment of the start, bytes.
    pub alignment: u64,
}

impl StorageLayout {
    /// The layout of a partition's rows of so many bytes; `page` is the smallest that can be
    /// mapped. Chunked memory of the host is one range, which the API shows.
    pub fn new(kind: (MemoryType, Location), partition: &Partition, row: u64, page: u64) -> Self {
        match kind {
            (MemoryType::Continuous, _) | (MemoryType::Chunked, Location::Host) => {
                Self::continuous(partition, row, page)
            }
            _ => Self::apart(partition, row, page),
        }
    }

    /// Each rank backs the pages that begin in its part, and the first rank that has a part those
    /// before.
    fn continuous(partition: &Partition, row: u64, page: u64) -> Self {
        let total = partition.rows() * row;
        // A rank's piece should not be mostly another one's rows.
        let is_large = total >= LARGE && total / partition.ranks() as u64 >= 2 * LARGE_PAGE;
        let alignment = if is_large { LARGE_PAGE.max(page) } else { page };
        let end = total.next_multiple_of(page);
        let bound = |rank: usize| match partition.start(rank) * row {
            0 => 0,
            start if start >= total => end,
            start => start.next_multiple_of(alignment).min(end),
        };
        let piece = |rank: usize| {
            let next = if rank + 1 == partition.ranks() { end } else { bound(rank + 1) };
            LayoutPiece { offset: bound(rank), bytes: next - bound(rank) }
        };
        let parts = (0..partition.ranks()).map(|rank| partition.start(rank) * row).collect();
        Self { pieces: (0..partition.ranks()).map(piece).collect(), parts, bytes: end, alignment }
    }

    fn apart(partition: &Partition, row: u64, page: u64) -> Self {
        let mut offset = 0;
        let mut next = |rank: usize| {
            let bytes = (partition.count(rank) * row).next_multiple_of(page);
            let piece = LayoutPiece { offset, bytes };
            offset += bytes;
            piece
        };
        let pieces: Vec<_> = (0..partition.ranks()).map(&mut next).collect();
        let parts = pieces.iter().map(|piece| piece.offset).collect();
        let alignment = if offset >= LARGE { LARGE_PAGE.max(page) } else { page };
        Self { pieces, parts, bytes: offset, alignment }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a byte of the memory is backed by no rank, or by two.
    use proptest::prelude::*;

    use super::*;

    const PAGE: u64 = 2 << 20;

    fn check(layout: &StorageLayout, partition: &Partition, row: u64) {
        let mut end = 0;
        for piece in &layout.pieces {
            assert_eq!((piece.offset, piece.bytes % PAGE), (end, 0));
            end += piece.bytes;
        }
        assert_eq!(end, layout.bytes);
        for rank in 0..partition.ranks() {
            let (from, bytes) = (layout.parts[rank], partition.count(rank) * row);
            assert!(from + bytes <= layout.bytes, "rank {rank} lies beyond the end");
            if rank > 0 && bytes > 0 {
                assert!(
                    layout.parts[rank - 1] + partition.count(rank - 1) * row <= from,
                    "rank {rank} begins too soon"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn all_parts_are_backed_and_apart(
            rows in 0_u64..5_000_000, ranks in 1_usize..9, row in 1_u64..5000, kind in 1_u32..5,
        ) {
            let kind = MemoryType::of(kind).expect("a type");
            let partition = Partition::equal(rows, ranks);
            let layout = StorageLayout::new((kind, Location::Device), &partition, row, PAGE);
            check(&layout, &partition, row);
            if kind == MemoryType::Continuous {
                prop_assert!((0..ranks).all(|rank| layout.parts[rank] == partition.start(rank) * row));
                prop_assert_eq!(layout.bytes, (rows * row).next_multiple_of(PAGE));
            }
        }

        #[test]
        fn each_rank_backs_about_its_part(each in prop::collection::vec(1_u64..4000, 1..9)) {
            let row = 1 << 20;
            let partition = Partition::custom(each.iter().sum(), &each).expect("a sound one");
            let layout = StorageLayout::new((MemoryType::Continuous, Location::Device), &partition, row, PAGE);
            check(&layout, &partition, row);
            for (rank, piece) in layout.pieces.iter().enumerate() {
                prop_assert!(piece.bytes.abs_diff(partition.count(rank) * row) < PAGE.max(layout.alignment));
            }
        }
    }

    #[test]
    fn large_memory_has_large_pages() {
        let rows = (100_u64 << 30) / 512;
        let layout = StorageLayout::new(
            (MemoryType::Continuous, Location::Device),
            &Partition::equal(rows, 8),
            512,
            PAGE,
        );
        assert_eq!(layout.alignment, LARGE_PAGE);
        assert!(layout.pieces.iter().all(|piece| piece.offset % LARGE_PAGE == 0));
        check(&layout, &Partition::equal(rows, 8), 512);
    }

    #[test]
    fn a_rank_without_rows_backs_nothing_but_a_rest() {
        for kind in [MemoryType::Continuous, MemoryType::Chunked] {
            let layout = StorageLayout::new((kind, Location::Device), &Partition::equal(1, 4), 64, PAGE);
            let bytes: Vec<_> = layout.pieces.iter().map(|piece| piece.bytes).collect();
            assert_eq!(bytes, [PAGE, 0, 0, 0]);
        }
    }
}
