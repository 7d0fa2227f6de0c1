//! Memory that holds the same bytes as other processes' is stored once on a GPU: this process's
//! part of it.
//!
//! | file | one idea |
//! |---|---|
//! | [`program`] | what the program does that matters here, call by call |
//! | `watched` | blocks that hold what arrived by copies, and what is known of each |
//! | `learned` | which kernels only read |
//! | `graphs` | which kernels graphs have, and which of them ran |
//! | `turn` | what is done while nothing is in flight, for two milliseconds at a time |
//! | `judgement` | which blocks may be shared, by what fingerprints show |
//! | `ask` | which chunks the broker is asked about next |
//! | `prepared` | what of an exchange needs no stillness, ahead of it |
//! | `exchange` | chunks that are taken and given |
//! | `part` | the way back, before a write |
//! | `captured`, `pending` | the same while a stream is captured, and before a graph is launched |
//! | `kernels` | our kernels on the GPU |
//! | `mailbox`, `broker_thread` | questions for the broker, and the thread that asks them |
//! | `broker_start` | how a broker is started without the program's notice |
//! | `standing`, `figures` | whether this process shares, and what came of it |
//!
//! Invariants: what is shared is mapped for reading only, so an unforeseen write faults this
//! process and harms no other; memory is exchanged behind the closed gate, with nothing in flight;
//! in doubt a block stays private.

mod ask;
mod broker_start;
mod broker_thread;
mod captured;
mod exchange;
mod figures;
mod graphs;
mod judgement;
mod kernels;
mod learned;
mod mailbox;
mod part;
mod pending;
mod prepared;
pub(crate) mod program;
mod standing;
mod turn;
mod watched;

use crate::events::{self, BlockSubscriber};
use crate::gate::GATE;
use crate::launches::{self, Subscriber};
use crate::moves::obstacle;
use crate::settings::{Dedup, Settings};
pub(crate) use figures::figures;

/// Decides for the whole process. To be called before the first hook is connected.
pub(crate) fn choose(settings: &Settings) {
    if settings.dedup == Dedup::Off || settings.disable {
        return;
    }
    match obstacle::of_settings(settings) {
        Some(why) => log::warn!("WMSHIM_DEDUP has no effect with {why}"),
        None => {
            standing::begin(settings.dedup == Dedup::On);
            GATE.turn_on();
            launches::subscribe(Subscriber::Sharing);
            events::subscribe(BlockSubscriber {
                // A block that began there before ended without an event.
                allocated: |event| program::freed(event.address),
                freed: |event| program::freed(event.address),
            });
        }
    }
}

/// The process ends: no turn is taken any more. Waits for one that is being taken, for a bounded
/// time.
pub(crate) fn stop() {
    if program::is_on() {
        turn::await_last();
    }
}

#[cfg(test)]
mod tests;
