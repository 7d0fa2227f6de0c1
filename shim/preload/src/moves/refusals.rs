//! Why moves were not made: as values, in words, and counted for statistics.

use std::sync::{Mutex, MutexGuard};

use wm_abi::CUdevice;
use wm_driver::lock;
use wm_memory::{MoveRefusal, Moves};

/// Why nothing moved, or not all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhyNot {
    /// The setting.
    Off,
    /// Memory is pinned for the rest of the process, for this reason.
    Pinned(&'static str),
    /// Calls of other threads were being made for too long.
    Crowded,
    /// The process is paused: its memory moves when it is resumed.
    Paused,
    /// The manager's reasons, which it counts.
    Refused(MoveRefusal),
}

const CROWDED: &str = "calls that submit work were being made";
const PAUSED: &str = "the process is paused: its memory moves when it is resumed";
const OFF: &str = "WMSHIM_MIGRATE=off: it is not known which calls of the program use it";

impl WhyNot {
    /// In words.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Off => OFF,
            Self::Pinned(why) => why,
            Self::Crowded => CROWDED,
            Self::Paused => PAUSED,
            Self::Refused(refusal) => refusal.reason(),
        }
    }
}

#[derive(Debug, Clone)]
struct CountedRefusal {
    device: CUdevice,
    reason: &'static str,
    count: u64,
}

/// Refusals that are not the manager's, by device and reason.
pub(super) struct RefusalLog(Mutex<Vec<CountedRefusal>>);

impl RefusalLog {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<CountedRefusal>> {
        lock(&self.0)
    }

    /// Counts a refusal. The first of each reason is a line in the log.
    pub(super) fn count(&self, device: CUdevice, refusal: WhyNot) {
        let reason = match refusal {
            WhyNot::Pinned(why) => why,
            WhyNot::Crowded => CROWDED,
            WhyNot::Off | WhyNot::Paused | WhyNot::Refused(_) => return,
        };
        if self.add(device, reason) == 1 {
            log::info!("device {device}: memory stays where it is: {reason}");
        }
    }

    /// Returns how often the reason was given.
    fn add(&self, device: CUdevice, reason: &'static str) -> u64 {
        let mut counted = self.lock();
        let at = counted.iter().position(|one| (one.device, one.reason) == (device, reason));
        let at = at.unwrap_or_else(|| {
            counted.push(CountedRefusal { device, reason, count: 0 });
            counted.len() - 1
        });
        counted[at].count += 1;
        counted[at].count
    }

    /// Refusals on a device, by reason; `moves` has those of its manager.
    pub(super) fn of(&self, device: CUdevice, moves: &Moves) -> Vec<(&'static str, u64)> {
        let managers = MoveRefusal::REASONS.into_iter().zip(moves.reasons).filter(|(_, count)| *count > 0);
        let ours = self.lock().clone().into_iter().filter(|one| one.device == device);
        managers.chain(ours.map(|one| (one.reason, one.count))).collect()
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (silent degradation): memory does not move, and the statistics do not say why.
    use super::*;

    #[test]
    fn refusals_are_counted_by_device_and_reason() {
        let refusals = RefusalLog::new();
        for device in [0, 1, 0] {
            refusals.count(device, WhyNot::Crowded);
        }
        refusals.count(0, WhyNot::Pinned("a pin"));
        let moves = Moves::default();
        assert_eq!(refusals.of(0, &moves), [(CROWDED, 2), ("a pin", 1)]);
        assert_eq!(refusals.of(1, &moves), [(CROWDED, 1)]);
    }

    #[test]
    fn the_managers_own_refusals_are_counted_once() {
        let refusals = RefusalLog::new();
        refusals.count(0, WhyNot::Refused(MoveRefusal::InUse));
        refusals.count(0, WhyNot::Off);
        let mut moves = Moves::default();
        moves.reasons[0] = 3;
        assert_eq!(refusals.of(0, &moves), [(MoveRefusal::REASONS[0], 3)]);
    }
}
