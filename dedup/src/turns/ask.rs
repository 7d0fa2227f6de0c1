//! One ask that is being served: what is missing on each GPU, and which members give it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::LONGEST;
use super::member::MemberNumber;
use super::message::{Gpu, TurnReport};

/// A member's ask.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) member: MemberNumber,
    pub(super) number: u64,
    /// `None`: older asks come first.
    pub(super) service: Option<AskService>,
}

impl Ask {
    /// When its member has had the time to take what is free; `None`: more may become free.
    pub(super) fn late_at(&self) -> Option<Duration> {
        let service = self.service.as_ref()?;
        service.told.filter(|told| told.is_last).map(|_| service.told_at + LONGEST)
    }
}

/// A member that gives way for an ask.
#[derive(Debug)]
pub(super) struct Giver {
    pub(super) order: u64,
    pub(super) promised: BTreeMap<Gpu, u64>,
    given: BTreeMap<Gpu, u64>,
    moved: Duration,
    /// It gives no more.
    pub(super) is_over: bool,
    /// It has to be over by then.
    pub(super) due: Duration,
}

impl Giver {
    pub(super) fn new(order: u64, promised: BTreeMap<Gpu, u64>, after: Duration, now: Duration) -> Self {
        let (given, moved) = (BTreeMap::new(), Duration::ZERO);
        Self { order, promised, given, moved, is_over: false, due: now + after + LONGEST }
    }

    /// It has reported.
    pub(super) fn note(&mut self, report: &TurnReport) {
        if report.giving == self.order {
            self.given = report.gpus.iter().map(|gpu| (gpu.gpu, gpu.given)).collect();
            self.moved = report.moved;
        }
        self.is_over |= report.done >= self.order;
    }
}

/// What the asking member was told last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ToldRoom {
    pub(super) given: u64,
    pub(super) is_last: bool,
}

#[derive(Debug)]
pub(super) struct AskService {
    /// What the GPUs lacked when it began.
    lacks: BTreeMap<Gpu, u64>,
    pub(super) givers: BTreeMap<MemberNumber, Giver>,
    /// Members that were asked for a report.
    pub(super) questioned: BTreeSet<MemberNumber>,
    /// Memory of members that have ended meanwhile.
    left: BTreeMap<Gpu, u64>,
    pub(super) told: Option<ToldRoom>,
    /// When it was told something, and something new.
    pub(super) told_at: Duration,
}

impl AskService {
    pub(super) fn begin(report: &TurnReport, now: Duration) -> Self {
        let lacks = report.gpus.iter().map(|gpu| (gpu.gpu, gpu.missing.saturating_sub(gpu.free)));
        Self {
            lacks: lacks.filter(|(_, bytes)| *bytes > 0).collect(),
            givers: BTreeMap::new(),
            questioned: BTreeSet::new(),
            left: BTreeMap::new(),
            told: None,
            told_at: now,
        }
    }

    /// Bytes that are lacking on each GPU beside what was given or is promised.
    pub(super) fn short(&self) -> BTreeMap<Gpu, u64> {
        let rest = |gpu: &Gpu, lacks: u64| {
            let of = |giver: &Giver| {
                let given = giver.given.get(gpu).copied().unwrap_or(0);
                let promised = giver.promised.get(gpu).copied().unwrap_or(0);
                if giver.is_over { given } else { given.max(promised) }
            };
            let left = self.left.get(gpu).copied().unwrap_or(0);
            self.givers.values().map(of).fold(lacks.saturating_sub(left), u64::saturating_sub)
        };
        let short = self.lacks.iter().map(|(gpu, lacks)| (*gpu, rest(gpu, *lacks)));
        short.filter(|(_, bytes)| *bytes > 0).collect()
    }

    /// Bytes that were given so far.
    pub(super) fn given(&self) -> u64 {
        let given = self.givers.values().flat_map(|giver| giver.given.values());
        given.chain(self.left.values()).copied().fold(0, u64::saturating_add)
    }

    pub(super) fn are_givers_over(&self) -> bool {
        self.givers.values().all(|giver| giver.is_over)
    }

    /// The time of the longest move that the ask has cost, beside the asking member's own.
    pub(super) fn cost(&self) -> Duration {
        self.givers.values().map(|giver| giver.moved).max().unwrap_or_default()
    }

    /// A member has ended, and its memory is free.
    pub(super) fn ended(&mut self, member: MemberNumber, present: impl Iterator<Item = (Gpu, u64)>) {
        for (gpu, bytes) in present {
            let left = self.left.entry(gpu).or_default();
            *left = left.saturating_add(bytes);
        }
        if let Some(giver) = self.givers.get_mut(&member) {
            giver.is_over = true;
        }
    }
}
