//! The gate that calls of the program pass which submit work, while memory of live blocks may move.
//!
//! With `WMSHIM_MIGRATE=off`, `WMSHIM_PAUSE=off` and `WMSHIM_DEDUP=off` no call comes here:
//! `hooks/gated.rs` stands in no slot then. If a call that passes relies on where memory is, all
//! memory is pinned from then on. In a paused process it stays closed ([`kept`]).
//!
//! Invariants:
//! * A thread is counted once, even if the driver's call calls back into the library. Nothing is
//!   held while the driver has the call.
//! * A thread that moves memory passes without being counted: it would wait for itself. Signals
//!   whose handlers might submit work wait meanwhile.
//! * The gate is fair, and a mover asks whether others need it to end ([`Mover::is_awaited`],
//!   [`Mover::has_signal`]).
//! * A forked child passes: the threads that closed the gate or are inside do not exist there.
//! * A thread that ends inside a call, as one that is cancelled, stays counted: nothing moves any
//!   more, and nothing waits without a bound.

mod kept;
mod last_call;

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

use wm_abi::CUresult;
use wm_memory::{Gate, NotClosed, STRIPES};

use crate::process::{self, SignalsHeld, callers, preserve_errno};
use last_call::LastCall;

/// How long a mover lets threads pass that waited outside, before it gives up. The gate is open
/// meanwhile.
pub(crate) const PASSING: Duration = Duration::from_millis(20);

/// The process's gate. It is a static of this layer: `moves`, `dedup` and the hooks import it, and
/// each call that submits work finds it without a look-up.
pub(crate) static GATE: SubmissionGate = SubmissionGate::new();

/// A gate, and what the calls that passed it pin.
pub(crate) struct SubmissionGate {
    gate: Gate,
    /// Decided at load, before the first call passes.
    on: AtomicBool,
    /// Bits of [`PinReason`]: for them all memory stays where it is.
    pins: AtomicU32,
    /// The same for which sharing of equal memory has ended, and single blocks stay, or none.
    unshares: AtomicU32,
    /// A live graph pins all memory.
    opaque_graphs: AtomicBool,
    /// Calls that let the host hold a stream back, so far: each counts before it is made and again
    /// after it.
    holds: AtomicU64,
    /// The stripe of the next thread that passes for the first time.
    next_stripe: AtomicUsize,
    /// The gate stays closed until the process is resumed.
    kept: AtomicBool,
    /// It was so when the process's exit began.
    kept_at_exit: AtomicBool,
    /// Called by a thread that finds it so.
    arrived: OnceLock<fn()>,
    last_call: LastCall,
}

/// The effect of a call on memory, besides that it passes the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passage {
    /// Nothing: it uses memory while it is made, or submits work that does.
    Pass,
    /// It makes, changes or ends a graph, or begins a capture: `hooks/work/graph_uses.rs` notes
    /// the blocks that stay where they are.
    Graph,
    /// Memory is pinned from now on.
    Pin(PinReason),
    /// No equal memory is shared from now on. Blocks that the call names stay where they are.
    Unshare(PinReason),
    /// It submits work that ends when the host has written a word or a function of it has run.
    Hold,
}

/// Why memory is pinned where it is for the rest of the process, or is not shared any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PinReason {
    /// Others than this process's contexts may use the physical memory.
    Shared,
    /// The program asked for synchronous copies of a block, as for one that a network card writes.
    SyncMemops,
    /// Other devices may use it.
    Peer,
    /// The checks of a migration do not cover work in green contexts.
    GreenContext,
    /// NCCL or NVSHMEM has made memory, and may give it to other devices.
    Communication,
}

impl PinReason {
    const ALL: [Self; 5] =
        [Self::Shared, Self::SyncMemops, Self::Peer, Self::GreenContext, Self::Communication];

    fn bit(self) -> u32 {
        1 << self as u32
    }

