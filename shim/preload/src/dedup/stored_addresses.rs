//! Addresses of blocks that the program copies into device memory: tables of pointers, structures
//! with pointers in them.
//!
//! A kernel may write through such an address, and no launch shows it. So a block is not shared any
//! more once its address is among the bytes of a copy. Large copies are data and are not searched.

use std::sync::Arc;

use super::sharing::Sharing;
use super::tracked_blocks::TrackedBlock;
use crate::process::own_memory;
use wm_dedup::policy::tracked_blocks::Exclusion;

/// Copies of more bytes are not searched.
const LARGEST: u64 = 1 << 20;

/// Bytes that are read at once.
const STEP: usize = 8 << 10;

/// Addresses lie at multiples of this.
const ALIGNMENT: usize = 4;

const WORD: usize = size_of::<u64>();

impl Sharing {
    /// Bytes of the host are about to be copied to the device. Blocks whose addresses are among
    /// them are private from now on.
    pub(super) fn note_stored_addresses(&self, from: u64, bytes: u64) {
        if bytes > LARGEST || !self.blocks.is_any() {
            return;
        }
        let mut buffer = [0_u8; STEP];
        let mut at = 0;
        while at + WORD as u64 <= bytes {
            let step = &mut buffer[..(bytes - at).min(STEP as u64) as usize];
            // An address that cannot be read is one that the driver refuses, too.
            if !own_memory::read(from + at, step) {
                return;
            }
            self.blocks_among(step).iter().for_each(|block| self.keep_private(block));
            // The last word of a step may reach into the next one.
            at += (step.len() - (WORD - ALIGNMENT)) as u64 / ALIGNMENT as u64 * ALIGNMENT as u64;
        }
    }

    fn blocks_among(&self, bytes: &[u8]) -> Vec<Arc<TrackedBlock>> {
        let reach = self.blocks.reach();
        let words = bytes.windows(WORD).step_by(ALIGNMENT);
        let words = words.map(|word| word.try_into().map_or(0, u64::from_ne_bytes));
        let near = words.filter(|word| reach.contains(word) || self.objects.is_near(*word));
        let reached = |word| match self.reach(word) {
            Some(object) => self.blocks.within(&object),
            None => self.blocks.find(word).into_iter().collect(),
        };
        near.flat_map(reached).collect()
    }

    fn keep_private(&self, block: &Arc<TrackedBlock>) {
        let is_new = block.facts().exclusion().is_none();
        block.facts().exclude(Exclusion::StoredAddress);
        if is_new && block.is_shared() {
            self.make_private_for_write(block);
        }
    }
}
