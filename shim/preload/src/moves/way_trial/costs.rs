//! What the ways cost, as far as they were measured, and which is the best. Pure.

use super::Way;

/// A way that moves memory takes at most so much of the time of one that does not.
const GAIN: f64 = 0.98;

/// The way that is chosen stays unless another one takes at most so much of its time: two that are
/// alike would take turns, and each change would look like a gain.
const CHANGE: f64 = 0.99;

/// The cost of the chosen way is the mean of so many periods, about: a server that reads new
/// requests between many answers has cheap periods and dear ones, and both are its time.
const PERIODS: u32 = 32;

/// A period that takes so many times the mean makes the program an uneven one, for so many periods.
/// One that takes less does not: blocks that change places make a program faster.
const UNEVEN: f64 = 2.0;
const UNEVEN_PERIODS: u32 = 4 * PERIODS;

/// Seconds of an event with each way.
#[derive(Debug, Default)]
pub(super) struct WayCosts {
    costs: [Option<WayCost>; 4],
    /// Periods to come in which the program counts as uneven.
    uneven: u32,
}

#[derive(Debug, Clone, Copy)]
struct WayCost {
    mean: f64,
    /// Periods that it is of, up to [`PERIODS`].
    periods: u32,
    /// The program was not known to repeat itself, so its events were those of any two seconds.
    is_rough: bool,
}

impl WayCosts {
    /// `None`: it was not measured.
    pub(super) fn of(&self, way: Way) -> Option<f64> {
        self.costs[way as usize].map(|cost| cost.mean)
    }

    /// The periods that a trial has to be measured for: one, or as many as have each kind of
    /// period of an uneven program.
    pub(super) fn periods(&self) -> u32 {
        if self.uneven > 0 { PERIODS } else { 1 }
    }

    /// A trial has measured it, for [`periods`](Self::periods). `is_rough`: no period was known.
    pub(super) fn set(&mut self, way: Way, cost: f64, is_rough: bool) {
        self.costs[way as usize] = Some(WayCost { mean: cost, periods: self.periods(), is_rough });
    }

    /// The pace of the chosen way in one more period, or in a time of that kind.
    pub(super) fn note(&mut self, way: Way, pace: f64, is_rough: bool) {
        let fresh = WayCost { mean: pace, periods: 0, is_rough };
        // A rough pace is that of bursts of events, too: no measure for a period, nor for another.
        let known = self.costs[way as usize].filter(|before| is_rough || !before.is_rough);
        let before = known.unwrap_or(fresh);
        let periods = (before.periods + 1).min(PERIODS);
        let mean = before.mean + (pace - before.mean) / f64::from(periods);
        let is_dear = !is_rough && pace > UNEVEN * before.mean;
        self.uneven = if is_dear { UNEVEN_PERIODS } else { self.uneven.saturating_sub(1) };
        self.costs[way as usize] = Some(WayCost { mean, periods, is_rough: before.is_rough });
    }

    /// Of the known ways. One that moves memory at launches has to gain something.
    pub(super) fn best(&self, ways: &[Way]) -> (Way, f64) {
        let known = ways.iter().filter_map(|way| Some((*way, self.of(*way)?)));
        let rank = |&(way, cost): &(Way, f64)| rank(way, cost);
        known.min_by(|one, other| rank(one).total_cmp(&rank(other))).unwrap_or((Way::Leave, f64::INFINITY))
    }

    /// The best way, or the one that was chosen before where that is hardly worse.
    pub(super) fn best_beside(&self, ways: &[Way], chosen: Option<Way>) -> Way {
        let (best, least) = self.best(ways);
        let known = chosen.and_then(|chosen| Some((chosen, self.of(chosen)?)));
        let is_alike = |&(way, cost): &(Way, f64)| CHANGE * rank(way, cost) <= rank(best, least);
        known.filter(is_alike).map_or(best, |(chosen, _)| chosen)
    }
}

/// What the cost of a way counts as beside others.
fn rank(way: Way, cost: f64) -> f64 {
    if way.moves_at_launches() { cost } else { GAIN * cost }
}

#[cfg(test)]
mod tests {
    //! Hazard (thrashing): two ways that are alike take turns, and memory moves at each change.
    use super::*;

    #[test]
    fn of_two_that_are_alike_the_chosen_one_stays() {
        let mut costs = WayCosts::default();
        let ways = [Way::Leave, Way::Bring, Way::Follow];
        costs.set(Way::Bring, 1.0, false);
        costs.set(Way::Follow, 0.995, false);
        assert_eq!(costs.best(&ways), (Way::Follow, 0.995));
        assert_eq!(costs.best_beside(&ways, Some(Way::Bring)), Way::Bring);
        assert_eq!(costs.best_beside(&ways, Some(Way::Leave)), Way::Follow, "it is not measured");
        costs.set(Way::Leave, 1.01, false);
        assert_eq!(costs.best(&ways).0, Way::Leave, "the others have to gain something");
        costs.set(Way::Follow, 0.9, false);
        assert_eq!(costs.best_beside(&ways, Some(Way::Bring)), Way::Follow);
    }
}
