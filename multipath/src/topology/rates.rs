//! The rates of links in one direction, and the rates of any set of them that follow. Bytes a
//! second.
//!
//! Three things are measured: each link alone, each pair at once, and all at once. A link behind a
//! shared uplink gets its part of the uplink's rate; a whole set gets at most the host's ceiling.

use serde::{Deserialize, Serialize};
use wm_abi::CUdevice;

/// Two links share an uplink if their rate together is less than this part of the sum of their
/// rates alone...
const APART: f64 = 0.7;
/// ... or less than this part of the rate of either with a third one.
const ELSEWHERE: f64 = 0.85;
/// A relay must add at least this part of the direct path's rate.
const GAIN: f64 = 0.05;

/// The rates of links in one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Each link alone.
    pub alone: Vec<f64>,
    /// `together[a][b]`: the sum of both at once. Symmetric; the diagonal is not used.
    pub together: Vec<Vec<f64>>,
    /// The sum of all at once.
    pub all: f64,
}

impl Rates {
    pub(super) fn index(&self, device: CUdevice) -> Option<usize> {
        usize::try_from(device).ok().filter(|index| self.alone.get(*index).is_some_and(|rate| *rate > 0.0))
    }

    /// Do two links share an uplink? Their rate together is clearly below the sum of their rates
    /// alone, or below the rate of either with another link. A deficit that all pairs have is the
    /// host's ceiling.
    pub fn share_uplink(&self, one: usize, other: usize) -> bool {
        if one == other {
            return false;
        }
        let together = self.together[one][other];
        let elsewhere = self.with_any(one).min(self.with_any(other));
        together < APART * (self.alone[one] + self.alone[other]) || together < ELSEWHERE * elsewhere
    }

    /// The highest rate of a link together with another one.
    fn with_any(&self, link: usize) -> f64 {
        self.together[link].iter().copied().fold(0.0, f64::max)
    }

    /// The candidate that adds most to those chosen, if it adds enough.
    pub(super) fn best(&self, chosen: &[usize], candidates: &[usize]) -> Option<usize> {
        let total = |set: &[usize]| self.carried(set).iter().sum::<f64>();
        let before = total(chosen);
        let least = GAIN * self.alone[chosen[0]];
        let gain = |candidate: &usize| total(&[chosen, &[*candidate]].concat()) - before;
        let best = candidates.iter().map(|candidate| (gain(candidate), *candidate));
        // Of equal candidates the first: a plan must not change from call to call.
        let best = best.reduce(|best, other| if other.0 > best.0 { other } else { best });
        best.filter(|(gain, _)| *gain >= least).map(|(_, candidate)| candidate)
    }

    /// The expected rate of each link of a set when all of them work at once.
    pub fn carried(&self, set: &[usize]) -> Vec<f64> {
        let mut rates: Vec<f64> = set.iter().map(|link| self.behind_uplink(*link, set)).collect();
        let sum: f64 = rates.iter().sum();
        let ceiling = self.ceiling(set);
        if sum > ceiling {
            rates.iter_mut().for_each(|rate| *rate *= ceiling / sum);
        }
        rates
    }

    /// A link's part of its uplink, which the links of the set behind it share evenly.
    fn behind_uplink(&self, link: usize, set: &[usize]) -> f64 {
        let sharers: Vec<usize> =
            set.iter().copied().filter(|other| self.share_uplink(link, *other)).collect();
        let uplink = sharers.iter().map(|other| self.together[link][*other]).fold(f64::INFINITY, f64::min);
        self.alone[link].min(uplink / (sharers.len() + 1) as f64)
    }

    /// The host's ceiling, from all links at once and from each pair.
    fn ceiling(&self, set: &[usize]) -> f64 {
        if let [one, other] = set {
            return self.together[*one][*other];
        }
        let pairs = set.iter().flat_map(|one| set.iter().map(move |other| (*one, *other)));
        let best = pairs.filter(|(one, other)| one != other).map(|(one, other)| self.together[one][other]);
        best.fold(if set.len() == 1 { self.alone[set[0]] } else { self.all }, f64::max)
    }

