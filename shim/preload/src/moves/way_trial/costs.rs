//! What the ways cost, as far as they were measured, and which is the best. Pure.

use smallvec::SmallVec;

use super::Way;

/// A way that moves memory takes at most so much of the time of one that does not.
const GAIN: f64 = 0.98;

/// The way that is chosen stays unless another one takes at most so much of its time: two that are
/// alike would take turns, and each change would look like a gain.
const CHANGE: f64 = 0.99;

/// Another way is known to be better than the chosen one if it took so much of its time, or less.
const SLOWER: f64 = 0.9;

/// The cost of a way that moves nothing at launches is the median of so many periods, so that one
/// period which something else has delayed counts for nothing, and those before blocks changed
/// places only for a while.
const RECENT: usize = 5;

/// That of another way, and of each in an uneven program, is the mean of so many periods, about: a
/// server that reads new requests between many answers has cheap periods and dear ones, and both
/// are its time.
const PERIODS: u32 = 32;

/// A period that takes so many times the mean makes the program an uneven one, for so many periods.
/// One that takes less does not: blocks that change places make a program faster.
const UNEVEN: f64 = 2.0;
const UNEVEN_PERIODS: u32 = 4 * PERIODS;

/// The chosen way is becoming faster where its last period took so much of its cost, or of the last
/// one but one, or less.
const FASTER: f64 = 0.95;

/// Seconds of an event with each way.
#[derive(Debug, Default)]
pub(super) struct WayCosts {
    costs: [Option<WayCost>; 4],
    /// Periods to come in which the program counts as uneven.
    uneven: u32,
    /// The last period of the chosen way was not faster than those before.
    is_level: bool,
}

#[derive(Debug)]
struct WayCost {
    /// Of the last periods, up to [`PERIODS`].
    mean: f64,
    periods: u32,
    /// The last ones, the oldest first, and the lower one of those in their middle.
    recent: SmallVec<[f64; RECENT]>,
    median: f64,
    /// The program was not known to repeat itself, so its events were those of any two seconds.
    is_rough: bool,
}

impl WayCost {
    /// Nothing was measured.
    fn new(is_rough: bool) -> Self {
        Self { mean: 0.0, periods: 0, recent: SmallVec::new(), median: 0.0, is_rough }
    }

    /// Is one more period about as slow as those lately?
    fn is_level(&self, pace: f64) -> bool {
        let last_but_one = self.recent.iter().rev().nth(1);
        last_but_one.is_some_and(|before| pace > FASTER * before.max(self.median))
    }

    /// The pace of one more period.
    fn add(&mut self, pace: f64) {
        self.periods = (self.periods + 1).min(PERIODS);
        self.mean += (pace - self.mean) / f64::from(self.periods);
        if self.recent.len() == RECENT {
            self.recent.remove(0);
        }
        self.recent.push(pace);
        let mut sorted = self.recent.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        self.median = sorted[(sorted.len() - 1) / 2];
    }
}

impl WayCosts {
    /// `None`: it was not measured.
    pub(super) fn of(&self, way: Way) -> Option<f64> {
        let cost = self.costs[way as usize].as_ref()?;
        // Moves at launches come in some periods more than in others, and each of them counts.
        Some(if self.uneven > 0 || way.moves_at_launches() { cost.mean } else { cost.median })
    }

    /// The periods that a trial has to be measured for: one, or as many as have each kind of
    /// period of an uneven program.
    pub(super) fn periods(&self) -> u32 {
        if self.uneven > 0 { PERIODS } else { 1 }
    }

    /// A trial has measured it, for [`periods`](Self::periods). `is_rough`: no period was known.
    pub(super) fn set(&mut self, way: Way, cost: f64, is_rough: bool) {
        let mut measured = WayCost::new(is_rough);
        measured.add(cost);
        measured.periods = self.periods();
        self.costs[way as usize] = Some(measured);
        self.is_level = false;
    }

    /// The pace of the chosen way in one more period, or in a time of that kind.
    pub(super) fn note(&mut self, way: Way, pace: f64, is_rough: bool) {
        // A rough pace is that of bursts of events, too: no measure for a period, nor for another.
        let known = self.costs[way as usize].take().filter(|known| is_rough || !known.is_rough);
        self.is_level = known.as_ref().is_some_and(|known| known.is_level(pace));
        let mut cost = known.unwrap_or_else(|| WayCost::new(is_rough));
        let is_dear = !is_rough && cost.periods > 0 && pace > UNEVEN * cost.mean;
        self.uneven = if is_dear { UNEVEN_PERIODS } else { self.uneven.saturating_sub(1) };
        cost.add(pace);
        self.costs[way as usize] = Some(cost);
    }

    /// Is the chosen way not becoming faster any more? Before that it is not known what another one
    /// is to be compared with.
    pub(super) fn is_level(&self) -> bool {
        self.is_level || self.uneven > 0
    }

    /// Of the known ways. One that moves memory at launches has to gain something.
    pub(super) fn best(&self, ways: &[Way]) -> (Way, f64) {
        let known = ways.iter().filter_map(|way| Some((*way, self.of(*way)?)));
        let rank = |&(way, cost): &(Way, f64)| rank(way, cost);
        known.min_by(|one, other| rank(one).total_cmp(&rank(other))).unwrap_or((Way::Leave, f64::INFINITY))
    }

    /// The best way, if the chosen one is known to take much longer now: by less, or over few
    /// periods, it differs by chance.
    pub(super) fn much_better(&self, ways: &[Way], chosen: Way) -> Option<Way> {
        let (best, least) = self.best(ways);
        let is_known = self.costs[chosen as usize].as_ref().is_some_and(|cost| cost.recent.len() == RECENT);
        let is_slower = self.of(chosen).is_some_and(|now| rank(best, least) < SLOWER * rank(chosen, now));
        (best != chosen && is_known && is_slower).then_some(best)
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

    /// Hazard (latency): a program goes on with a slower way, since the faster one had been slower
    /// before blocks changed places, or in one period.
    #[test]
    fn one_slow_period_and_those_of_long_ago_do_not_count() {
        let mut costs = WayCosts::default();
        for pace in [2.5, 2.2, 1.9, 1.5, 1.2, 1.0, 1.0] {
            costs.note(Way::Arrange, pace, false);
            assert!(!costs.is_level(), "{pace}");
        }
        costs.note(Way::Arrange, 1.0, false);
        for pace in [1.0, 1.0, 1.9, 1.0] {
            costs.note(Way::Arrange, pace, false);
            assert!(costs.is_level());
        }
        assert_eq!(costs.of(Way::Arrange), Some(1.0));
        costs.note(Way::Arrange, 9.0, false);
        assert!(costs.of(Way::Arrange) > Some(1.5), "a program of cheap periods and dear ones");
    }

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