    fn first_of(bits: u32) -> Option<&'static str> {
        Self::ALL.into_iter().find(|reason| bits & reason.bit() != 0).map(Self::text)
    }

    /// In words.
    fn text(self) -> &'static str {
        match self {
            Self::Shared => "memory is shared with other processes, devices or interfaces",
            Self::SyncMemops => "a block has SYNC_MEMOPS",
            Self::Peer => "several devices use memory",
            Self::GreenContext => "green contexts are in use",
            Self::Communication => "a communication library is in use",
        }
    }
}

/// The calling thread at the gate.
#[derive(Clone, Copy)]
struct Visitor {
    /// 0: none yet; else one more than its stripe.
    stripe: u8,
    inside: bool,
    moving: bool,
}

thread_local! {
    /// No destructor, so there at any time of a thread's life.
    static VISITOR: Cell<Visitor> = const { Cell::new(Visitor { stripe: 0, inside: false, moving: false }) };
}

impl Visitor {
    fn stripe(&mut self, next: &AtomicUsize) -> usize {
        if self.stripe == 0 {
            self.stripe = (next.fetch_add(1, Relaxed) % STRIPES) as u8 + 1;
        }
        usize::from(self.stripe) - 1
    }
}

impl SubmissionGate {
    pub(crate) const fn new() -> Self {
        Self {
            gate: Gate::new(),
            on: AtomicBool::new(false),
            pins: AtomicU32::new(0),
            unshares: AtomicU32::new(0),
            opaque_graphs: AtomicBool::new(false),
            holds: AtomicU64::new(0),
            next_stripe: AtomicUsize::new(0),
            kept: AtomicBool::new(false),
            kept_at_exit: AtomicBool::new(false),
            arrived: OnceLock::new(),
            last_call: LastCall::new(),
        }
    }

    /// From now on calls pass here. To be called before the first slot leads here.
    pub(crate) fn turn_on(&self) {
        self.on.store(true, Relaxed);
    }

    /// Do calls pass here?
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    /// From now on it is known when a call passed last.
    pub(crate) fn time_calls(&self) {
        self.last_call.turn_on();
    }

    /// Since the last call passed.
    pub(crate) fn since_last_call(&self) -> Duration {
        self.last_call.elapsed()
    }

    /// Makes a call of the program inside the gate. No value that has to be dropped lives across
    /// the call: the thread may be cancelled in the driver.
    #[inline]
    pub(crate) fn pass(&self, meaning: Passage, call: impl FnOnce() -> CUresult) -> CUresult {
        let visitor = VISITOR.get();
        if visitor.inside || visitor.moving || process::forked() {
            self.record(meaning);
            return call();
        }
        self.enter();
        self.record(meaning);
        let result = call();
        if meaning == Passage::Hold {
            self.record(meaning);
        }
        self.leave();
        result
    }

    #[inline]
    fn enter(&self) {
        let mut visitor = VISITOR.get();
        let stripe = visitor.stripe(&self.next_stripe);
        if !self.gate.try_enter(stripe) {
            preserve_errno(|| self.enter_late(stripe));
        }
        visitor.inside = true;
        VISITOR.set(visitor);
        self.last_call.note();
    }

    #[inline]
    fn leave(&self) {
        let mut visitor = VISITOR.get();
        visitor.inside = false;
        VISITOR.set(visitor);
        if self.gate.depart(visitor.stripe(&self.next_stripe)) && !process::forked() {
            preserve_errno(|| self.gate.tell());
        }
    }

    /// Inside the gate, so a mover that closes it afterwards sees it.
    #[inline]
    fn record(&self, meaning: Passage) {
        match meaning {
            Passage::Pass | Passage::Graph => {}
            Passage::Pin(reason) => {
                self.pins.fetch_or(reason.bit(), SeqCst);
            }
            Passage::Unshare(reason) => {
                self.unshares.fetch_or(reason.bit(), SeqCst);
            }
            Passage::Hold => {
                self.holds.fetch_add(1, SeqCst);
            }
        }
    }

    /// Has a call said that memory is pinned in this process?
    #[inline]
    pub(crate) fn is_pinned(&self) -> bool {
        self.pins.load(SeqCst) != 0
    }

