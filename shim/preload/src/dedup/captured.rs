//! Blocks that become private while a stream is captured.
//!
//! The driver refuses to capture a memset or a copy into memory that may only be read, so such a
//! block cannot wait for the graph to be instantiated. Nothing can be recorded or waited for during
//! a capture; so an event behind all work is recorded just before one begins. What is in flight is
//! known from it for as long as nothing but captured calls submit anything.
//!
//! Invariants: the event is recorded behind the closed gate, and no call is made between that and
//! the moment from which on calls are looked at.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use wm_driver::gpu::Event;
use wm_driver::{Device, Gpu};
use wm_memory::{Manager, MoveRefusal, Quiet};

use super::part;
use super::watched::{self, WatchedBlock};
use crate::gate::GATE;
use crate::process::streams;

/// How long to wait for calls that are being made.
const CLOSE: Duration = Duration::from_millis(10);

/// How long to wait for such a moment, and then for the work before the capture. Without them the
/// driver refuses what is captured.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long calls are held at once.
const TURN: Duration = Duration::from_millis(2);

/// Events behind all work of a device that was submitted before the first of the captures under
/// way.
struct Before {
    manager: &'static Manager<Device>,
    events: Vec<Event>,
}

static BEFORE: Mutex<Option<Before>> = Mutex::new(None);

/// Other calls than captured ones may have submitted work since.
static BESIDE: AtomicBool = AtomicBool::new(false);

fn before() -> MutexGuard<'static, Option<Before>> {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A capture begins. `note` makes it known to all threads.
pub(super) fn begin(note: impl FnOnce()) {
    let shared =
        if streams().capturing() { None } else { watched::all().into_iter().find(|it| it.is_shared()) };
    let Some(manager) = shared.map(|block| block.manager) else { return note() };
    let mut note = Some(note);
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        GATE.with_quiesced(CLOSE, || {
            let events = manager.gpu().record_all().unwrap_or_default();
            forget();
            *before() = (!events.is_empty()).then_some(Before { manager, events });
            BESIDE.store(false, Relaxed);
            note.take().into_iter().for_each(|note| note());
        });
        if note.is_none() {
            return;
        }
    }
    if let Some(note) = note {
        // A thread was inside for long: the work that it submits is unknown.
        forget();
        note();
    }
}

/// What was recorded is of no use any more.
fn forget() {
    let old = before().take();
    if let Some(Before { manager, events }) = old {
        events.into_iter().for_each(|event| manager.gpu().recycle(event));
    }
}

/// The context ends, and its events with it.
pub(super) fn end_context() {
    forget();
}

/// A call was made that is not captured, while another stream was.
pub(super) fn note_beside() {
    BESIDE.store(true, Relaxed);
}

/// Makes a block private that a captured call is about to write. `false`: what is in flight is not
/// known, or is not over in time.
pub(super) fn make_private(block: &WatchedBlock) -> bool {
    let until = Instant::now() + PATIENCE;
    loop {
        match GATE.with_quiesced(CLOSE, || turn(block)) {
            Some(Ok(true)) => break,
            Some(Err(())) => return false,
            _ if Instant::now() >= until => return false,
            _ => {}
        }
    }
    part::note_parted(block);
    true
}

/// `Ok(false)`: there is more to do. An error: it cannot be done. Behind the closed gate, where no
/// capture begins; so the events are taken out meanwhile, and no lock is held while the driver is
/// asked.
fn turn(block: &WatchedBlock) -> Result<bool, ()> {
    let known = before().take().ok_or(())?;
    let parted = part_after(&known, block);
    *before() = Some(known);
    parted
}

fn part_after(known: &Before, block: &WatchedBlock) -> Result<bool, ()> {
    if BESIDE.load(Relaxed) || !streams().capturing() || !std::ptr::eq(known.manager, block.manager) {
        return Err(());
    }
    if block.manager.gpu().wait_any(&[&known.events], TURN).is_none() {
        return Ok(false);
    }
    match block.manager.unshare(block.range.clone(), false, Quiet::Seen, TURN) {
        Ok(moved) if moved.refusal.is_none() && moved.next >= block.range.end => Ok(true),
        Ok(moved)
            if moved.count > 0 || matches!(moved.refusal, Some(MoveRefusal::Busy | MoveRefusal::InUse)) =>
        {
            Ok(false)
        }
        Ok(_) | Err(_) => Err(()),
    }
}
