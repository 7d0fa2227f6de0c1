//! What the ways cost, as far as they were measured, and which is the best. Pure.

use super::Way;

/// A way that moves memory takes at most so much of the time of one that does not.
const GAIN: f64 = 0.98;

/// The way that is chosen stays unless another one takes at most so much of its time: two that are
/// alike would take turns, and each change would look like a gain.
const CHANGE: f64 = 0.99;

/// Seconds of an event with each way.
#[derive(Debug, Default)]
pub(super) struct WayCosts([Option<f64>; 4]);

impl WayCosts {
    /// `None`: it was not measured.
    pub(super) fn of(&self, way: Way) -> Option<f64> {
        self.0[way as usize]
    }

    pub(super) fn set(&mut self, way: Way, cost: f64) {
        self.0[way as usize] = Some(cost);
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
        costs.set(Way::Bring, 1.0);
        costs.set(Way::Follow, 0.995);
        assert_eq!(costs.best(&ways), (Way::Follow, 0.995));
        assert_eq!(costs.best_beside(&ways, Some(Way::Bring)), Way::Bring);
        assert_eq!(costs.best_beside(&ways, Some(Way::Leave)), Way::Follow, "it is not measured");
        costs.set(Way::Leave, 1.01);
        assert_eq!(costs.best(&ways).0, Way::Leave, "the others have to gain something");
        costs.set(Way::Follow, 0.9);
        assert_eq!(costs.best_beside(&ways, Some(Way::Bring)), Way::Follow);
    }
}
