//! One ask that is being served: what is missing on each GPU, and which members give it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::limits::LONGEST;
use super::member::MemberNumber;
use super::message::{GpuId, TurnReport};

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

/// What GPUs have too little of for a member.
fn lacks_of(report: &TurnReport) -> BTreeMap<GpuId, u64> {
    let lacks = report.gpus.iter().map(|gpu| (gpu.gpu, gpu.missing.saturating_sub(gpu.free)));
    lacks.filter(|(_, bytes)| *bytes > 0).collect()
}

/// A member that gives way for an ask.
#[derive(Debug)]
pub(super) struct Giver {
    pub(super) order: u64,
    pub(super) promised: BTreeMap<GpuId, u64>,
    given: BTreeMap<GpuId, u64>,
    moved: Duration,
    /// It has nothing more to do for the order.
    pub(super) is_over: bool,
    /// It has to be over by then.
    pub(super) due: Duration,
}

impl Giver {
    pub(super) fn new(order: u64, promised: BTreeMap<GpuId, u64>, after: Duration, now: Duration) -> Self {
        let (given, moved) = (BTreeMap::new(), Duration::ZERO);
        Self { order, promised, given, moved, is_over: false, due: now + after + LONGEST }
    }

    /// Has it given all that it was asked for? Then it may have more.
    fn is_complete(&self) -> bool {
        let given = |gpu| self.given.get(gpu).copied().unwrap_or(0);
        self.is_over && self.promised.iter().all(|(gpu, bytes)| given(gpu) >= *bytes)
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
    lacks: BTreeMap<GpuId, u64>,
    pub(super) givers: BTreeMap<MemberNumber, Giver>,
    /// Members that were asked for a report.
    pub(super) questioned: BTreeSet<MemberNumber>,
    /// Memory of members that have ended meanwhile.
    left: BTreeMap<GpuId, u64>,
    pub(super) told: Option<ToldRoom>,
    /// The order that told it, and when.
    pub(super) come: u64,
    pub(super) told_at: Duration,
    /// Of earlier rounds: what was given, and the time of the longest move.
    given_before: u64,
    cost_before: Duration,
    rounds: u32,
}

/// How often members give way for one ask, each time for what it lacks then. What moves need beside
/// the memory itself is not known before.
const ROUNDS: u32 = 4;

impl AskService {
    pub(super) fn begin(report: &TurnReport, now: Duration) -> Self {
        Self {
            lacks: lacks_of(report),
            givers: BTreeMap::new(),
            questioned: BTreeSet::new(),
            left: BTreeMap::new(),
            told: None,
            come: 0,
            told_at: now,
            given_before: 0,
            cost_before: Duration::ZERO,
            rounds: 1,
        }
    }

    /// Was the asking member told that no more will be free?
    pub(super) fn is_last(&self) -> bool {
        self.told.is_some_and(|told| told.is_last)
    }

    /// Has the asking member taken all that was given, and lacks more?
    pub(super) fn is_short(&self, report: &TurnReport) -> bool {
        self.told.is_some_and(|told| told.given == self.given()) && report.short >= self.come
    }

    /// Begins another round, with what is lacking now. `false`: there is none.
    pub(super) fn begin_round(&mut self, report: &TurnReport) -> bool {
        self.rounds += 1;
        (self.given_before, self.cost_before) = (self.given(), self.cost());
        self.givers.retain(|_, giver| !giver.is_complete());
        for giver in self.givers.values_mut() {
            giver.given.clear();
        }
        self.left.clear();
        self.questioned.clear();
        self.lacks = lacks_of(report);
        self.rounds <= ROUNDS && !self.lacks.is_empty()
    }

    /// Bytes that are lacking on each GPU beside what was given or is promised.
    pub(super) fn short(&self) -> BTreeMap<GpuId, u64> {
        let rest = |gpu: &GpuId, lacks: u64| {
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
        given.chain(self.left.values()).copied().fold(self.given_before, u64::saturating_add)
    }

    pub(super) fn are_givers_over(&self) -> bool {
        self.givers.values().all(|giver| giver.is_over)
    }

    /// The time of the longest move that the ask has cost, beside the asking member's own.
    pub(super) fn cost(&self) -> Duration {
        self.givers.values().map(|giver| giver.moved).fold(self.cost_before, Duration::max)
    }

    /// A member has ended, and its memory is free.
    pub(super) fn ended(&mut self, member: MemberNumber, present: impl Iterator<Item = (GpuId, u64)>) {
        for (gpu, bytes) in present {
            let left = self.left.entry(gpu).or_default();
            *left = left.saturating_add(bytes);
        }
        if let Some(giver) = self.givers.get_mut(&member) {
            giver.is_over = true;
        }
    }
}
