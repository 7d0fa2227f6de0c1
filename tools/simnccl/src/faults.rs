//! Faults on demand: operations that fail, and delays of messages.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The kinds of operations that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Init,
    Send,
    Receive,
    Broadcast,
    AllGather,
    AllReduce,
}

impl Kind {
    const NAMES: [(&'static str, Self); 6] = [
        ("init", Self::Init),
        ("send", Self::Send),
        ("recv", Self::Receive),
        ("broadcast", Self::Broadcast),
        ("allgather", Self::AllGather),
        ("allreduce", Self::AllReduce),
    ];

    fn parse(text: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(name, _)| *name == text).map(|(_, kind)| *kind)
    }
}

/// One failure: the operation of this number, among those of a kind (and of a rank) in this
/// process.
#[derive(Debug)]
pub(crate) struct Rule {
    kind: Kind,
    rank: Option<usize>,
    number: u64,
    seen: AtomicU64,
}

impl Rule {
    pub(crate) const SYNTAX: &str = "OP:N or OP@RANK:N, where OP is init, send, recv, broadcast, allgather or allreduce and N counts from 1";

    /// A rule from its text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (name, number) = text.trim().split_once(':')?;
        let (name, rank) = match name.split_once('@') {
            Some((name, rank)) => (name, Some(rank.parse().ok()?)),
            None => (name, None),
        };
        let number = number.parse().ok().filter(|number| *number > 0)?;
        Some(Self { kind: Kind::parse(name)?, rank, number, seen: AtomicU64::new(0) })
    }

    /// Counts an operation. Is it the one that fails?
    fn strikes(&self, kind: Kind, rank: usize) -> bool {
        self.kind == kind
            && self.rank.is_none_or(|only| only == rank)
            && self.seen.fetch_add(1, Ordering::Relaxed) + 1 == self.number
    }
}

/// A network that drops everything after a number of messages: that of one rank, or of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Drop {
    messages: u64,
    rank: Option<usize>,
}

impl Drop {
    pub(crate) const SYNTAX: &str = "N or N@RANK, where N is a number of messages";

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (messages, rank) = match text.split_once('@') {
            Some((messages, rank)) => (messages, Some(rank.parse().ok()?)),
            None => (text, None),
        };
        Some(Self { messages: messages.parse().ok()?, rank })
    }

    /// The number of messages after which a rank's network drops everything.
    pub(crate) fn of(self, rank: usize) -> Option<u64> {
        self.rank.is_none_or(|only| only == rank).then_some(self.messages)
    }
}

/// Counts an operation. Does one of the rules make it fail?
pub(crate) fn strike(rules: &[Rule], kind: Kind, rank: usize) -> bool {
    // Each rule counts, also behind one that strikes.
    rules.iter().filter(|rule| rule.strikes(kind, rank)).count() > 0
}

/// The delays of one communicator's messages: a sequence that follows from the seed and the rank.
#[derive(Debug)]
pub(crate) struct Delays {
    random: fastrand::Rng,
    longest: Duration,
}

impl Delays {
    pub(crate) fn new(seed: u64, rank: usize, longest: Duration) -> Self {
        let own = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ rank as u64;
        Self { random: fastrand::Rng::with_seed(own), longest }
    }

    /// The next message's delay.
    pub(crate) fn next(&mut self) -> Duration {
        match self.longest.as_micros() as u64 {
            0 => Duration::ZERO,
            longest => Duration::from_micros(self.random.u64(0..=longest)),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (vacuous test): a fault that was asked for strikes another operation, or none.
    use super::*;

    #[test]
    fn a_rule_counts_its_own_kind_and_rank() {
        let rules = [Rule::parse("send@1:2").expect("valid")];
        let sent = [(Kind::Send, 0), (Kind::Send, 1), (Kind::Receive, 1), (Kind::Send, 1), (Kind::Send, 1)];
        let struck = sent.map(|(kind, rank)| strike(&rules, kind, rank));
        assert_eq!(struck, [false, false, false, true, false]);
    }

    #[test]
    fn a_drop_is_of_its_rank_or_of_all() {
        let of = |text| [0, 1].map(|rank| Drop::parse(text).and_then(|drop| drop.of(rank)));
        assert_eq!(of("7"), [Some(7), Some(7)]);
        assert_eq!(of("7@1"), [None, Some(7)]);
        assert_eq!(of("@1"), [None, None]);
    }

    #[test]
    fn delays_follow_from_the_seed_and_the_rank() {
        let drawn = |seed, rank| {
            let mut delays = Delays::new(seed, rank, Duration::from_millis(1));
            (0..20).map(|_| delays.next()).collect::<Vec<_>>()
        };
        assert_eq!(drawn(1, 0), drawn(1, 0));
        assert!(drawn(1, 0) != drawn(1, 1) && drawn(1, 0) != drawn(2, 0));
        assert!(drawn(1, 0).iter().all(|delay| *delay <= Duration::from_millis(1)));
    }
}
