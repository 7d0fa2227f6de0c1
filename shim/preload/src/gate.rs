//! The gate that calls of the program pass which submit work, while memory of live blocks may move.
//!
//! With `WMSHIM_MIGRATE=off` no call comes here: `hooks/gated.rs` stands in no slot then. What a
//! call does that passes is noted where memory has to stay from then on.
//!
//! Invariants:
//! * A thread is counted once, even if the driver's call calls back into the library. Nothing is
//!   held while the driver has the call.
//! * A thread that moves memory passes without being counted: it would wait for itself. Signals
//!   whose handlers might submit work wait meanwhile.
//! * A forked child passes: the threads that closed the gate or are inside do not exist there.
//! * A thread that ends inside a call, as one that is cancelled, stays counted: nothing moves any
//!   more, and nothing waits without a bound.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Duration;

use wm_abi::CUresult;
use wm_memory::{Gate, STRIPES};

use crate::process::{self, SignalsHeld, callers, keep_errno};

static GATE: Gate = Gate::new();

/// Decided at load, before the first call passes.
static ON: AtomicBool = AtomicBool::new(false);

/// Bits of [`Keeps`].
static KEPT: AtomicU32 = AtomicU32::new(0);

/// Contexts that the program made with `cuCtxCreate` and its like; those that are gone count.
static CONTEXTS: AtomicU32 = AtomicU32::new(0);

/// What a call means for memory, besides that it passes the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passage {
    /// Nothing: it uses memory while it is made, or submits work that does.
    Pass,
    /// Memory stays where it is from now on.
    Keep(Keeps),
    /// A context is made.
    Context,
}

/// Why memory stays where it is for the rest of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeps {
    /// A graph may have been made of how memory is mapped, and is launched at any time.
    Graph,
    /// Others than this process's contexts may use the physical memory.
    Shared,
    /// The program asked for synchronous copies of a block, as for one that a network card writes.
    SyncMemops,
    /// Work in other devices' contexts may use it.
    Peer,
    /// Work in green contexts is not known to be covered by what is looked at.
    GreenContext,
    /// NCCL or NVSHMEM has made memory: what it is then told of may be used by others.
    Communication,
}

impl Keeps {
    /// In words.
    fn reason(self) -> &'static str {
        match self {
            Self::Graph => "a graph or a capture relies on where memory is",
            Self::Shared => "memory is shared with other processes, devices or interfaces",
            Self::SyncMemops => "a block has SYNC_MEMOPS",
            Self::Peer => "several devices use memory",
            Self::GreenContext => "green contexts are in use",
            Self::Communication => "a communication library is in use",
        }
    }

    const ALL: [Self; 6] =
        [Self::Graph, Self::Shared, Self::SyncMemops, Self::Peer, Self::GreenContext, Self::Communication];
}

/// The calling thread at the gate.
#[derive(Clone, Copy)]
struct Mine {
    /// 0: none yet; else one more than its stripe.
    stripe: u8,
    inside: bool,
    moving: bool,
}

thread_local! {
    /// No destructor, so there at any time of a thread's life.
    static MINE: Cell<Mine> = const { Cell::new(Mine { stripe: 0, inside: false, moving: false }) };
}

impl Mine {
    fn stripe(&mut self) -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        if self.stripe == 0 {
            self.stripe = (NEXT.fetch_add(1, Relaxed) % STRIPES) as u8 + 1;
        }
        usize::from(self.stripe) - 1
    }
}

/// From now on calls pass here. To be called before the first slot leads here.
pub(crate) fn turn_on() {
    ON.store(true, Relaxed);
}

/// Do calls pass here?
pub(crate) fn is_on() -> bool {
    ON.load(Relaxed)
}

/// Makes a call of the program inside the gate. No value that has to be dropped lives across the
/// call: the thread may be cancelled in the driver.
#[inline]
pub(crate) fn pass(meaning: Passage, call: impl FnOnce() -> CUresult) -> CUresult {
    let mine = MINE.get();
    if mine.inside || mine.moving || process::forked() {
        note(meaning);
        return call();
    }
    enter();
    note(meaning);
    let result = call();
    leave();
    result
}

#[inline]
fn enter() {
    let mut mine = MINE.get();
    let stripe = mine.stripe();
    if !GATE.try_enter(stripe) {
        keep_errno(|| GATE.enter(stripe));
    }
    mine.inside = true;
    MINE.set(mine);
}

#[inline]
fn leave() {
    let mut mine = MINE.get();
    mine.inside = false;
    MINE.set(mine);
    if GATE.depart(mine.stripe()) && !process::forked() {
        keep_errno(|| GATE.tell());
    }
}

