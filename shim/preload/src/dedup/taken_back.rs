//! Shared chunks that no other process uses any more can be written again, where they are.
//!
//! The background thread asks the broker from time to time which chunks these are. The broker gives
//! them up, so that no other process can come to map them, and the next pass changes the access. A
//! write into the block before that pass needs a copy, as into any shared block.

use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;
use wm_dedup::client::Lease;
use wm_memory::{BlockChunk, MoveRefusal, Quiet, TakenBack};

use super::sharing::Sharing;
use super::tracked_blocks::TrackedBlock;

impl Sharing {
    /// No other process maps the memory of these leases, which are over. Returns those of which no
    /// chunk is known yet.
    pub(super) fn left_alone(&self, leases: FxHashSet<Lease>) -> FxHashSet<Lease> {
        let mut left = leases;
        for block in self.blocks.shared() {
            block.facts().left_alone(|lease| left.remove(&lease));
        }
        left
    }

    /// Takes back the chunks of a block that no other process uses. To be called in a pass. Returns
    /// `false` if there are none.
    pub(super) fn take_back(&self, block: &TrackedBlock, limit: Duration) -> bool {
        let lone = block.facts().lone();
        if lone.is_empty() {
            return false;
        }
        let chunk = |index: &u64| BlockChunk { address: block.chunk_address(*index), block: block.id };
        let chunks: Vec<BlockChunk> = lone.iter().map(chunk).collect();
        let begin = Instant::now();
        let outcomes = block.manager.take_back_chunks(&chunks, Quiet::Seen, limit);
        for (index, outcome) in lone.iter().zip(&outcomes) {
            match outcome {
                TakenBack::Private | TakenBack::NotTried => {}
                TakenBack::Refused(MoveRefusal::InUse | MoveRefusal::Busy) => {}
                TakenBack::Refused(refusal) => {
                    log::debug!("a chunk at {:#x} needs a copy: {refusal:?}", block.chunk_address(*index));
                    block.facts().not_taken_back(*index);
                }
            }
        }
        let count = self.forget_private(block);
        log::debug!("{count} chunks were taken back in {:?}", begin.elapsed());
        true
    }
}
