//! The figures that the manager shows in the process's black box, so that they outlive the process
//! and are read without a question to it.
//!
//! Invariants: each change under the lock is shown under the
//! lock, so the box has one writer. A hit and a free store the few words of one cache line; the
//! others are written with the changes that may need a driver call.

use std::sync::atomic::Ordering::Relaxed;

use wm_schema::black_box::DeviceWords;

use crate::state::State;

impl State {
    /// Shows all figures.
    #[cold]
    pub(crate) fn show(&self) {
        let (live, counters) = (self.program.live(), &self.counters);
        self.shown.given(&live, counters);
        self.shown.taken(&live, counters);
        self.shown.0.hot.overflows.store(counters.overflows, Relaxed);
        self.shown.0.publish(&self.figures());
    }

    fn figures(&self) -> DeviceWords {
        let (reserved, pieces, all) = (self.holdings.held(), self.pool.account(), self.together());
        let [beside_live, beside_reserved] = self.bytes_of_pieces();
        let (live_peaks, reserved_peaks) =
            (self.program.peaks(&beside_live), self.holdings.peaks(&beside_reserved).since_reset);
        let counters = &self.counters;
        DeviceWords {
            reserved_device: reserved.device,
            reserved_peer: reserved.peer,
            reserved_host: reserved.host,
            live_peak_device: live_peaks.since_reset.device,
            live_peak_peer: live_peaks.since_reset.peer,
            live_peak_host: live_peaks.since_reset.host,
            reserved_peak_device: reserved_peaks.device,
            reserved_peak_peer: reserved_peaks.peer,
            reserved_peak_host: reserved_peaks.host,
            live_peak: live_peaks.ever.total,
            pieces_device: pieces.held.device,
            pieces_host: pieces.held.host,
            pieces_idle_device: pieces.idle.device,
            pieces_idle_host: pieces.idle.host,
            pieces_peak_device: pieces.peaks.tiers.device,
            pieces_peak_host: pieces.peaks.tiers.host,
            pieces_peak: pieces.peaks.total,
            pieces_overflows: pieces.overflows,
            all_live_peak_device: all.live_peaks.tiers.device,
            all_live_peak_peer: all.live_peaks.tiers.peer,
            all_live_peak_host: all.live_peaks.tiers.host,
            all_reserved_peak_device: all.reserved_peaks.tiers.device,
            all_reserved_peak_peer: all.reserved_peaks.tiers.peer,
            all_reserved_peak_host: all.reserved_peaks.tiers.host,
            moved_in: self.moves.in_bytes,
            moved_out: self.moves.out_bytes,
            moved_clean: self.moves.clean_bytes,
            moved_unequal: self.moves.unequal_bytes,
            splits: counters.splits,
            reuses: counters.reuses,
            stitches: counters.stitches,
            creates: counters.creates,
            orders: counters.orders,
            waits: counters.waits,
            evictions: counters.evictions,
            rollbacks: counters.rollbacks,
            releases: counters.releases,
            failed_releases: counters.failed_releases,
            out_of_memory: counters.out_of_memory + pieces.refused,
            extents: self.holdings.ledger.extents().len() as u64,
            quarantined: self.holdings.quarantined() as u64,
            ..DeviceWords::default()
        }
    }
}
