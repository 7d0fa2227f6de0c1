//! Why moves were not made: as values, in words, and counted for statistics.

use std::sync::{Mutex, MutexGuard, PoisonError};

use wm_abi::CUdevice;
use wm_memory::{MoveRefusal, Moves};

/// Why nothing moved, or not all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhyNot {
    /// The setting.
    Off,
    /// For the rest of the process.
    Kept(&'static str),
    /// Calls of other threads were being made for too long.
    Crowded,
    /// The manager's reasons, which it counts.
    Refused(MoveRefusal),
}

const CROWDED: &str = "calls that submit work were being made";

/// Refusals that are not the manager's, by device and reason.
static NOTED: Mutex<Vec<(CUdevice, &'static str, u64)>> = Mutex::new(Vec::new());

fn noted() -> MutexGuard<'static, Vec<(CUdevice, &'static str, u64)>> {
    NOTED.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn note(device: CUdevice, refusal: WhyNot) {
    let reason = match refusal {
        WhyNot::Kept(why) => why,
        WhyNot::Crowded => CROWDED,
        WhyNot::Off | WhyNot::Refused(_) => return,
    };
    let first = {
        let mut noted = noted();
        match noted.iter_mut().find(|(of, why, _)| (*of, *why) == (device, reason)) {
            Some((_, _, count)) => {
                *count += 1;
                false
            }
            None => {
                noted.push((device, reason, 1));
                true
            }
        }
    };
    if first {
        log::info!("device {device}: memory stays where it is: {reason}");
    }
}

/// Refusals on a device, by reason.
pub(crate) fn refusals(device: CUdevice, moves: &Moves) -> Vec<(&'static str, u64)> {
    let managers = MoveRefusal::REASONS.into_iter().zip(moves.reasons).filter(|(_, count)| *count > 0);
    let ours = noted().clone().into_iter().filter(|(of, _, _)| *of == device);
    managers.chain(ours.map(|(_, reason, count)| (reason, count))).collect()
}