/// Inside the gate, so a mover that closes it afterwards sees it.
#[inline]
fn note(meaning: Passage) {
    match meaning {
        Passage::Pass => {}
        Passage::Keep(keeps) => {
            KEPT.fetch_or(1 << keeps as u32, SeqCst);
        }
        Passage::Context => {
            CONTEXTS.fetch_add(1, SeqCst);
        }
    }
}

/// Why memory stays where it is in this process, if a call has said so.
pub(crate) fn kept() -> Option<&'static str> {
    let kept = KEPT.load(SeqCst);
    Keeps::ALL.into_iter().find(|keeps| kept & (1 << *keeps as u32) != 0).map(Keeps::reason)
}

/// The same, except pins of graphs.
pub(crate) fn kept_beside_graphs() -> Option<&'static str> {
    let kept = KEPT.load(SeqCst) & !(1 << Keeps::Graph as u32);
    Keeps::ALL.into_iter().find(|keeps| kept & (1 << *keeps as u32) != 0).map(Keeps::reason)
}

/// Memory is being made: does the calling library rely on where memory is? Costs some microseconds
/// where calls pass here, and nothing else.
pub(crate) fn look_at_caller() {
    if is_on() && callers::need_device() {
        note(Passage::Keep(Keeps::Communication));
    }
}

/// Contexts that the program made with `cuCtxCreate` and its like.
pub(crate) fn contexts_made() -> u32 {
    CONTEXTS.load(SeqCst)
}

/// Runs `body` with the gate closed. Returns `None` if a thread stays inside for longer than
/// `patience`, or if the gate is off. A calling thread that is inside steps out meanwhile: its call
/// is not in the driver at that moment.
pub(crate) fn alone<R>(patience: Duration, body: impl FnOnce() -> R) -> Option<R> {
    let mine = MINE.get();
    if !is_on() || mine.moving || process::forked() {
        return None;
    }
    let _outside = mine.inside.then(Outside::step);
    let _mover = Mover::begin();
    GATE.close(patience).map(|_closed| body())
}

/// Does a call of the program wait for the gate to open?
pub(crate) fn is_awaited() -> bool {
    GATE.is_awaited()
}

/// The thread is outside, whose call is under way, until this is dropped.
struct Outside;

impl Outside {
    fn step() -> Self {
        leave();
        Self
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        enter();
    }
}

/// The thread moves memory, until this is dropped. Its signals wait as long, so this begins before
/// the gate closes, and ends after it has opened: a handler may make calls that pass, and it may
/// end the process.
struct Mover {
    _signals: SignalsHeld,
}

impl Mover {
    fn begin() -> Self {
        let signals = SignalsHeld::begin();
        MINE.set(Mine { moving: true, ..MINE.get() });
        Self { _signals: signals }
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        MINE.set(Mine { moving: false, ..MINE.get() });
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: a thread that waits for itself, or is counted twice and never again let go.
    use super::*;

    /// One test, since the gate is the process's.
    #[test]
    fn who_is_inside_and_who_moves_pass_and_what_was_closed_opens() {
        assert!(alone(PATIENCE, || ()).is_none(), "off");
        turn_on();
        let code = pass(Passage::Pass, || {
            let nested = pass(Passage::Pass, || CUresult::NOT_READY);
            let moved = alone(PATIENCE, || pass(Passage::Pass, || CUresult::UNKNOWN));
            assert_eq!(moved, Some(CUresult::UNKNOWN), "the thread steps out, and passes while it moves");
            assert!(MINE.get().inside && !MINE.get().moving);
            nested
        });
        assert_eq!((code, MINE.get().inside), (CUresult::NOT_READY, false));
        let panicked = std::panic::catch_unwind(pass_and_panic);
        assert!(panicked.is_err());
        leave();
        assert!(alone(PATIENCE, || ()).is_some(), "it is open, and nobody is inside");
        assert_eq!(pass(Passage::Keep(Keeps::Shared), || CUresult::SUCCESS), CUresult::SUCCESS);
        assert_eq!(kept(), Some(Keeps::Shared.reason()));
    }

    const PATIENCE: Duration = Duration::from_millis(100);

    /// Leaves the thread inside, as a call that panics would: drivers do not.
    fn pass_and_panic() {
        let _ =
            pass(Passage::Pass, || alone(PATIENCE, || panic!("a mover's bug")).unwrap_or(CUresult::UNKNOWN));
    }
}
