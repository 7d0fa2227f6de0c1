//! Moves of live memory between the device and the host: whether there may be any, and when nothing
//! is in their way.
//!
//! A move is sound where no work touches the memory, and nothing outside relies on where it is.
//! Calls that submit work wait at the gate ([`crate::gate`]), what was submitted before is looked
//! for by the manager, and what relies on memory is looked for here, behind the closed gate. All of
//! it errs towards memory that stays.

pub(crate) mod last_use;
pub(crate) mod obstacle;
pub(crate) mod predictor;
mod refusals;
mod room;
mod switch;
mod turns;
mod vain;

use crate::events::{self, BlockAllocated, BlockFreed, BlockSubscriber};
use crate::gate::GATE;
use crate::launches::{self, Subscriber};
use crate::settings::Settings;
pub(crate) use refusals::{WhyNot, refusals};
pub(crate) use room::{come_back, leave_device, make_for};
pub(crate) use switch::is_on;
pub(crate) use turns::carry_out;

/// Decides for the whole process. To be called before the first hook is connected.
pub(crate) fn choose(settings: &Settings) {
    if !settings.migrate || settings.disable {
        return;
    }
    match obstacle::of_settings(settings) {
        Some(why) => log::warn!("WMSHIM_MIGRATE has no effect with {why}"),
        None => {
            switch::turn_on();
            GATE.turn_on();
            launches::subscribe(Subscriber::LastUse);
            events::subscribe(BlockSubscriber { allocated, freed });
        }
    }
}

fn allocated(event: &BlockAllocated) {
    last_use::forget(event.address, event.bytes as u64);
    if predictor::is_recording() {
        predictor::allocated(event.manager, event.address);
    }
}

fn freed(event: &BlockFreed) {
    predictor::freed(event.manager, event.address);
}