    /// Links by uplink: each inner list shares one.
    pub fn uplinks(&self) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for link in 0..self.alone.len() {
            match groups.iter_mut().find(|group| group.iter().any(|other| self.share_uplink(link, *other))) {
                Some(group) => group.push(link),
                None => groups.push(vec![link]),
            }
        }
        groups
    }

    /// Do two measurements agree, within `tolerance` of the higher one?
    pub(crate) fn agrees(&self, other: &Self, tolerance: f64) -> bool {
        let close = |(one, other): (&f64, &f64)| (one - other).abs() <= tolerance * one.max(*other);
        self.numbers().zip(other.numbers()).all(close)
    }

    /// The higher of two measurements, link by link: every disturbance makes links look slower.
    pub(crate) fn undisturbed(&self, other: &Self) -> Self {
        let row = |one: &[f64], other: &[f64]| one.iter().zip(other).map(|(a, b)| a.max(*b)).collect();
        let rows = self.together.iter().zip(&other.together);
        Self {
            alone: row(&self.alone, &other.alone),
            together: rows.map(|(one, other)| row(one, other)).collect(),
            all: self.all.max(other.all),
        }
    }

    /// Every figure.
    pub(super) fn numbers(&self) -> impl Iterator<Item = &f64> {
        self.alone.iter().chain(self.together.iter().flatten()).chain([&self.all])
    }

    /// Could these be figures of one machine? The rate of a pair is at most the sum of both rates,
    /// and the rate of all links is at most the sum of all.
    pub(super) fn are_plausible(&self) -> bool {
        const MARGIN: f64 = 1.25;
        let count = self.alone.len();
        let square = self.together.len() == count && self.together.iter().all(|row| row.len() == count);
        let pairs = (0..count).flat_map(|one| (0..one).map(move |other| (one, other)));
        square
            && self.numbers().all(|rate| rate.is_finite() && *rate >= 0.0)
            && self.all <= MARGIN * self.alone.iter().sum::<f64>()
            && pairs.into_iter().all(|(one, other)| {
                self.together[one][other] <= MARGIN * (self.alone[one] + self.alone[other])
            })
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: links behind one uplink are taken for several, or the host's ceiling for a shared
    //! uplink.
    use super::*;

    fn rates(alone: f64, together: impl Fn(usize, usize) -> f64, all: f64) -> Rates {
        let row = |a| (0..4).map(|b| if a == b { 0.0 } else { together(a, b) }).collect();
        Rates { alone: vec![alone; 4], together: (0..4).map(row).collect(), all }
    }

    #[test]
    fn a_pair_that_is_slower_than_others_shares_an_uplink() {
        let out = rates(55.0, |a, b| if a / 2 == b / 2 { 83.0 } else { 110.0 }, 150.0);
        assert_eq!(out.uplinks(), [[0, 1], [2, 3]]);
        let carried = out.carried(&[0, 1, 2]);
        assert!((carried[0] - 41.5).abs() < 1e-9 && (carried[2] - 55.0).abs() < 1e-9, "{carried:?}");
    }

    #[test]
    fn what_all_pairs_are_short_of_is_the_hosts_ceiling() {
        let out = rates(55.0, |_, _| 83.0, 107.0);
        assert_eq!(out.uplinks().len(), 4);
        assert!((out.carried(&[0, 1, 2, 3]).iter().sum::<f64>() - 107.0).abs() < 1e-9);
    }

    #[test]
    fn two_links_alone_on_a_machine_may_share_one_too() {
        let pair =
            Rates { alone: vec![55.0; 2], together: vec![vec![0.0, 60.0], vec![60.0, 0.0]], all: 60.0 };
        assert_eq!(pair.uplinks(), [[0, 1]]);
    }

    #[test]
    fn a_disturbed_measurement_is_noticed_and_mended() {
        let (sound, mut disturbed) = (rates(55.0, |_, _| 110.0, 208.0), rates(55.0, |_, _| 110.0, 208.0));
        assert!(sound.agrees(&disturbed, 0.1));
        (disturbed.alone[1], disturbed.together[2][3]) = (20.0, 60.0);
        assert!(!sound.agrees(&disturbed, 0.1));
        assert_eq!(disturbed.undisturbed(&sound), sound);
    }

    #[test]
    fn figures_of_no_machine_are_refused() {
        assert!(rates(55.0, |_, _| 110.0, 208.0).are_plausible());
        assert!(!rates(55.0, |_, _| 210.0, 208.0).are_plausible());
        assert!(!rates(55.0, |_, _| 110.0, 1e15).are_plausible());
        assert!(!rates(f64::NAN, |_, _| 110.0, 208.0).are_plausible());
        let ragged = Rates { together: vec![vec![]; 4], ..rates(55.0, |_, _| 110.0, 208.0) };
        assert!(!ragged.are_plausible());
    }
}
