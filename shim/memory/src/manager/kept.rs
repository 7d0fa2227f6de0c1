//! Kept copies of memory that came from the host: what is clean is not copied out again.
//!
//! The fingerprint of the bytes that came is taken of the device's memory, behind the gate that was
//! closed for the move: nothing of the program can have written them since the copy, and the idle
//! handle that they came from has the same. Before a handle leaves, the fingerprint is taken anew,
//! behind the gate of that move. Both times one launch serves many handles.

use std::ops::Range;

use wm_driver::gpu::FINGERPRINTED_BYTES;
use wm_driver::{Gpu, KeyedFingerprint};

use super::Manager;
use crate::books::ledger::KeptNumber;
use crate::state::State;
use crate::state::swap::TakenFingerprints;

/// Bytes whose fingerprints are taken in one call: 1024 chunks. A GPU whose memory delivers 2 TB/s
/// reads them in a millisecond.
const BATCH: u64 = 1024 * FINGERPRINTED_BYTES;

/// A record of a kept copy, and the addresses of the memory that it is a copy of.
type PrintedHandle = (KeptNumber, Range<u64>);

impl<G: Gpu> Manager<G> {
    /// Has the handle at an address a kept copy of which the fingerprints are not taken?
    pub(super) fn lacks_fingerprints(&self, address: u64, taken: &TakenFingerprints) -> bool {
        let state = self.lock();
        let kept = state.holdings.ledger.kept_copies_in(&(address..address + 1), 1);
        kept.iter().any(|(number, _)| !taken.contains_key(number))
    }

    /// Takes the fingerprints of the handles of a range that have kept copies, up to `most` bytes
    /// of them. A handle whose fingerprints the driver refuses is copied whole.
    pub(super) fn take_fingerprints(&self, range: &Range<u64>, most: u64, taken: &mut TakenFingerprints) {
        let listed = |state: &State| {
            let mut kept = state.holdings.ledger.kept_copies_in(range, most.min(BATCH));
            kept.retain(|(number, _)| !taken.contains_key(number));
            kept
        };
        let (handles, prints) = self.fingerprints_of(listed);
        let mut prints = prints.into_iter();
        // Without any they count as taken, so that the driver is not asked again for each handle.
        let of_each =
            handles.into_iter().map(|(number, at)| (number, prints.by_ref().take(chunks(&at)).collect()));
        taken.extend(of_each);
    }

    /// Notes the fingerprints of the bytes that came from the host. Handles whose fingerprints
    /// cannot be taken, or not before the caller `gives_up`, have no kept copies.
    pub(super) fn note_kept_copies(&self, gives_up: impl Fn() -> bool) {
        while !gives_up() {
            let listed = |state: &State| {
                let mut left = BATCH;
                let mut pending = state.holdings.ledger.without_fingerprints();
                pending.retain(|(_, at)| {
                    let fits = left > 0;
                    left = left.saturating_sub(at.end - at.start);
                    fits
                });
                pending
            };
            let (handles, prints) = self.fingerprints_of(listed);
            if prints.is_empty() {
                break;
            }
            let mut prints = prints.into_iter();
            let mut state = self.lock();
            for (number, at) in handles {
                let of_it = prints.by_ref().take(chunks(&at)).collect();
                state.holdings.ledger.note_fingerprints(number, of_it);
            }
        }
        self.lock().holdings.ledger.forget_unprinted();
    }

    /// The fingerprints of the chunks of these handles, in their order; none where the driver
    /// refuses. Nothing is unmapped meanwhile.
    fn fingerprints_of(
        &self,
        listed: impl FnOnce(&State) -> Vec<PrintedHandle>,
    ) -> (Vec<PrintedHandle>, Vec<KeyedFingerprint>) {
        let mut state = self.lock();
        let handles = listed(&state);
        if handles.is_empty() {
            return (handles, Vec::new());
        }
        state.under_way.pin();
        drop(state);
        let chunk = |at: &Range<u64>, index: usize| at.start + index as u64 * FINGERPRINTED_BYTES;
        let addresses: Vec<u64> =
            handles.iter().flat_map(|(_, at)| (0..chunks(at)).map(move |index| chunk(at, index))).collect();
        let prints = self.gpu.fingerprints(&addresses).ok().filter(|prints| prints.len() == addresses.len());
        self.lock().under_way.unpin();
        self.waiters.notify();
        (handles, prints.unwrap_or_default())
    }
}

/// Whole chunks of a handle. What is left behind them is always copied.
fn chunks(at: &Range<u64>) -> usize {
    ((at.end - at.start) / FINGERPRINTED_BYTES) as usize
}