    /// Why memory is pinned in this process, if a call has said so.
    pub(crate) fn pin_reason(&self) -> Option<&'static str> {
        PinReason::first_of(self.pins.load(SeqCst))
    }

    /// Why some memory stays or no equal memory is shared, if a call has said so.
    pub(crate) fn unshare_reason(&self) -> Option<&'static str> {
        PinReason::first_of(self.pins.load(SeqCst) | self.unshares.load(SeqCst))
    }

    /// As long as `has_opaque` says so, a graph lives of which it is not known what memory it uses,
    /// and in which way. To be called inside the gate.
    pub(crate) fn set_opaque_graphs(&self, has_opaque: bool) {
        self.opaque_graphs.store(has_opaque, SeqCst);
    }

    /// Why memory is pinned while certain graphs live.
    pub(crate) fn graph_reason(&self) -> Option<&'static str> {
        self.opaque_graphs.load(SeqCst).then_some("a graph may rely on where any memory is")
    }

    /// Memory is being made. `true`: the calling library gives it to other devices, so it has to
    /// stay where it is. Costs some microseconds where calls pass here, and nothing else.
    pub(crate) fn is_for_others(&self) -> bool {
        let is_for_others = self.is_on() && callers::need_device();
        if is_for_others {
            self.record(Passage::Unshare(PinReason::Communication));
        }
        is_for_others
    }

    /// A number that grows with each call that lets the host hold a stream back.
    pub(crate) fn holds(&self) -> u64 {
        self.holds.load(SeqCst)
    }

    /// Runs `body` with the gate closed. Returns `None` if a thread stays inside for longer than
    /// `patience`, or if the gate is off. A calling thread that is inside steps out meanwhile: its
    /// call is not in the driver at that moment.
    pub(crate) fn with_quiesced<R>(
        &self,
        patience: Duration,
        body: impl FnOnce(&Mover<'_>) -> R,
    ) -> Option<R> {
        self.with_quiesced_within(patience, PASSING, body)
    }

    /// The same; `None` also if threads that wait outside have not passed after `passing`.
    pub(crate) fn with_quiesced_within<R>(
        &self,
        patience: Duration,
        passing: Duration,
        body: impl FnOnce(&Mover<'_>) -> R,
    ) -> Option<R> {
        let visitor = VISITOR.get();
        if !self.is_on() || visitor.moving || self.is_kept() || process::forked() {
            return None;
        }
        let _outside = visitor.inside.then(|| Outside::step(self));
        let until = Instant::now() + passing;
        // Other threads pass before the thread's signals are held.
        while self.gate.let_pass(until.saturating_duration_since(Instant::now())) {
            let mover = Mover::begin(self);
            match self.gate.close(patience) {
                Ok(_closed) => return Some(body(&mover)),
                Err(NotClosed::Occupied) => return None,
                Err(NotClosed::Awaited) => {}
            }
        }
        None
    }
}

/// A thread whose call is under way is outside the gate until this is dropped.
struct Outside<'a>(&'a SubmissionGate);

impl<'a> Outside<'a> {
    fn step(gate: &'a SubmissionGate) -> Self {
        gate.leave();
        Self(gate)
    }
}

impl Drop for Outside<'_> {
    fn drop(&mut self) {
        self.0.enter();
    }
}

/// The thread moves memory, until this is dropped. Its signals wait as long, so this begins before
/// the gate closes, and ends after it has opened: a handler may make calls that pass, and it may
/// end the process.
pub(crate) struct Mover<'a> {
    gate: &'a SubmissionGate,
    signals: SignalsHeld,
}

impl<'a> Mover<'a> {
    fn begin(gate: &'a SubmissionGate) -> Self {
        let signals = SignalsHeld::begin();
        VISITOR.set(Visitor { moving: true, ..VISITOR.get() });
        Self { gate, signals }
    }

    /// Does a call of the program wait for the gate to open?
    pub(crate) fn is_awaited(&self) -> bool {
        self.gate.gate.is_awaited()
    }

    /// Does a signal wait for the thread?
    pub(crate) fn has_signal(&self) -> bool {
        self.signals.is_any_pending()
    }
}

