//! Looks again at memory that lies idle, when the program makes no call in which that could be
//! done.
//!
//! The driver has no timer, so a thread does it. It starts when more lies idle than
//! `WMSHIM_KEEP_IDLE` for the first time, sleeps until the next look is due, and without a limit
//! where none is. What there is to look at, and when, the subsystem says.
//!
//! Invariants: a process with nothing idle has no such thread, or one that sleeps; no lock is held
//! across a look; at exit and in a forked child nothing is looked at.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use wm_driver::lock;

use crate::process::{self, preserve_errno};

/// The idle memory.
#[derive(Debug, Clone, Copy)]
pub(crate) enum IdleKind {
    /// Memory of the managers.
    Blocks,
    /// Memory that PyTorch made itself, and gave up.
    Pieces,
    /// Memory of the host that is made ahead of a pause.
    Arena,
    /// Copies of an earlier pause that other processes use, too.
    CommonCopies,
}

impl IdleKind {
    const ALL: [Self; 4] = [Self::Blocks, Self::Pieces, Self::Arena, Self::CommonCopies];
}

const KINDS: usize = IdleKind::ALL.len();
const STACK: usize = 256 << 10;

/// Gives back the memory that has been idle for long enough, and says when to check again.
pub(crate) type IdleCheck = fn() -> Option<Instant>;

struct IdleWatch {
    due: Mutex<DueLooks>,
    changed: Condvar,
}

struct DueLooks {
    is_running: bool,
    due: [Option<(Instant, IdleCheck)>; KINDS],
}

/// The watch of this process. It is a static of this layer, since its thread has no other state.
static WATCH: IdleWatch = IdleWatch {
    due: Mutex::new(DueLooks { is_running: false, due: [None; KINDS] }),
    changed: Condvar::new(),
};

fn watch() -> MutexGuard<'static, DueLooks> {
    lock(&WATCH.due)
}

/// Memory lies idle: `look` is called at that time, or before.
pub(crate) fn look_at(at: Instant, kind: IdleKind, look: IdleCheck) {
    if is_over() {
        return;
    }
    let mut watch = watch();
    let due = &mut watch.due[kind as usize];
    if due.is_some_and(|(earlier, _)| earlier <= at) {
        return;
    }
    *due = Some((at, look));
    let is_new = !std::mem::replace(&mut watch.is_running, true);
    drop(watch);
    WATCH.changed.notify_one();
    if is_new && let Err(error) = preserve_errno(|| wm_driver::thread::spawn(c"wmshim-idle", STACK, run)) {
        // Once: it is not tried again. The program's calls give back idle memory that they find.
        log::info!("idle memory does not go back by itself: no thread could be started: {error}");
    }
}

fn run() {
    while !is_over() {
        let (kind, look) = next();
        if let Some(at) = (!is_over()).then(look).flatten() {
            look_at(at, kind, look);
        }
    }
}

fn is_over() -> bool {
    process::exiting() || process::forked()
}

/// Sleeps until something is to be looked at.
fn next() -> (IdleKind, IdleCheck) {
    let mut watch = watch();
    loop {
        let now = Instant::now();
        for kind in IdleKind::ALL {
            if let Some((_, look)) = watch.due[kind as usize].take_if(|(at, _)| *at <= now) {
                return (kind, look);
            }
        }
        let first = watch.due.iter().flatten().map(|(at, _)| *at).min();
        watch = match first {
            None => WATCH.changed.wait(watch).unwrap_or_else(PoisonError::into_inner),
            Some(at) => {
                let waited = WATCH.changed.wait_timeout(watch, at.duration_since(now));
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
    }
}
