//! Memory that holds the same bytes as other processes' is stored once on a GPU: this process's
//! part of it. The rules are in [`wm_dedup::policy`], without a driver.
//!
//! | file | one idea |
//! |---|---|
//! | [`sharing`] | the state, as one value |
//! | `program` | the calls of the program that matter here |
//! | `tracked_blocks` | blocks that hold bytes which arrived by copies |
//! | `kernel_effects` | the key of each kernel, and the verdicts |
//! | `passes`, `pass_tools` | the work while the GPU is idle, for two milliseconds at a time |
//! | `eligibility` | which blocks may be shared |
//! | `ask` | the chunks that the broker is asked about next |
//! | `prepared` | the part of an exchange that runs beside the GPU's work |
//! | `exchange` | chunks that are taken and given |
//! | `unshare` | the way back, before a write |
//! | `captured`, `pending` | the same while a stream is captured, and before a graph is launched |
//! | `kernels` | our kernels on the GPU |
//! | `mailbox`, `broker_thread` | requests for the broker, and the thread that sends them |
//! | `broker_start` | how a broker is started, without a trace in the program |
//! | `counts`, `figures` | the statistics |
//!
//! Invariants: shared memory is mapped for reading only, so an unforeseen write faults this process
//! and harms no other; memory is exchanged behind the closed gate, with nothing in flight; in doubt
//! a block stays private.

mod ask;
pub(crate) mod broker_start;
mod broker_thread;
mod captured;
mod counts;
mod eligibility;
mod exchange;
mod figures;
mod kernel_effects;
mod kernels;
mod mailbox;
mod pass_tools;
mod passes;
mod pending;
mod prepared;
mod program;
mod sharing;
mod tracked_blocks;
mod unshare;

use crate::events::{self, BlockSubscriber};
use crate::gate::GATE;
use crate::launches::{self, Subscriber};
use crate::moves::pin_reason;
use crate::settings::{Dedup, Settings};
pub(crate) use sharing::Sharing;

impl Sharing {
    /// Decides for the whole process. To be called before the first hook is connected. `events`
    /// tells this value of blocks.
    pub(crate) fn choose(&self, settings: &Settings, events: BlockSubscriber) {
        if settings.dedup == Dedup::Off || settings.disable {
            return;
        }
        match pin_reason::of_settings(settings) {
            Some(why) => log::warn!("WMSHIM_DEDUP has no effect with {why}"),
            None => {
                self.status.begin(settings.dedup == Dedup::On);
                GATE.turn_on();
                launches::subscribe(Subscriber::Sharing);
                events::subscribe(events);
            }
        }
    }
}
