//! The ratio of a relay's present rate to its measured rate, learned from copies that were split.
//! It has a lock and no other side effect.
//!
//! If another program uses a relay's link, or the measurement was wrong, relays' shares arrive
//! late. So each target has, for each direction, a factor on its relays' rates. A late copy moves
//! the factor half the way to the observed rate, and each copy in time raises it a little: one
//! outlier changes little, and a link that is idle again is used again.

use std::collections::BTreeMap;
use std::sync::Mutex;

use wm_abi::CUdevice;
use wm_driver::lock;

use crate::vocabulary::copy::LinkDirection;
use crate::vocabulary::observation::Observation;
use crate::vocabulary::path::Path;

/// The delay from which on a copy is late: the cost of the events, in seconds, and a part of the
/// copy's time.
const SLACK: (f64, f64) = (10e-6, 0.01);
/// How much relays' rates are raised by a copy that was not late.
const RISE: f64 = 1.01;
/// Bounds of a factor.
const LEAST: f64 = 0.2;
const MOST: f64 = 2.0;
/// A measurement is doubted when relays carry less than this part of it...
const DOUBTED: f64 = 0.6;
/// ... in this many copies one after the other.
const COPIES: u32 = 32;

/// The correction for one target and direction.
#[derive(Debug, Clone, Copy, PartialEq)]
struct RateCorrection {
    factor: f64,
    /// Copies since the factor was last above [`DOUBTED`].
    low: u32,
}

impl RateCorrection {
    fn learn(self, direct: f64, late: f64) -> Self {
        let slack = SLACK.0 + SLACK.1 * direct;
        let factor = if late > slack {
            let carried = direct / (direct + late - slack);
            self.factor * (1.0 + carried) / 2.0
        } else {
            self.factor * RISE
        };
        let factor = factor.clamp(LEAST, MOST);
        Self { factor, low: if factor < DOUBTED { self.low + 1 } else { 0 } }
    }
}

/// The corrections for all targets and directions.
#[derive(Debug, Default)]
pub(crate) struct RateCorrections {
    known: Mutex<BTreeMap<(CUdevice, usize), RateCorrection>>,
}

impl RateCorrections {
    /// Learns from a timed copy. Returns `true` when the measurement itself becomes doubtful: once,
    /// until later copies refute that.
    pub(crate) fn learn(&self, seen: &Observation) -> bool {
        if !(seen.direct > 0.0 && seen.late >= 0.0) {
            return false;
        }
        let mut known = lock(&self.known);
        let correction = known
            .entry((seen.target, seen.direction as usize))
            .or_insert(RateCorrection { factor: 1.0, low: 0 });
        *correction = correction.learn(seen.direct, seen.late);
        correction.low == COPIES
    }

    /// The ratio of the relays' present rate to their measured rate.
    pub(crate) fn factor(&self, target: CUdevice, direction: LinkDirection) -> f64 {
        let known = lock(&self.known);
        known.get(&(target, direction as usize)).map_or(1.0, |correction| correction.factor)
    }

    /// Sets relays' rates to their present rates. The first path is the direct one.
    pub(crate) fn apply(&self, target: CUdevice, direction: LinkDirection, paths: &mut [Path]) {
        let factor = self.factor(target, direction);
        paths.iter_mut().skip(1).for_each(|path| path.rate *= factor);
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: one slow copy turns relays off for good, or a slow relay is waited for again and
    //! again.
    use super::*;

    fn seen(direct: f64, late: f64) -> Observation {
        Observation { target: 0, direction: LinkDirection::In, direct, late }
    }

    /// The factor on a relay that was measured at 50 and carries `real`, after this many copies of
    /// about a second.
    fn after(copies: usize, real: f64, corrections: &RateCorrections) -> f64 {
        for _ in 0..copies {
            let planned = factor(corrections) * 50.0;
            let direct = 100.0 / (50.0 + planned);
            corrections.learn(&seen(direct, (direct * planned / real - direct).max(0.0)));
        }
        factor(corrections)
    }

    fn factor(corrections: &RateCorrections) -> f64 {
        let mut paths = [Path { device: 0, rate: 1.0 }, Path { device: 1, rate: 1.0 }];
        corrections.apply(0, LinkDirection::In, &mut paths);
        assert_eq!(paths[0].rate, 1.0, "the direct path is what others are compared with");
        paths[1].rate
    }

    #[test]
    fn relays_get_what_they_carry() {
        for (real, expected) in [(50.0, 1.0), (40.0, 0.8), (25.0, 0.5), (60.0, 1.2)] {
            let found = after(60, real, &RateCorrections::default());
            assert!((found / expected - 1.0).abs() < 0.03, "{found} for {expected}");
        }
    }

    #[test]
    fn a_link_that_is_idle_again_is_used_again() {
        let corrections = RateCorrections::default();
        assert!(after(30, 20.0, &corrections) < 0.45);
        assert!(after(120, 50.0, &corrections) > 0.97);
    }

    #[test]
    fn one_hiccup_changes_little() {
        let corrections = RateCorrections::default();
        corrections.learn(&seen(1.0, 9.0));
        assert!(factor(&corrections) > 0.5);
    }

    #[test]
    fn directions_and_targets_are_apart() {
        let corrections = RateCorrections::default();
        after(30, 20.0, &corrections);
        let mut paths = [Path { device: 0, rate: 1.0 }, Path { device: 1, rate: 1.0 }];
        corrections.apply(0, LinkDirection::Out, &mut paths);
        corrections.apply(1, LinkDirection::In, &mut paths);
        assert_eq!(paths[1].rate, 1.0);
    }

    #[test]
    fn a_measurement_is_doubted_once_when_copies_keep_being_late() {
        let corrections = RateCorrections::default();
        let doubts = (0..100).filter(|_| corrections.learn(&seen(1.0, 3.0))).count();
        assert_eq!(doubts, 1);
        assert_eq!((0..100).filter(|_| corrections.learn(&seen(1.0, 0.0))).count(), 0);
    }

    #[test]
    fn figures_of_no_clock_are_not_learned() {
        let corrections = RateCorrections::default();
        for (direct, late) in [(0.0, 1.0), (f64::NAN, 1.0), (1.0, f64::NAN), (-1.0, 1.0), (1.0, -1.0)] {
            assert!(!corrections.learn(&seen(direct, late)));
        }
        assert_eq!(factor(&corrections), 1.0);
    }
}
