//! Which blocks may be shared, by what their launches did between fingerprints.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wm_dedup::chunk::{CHUNK_BYTES, Fingerprint};
use wm_dedup::readers::{ParameterKey, ParameterVerdict, WindowOutcome};

use super::graphs;
use super::learned::{self, readers};
use super::mailbox::NamedChunk;
use super::watched::{self, BlockFacts, WatchedBlock};
use super::{part, pending, standing};

/// The time from a block's last load or write until it is a candidate.
const QUIET: Duration = Duration::from_millis(300);

/// A block that no kernel has used waits so much longer: what will use it is not known yet, and
/// would have to be given a private copy first.
const UNUSED: Duration = Duration::from_secs(30);

/// More launches of a graph prove no more.
const MOST_LAUNCHES: u64 = 1 << 12;

/// Chunks of a block that is due for fingerprints; none of one that is not.
pub(super) fn due_chunks(facts: &BlockFacts) -> Vec<u64> {
    let is_quiet = facts.left_alone.is_none() && facts.touched_at.elapsed() >= QUIET;
    // Nothing was launched that could be learned from.
    let is_idle = facts.window.is_empty() && facts.graph_launches == graphs::launches();
    let is_settled = facts.unchanged > 0
        && !facts.is_void
        && (is_idle || readers().judge(&Vec::from_iter(facts.parameters.iter().copied())));
    if !is_quiet || is_settled {
        return Vec::new();
    }
    facts.candidates.chunks().collect()
}

/// May its chunks be shared, by what is known now?
pub(super) fn is_ready(facts: &BlockFacts) -> bool {
    let reads = |parameter: &ParameterKey| readers().verdict(*parameter) == ParameterVerdict::Reader;
    let is_used = !facts.parameters.is_empty() || facts.touched_at.elapsed() >= UNUSED;
    facts.left_alone.is_none()
        && is_used
        && facts.unchanged > 0
        && !facts.is_void
        && !facts.window.is_unknown()
        && facts.parameters.iter().all(reads)
}

pub(super) fn is_ready_chunk(chunk: &NamedChunk) -> bool {
    let block = &chunk.block;
    let is_named = |facts: &BlockFacts| facts.prints.get(&chunk.index) == Some(&chunk.name.fingerprint);
    !standing::is_ending() && block.lives() && {
        let facts = block.facts();
        is_ready(&facts) && is_named(&facts)
    }
}

/// Fingerprints were taken: what the launches since the last ones did.
pub(super) fn learn(block: &WatchedBlock, prints: BTreeMap<u64, Fingerprint>, until: Instant) {
    let lessons = {
        let mut facts = block.facts();
        let graph_launches = graphs::launches();
        let reaching = graphs::reaching(&block.range);
        let ran = graphs::ran_since(&block.range, &mut facts.graphs_seen);
        reaching.iter().for_each(|parameter| facts.note_user(*parameter));
        let same =
            facts.prints.iter().all(|(index, before)| prints.get(index).is_none_or(|now| now == before));
        let is_first = facts.prints.is_empty() || facts.is_void;
        let outcome = match (is_first, same) {
            (true, _) => WindowOutcome::Void,
            (false, true) => WindowOutcome::Unchanged,
            (false, false) => WindowOutcome::Changed,
        };
        match outcome {
            // Any graph may have been the one.
            WindowOutcome::Changed if graph_launches != facts.graph_launches => {
                reaching.into_iter().for_each(|parameter| facts.window.note(parameter));
            }
            WindowOutcome::Unchanged => {
                for (parameter, launches) in ran {
                    (0..launches.min(MOST_LAUNCHES)).for_each(|_| facts.window.note(parameter));
                }
            }
            _ => {}
        }
        let lessons = readers().close(&facts.window, outcome);
        if outcome == WindowOutcome::Changed {
            let changed: Vec<u64> = facts
                .prints
                .iter()
                .filter(|(index, before)| prints.get(index).is_some_and(|now| now != *before))
                .map(|(i, _)| *i)
                .collect();
            for index in changed {
                facts.candidates.written(index * CHUNK_BYTES..(index + 1) * CHUNK_BYTES);
            }
        }
        facts.unchanged = if outcome == WindowOutcome::Unchanged { facts.unchanged + 1 } else { 0 };
        facts.window.clear();
        facts.is_void = false;
        facts.graph_launches = graph_launches;
        facts.prints = prints;
        lessons
    };
    learned::keep(&lessons);
    distrust(&lessons.reversed).iter().for_each(|block| part::part_until(block, until));
}

/// These parameters are no readers: what relies on them becomes private before a launch of such a
/// kernel, or of any graph. What that is.
pub(super) fn distrust(reversed: &[ParameterKey]) -> Vec<Arc<WatchedBlock>> {
    let blocks = relying_on(reversed);
    pending::add(blocks.iter().map(Arc::clone));
    blocks
}

/// Blocks that are shared because these parameters were taken for readers.
fn relying_on(reversed: &[ParameterKey]) -> Vec<Arc<WatchedBlock>> {
    if reversed.is_empty() {
        return Vec::new();
    }
    let relies = |block: &Arc<WatchedBlock>| {
        block.is_shared() && reversed.iter().any(|one| block.facts().parameters.contains(one))
    };
    watched::all().into_iter().filter(relies).collect()
}
