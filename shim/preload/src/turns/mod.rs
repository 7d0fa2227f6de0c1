//! Turns at GPUs: a process whose memory is away waits until others have given way, and gives way
//! to them (`WMSHIM_SHARE=turns`). The rules are in [`wm_dedup::turns`], in the broker.
//!
//! | file | one idea |
//! |---|---|
//! | `state` | the turns of the process, as one value |
//! | `book` | the requests of the program's threads, and what the broker has said of room |
//! | `thread` | the thread that speaks with the broker |
//! | `giving` | an order to give way, on its way |
//! | `holdings` | the process's memory on each GPU, as the broker is told |
//! | `wake` | the pipe that wakes the thread |
//!
//! Invariants: a thread of the program waits for others only at the gate, or in a request for
//! memory, where no lock is held and no call of it is in the driver; each wait has an end without a
//! broker, with one that is stopped, and at exit; what has no room lies on the host, so no call
//! fails for a turn.

mod book;
mod giving;
mod holdings;
mod state;
mod thread;
mod wake;

pub(crate) use state::{TurnParts, Turns};

impl Turns {
    /// The process uses another device, or its first one.
    pub(crate) fn begin(parts: TurnParts) {
        if parts.turns.is_on() {
            parts.turns.started.call_once(|| thread::start(parts));
            parts.turns.wake();
        }
    }
}
