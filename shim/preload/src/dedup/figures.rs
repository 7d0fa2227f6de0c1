//! What sharing came to, for statistics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wm_dedup::chunk::CHUNK_BYTES;
use wm_schema::{DedupStats, Reason};

use super::watched::ChunkState;
use super::{learned, standing, watched};
use crate::settings::{self, Dedup};

/// Counts of this process.
pub(super) struct SharingCounts {
    pub(super) copied_back_bytes: AtomicU64,
    pub(super) faults_avoided: AtomicU64,
    pub(super) launches: AtomicU64,
    pub(super) turns: AtomicU64,
}

pub(super) static COUNTS: SharingCounts = SharingCounts {
    copied_back_bytes: AtomicU64::new(0),
    faults_avoided: AtomicU64::new(0),
    launches: AtomicU64::new(0),
    turns: AtomicU64::new(0),
};

/// Bytes of this process that others have too, and its part of what sharing them would save, as
/// they were counted last.
static ADVISED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// For each chunk that this process would share, how many there are of it.
pub(super) fn note_advice(counts: &[u32]) {
    let several = || counts.iter().map(|count| u64::from(*count)).filter(|count| *count > 1);
    let saved: u64 = several().map(|count| CHUNK_BYTES - CHUNK_BYTES / count).sum();
    ADVISED[0].store(several().count() as u64 * CHUNK_BYTES, Relaxed);
    ADVISED[1].store(saved, Relaxed);
}

/// For the statistics; `None` with the setting off.
pub(crate) fn figures() -> Option<DedupStats> {
    let mode = match settings::get()?.dedup {
        Dedup::Off => return None,
        Dedup::Advise => "advise",
        Dedup::On => "on",
    };
    let mut stats = DedupStats { mode: mode.to_owned(), ..DedupStats::default() };
    let mut refused: BTreeMap<&'static str, u64> = BTreeMap::new();
    standing::given_up().into_iter().for_each(|why| *refused.entry(why).or_default() += 1);
    for block in watched::all() {
        let facts = block.facts();
        stats.candidate_bytes += facts.candidates.chunks().count() as u64 * CHUNK_BYTES;
        for state in facts.chunks.values() {
            stats.shared_bytes += if state.lease().is_some() { CHUNK_BYTES } else { 0 };
            stats.saved_bytes += if matches!(state, ChunkState::Taken(_)) { CHUNK_BYTES } else { 0 };
        }
        facts.left_alone.into_iter().for_each(|why| *refused.entry(why).or_default() += 1);
    }
    if settings::get()?.dedup == Dedup::Advise {
        [stats.shared_bytes, stats.saved_bytes] = ADVISED.each_ref().map(|bytes| bytes.load(Relaxed));
    }
    let counts = learned::readers().counts();
    (stats.readers, stats.writers, stats.unknown) = (counts.readers, counts.writers, counts.unknown);
    stats.copied_back_bytes = COUNTS.copied_back_bytes.load(Relaxed);
    stats.faults_avoided = COUNTS.faults_avoided.load(Relaxed);
    stats.launches = COUNTS.launches.load(Relaxed);
    stats.turns = COUNTS.turns.load(Relaxed);
    stats.refused =
        refused.into_iter().map(|(reason, count)| Reason { reason: reason.to_owned(), count }).collect();
    Some(stats)
}
