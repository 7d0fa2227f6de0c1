//! Which memory has the bytes of a copy still: by the keyed fingerprints that were taken when it
//! was seen to be equal, or byte by byte where there are none.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Mutex;

use wm_abi::CUdevice;
use wm_driver::gpu::FINGERPRINTED_BYTES;
use wm_driver::{Gpu, KeyedFingerprint, lock};

use super::CommonBook;
use super::kept::{CopiedMemory, RememberedCopy};
use crate::pauses::files::{ChunkPlace, StoredMemory, Transfers, staged_out};
use crate::registry;

/// The fingerprints of each of these memories that has the bytes of its copy: none of it where they
/// cannot be taken. `None`: it was written since, or that is not known.
pub(super) fn clean(
    book: &CommonBook,
    kept: &[(u64, RememberedCopy)],
    transfers: &Transfers<'_>,
) -> Vec<Option<Vec<KeyedFingerprint>>> {
    let of_copy = |(address, copy): &(u64, RememberedCopy)| (copy.device, *address..*address + copy.bytes);
    let now = prints_of(&kept.iter().map(of_copy).collect::<Vec<_>>());
    let has_none = |one: &RememberedCopy, now: &[KeyedFingerprint]| now.is_empty() || one.prints.is_empty();
    let open = kept.iter().zip(&now).filter(|((_, copy), now)| has_none(copy, now));
    let equal = equal_bytes(book, &open.map(|(one, _)| one).collect::<Vec<_>>(), transfers);
    let of_each = kept.iter().zip(now).map(|((address, copy), now)| {
        let is_clean = if has_none(copy, &now) { equal.contains(address) } else { now == copy.prints };
        is_clean.then_some(now)
    });
    of_each.collect()
}

/// The fingerprints of each memory; none where they cannot be taken.
pub(super) fn prints(copied: &[CopiedMemory]) -> Vec<Vec<KeyedFingerprint>> {
    prints_of(&copied.iter().map(|one| (one.device, one.range.clone())).collect::<Vec<_>>())
}

fn prints_of(memory: &[(CUdevice, Range<u64>)]) -> Vec<Vec<KeyedFingerprint>> {
    let mut prints = vec![Vec::new(); memory.len()];
    for manager in registry::all() {
        let device = manager.gpu().ordinal();
        let borrowed = manager.borrow_memory();
        let has = |range: &Range<u64>| {
            (range.end - range.start).is_multiple_of(FINGERPRINTED_BYTES) && borrowed.has(range.start)
        };
        let own: Vec<usize> =
            (0..memory.len()).filter(|at| memory[*at].0 == device && has(&memory[*at].1)).collect();
        let chunks_of = |at: &usize| memory[*at].1.clone().step_by(FINGERPRINTED_BYTES as usize);
        let chunks: Vec<u64> = own.iter().flat_map(chunks_of).collect();
        if chunks.is_empty() {
            continue;
        }
        let Ok(taken) = manager.gpu().fingerprints(&chunks) else { continue };
        if taken.len() != chunks.len() {
            continue;
        }
        let mut taken = taken.into_iter();
        for at in own {
            let count = chunks_of(&at).count();
            prints[at] = taken.by_ref().take(count).collect();
        }
    }
    prints
}

/// The first addresses of memories that are equal to their copies.
fn equal_bytes(
    book: &CommonBook,
    open: &[&(u64, RememberedCopy)],
    transfers: &Transfers<'_>,
) -> HashSet<u64> {
    let unequal = Mutex::new(BTreeSet::new());
    let mut segments = Vec::new();
    let memory: Vec<StoredMemory> = open
        .iter()
        .filter_map(|(address, copy)| {
            segments.push(&book.segments.get(&copy.place.segment)?.memory);
            let place = ChunkPlace { file: segments.len() - 1, offset: copy.place.offset };
            Some(StoredMemory::in_segment((copy.device, &(*address..*address + copy.bytes)), None, place))
        })
        .collect();
    let all = transfers.of(&memory, |manager, buffer, chunk| {
        let bytes = &staged_out(manager, buffer, chunk)?[..chunk.bytes as usize];
        if !segments.get(chunk.place.file).is_some_and(|copy| copy.has(chunk.place.offset, bytes)) {
            lock(&unequal).insert(chunk.address);
        }
        Ok(())
    });
    if all.is_err() {
        return HashSet::new();
    }
    let unequal = lock(&unequal);
    let is_equal = |one: &&StoredMemory| unequal.range(one.address..one.address + one.bytes).next().is_none();
    memory.iter().filter(is_equal).map(|one| one.address).collect()
}
