//! Blocks become private again: each chunk that lies in shared memory gets memory of its own, with
//! the same bytes, at the same address.
//!
//! Needs a moment in which nothing is in flight, for which calls that submit work are held at the
//! gate. What is waited for is bounded: work that waits for the very thread that waits here would
//! never be over. Then the caller's call goes on, and a write into shared memory still faults and
//! harms no other process.

use std::ops::Range;
use std::time::{Duration, Instant};

use std::sync::atomic::Ordering::Relaxed;

use wm_dedup::chunk::CHUNK_BYTES;
use wm_driver::Gpu;
use wm_memory::{MoveRefusal, Quiet};

use super::figures::COUNTS;
use super::mailbox::{self, BackgroundRequest};
use super::watched::WatchedBlock;
use crate::gate::GATE;
use crate::process::streams;

/// How long to wait for calls that are being made.
const CLOSE: Duration = Duration::from_millis(10);

/// How long calls are held at once.
const TURN: Duration = Duration::from_millis(2);

/// One look at whether work is over.
const LOOK: Duration = Duration::from_millis(50);

/// How long all of it may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Failures after which it is given up: what comes next is a fault.
const FAILURES: u32 = 10;

/// Times that a block becomes private for a write before it is left alone.
const MOST: u32 = 2;

/// What came of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parting {
    Done,
    More,
    /// The driver refused something, or there is no memory.
    Fails,
}

/// Makes a block private. `false`: some of it is shared still. The caller is inside the gate, and
/// has marked the block as not ready to be shared.
pub(super) fn make_private(block: &WatchedBlock) -> bool {
    let until = Instant::now() + PATIENCE;
    let mut failures = 0;
    let done = loop {
        let parting = GATE.with_quiesced(CLOSE, || turn(block));
        note_copied(settle(block));
        // Other threads' turns may have come before this one was inside again; none comes until it
        // leaves.
        if parting == Some(Parting::Done) && !block.is_shared() {
            break true;
        }
        failures += u32::from(parting == Some(Parting::Fails) && !streams().capturing());
        if failures >= FAILURES || Instant::now() >= until {
            break false;
        }
        // A capture of another thread's ends some time; until then nothing can be waited for.
        if streams().capturing() {
            std::thread::sleep(CLOSE);
        } else {
            let _settled = block.manager.gpu().is_quiet(LOOK);
        }
    };
    if !done {
        log::warn!(
            "memory at {:#x} could not be made private in time: a write into it will be refused",
            block.range.start
        );
    }
    done
}

/// The same behind the closed gate, as far as it goes in time.
pub(super) fn part_until(block: &WatchedBlock, until: Instant) {
    while Instant::now() < until && !block.is_gone() && turn(block) == Parting::More {}
    note_copied(settle(block));
}

/// Makes chunks private that no other process has, behind the closed gate, as far as possible now.
pub(super) fn take_back(block: &WatchedBlock, chunks: Range<u64>, limit: Duration) {
    let _stayed = block.manager.unshare(chunks, false, Quiet::Seen, limit);
    settle(block);
}

fn turn(block: &WatchedBlock) -> Parting {
    match block.manager.unshare(block.range.clone(), false, Quiet::Look, TURN) {
        Ok(moved) if moved.refusal.is_none() && moved.next >= block.range.end => Parting::Done,
        Ok(moved) if moved.count > 0 => Parting::More,
        Ok(moved) => after(moved.refusal.unwrap_or(MoveRefusal::Busy)),
        Err(stays) => after(stays),
    }
}

fn after(stays: MoveRefusal) -> Parting {
    if matches!(stays, MoveRefusal::InUse | MoveRefusal::Busy) { Parting::More } else { Parting::Fails }
}

/// It became private by other means than these.
pub(super) fn note_parted(block: &WatchedBlock) {
    note_copied(settle(block));
}

/// Notes what is shared still, and gives the leases of the rest back. Chunks that are shared no
/// longer. What is shared meanwhile is noted afterwards: that needs the facts, too.
fn settle(block: &WatchedBlock) -> usize {
    let mut leases = Vec::new();
    let mut facts = block.facts();
    let shared = block.manager.shared_in(block.range.clone());
    let is_shared = |address: u64| shared.iter().any(|range| range.contains(&address));
    let before = facts.chunks.len();
    facts.chunks.retain(|index, state| {
        let stays = !state.is_shared() || is_shared(block.chunk_address(*index));
        leases.extend(if stays { None } else { state.lease() });
        stays
    });
    let parted = before - facts.chunks.len();
    block.set_shared(!shared.is_empty());
    drop(facts);
    if !leases.is_empty() {
        mailbox::post(BackgroundRequest::Release(leases));
    }
    parted
}

fn note_copied(chunks: usize) {
    COUNTS.copied_back_bytes.fetch_add(chunks as u64 * CHUNK_BYTES, Relaxed);
}

/// A write made it private.
pub(super) fn note_write(block: &WatchedBlock) {
    let mut facts = block.facts();
    facts.copied_back += 1;
    if facts.copied_back >= MOST {
        facts.left_alone = Some("it is written again and again");
    }
    COUNTS.faults_avoided.fetch_add(1, Relaxed);
}