impl Drop for Mover<'_> {
    fn drop(&mut self) {
        VISITOR.set(Visitor { moving: false, ..VISITOR.get() });
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (deadlock): a thread waits for itself at the gate, or is counted twice and stays
    //! inside for ever.
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(100);

    fn open_gate() -> SubmissionGate {
        let gate = SubmissionGate::new();
        gate.turn_on();
        gate
    }

    fn make_call(gate: &SubmissionGate, meaning: Passage) {
        assert_eq!(gate.pass(meaning, || CUresult::SUCCESS), CUresult::SUCCESS);
    }

    #[test]
    fn a_gate_that_is_off_quiesces_nothing() {
        let gate = SubmissionGate::new();
        assert!(gate.with_quiesced(PATIENCE, |_| ()).is_none());
        assert_eq!(gate.pass(Passage::Pass, || CUresult::NOT_READY), CUresult::NOT_READY);
    }

    #[test]
    fn a_call_inside_a_call_is_counted_once_and_its_thread_may_quiesce() {
        let gate = open_gate();
        let code = gate.pass(Passage::Pass, || {
            let nested = gate.pass(Passage::Pass, || CUresult::NOT_READY);
            let moved = gate.with_quiesced(PATIENCE, |_| gate.pass(Passage::Pass, || CUresult::UNKNOWN));
            assert_eq!(moved, Some(CUresult::UNKNOWN), "the thread steps out, and passes while it moves");
            assert!(VISITOR.get().inside && !VISITOR.get().moving);
            nested
        });
        assert_eq!((code, VISITOR.get().inside), (CUresult::NOT_READY, false));
    }

    /// A panic leaves its thread counted, as a cancelled thread's call does.
    #[test]
    fn a_panic_behind_the_closed_gate_opens_it() {
        let gate = open_gate();
        let fails = || gate.with_quiesced(PATIENCE, |_| panic!("a mover's bug")).unwrap_or(CUresult::UNKNOWN);
        let call = std::panic::AssertUnwindSafe(|| gate.pass(Passage::Pass, fails));
        assert!(std::panic::catch_unwind(call).is_err());
        gate.leave();
        assert!(gate.with_quiesced(PATIENCE, |_| ()).is_some(), "it is open, and no thread is inside");
    }

    #[test]
    fn another_threads_call_is_waited_for_and_not_for_longer_than_patience() {
        let gate = open_gate();
        let ((entered, is_inside), (end, ended)) = (channel(), channel::<()>());
        thread::scope(|scope| {
            scope.spawn(|| {
                let ended = ended;
                gate.pass(Passage::Pass, || {
                    entered.send(()).expect("the mover listens");
                    ended.recv().expect("the mover ends the call");
                    CUresult::SUCCESS
                })
            });
            is_inside.recv().expect("the call began");
            assert!(gate.with_quiesced(Duration::from_millis(1), |_| ()).is_none(), "a call is inside");
            end.send(()).expect("the call waits");
            assert!(gate.with_quiesced(Duration::from_secs(60), |_| ()).is_some(), "the call ended");
        });
    }

    #[test]
    fn what_a_call_pins_is_told_apart() {
        let gate = open_gate();
        assert_eq!(gate.pin_reason(), None);
        make_call(&gate, Passage::Graph);
        gate.set_opaque_graphs(true);
        assert!(gate.pin_reason().is_none() && gate.graph_reason().is_some());
        gate.set_opaque_graphs(false);
        make_call(&gate, Passage::Pin(PinReason::Shared));
        assert_eq!(gate.pin_reason(), Some(PinReason::Shared.text()));
        let holds = gate.holds();
        make_call(&gate, Passage::Hold);
        assert_eq!(gate.holds(), holds + 2, "before the call and after it");
        let gate = open_gate();
        make_call(&gate, Passage::Unshare(PinReason::Peer));
        assert!(gate.pin_reason().is_none() && !gate.is_pinned(), "memory moves");
        assert_eq!(gate.unshare_reason(), Some(PinReason::Peer.text()));
    }
}
