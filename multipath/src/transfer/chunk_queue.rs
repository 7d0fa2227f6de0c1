//! The remaining bytes of a copy, from which several paths pull.
//!
//! The direct path takes from the head, relays from the tail, so the direct path's share is one
//! run, and only the next request delays the last bytes. Chunks shrink towards the end (guided
//! self-scheduling): if a slow path had the last large chunk, all others would wait for it. A path
//! that fails returns its chunks.
//!
//! Invariant: the chunks in flight or completed, the returned ones and the remainder partition the
//! range exactly.

use crate::vocabulary::chunk::Chunk;

/// The end of the remainder that a path takes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeEnd {
    /// The start: the direct path.
    Head,
    /// The end: relays.
    Tail,
}

/// The remainder of a copy.
#[derive(Debug)]
pub struct ChunkQueue {
    head: usize,
    tail: usize,
    largest: usize,
    smallest: usize,
    paths: usize,
    returned: Vec<Chunk>,
}

impl ChunkQueue {
    /// A whole copy of `bytes`, for `paths` paths that take at most `largest` at once.
    pub fn new(bytes: usize, largest: usize, paths: usize) -> Self {
        let largest = largest.max(1);
        let smallest = (largest / 8).max(1);
        Self { head: 0, tail: bytes, largest, smallest, paths: paths.max(1), returned: Vec::new() }
    }

    /// The next chunk; `None` if there is none. The direct path also takes the returned chunks: if
    /// it fails, the whole copy fails.
    pub fn take(&mut self, end: RangeEnd) -> Option<Chunk> {
        if end == RangeEnd::Head
            && let Some(chunk) = self.returned.pop()
        {
            return Some(chunk);
        }
        let rest = self.tail - self.head;
        let bytes = (rest / (2 * self.paths)).clamp(self.smallest, self.largest).min(rest);
        (bytes > 0).then(|| self.cut(end, bytes))
    }

    fn cut(&mut self, end: RangeEnd, bytes: usize) -> Chunk {
        match end {
            RangeEnd::Head => {
                self.head += bytes;
                Chunk { offset: self.head - bytes, bytes }
            }
            RangeEnd::Tail => {
                self.tail -= bytes;
                Chunk { offset: self.tail, bytes }
            }
        }
    }

    /// Returns the chunks that a path could not finish.
    pub fn give_back(&mut self, chunks: impl IntoIterator<Item = Chunk>) {
        self.returned.extend(chunks);
    }

    /// The transfer failed: no path may take another chunk.
    pub fn abandon(&mut self) {
        self.returned.clear();
        self.head = self.tail;
    }
}
