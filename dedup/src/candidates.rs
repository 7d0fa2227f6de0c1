//! The chunks of a block that could be shared: each byte arrived by a copy and was not written
//! since.
//!
//! Invariant: a byte that counts as loaded was loaded after it was last written; the opposite need
//! not hold. Pieces do not touch, and there are at most 64 and two a chunk of them: a program that
//! loads in finer pieces loses the shortest, never a whole chunk.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::chunk::CHUNK_BYTES;

/// Pieces that a block of no size may have.
const LEAST_PIECES: usize = 64;

/// The bytes of a block that arrived by copies. Ranges are bytes from the block's start; bytes
/// beyond its end are ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidates {
    bytes: u64,
    /// Ends by starts.
    pieces: BTreeMap<u64, u64>,
}

impl Candidates {
    /// Of a new block of `bytes` bytes, none of which arrived by a copy.
    pub fn new(bytes: u64) -> Self {
        Self { bytes, pieces: BTreeMap::new() }
    }

    /// A copy from the host wrote all of `range`.
    pub fn loaded(&mut self, range: Range<u64>) {
        let Some(range) = self.within(range) else { return };
        self.load(range);
        self.give_up();
    }

    /// Something other than a copy that is followed here may have written in `range`: a memset, a
    /// kernel, a copy from anywhere else.
    pub fn written(&mut self, range: Range<u64>) {
        let Some(range) = self.within(range) else { return };
        self.cut(range);
        self.give_up();
    }

    /// A copy on the device wrote the bytes of `source_range` of another block from `at` on: bytes
    /// that were loaded there are loaded here.
    pub fn copied(&mut self, source: &Self, source_range: Range<u64>, at: u64) {
        let pieces: Vec<_> = source.pieces_in(&source_range).collect();
        self.arrived(&pieces, source_range, at);
    }

    /// As [`copied`](Self::copied), from another place of this block. CUDA does not define the
    /// bytes of a copy between ranges that overlap: none of them is loaded then.
    pub fn copied_within(&mut self, source_range: Range<u64>, at: u64) {
        let overlap = source_range.start.abs_diff(at) < source_range.end.saturating_sub(source_range.start);
        let pieces: Vec<_> = if overlap { Vec::new() } else { self.pieces_in(&source_range).collect() };
        self.arrived(&pieces, source_range, at);
    }

    /// Indexes of the chunks of which every byte is loaded, ascending. An incomplete chunk at the
    /// block's end is none.
    pub fn chunks(&self) -> impl Iterator<Item = u64> {
        self.pieces.iter().flat_map(|(start, end)| start.div_ceil(CHUNK_BYTES)..end / CHUNK_BYTES)
    }

    /// The part of `range` in the block, unless it is empty.
    fn within(&self, range: Range<u64>) -> Option<Range<u64>> {
        let range = range.start..range.end.min(self.bytes);
        (range.start < range.end).then_some(range)
    }

    /// The parts of pieces that lie in `range`, ascending.
    fn pieces_in(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let (first, last) = (range.start, range.end);
        let before = self.pieces.range(..first).next_back();
        let others = self.pieces.range(first..last.max(first));
        let parts = before.into_iter().chain(others);
        parts.map(move |(start, end)| first.max(*start)..last.min(*end)).filter(|part| part.start < part.end)
    }

    /// The bytes of `source_range` lie from `at` on; `pieces` of them were loaded.
    fn arrived(&mut self, pieces: &[Range<u64>], source_range: Range<u64>, at: u64) {
        let to = |from: u64| at.saturating_add(from.saturating_sub(source_range.start));
        if let Some(all) = self.within(at..to(source_range.end)) {
            self.cut(all);
        }
        for piece in pieces {
            if let Some(range) = self.within(to(piece.start)..to(piece.end)) {
                self.load(range);
            }
        }
        self.give_up();
    }

    fn load(&mut self, mut range: Range<u64>) {
        while let Some((start, end)) = self.touching(&range) {
            if start <= range.start && range.end <= end {
                return;
            }
            self.pieces.remove(&start);
            range = range.start.min(start)..range.end.max(end);
        }
        self.insert(range);
    }

    fn cut(&mut self, range: Range<u64>) {
        while let Some((start, end)) = self.overlapping(&range) {
            self.pieces.remove(&start);
            if start < range.start {
                self.insert(start..range.start);
            }
            if range.end < end {
                self.insert(range.end..end);
            }
        }
    }

    /// The last piece that shares a byte with `range`.
    fn overlapping(&self, range: &Range<u64>) -> Option<(u64, u64)> {
        let (start, end) = self.pieces.range(..range.end).next_back()?;
        (range.start < *end).then_some((*start, *end))
    }

    /// The last piece that shares a byte with `range`, or lies next to it.
    fn touching(&self, range: &Range<u64>) -> Option<(u64, u64)> {
        let (start, end) = self.pieces.range(..=range.end).next_back()?;
        (range.start <= *end).then_some((*start, *end))
    }

    fn insert(&mut self, piece: Range<u64>) {
        self.pieces.insert(piece.start, piece.end);
    }

    /// Drops the shorter half of the pieces when there are too many. Pieces as long as a chunk are
    /// fewer than half, so none of them is dropped.
    fn give_up(&mut self) {
        if self.pieces.len() <= self.most_pieces() {
            return;
        }
        let mut lengths: Vec<u64> = self.pieces.iter().map(|(start, end)| end - start).collect();
        let middle = (lengths.len() - 1) / 2;
        let (_, longest, _) = lengths.select_nth_unstable(middle);
        self.pieces.retain(|start, end| *end - *start > *longest);
    }

    fn most_pieces(&self) -> usize {
        LEAST_PIECES + 2 * (self.bytes / CHUNK_BYTES) as usize
    }
}

#[cfg(test)]
mod tests;
