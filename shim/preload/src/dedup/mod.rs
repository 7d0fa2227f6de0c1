//! Memory that holds the same bytes as other processes' is stored once on a GPU: this process's
//! part of it. The rules are in [`wm_dedup::policy`], without a driver.
//!
//! | file | one idea |
//! |---|---|
//! | [`sharing`] | the state, as one value |
//! | `program` | the calls of the program that matter here |
//! | `stored_addresses` | blocks whose addresses the program copies to the device |
//! | `tracked_blocks` | blocks that hold bytes which arrived by copies |
//! | `noted` | kernels that a block knows already |
//! | `recent_words` | words of launches that need no second look |
//! | `kernel_effects` | the key of each kernel, and the verdicts |
//! | `proofs` | the verdicts that come from kernels' code |
//! | `company` | the other processes that could share |
//! | `passes`, `pass_tools` | the work while the GPU is idle, for two milliseconds at a time |
//! | `eligibility` | which blocks may be shared |
//! | `named_memory` | what other processes may have, too, for a pause |
//! | `ask` | the chunks that the broker is asked about next |
//! | `prepared`, `to_take` | the part of an exchange that runs beside the GPU's work |
//! | `exchange` | chunks that are taken and given |
//! | `unshare` | the way back, before a write |
//! | `taken_back` | chunks that no other process uses any more |
//! | `fault` | what a fault teaches |
//! | `captured`, `pending` | the same while a stream is captured, and before a graph is launched |
//! | `pieces` | memory that the program made itself |
//! | `told_objects` | the objects in it, where its allocator tells of them |
//! | `segment_places` | where its reservations lie |
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
mod company;
mod counts;
mod eligibility;
mod exchange;
mod fault;
mod figures;
mod kernel_effects;
mod kernels;
mod mailbox;
mod named_memory;
mod noted;
mod pass_tools;
mod passes;
mod pending;
mod pieces;
mod prepared;
mod program;
mod proofs;
mod recent_words;
mod segment_places;
mod sharing;
mod stored_addresses;
mod taken_back;
mod to_take;
mod told_objects;
mod tracked_blocks;
mod unshare;

use crate::events::{self, BlockSubscriber};
use crate::gate::GATE;
use crate::launches::{self, Subscriber};
use crate::moves::pin_reason;
use crate::process::own_memory;
use crate::settings::{Dedup, Migrate, Settings};
pub(crate) use sharing::Sharing;

/// How loudly to say that nothing is shared: `auto` is the default, and promises nothing.
fn level(dedup: Dedup) -> log::Level {
    if dedup == Dedup::Auto { log::Level::Info } else { log::Level::Warn }
}

impl Sharing {
    /// Decides for the whole process. To be called before the first hook is connected. `events`
    /// tells this value of blocks.
    pub(crate) fn choose(&self, settings: &Settings, events: BlockSubscriber) {
        // By default sharing takes what moves take.
        let is_without_moves = settings.migrate == Migrate::Off && !settings.may_pause();
        let takes_none = settings.dedup == Dedup::Auto && is_without_moves;
        if settings.dedup == Dedup::Off || takes_none || settings.disable {
            return;
        }
        let unreadable = (!own_memory::is_readable()).then_some("a kernel that forbids process_vm_readv");
        match pin_reason::of_settings(settings).or(unreadable) {
            Some(why) => log::log!(level(settings.dedup), "WMSHIM_DEDUP has no effect with {why}"),
            None => {
                match settings.dedup {
                    Dedup::Auto => self.status.begin_asleep(),
                    chosen => self.status.begin(chosen == Dedup::On),
                }
                GATE.turn_on();
                launches::subscribe(Subscriber::Sharing);
                events::subscribe(events);
            }
        }
    }
}
