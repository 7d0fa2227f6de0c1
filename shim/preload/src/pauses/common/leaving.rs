//! The part of a pause in which memory leaves for copies that processes have in common.
//!
//! Behind the closed gate. Memory is given up once a copy is known to have its bytes; what has no
//! copy here leaves as memory of the process's own does.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use wm_dedup::chunk::SharableMemory;
use wm_driver::{Device, lock};
use wm_memory::Manager;

use super::groups::Candidate;
use super::kept::{CopiedMemory, RememberedCopies, RememberedCopy, SegmentKey};
use super::{CommonBook, verified};
use crate::moves::Migrations;
use crate::pauses::PausedParts;
use crate::pauses::devices::see_copies_end;
use crate::pauses::files::{ChunkPlace, FileProgress, StoredMemory, StoredPause, Transferring, Transfers};
use crate::pauses::outcome::Paused;
use crate::registry;

/// The ranges that are expected to leave so: no memory of the host is made for them.
pub(in crate::pauses) fn ranges(parts: PausedParts) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = (parts.pauses.events().named_memory)()
        .into_iter()
        .filter_map(|memory| memory.is_shared.then_some(memory.range))
        .collect();
    if let Some(book) = lock(&parts.pauses.common.book).as_ref() {
        ranges.extend(book.kept.all().map(|(address, copy)| address..address + copy.bytes));
    }
    ranges
}

/// What can leaves for copies. To be called once work has ended, before other memory leaves.
pub(in crate::pauses) fn leave(parts: PausedParts, paused: &mut Paused) {
    let PausedParts { pauses, moves } = parts;
    let named = (pauses.events().named_memory)();
    let client = || if named.is_empty() { None } else { (pauses.events().copies)() };
    let Some(mut book) = pauses.common.take(client) else { return };
    // For the fingerprints of what has a copy.
    registry::all().for_each(|manager| moves.load_code_now(manager));
    // `wmctl` shows the step's own, which is that of files.
    let progress = FileProgress::new();
    let transfers = Transfers::new(&progress, Transferring::Usual);
    let mut copied = book.clean(&transfers);
    let known: HashSet<u64> = copied.iter().map(|one| one.range.start).collect();
    let others = named.into_iter().filter(|one| !known.contains(&one.range.start));
    let (mut more, written) = book.copy(&others.filter_map(candidate).collect::<Vec<_>>(), &transfers);
    copied.append(&mut more);
    if see_copies_end(moves).is_err() {
        copied.clear();
    }
    let stored = stored(&book, moves, &copied);
    // What stays, stays as memory of the process's own, and tells why then.
    let bytes = stored.put_away(|_, _, _| ());
    book.release_unused();
    pauses.common.put_back(book);
    (paused.out, paused.common) = (paused.out + bytes, bytes);
    paused.clean += bytes.saturating_sub(written);
    if bytes > 0 {
        paused.stored = Some(Arc::new(stored));
    }
}

/// The pause has failed: what has left comes back.
///
/// # Errors
/// Some of it finds no room, or cannot be read: it is where it was.
pub(in crate::pauses) fn undo(
    PausedParts { pauses, moves }: PausedParts,
    stored: Option<Arc<StoredPause>>,
) -> Result<(), Arc<StoredPause>> {
    let Some(stored) = stored else { return Ok(()) };
    let is_back = stored.come_back(&pauses.progress, Transferring::Usual).is_all();
    if is_back && see_copies_end(moves).is_ok() { Ok(()) } else { Err(stored) }
}

/// The pause that finds its bytes in segments.
fn stored(book: &CommonBook, moves: &Migrations, copied: &[CopiedMemory]) -> StoredPause {
    let used: HashSet<SegmentKey> = copied.iter().map(|one| one.place.segment).collect();
    let segments: Vec<_> = book.segments.iter().filter(|(key, _)| used.contains(key)).collect();
    let memory = copied.iter().filter_map(|one| {
        let file = segments.iter().position(|(key, _)| **key == one.place.segment)?;
        let block = registry::existing(one.device)?.block(one.range.start)?;
        // What was freed meanwhile was not looked at.
        if block.id != one.block {
            return None;
        }
        let place = ChunkPlace { file, offset: one.place.offset };
        Some(StoredMemory::in_segment((one.device, &one.range), moves.last_use_of(&block), place))
    });
    let memory = memory.collect();
    StoredPause::of_segments(segments.iter().map(|(_, one)| Arc::clone(&one.memory)).collect(), memory)
}

impl CommonBook {
    /// Memory of which a copy is remembered, and that was not written since.
    fn clean(&mut self, transfers: &Transfers<'_>) -> Vec<CopiedMemory> {
        let mut kept: Vec<(u64, RememberedCopy)> =
            self.kept.all().map(|(address, copy)| (address, copy.clone())).collect();
        kept.retain(|(address, copy)| {
            let range = *address..*address + copy.bytes;
            copy.lives(*address)
                && registry::existing(copy.device).is_some_and(|manager| is_whole(manager, &range))
        });
        let clean = verified::clean(self, &kept, transfers);
        let mut copied = Vec::new();
        self.kept = RememberedCopies::default();
        for ((address, copy), prints) in kept.into_iter().zip(clean) {
            let Some(prints) = prints else { continue };
            let range = address..address + copy.bytes;
            copied.push(CopiedMemory { device: copy.device, range, block: copy.block, place: copy.place });
            self.kept.keep(address, RememberedCopy { prints, ..copy });
        }
        copied
    }
}

/// Memory that may have a copy. `None`: it is not one handle's worth of a block, in use from end to
/// end.
fn candidate(memory: SharableMemory) -> Option<Candidate> {
    let found = registry::all().find_map(|manager| Some((manager, manager.block(memory.range.start)?)));
    let (manager, block) = found?;
    let device = manager.gpu().ordinal();
    is_whole(manager, &memory.range).then_some(Candidate { device, block: block.id, memory })
}

/// Is a range one handle's worth of memory, and in use from end to end?
fn is_whole(manager: &Manager<Device>, range: &Range<u64>) -> bool {
    let used = manager.used_memory(&(range.start..range.start + 1));
    used.first().is_some_and(|used| used.range == *range && used.parts == std::slice::from_ref(range))
}
