//! Kept copies of memory that came from the host: what is clean is not copied out again.
//!
//! The fingerprint of the bytes that came is taken of the device's memory, behind the gate that was
//! closed for the move: nothing of the program can have written them since the copy, and the idle
//! handle that they came from has the same. Before a handle leaves, the fingerprint is taken anew,
//! behind the gate of that move. Both times one launch serves many handles.
//! [`FingerprintPace`](crate::policy::fingerprint_pace::FingerprintPace) bounds the time of such a
//! call. Chunks without a fingerprint are copied.

use std::ops::Range;
use std::time::Instant;

use wm_driver::gpu::FINGERPRINTED_BYTES;
use wm_driver::{Gpu, KeyedFingerprint};

use super::Manager;
use crate::books::ledger::KeptNumber;
use crate::policy::fingerprint_pace::LONG;
use crate::state::State;
use crate::state::swap::TakenFingerprints;
use crate::vocabulary::settings::KeepCopies;

/// A record of a kept copy, and the addresses of the memory that it is a copy of.
type PrintedHandle = (KeptNumber, Range<u64>);

/// The fingerprints of the first of a handle's chunks.
struct HandlePrints {
    number: KeptNumber,
    chunks: usize,
    taken: Vec<KeyedFingerprint>,
}

impl HandlePrints {
    /// Bytes of the chunks that have none.
    fn missing(&self) -> u64 {
        (self.chunks - self.taken.len()) as u64 * FINGERPRINTED_BYTES
    }
}

impl<G: Gpu> Manager<G> {
    /// Has the handle at an address a kept copy of which the fingerprints are not taken?
    pub(super) fn lacks_fingerprints(&self, address: u64, taken: &TakenFingerprints) -> bool {
        let state = self.lock();
        let kept = state.holdings.ledger.kept_copies_in(&(address..address + 1), 1);
        kept.iter().any(|(number, _)| !taken.contains_key(number))
    }

    /// Takes the fingerprints of the next handles that have kept copies, until it `ends`. They lie
    /// in ranges, in each of which so many bytes may be begun. Of ranges behind the first one there
    /// are as many as were taken before: those may not move any more.
    pub(super) fn take_fingerprints(
        &self,
        ranges: impl Iterator<Item = (Range<u64>, u64)>,
        taken: &mut TakenFingerprints,
        ends: impl Fn() -> bool,
    ) {
        let ahead: u64 = taken.values().map(|prints| prints.len() as u64 * FINGERPRINTED_BYTES).sum();
        let listed = |state: &State| {
            let (mut kept, mut bytes) = (Vec::new(), 0);
            let limits = std::iter::once(batch(state)).chain(std::iter::repeat(ahead.min(batch(state))));
            for ((range, most), limit) in ranges.zip(limits) {
                if bytes >= limit {
                    break;
                }
                let mut more = state.holdings.ledger.kept_copies_in(&range, most.min(limit - bytes));
                more.retain(|(number, _)| !taken.contains_key(number));
                bytes += more.iter().map(|(_, at)| at.end - at.start).sum::<u64>();
                kept.append(&mut more);
            }
            kept
        };
        let prints = self.fingerprints_of(listed, ends);
        self.add_taken(prints, taken);
    }

    /// Takes the fingerprints of all handles that have kept copies, of which so many bytes may
    /// leave of each range, until it `ends`.
    pub(super) fn take_all_fingerprints(
        &self,
        ranges: impl Iterator<Item = (Range<u64>, u64)>,
        taken: &mut TakenFingerprints,
        ends: impl Fn() -> bool,
    ) {
        let kept = |(range, most), state: &State| state.holdings.ledger.kept_copies_in(&range, most);
        let listed = |state: &State| ranges.flat_map(|range| kept(range, state)).collect();
        let prints = self.fingerprints_of(listed, ends);
        self.add_taken(prints, taken);
    }

    /// Chunks without one are counted: they are copied.
    fn add_taken(&self, prints: Vec<HandlePrints>, taken: &mut TakenFingerprints) {
        self.lock().moves.unprinted_bytes += prints.iter().map(HandlePrints::missing).sum::<u64>();
        taken.extend(prints.into_iter().map(|of_it| (of_it.number, of_it.taken)));
    }

