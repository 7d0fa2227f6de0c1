//! Blocks become private again: each chunk in shared memory gets memory of its own, with the same
//! bytes, at the same address.
//!
//! That needs a moment with nothing in flight, for which calls that submit work are held at the
//! gate. The wait is bounded, because work may wait for the very thread that waits here. Then the
//! caller's call goes on, and a write into shared memory faults and harms no other process.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use wm_dedup::chunk::CHUNK_BYTES;
use wm_driver::Gpu;
use wm_driver::thread::Uncancelled;
use wm_memory::Quiet;

use super::sharing::Sharing;
use super::tracked_blocks::{CLOSE, HELD, TrackedBlock, UnshareStep};
use crate::gate::GATE;
use crate::process::streams;

/// The longest wait for the end of the GPU's work between two tries.
const SETTLE: Duration = Duration::from_millis(50);

/// The longest wait for it while calls are held, in tries after the first one: other threads may
/// submit work as fast as the GPU ends it. Moves hold calls as long.
const DRAIN: Duration = Duration::from_millis(20);

/// How long all of it may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Refusals after which it is given up: a write faults then.
const REFUSALS: u32 = 10;

impl Sharing {
    /// Makes a block private. The caller is inside the gate, and has marked the block as not ready
    /// to be shared. Launches come here, and it sleeps.
    pub(super) fn make_private(&self, block: &TrackedBlock) {
        let _whole = Uncancelled::new();
        let until = Instant::now() + PATIENCE;
        let (mut refusals, mut drain) = (0, None);
        loop {
            let step = GATE.with_quiesced(CLOSE, |_| unshare_drained(block, drain));
            drain = Some(DRAIN);
            self.settle(block);
            // Other threads' passes may have come before this thread was inside again; none comes
            // until it leaves.
            if step == Some(UnshareStep::Done) && !block.is_shared() {
                return;
            }
            let is_capturing = streams().capturing();
            refusals += u32::from(step == Some(UnshareStep::Refused) && !is_capturing);
            if refusals >= REFUSALS || Instant::now() >= until {
                break;
            }
            // Another thread's capture ends some time; until then no wait is possible.
            if is_capturing {
                std::thread::sleep(CLOSE);
            } else {
                let _settled = block.manager.gpu().is_settled(SETTLE);
            }
        }
        log::warn!(
            "memory at {:#x} could not be made private in time: a write into it will be refused",
            block.range.start
        );
    }

    /// One step of the end of all sharing in this process. Returns the bytes that are still shared.
    pub(crate) fn end_step(&self, why: &'static str, until: Instant) -> u64 {
        if !self.is_on() {
            return 0;
        }
        self.status.end(why);
        for block in self.blocks.shared() {
            let goes_on = || block.is_shared() && !block.is_gone() && !GATE.is_kept();
            while goes_on() && Instant::now() < until {
                let step = GATE.with_quiesced(CLOSE, |_| block.unshare_some(Quiet::Look, HELD));
                self.settle(&block);
                match step {
                    Some(UnshareStep::Done | UnshareStep::Refused) => break,
                    Some(UnshareStep::More) | None => drop(block.manager.gpu().is_settled(SETTLE)),
                }
            }
        }
        self.retire_if_private();
        let of_block = |block: &TrackedBlock| {
            let shared = block.manager.shared_in(block.range.clone());
            shared.iter().map(|chunk| chunk.end - chunk.start).sum::<u64>()
        };
        self.blocks.shared().iter().map(|block| of_block(block)).sum()
    }

    /// A pause has moved memory: what other processes use too is theirs alone where it has left,
    /// and they do not wait for what a paused process could give.
    pub(crate) fn pause_moved_memory(&self) {
        if !self.is_on() {
            return;
        }
        for block in self.blocks.shared() {
            let _chunks = self.forget_private(&block);
        }
        if GATE.is_kept() {
            for block in self.blocks.all() {
                let mut facts = block.facts();
                // They are asked about again after the pause.
                facts.arrived(|_| true);
                let withdrawn = facts.withdrawn();
                drop(facts);
                self.mailbox.release(withdrawn);
            }
        }
    }

    /// Why sharing has ended.
    pub(crate) fn end_reason(&self) -> Option<&'static str> {
        self.status.end_reason()
    }

    /// Makes a block private that a call is about to write.
    pub(super) fn make_private_for_write(&self, block: &TrackedBlock) {
        self.count_write(block);
        self.make_private(block);
    }

    /// Makes a block private that a captured call is about to write, if the work in flight is
    /// known.
    pub(super) fn make_private_in_capture(&self, block: &TrackedBlock) {
        if self.captured.unshare(block) {
            self.settle(block);
            self.count_write(block);
        }
    }

    /// Makes a block private behind the closed gate, as far as possible until `until`.
    pub(super) fn unshare_until(&self, block: &TrackedBlock, until: Instant) {
        while Instant::now() < until
            && !block.is_gone()
            && block.unshare_some(Quiet::Look, HELD) == UnshareStep::More
        {}
        self.settle(block);
    }

    /// Makes chunks private that were given and not registered, because another process was first
    /// or there is no broker. To be called behind the closed gate, and while no chunk is being
    /// offered. Returns `false` if there are none.
    pub(super) fn unshare_unregistered(&self, block: &TrackedBlock, limit: Duration) -> bool {
        let runs = block.facts().unregistered();
        let until = Instant::now() + limit;
        for run in &runs {
            let left = until.saturating_duration_since(Instant::now());
            // With any time at all, a run begins one chunk.
            if left.is_zero() {
                break;
            }
            let run = block.chunk_address(run.start)..block.chunk_address(run.end);
            let _moved = block.manager.unshare(run, false, Quiet::Seen, left);
            self.forget_private(block);
        }
        !runs.is_empty()
    }

    /// Counts the chunks that are private again, as copies.
    fn settle(&self, block: &TrackedBlock) {
        let bytes = self.forget_private(block) as u64 * CHUNK_BYTES;
        self.counts.copied_back_bytes.fetch_add(bytes, Relaxed);
    }

    /// Gives back the leases of chunks that are private again. Returns the number of these chunks.
    /// A chunk that becomes shared meanwhile is noted afterwards, which needs the facts, too.
    pub(super) fn forget_private(&self, block: &TrackedBlock) -> usize {
        let mut facts = block.facts();
        let shared: Vec<Range<u64>> = block.manager.shared_in(block.range.clone());
        let is_shared = |index| shared.iter().any(|range| range.contains(&block.chunk_address(index)));
        let (count, leases) = facts.became_private(is_shared);
        block.set_shared(!shared.is_empty());
        drop(facts);
        self.mailbox.release(leases);
        count
    }

    /// A write makes the block private.
    pub(super) fn count_write(&self, block: &TrackedBlock) {
        block.facts().count_private_copy();
        self.counts.faults_avoided.fetch_add(1, Relaxed);
    }
}

/// One step behind the closed gate, after a wait for the end of the GPU's work.
fn unshare_drained(block: &TrackedBlock, drain: Option<Duration>) -> UnshareStep {
    if let Some(limit) = drain.filter(|_| !streams().capturing()) {
        let _settled = block.manager.gpu().is_settled(limit);
    }
    block.unshare_some(Quiet::Look, HELD)
}
