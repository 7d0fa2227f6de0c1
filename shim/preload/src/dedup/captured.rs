//! Blocks that become private while a stream is captured.
//!
//! The driver refuses to capture a memset or a copy into memory that may only be read, so such a
//! block cannot wait for the graph to be instantiated. No event can be recorded or waited for
//! during a capture, so an event behind all work is recorded just before one begins. It tells which
//! work is in flight until a call that is not captured submits more.
//!
//! Invariants: the event is recorded behind the closed gate. No call is made between that and the
//! moment from which on calls are observed.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use wm_driver::gpu::Event;
use wm_driver::{Device, Gpu, lock};
use wm_memory::{Manager, Quiet};

use super::tracked_blocks::{CLOSE, HELD, TrackedBlock, UnshareStep};
use crate::gate::GATE;
use crate::process::streams;

/// How long to wait for such a moment, and then for the work before the capture. Without them the
/// driver refuses the captured call.
const PATIENCE: Duration = Duration::from_secs(2);

/// Events behind all work of a device that was submitted before the first of the captures under
/// way.
struct Before {
    manager: &'static Manager<Device>,
    events: Vec<Event>,
}

/// The work before the captures under way, as far as it is known.
pub(super) struct CaptureStart {
    before: Mutex<Option<Before>>,
    /// Other calls than captured ones may have submitted work since.
    is_beside: AtomicBool,
}

impl CaptureStart {
    pub(super) const fn new() -> Self {
        Self { before: Mutex::new(None), is_beside: AtomicBool::new(false) }
    }

    fn before(&self) -> MutexGuard<'_, Option<Before>> {
        lock(&self.before)
    }

    /// A capture begins while memory of a device is shared. `begin` makes it known to all threads.
    pub(super) fn record(&self, manager: &'static Manager<Device>, begin: impl FnOnce()) {
        let mut begin = Some(begin);
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            GATE.with_quiesced(CLOSE, |_| {
                let events = manager.gpu().record_all().unwrap_or_default();
                self.forget();
                *self.before() = (!events.is_empty()).then_some(Before { manager, events });
                self.is_beside.store(false, Relaxed);
                begin.take().into_iter().for_each(|begin| begin());
            });
            if begin.is_none() {
                return;
            }
        }
        if let Some(begin) = begin {
            // A thread was inside for long: the work that it submits is unknown.
            self.forget();
            begin();
        }
    }

    /// The events are of no use any more: the context ends, for example.
    pub(super) fn forget(&self) {
        let old = self.before().take();
        if let Some(Before { manager, events }) = old {
            events.into_iter().for_each(|event| manager.gpu().recycle(event));
        }
    }

    /// A call was made that is not captured, while another stream was.
    pub(super) fn submitted_beside(&self) {
        self.is_beside.store(true, Relaxed);
    }

    /// Makes a block private that a captured call is about to write. Returns `false` if the work in
    /// flight is unknown, or does not end in time.
    pub(super) fn unshare(&self, block: &TrackedBlock) -> bool {
        let until = Instant::now() + PATIENCE;
        loop {
            match GATE.with_quiesced(CLOSE, |_| self.unshare_some(block)) {
                Some(UnshareStep::Done) => return true,
                Some(UnshareStep::Refused) => return false,
                _ if Instant::now() >= until => return false,
                _ => {}
            }
        }
    }

    /// Behind the closed gate no capture begins, so the events are out of their place meanwhile,
    /// and no lock is held while the driver is asked.
    fn unshare_some(&self, block: &TrackedBlock) -> UnshareStep {
        let Some(known) = self.before().take() else { return UnshareStep::Refused };
        let step =
            if self.is_beside.load(Relaxed) { UnshareStep::Refused } else { unshare_after(&known, block) };
        *self.before() = Some(known);
        step
    }
}

fn unshare_after(known: &Before, block: &TrackedBlock) -> UnshareStep {
    if !streams().capturing() || !std::ptr::eq(known.manager, block.manager) {
        return UnshareStep::Refused;
    }
    if block.manager.gpu().wait_any(&[&known.events], HELD).is_none() {
        return UnshareStep::More;
    }
    block.unshare_some(Quiet::Seen, HELD)
}