    /// Notes the fingerprints of the bytes that came from the host, until it `ends`.
    pub(super) fn note_fingerprints(&self, ends: impl Fn() -> bool) {
        let listed = |state: &State| state.holdings.ledger.without_fingerprints(batch(state));
        loop {
            let mut prints = self.fingerprints_of(listed, &ends);
            prints.retain(|of_it| !of_it.taken.is_empty());
            if prints.is_empty() {
                return;
            }
            let mut state = self.lock();
            for of_it in prints {
                state.moves.unprinted_bytes += of_it.missing();
                state.holdings.ledger.note_fingerprints(of_it.number, of_it.taken);
            }
        }
    }

    /// The same behind moves, for some time beyond theirs. Handles without fingerprints have no
    /// kept copies afterwards, because the program may write them.
    pub(super) fn note_kept_copies(&self, is_over: impl Fn() -> bool, gives_up: impl Fn() -> bool) {
        let begun = Instant::now();
        self.note_fingerprints(|| gives_up() || begun.elapsed() >= LONG && is_over());
        let mut state = self.lock();
        let left = state.holdings.ledger.without_fingerprints(u64::MAX);
        let bytes = left.iter().map(|(_, at)| chunks(at) as u64 * FINGERPRINTED_BYTES).sum::<u64>();
        state.moves.unprinted_bytes += bytes;
        state.holdings.ledger.forget_unprinted();
    }

    /// The fingerprints of these handles' chunks, as far as they are taken. The first handle is in
    /// the answer, even without any, so that its are not asked for again. Nothing is unmapped
    /// meanwhile.
    fn fingerprints_of(
        &self,
        listed: impl FnOnce(&State) -> Vec<PrintedHandle>,
        ends: impl Fn() -> bool,
    ) -> Vec<HandlePrints> {
        let mut state = self.lock();
        let handles = listed(&state);
        if handles.is_empty() {
            return Vec::new();
        }
        state.under_way.pin();
        drop(state);
        let chunk = |at: &Range<u64>, index: usize| at.start + index as u64 * FINGERPRINTED_BYTES;
        let addresses: Vec<u64> =
            handles.iter().flat_map(|(_, at)| (0..chunks(at)).map(move |index| chunk(at, index))).collect();
        let mut prints = Vec::new();
        while prints.len() < addresses.len() && !ends() {
            let Some(next) = self.next_fingerprints(&addresses[prints.len()..]) else { break };
            prints.extend(next);
        }
        self.lock().under_way.unpin();
        self.waiters.notify();
        let (count, mut prints) = (prints.len(), prints.into_iter());
        let of_each = handles.into_iter().scan(0, |before, (number, at)| {
            let (is_reached, chunks) = (*before == 0 || *before < count, chunks(&at));
            *before += chunks;
            is_reached.then(|| HandlePrints { number, chunks, taken: prints.by_ref().take(chunks).collect() })
        });
        of_each.collect()
    }

    /// One call for the first of some chunks. `None`: the driver refuses, or fingerprints do not
    /// pay now.
    fn next_fingerprints(&self, chunks: &[u64]) -> Option<Vec<KeyedFingerprint>> {
        let pace = |state: &State| (state.fingerprint_pace.pays(Instant::now()), batch(state));
        let (pays, most) = pace(&self.lock());
        match self.rules.settings.kept_copies {
            KeepCopies::Off => return None,
            KeepCopies::Auto if !pays => return None,
            KeepCopies::Auto | KeepCopies::On => {}
        }
        let most = usize::try_from(most / FINGERPRINTED_BYTES).unwrap_or(usize::MAX);
        let call = &chunks[..chunks.len().min(most)];
        let begun = Instant::now();
        let prints = self.gpu.fingerprints(call).ok().filter(|prints| prints.len() == call.len());
        let (took, now) = (begun.elapsed(), Instant::now());
        let read = prints.as_ref().map_or(0, |prints| prints.len() as u64 * FINGERPRINTED_BYTES);
        let mut state = self.lock();
        let copying = state.flight.copying(read);
        state.fingerprint_pace.record(read, took, copying, now);
        prints
    }
}

/// Bytes of the next call.
fn batch(state: &State) -> u64 {
    state.fingerprint_pace.batch()
}

/// Whole chunks of a handle. What is left behind them is always copied.
fn chunks(at: &Range<u64>) -> usize {
    ((at.end - at.start) / FINGERPRINTED_BYTES) as usize
}
