//! The links that a process uses, and how long other processes keep away from them. Pure.
//!
//! A target's own link stays claimed for a time after a copy ends: a rank that has just used its
//! link is likely to use it again, and in a job whose ranks all copy in a loop no rank ever sees
//! the copies of all others at one moment. So after the first round no other rank relays through
//! the link of such a rank, in either direction. A relay's link is claimed for the copy alone: a
//! rank that relays through a sibling knows nothing of the sibling's own copies, and two ranks that
//! copy alone take turns on the idle links.
//!
//! Within the process only copies in flight count: where the program waits, their ends are known.
//!
//! Times are milliseconds since 1970.

use std::collections::BTreeSet;
use std::time::Duration;

use wm_abi::CUdevice;

use crate::vocabulary::machine::Link;

/// A claim on the own link outlasts its copy by this multiple of the copy's duration: a link that
/// is used less often than that has room for others...
const REMEMBERED: u32 = 4;
/// ... and by this long at least: ranks meet at barriers between copies.
const SHORTEST: Duration = Duration::from_millis(100);

/// A use of a link by this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The link.
    pub link: Link,
    /// The device that the copy goes to or comes from.
    pub target: CUdevice,
    /// When the copy ends.
    pub until: u64,
    /// When other processes may use the link again.
    pub told: u64,
}

impl Claim {
    fn is(&self, target: CUdevice, links: &[Link]) -> bool {
        self.target == target && links.contains(&self.link)
    }
}

/// The uses of links by one process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claims(Vec<Claim>);

impl Claims {
    /// A copy to `target` begins and takes about `takes`. The first link is the target's own, the
    /// others are the relays'.
    pub(crate) fn claim(&mut self, target: CUdevice, links: &[Link], now: u64, takes: Duration) {
        let until = now + milliseconds(takes) + 1;
        let Some((own, relays)) = links.split_first() else { return };
        let before = self.0.iter().filter(|claim| claim.is(target, &[*own])).map(|claim| claim.told).max();
        let told = until + milliseconds(SHORTEST.max(takes * REMEMBERED));
        self.0.retain(|claim| claim.told > now && !claim.is(target, links));
        self.0.push(Claim { link: *own, target, until, told: told.max(before.unwrap_or(0)) });
        self.0.extend(relays.iter().map(|link| Claim { link: *link, target, until, told: until }));
    }

    /// A copy to `target` is over. The time for which others remember it begins now.
    pub(crate) fn release(&mut self, target: CUdevice, links: &[Link], now: u64) {
        for claim in self.0.iter_mut().filter(|claim| claim.is(target, links)) {
            let left = claim.until.saturating_sub(now);
            (claim.until, claim.told) = (claim.until - left, claim.told - left);
        }
        self.0.retain(|claim| claim.told > now);
    }

    /// The links that a copy to `target` avoids, besides those that other processes claim. Copies
    /// to one target follow each other through the same links, so they do not hinder each other.
    pub(crate) fn obstacles(&self, target: CUdevice, now: u64) -> BTreeSet<Link> {
        let busy = self.0.iter().filter(|claim| claim.until > now && claim.target != target);
        busy.map(|claim| claim.link).collect()
    }

    /// The claims for other processes: each link once, and when its claim ends. Own links come
    /// first, because the page has room for few.
    pub(crate) fn told(&self, now: u64) -> Vec<(Link, u64)> {
        let mut live: Vec<_> = self.0.iter().filter(|claim| claim.told > now).collect();
        live.sort_by_key(|claim| std::cmp::Reverse(claim.told));
        let mut seen = BTreeSet::new();
        live.into_iter()
            .filter(|claim| seen.insert(claim.link))
            .map(|claim| (claim.link, claim.told))
            .collect()
    }
}

fn milliseconds(duration: Duration) -> u64 {
    duration.as_millis() as u64
}

#[cfg(test)]
mod tests {
    //! Hazard: a rank relays through links that other ranks need, or gives up its own after one
    //! copy.
    use proptest::prelude::*;

    use super::*;

    const TAKES: Duration = Duration::from_millis(20);

    fn claims(target: CUdevice, links: &[u64]) -> Claims {
        let mut claims = Claims::default();
        claims.claim(target, &links.iter().copied().map(Link).collect::<Vec<_>>(), 0, TAKES);
        claims
    }

    #[test]
    fn copies_to_one_target_do_not_hinder_each_other_and_those_to_another_do_until_they_end() {
        let mut claims = claims(5, &[1, 2]);
        assert!(claims.obstacles(5, 10).is_empty());
        assert_eq!(claims.obstacles(0, 10), BTreeSet::from([Link(1), Link(2)]));
        assert!(claims.obstacles(0, 21).is_empty(), "it should have ended");
        claims.release(5, &[Link(1), Link(2)], 5);
        assert!(claims.obstacles(0, 10).is_empty(), "it has ended");
    }

    #[test]
    fn others_remember_own_links_and_not_relays() {
        let mut claims = claims(0, &[1, 2]);
        assert_eq!(claims.told(10), [(Link(1), 121), (Link(2), 21)]);
        assert_eq!(claims.told(21), [(Link(1), 121)]);
        assert!(claims.told(121).is_empty());
        claims.release(0, &[Link(1), Link(2)], 5);
        assert_eq!(claims.told(10), [(Link(1), 105)], "as long as before, from the end on");
    }

    /// Ranks with a link each. Every rank sees the claims of the others.
    struct Ranks(Vec<Claims>);

    impl Ranks {
        fn new(count: u64) -> Self {
            Self((0..count).map(|_| Claims::default()).collect())
        }

        /// A rank copies over its own link and all free ones. Returns the number of its relays.
        fn copy(&mut self, rank: u64, now: u64) -> usize {
            let others = self.0.iter().enumerate().filter(|(other, _)| *other as u64 != rank);
            let busy: BTreeSet<_> =
                others.flat_map(|(_, claims)| claims.told(now)).map(|(link, _)| link.0).collect();
            let relays = (0..self.0.len() as u64).filter(|link| *link != rank && !busy.contains(link));
            let links: Vec<_> = std::iter::once(rank).chain(relays).map(Link).collect();
            self.0[rank as usize].claim(0, &links, now, TAKES);
            links.len() - 1
        }
    }

    proptest! {
        #[test]
        fn ranks_that_all_copy_relay_in_no_round_but_the_first(
            count in 2..9_u64, pauses in prop::collection::vec(0..80_u64, 1..50),
        ) {
            let (mut ranks, mut now) = (Ranks::new(count), 0);
            let first: Vec<_> = (0..count).map(|rank| ranks.copy(rank, now)).collect();
            prop_assert_eq!(first[0] as u64, count - 1);
            for pause in pauses {
                now += 20 + pause;
                (0..count).for_each(|rank| assert_eq!(ranks.copy(rank, now), 0, "rank {rank}"));
            }
        }

        #[test]
        fn ranks_that_copy_have_the_links_of_all_that_do_not(
            count in 3..9_u64, steps in prop::collection::vec((0..2_usize, 0..200_u64), 1..50),
        ) {
            let (mut ranks, mut now, mut busy) = (Ranks::new(count), 0, [0; 2]);
            for (rank, pause) in steps {
                // The copy of the other rank has ended, and the links that it relayed through are
                // free.
                now += 21 + pause;
                let others = u64::from(busy[1 - rank] > now);
                prop_assert_eq!(ranks.copy(rank as u64, now) as u64, count - 1 - others);
                busy[rank] = now + 121;
            }
        }
    }
}
