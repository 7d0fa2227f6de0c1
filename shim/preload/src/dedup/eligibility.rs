//! Which blocks may be shared: the rules of [`wm_dedup::policy::eligibility`], asked for the blocks
//! of this process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use wm_dedup::chunk::Fingerprint;
use wm_dedup::policy::eligibility::Eligibility;
use wm_dedup::policy::tracked_blocks::BlockFacts;
use wm_dedup::readers::ParameterKey;

use super::mailbox::NamedChunk;
use super::sharing::Sharing;
use super::tracked_blocks::TrackedBlock;

impl Sharing {
    /// The chunks of a block that need fingerprints now.
    pub(super) fn due_chunks(&self, facts: &BlockFacts) -> Vec<u64> {
        facts.due_chunks(Instant::now(), self.kernels.readers())
    }

    pub(super) fn is_eligible(&self, facts: &BlockFacts) -> bool {
        facts.eligibility(Instant::now(), self.kernels.readers()) == Eligibility::Eligible
    }

    /// May the chunk be shared, under the name that it had?
    pub(super) fn is_eligible_chunk(&self, chunk: &NamedChunk) -> bool {
        let (block, fingerprint, now) = (&chunk.block, chunk.name.fingerprint, Instant::now());
        !self.status.is_ending()
            && block.lives()
            && block.facts().may_share(chunk.index, fingerprint, now, self.kernels.readers())
    }

    /// A block has new fingerprints. Blocks that rely on kernels which turn out to write become
    /// private, as many as possible until `until`.
    pub(super) fn learn(&self, block: &TrackedBlock, prints: BTreeMap<u64, Fingerprint>, until: Instant) {
        let mut facts = block.facts();
        let refuted = facts.learn(&block.range, prints, self.kernels.readers(), &self.graphs);
        // Those of graphs may be new to the block.
        let parameters: Vec<_> = facts.parameters().copied().collect();
        drop(facts);
        self.kernels.ask(&parameters);
        self.refuted(&refuted).iter().for_each(|block| self.unshare_until(block, until));
    }

    /// A chunk that was to be given has other bytes than its fingerprint says.
    pub(super) fn contradicted(&self, chunk: &NamedChunk) {
        let block = &chunk.block;
        let refuted = block.facts().contradicted(self.kernels.readers());
        let _shared = self.refuted(&refuted);
    }

    /// Bytes changed under kernels that were proven to read. Returns the blocks that were shared
    /// because of them.
    fn refuted(&self, parameters: &[ParameterKey]) -> Vec<Arc<TrackedBlock>> {
        if !parameters.is_empty() {
            let count = parameters.len();
            log::warn!(
                "bytes changed under {count} kernel parameters whose code reads only; they count as writers"
            );
        }
        self.kernels.effects().publish(parameters);
        self.distrust(parameters)
    }

    /// These parameters are no readers: the shared blocks that rely on them become private before a
    /// launch of such a kernel, or of any graph. Returns those blocks.
    pub(super) fn distrust(&self, reversed: &[ParameterKey]) -> Vec<Arc<TrackedBlock>> {
        if reversed.is_empty() {
            return Vec::new();
        }
        self.blocks.all().iter().for_each(|block| block.noted.forget());
        self.recent.changed();
        let mut blocks = self.blocks.shared();
        blocks.retain(|block| block.facts().relies_on(reversed));
        self.pending.add(blocks.iter().map(Arc::clone));
        blocks
    }
}
