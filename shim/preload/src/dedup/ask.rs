//! Which chunks the broker is asked about next.
//!
//! It is asked ahead of the turns, so that there is always enough prepared for the next one: a busy
//! program gives few chances. Nothing has to be still for that; the turn looks at the bytes again.

use std::collections::BTreeMap;
use std::sync::Arc;

use wm_dedup::chunk::{ChunkName, Fingerprint};
use wm_driver::{Api, Device};
use wm_memory::Manager;

use super::judgement::is_ready;
use super::mailbox::{self, NamedChunk};
use super::standing;
use super::watched::{self, ChunkState};
use crate::process::driver;

/// Chunks that are prepared at once: somewhat more than a turn exchanges. Each may need a
/// descriptor; of those that the program may have, it is left fifteen of sixteen.
const AHEAD: usize = 64;
const OF_DESCRIPTORS: usize = 16;

/// The next chunks of a device; they are asked about from now on.
pub(super) fn next_chunks(manager: &'static Manager<Device>) -> Vec<NamedChunk> {
    let room = ahead().saturating_sub(mailbox::replies());
    if room == 0 || !standing::shares() {
        return Vec::new();
    }
    let Ok(device) = driver().device_uuid(manager.gpu().ordinal()) else { return Vec::new() };
    let name = |fingerprint: Fingerprint| ChunkName { device: device.bytes, fingerprint };
    let blocks = watched::of(manager);
    // Processes that start together begin with different blocks, so that each finds what others
    // have given.
    let first = process_number() % blocks.len().max(1);
    let mut chosen = Vec::new();
    for block in blocks[first..].iter().chain(&blocks[..first]) {
        let mut facts = block.facts();
        if !is_ready(&facts) {
            continue;
        }
        let open = facts.prints.iter().filter(|(index, _)| !facts.chunks.contains_key(index));
        let open: BTreeMap<_, _> = open.take(room - chosen.len()).map(|(i, print)| (*i, *print)).collect();
        for (index, print) in open {
            facts.chunks.insert(index, ChunkState::Asked);
            chosen.push(NamedChunk { block: Arc::clone(block), index, name: name(print) });
        }
        if chosen.len() >= room {
            break;
        }
    }
    chosen
}

/// Names of all chunks of a device that may be shared by what is known now.
pub(super) fn names(manager: &'static Manager<Device>, device: [u8; 16]) -> Vec<ChunkName> {
    let mut names = Vec::new();
    for block in watched::of(manager) {
        let facts = block.facts();
        if is_ready(&facts) {
            names.extend(facts.prints.values().map(|print| ChunkName { device, fingerprint: *print }));
        }
    }
    names
}

fn ahead() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(AHEAD, |limit| (limit as usize / OF_DESCRIPTORS).clamp(1, AHEAD))
}

fn process_number() -> usize {
    (std::process::id() as usize).wrapping_mul(0x9e37_79b9) >> 7
}
