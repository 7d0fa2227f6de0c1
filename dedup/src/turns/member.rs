//! One member, as the broker knows it.

use std::time::Duration;

use super::limits::{FRESH, LONGEST_TURN, PATIENCE, TURN};
use super::message::{GpuId, TurnOrder, TurnPhase, TurnReport, TurnTask};

/// A member, for as long as it is connected. Not given again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberNumber(pub(super) u64);

/// An order that the member has not carried out.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenOrder {
    pub(super) number: u64,
    pub(super) since: Duration,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) report: TurnReport,
    pub(super) heard_at: Duration,
    pub(super) open: Option<OpenOrder>,
    /// It did not speak when it should have. Its word ends that.
    pub(super) is_silent: bool,
    /// While it launches it has its turn until then.
    pub(super) turn_until: Duration,
    last_order: u64,
    /// Orders that were not sent yet: to give, and to take.
    to_giver: Option<TurnOrder>,
    to_taker: Option<TurnOrder>,
}

impl Member {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            report: TurnReport::default(),
            heard_at: now,
            open: None,
            is_silent: false,
            turn_until: Duration::ZERO,
            last_order: 0,
            to_giver: None,
            to_taker: None,
        }
    }

    pub(super) fn hears(&mut self, report: TurnReport, now: Duration) {
        self.report = report;
        (self.heard_at, self.is_silent) = (now, false);
        self.open = self.open.filter(|open| open.number > self.report.done);
    }

    /// An order. What it replaces was not sent.
    pub(super) fn order(&mut self, task: TurnTask, now: Duration) -> u64 {
        self.last_order += 1;
        let number = self.last_order;
        let is_to_taker = matches!(task, TurnTask::Wait | TurnTask::Come { .. });
        let order = Some(TurnOrder { number, task });
        if is_to_taker {
            self.to_taker = order;
        } else {
            self.open = Some(OpenOrder { number, since: now });
            self.to_giver = order;
        }
        number
    }

    /// Does its last report say how it is now?
    pub(super) fn is_fresh(&self, now: Duration) -> bool {
        self.heard_at + FRESH >= now
    }

    /// It is to say how it is, if it has nothing else to carry out.
    pub(super) fn question(&mut self, now: Duration) {
        if self.open.is_none() {
            self.order(TurnTask::Report, now);
        }
    }

    /// It knows that it is heard.
    pub(super) fn assure(&mut self, now: Duration) {
        if self.to_taker.is_none() {
            self.order(TurnTask::Wait, now);
        }
    }

    pub(super) fn has_order(&self) -> bool {
        self.to_giver.is_some() || self.to_taker.is_some()
    }

    pub(super) fn take_order(&mut self) -> Option<TurnOrder> {
        self.to_giver.take().or_else(|| self.to_taker.take())
    }

    pub(super) fn gpus(&self) -> impl Iterator<Item = GpuId> + '_ {
        self.report.gpus.iter().map(|gpu| gpu.gpu)
    }

    /// Bytes that could leave a GPU.
    pub(super) fn present(&self, gpu: &GpuId) -> u64 {
        self.report.gpus.iter().find(|other| other.gpu == *gpu).map_or(0, |known| known.present)
    }

    /// Since its last launch.
    pub(super) fn idle(&self, now: Duration) -> Duration {
        self.report.idle.saturating_add(now.saturating_sub(self.heard_at))
    }

    /// The rest of its turn.
    pub(super) fn rest(&self, now: Duration) -> Duration {
        if self.report.phase == TurnPhase::Away {
            return Duration::ZERO;
        }
        self.turn_until.saturating_sub(now)
    }

    /// A turn begins that has cost so much time. A longer one that goes on stays.
    pub(super) fn begin_turn(&mut self, cost: Duration, now: Duration) {
        let length = cost.saturating_mul(TURN).min(LONGEST_TURN);
        self.turn_until = self.turn_until.max(now + length);
    }

    /// When it is silent at the latest, if it has to speak since `since`.
    pub(super) fn silent_at(&self, since: Duration) -> Duration {
        self.heard_at.max(since) + PATIENCE
    }
}
