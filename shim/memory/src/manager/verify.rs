//! The check of what fingerprints say: bytes that are called clean are read back and compared with
//! the kept copy. A copy that differs is made anew, as if there were no fingerprint.

use std::ops::Range;

use wm_driver::Gpu;
use wm_driver::gpu::FINGERPRINTED_BYTES;

use super::Manager;
use crate::state::swap::Swap;

impl<G: Gpu> Manager<G> {
    /// Compares what is not to be copied with the spare, which is mapped at `spare`, and adds what
    /// differs to what is copied. Behind the caller's gate nothing writes either.
    pub(super) fn verify(&self, swap: &mut Swap, spare: u64) {
        let pieces = swap.clean().iter().flat_map(pieces).collect::<Vec<_>>();
        for piece in pieces {
            let other = spare + (piece.start - swap.handle.range.start);
            let is_equal = self.gpu.are_equal(piece.start, other, (piece.end - piece.start) as usize);
            if is_equal == Ok(true) {
                continue;
            }
            if is_equal == Ok(false) {
                let mut state = self.lock();
                state.moves.unequal_bytes += piece.end - piece.start;
                let block =
                    state.program.blocks().around(piece.start).map_or(piece.start, |block| block.address);
                drop(state);
                self.gpu.found_unequal(block, piece.clone());
            }
            swap.copy_too(piece);
        }
    }
}

/// A range in pieces of a chunk.
fn pieces(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let (begin, end) = (range.start, range.end);
    let step = FINGERPRINTED_BYTES as usize;
    (begin..end).step_by(step).map(move |at| at..end.min(at + FINGERPRINTED_BYTES))
}
