//! The chunks that the broker is asked about next.
//!
//! It is asked ahead of the passes, so that enough is prepared for the next one: a busy program
//! leaves few moments for passes. The GPU may work meanwhile, because the pass compares the bytes
//! again.

use std::sync::Arc;

use rustc_hash::FxHashSet;
use wm_dedup::chunk::{ChunkName, Fingerprint};
use wm_driver::{Api, Device};
use wm_memory::Manager;

use super::mailbox::NamedChunk;
use super::sharing::Sharing;
use crate::process::driver;
use crate::registry;

/// Memories that are prepared at once: somewhat more than a pass exchanges. Each may need a
/// descriptor; of those that the program may have, it is left fifteen of sixteen.
const AHEAD: usize = 64;
const OF_DESCRIPTORS: usize = 16;

/// Chunks that are prepared at once. Those of pieces are many, and other processes wait for what
/// this one was asked to give.
const CHUNKS_AHEAD: usize = 192;

impl Sharing {
    /// The next chunks of a device; they are asked about from now on.
    pub(super) fn next_chunks(&self, manager: &'static Manager<Device>) -> Vec<NamedChunk> {
        let room = ahead().saturating_sub(self.mailbox.replies());
        let chunk_room = CHUNKS_AHEAD.saturating_sub(self.mailbox.reply_chunks());
        if room == 0 || chunk_room == 0 || !self.status.shares() {
            return Vec::new();
        }
        let Ok(device) = driver().device_uuid(manager.gpu().ordinal()) else { return Vec::new() };
        let name = |fingerprint: Fingerprint| ChunkName { device: device.bytes, fingerprint };
        let mut blocks = self.blocks.of(manager);
        // Processes that start together begin with different blocks, so that each finds the
        // chunks of others.
        let first = process_number() % blocks.len().max(1);
        blocks.rotate_left(first);
        let (mut chosen, mut chunks) = (Vec::new(), 0);
        for block in blocks {
            let mut facts = block.facts();
            self.mailbox.release(facts.withdrawn());
            if !self.is_eligible(&facts) {
                continue;
            }
            let asked = facts.ask(room - chosen.len());
            drop(facts);
            chunks += asked.len() * block.unit as usize;
            chosen.extend(asked.into_iter().map(|(index, print)| NamedChunk {
                block: Arc::clone(&block),
                index,
                name: name(print),
            }));
            if chosen.len() >= room || chunks >= chunk_room {
                break;
            }
        }
        chosen
    }

    /// Other processes have offered chunks of these names, and this process waits for some of them.
    pub(super) fn arrived(&self, names: &[ChunkName]) {
        let names: FxHashSet<Fingerprint> = names.iter().map(|name| name.fingerprint).collect();
        for manager in registry::all() {
            for block in self.blocks.of(manager) {
                let mut facts = block.facts();
                facts.arrived(|fingerprint| names.contains(&fingerprint));
                self.mailbox.release(facts.withdrawn());
            }
        }
    }

    /// Names of all chunks of a device that may be shared now.
    pub(super) fn eligible_names(
        &self,
        manager: &'static Manager<Device>,
        device: [u8; 16],
    ) -> Vec<ChunkName> {
        let mut names = Vec::new();
        for block in self.blocks.of(manager) {
            let facts = block.facts();
            if self.is_eligible(&facts) {
                names.extend(facts.fingerprints().map(|fingerprint| ChunkName { device, fingerprint }));
            }
        }
        names
    }
}

fn ahead() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(AHEAD, |limit| (limit as usize / OF_DESCRIPTORS).clamp(1, AHEAD))
}

fn process_number() -> usize {
    (std::process::id() as usize).wrapping_mul(0x9e37_79b9) >> 7
}
