//! A request under way, and the results of earlier rounds.
//!
//! Each round of [`crate::state::decide`] reads the results that earlier rounds have stored here,
//! so no query is repeated.

use wm_driver::{OomAnswer, Tier};

use crate::vocabulary::order::Order;
use crate::vocabulary::request::{FirstTier, Request};
use crate::vocabulary::settings::Rules;

/// A request, and the results of earlier rounds.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) request: Request,
    /// The progress of some streams was queried.
    pub(crate) queried_some: bool,
    /// The progress of all streams was queried.
    pub(crate) queried_all: bool,
    /// Memory is acceptable for which the requesting stream must first wait for events.
    pub(crate) may_order: bool,
    /// The requesting stream cannot be made to wait.
    pub(crate) cannot_order: bool,
    /// The host may hold a stream back until the requesting one has gone on.
    pub(crate) may_be_held: bool,
    /// The host has waited, and nothing became free.
    pub(crate) waited: bool,
    /// Memory that the driver and the host have left.
    pub(crate) room: Option<Room>,
    /// Memory of the device was given back for this request, so the findings of earlier requests
    /// are void.
    pub(crate) is_relieved: bool,
    /// Tiers where a create failed.
    pub(crate) full: Vec<Tier>,
    /// The most that each other GPU may hold: the driver does not report the memory that they have
    /// left.
    pub(crate) most: Vec<(Tier, u64)>,
    /// The tiers that the caller can use; unknown until the device is full.
    pub(crate) oom_answer: Option<OomAnswer>,
    /// A block with an extent of its own may take a handle that is far too large for it.
    pub(crate) may_oversize: bool,
}

impl Attempt {
    pub(crate) fn new(request: Request) -> Self {
        let cannot_order = request.order == Order::Device;
        Self {
            request,
            queried_some: false,
            queried_all: false,
            may_order: false,
            cannot_order,
            may_be_held: false,
            waited: false,
            room: None,
            is_relieved: false,
            full: Vec::new(),
            most: Vec::new(),
            oom_answer: (request.first_tier == FirstTier::Device).then_some(OomAnswer::Fail),
            may_oversize: false,
        }
    }

    /// May it lie elsewhere, as far as is known, now or when it is asked for again?
    pub(crate) fn may_spill(&self, rules: &Rules) -> bool {
        !rules.settings.overflow.is_empty() && self.oom_answer != Some(OomAnswer::Fail)
    }

    /// All tiers in the order of preference; `None` where only the device's memory will do.
    pub(crate) fn tiers(&self, rules: &Rules) -> Option<Vec<Tier>> {
        let others = &rules.settings.overflow;
        let may = !others.is_empty() && self.oom_answer == Some(OomAnswer::Spill);
        let can_have = |tier: &Tier| self.request.first_tier != FirstTier::Unified || *tier == Tier::Host;
        may.then(|| std::iter::once(Tier::Device).chain(others.iter().copied().filter(can_have)).collect())
    }

    /// A tier has less than so many bytes: half of them are tried next, and in the end none.
    pub(crate) fn has_less(&mut self, tier: Tier, bytes: u64, least: u64) {
        self.most.retain(|(other, _)| *other != tier);
        if bytes / 2 < least {
            self.full.push(tier);
        } else {
            self.most.push((tier, bytes / 2));
        }
    }

    /// The most that may be made on a tier, as far as the attempt has found out.
    pub(crate) fn most_on(&self, tier: Tier) -> u64 {
        self.most.iter().find(|(other, _)| *other == tier).map_or(u64::MAX, |(_, most)| *most)
    }

    /// Another plan has ended: the results of earlier rounds may be outdated.
    pub(crate) fn start_over(&mut self) {
        *self = Self { may_be_held: self.may_be_held, ..Self::new(self.request) };
    }
}

/// How far reserved bytes may grow: the memory that the driver and the host have left.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Room {
    pub(crate) device: u64,
    /// As far as small memory may make them grow: it may use a part of the headroom.
    pub(crate) device_for_small: u64,
    /// 0 until the host was asked.
    pub(crate) host: u64,
    pub(crate) host_figure: HostFigure,
    /// The part of the user's host limit that the process's other devices leave.
    pub(crate) host_limit: u64,
    /// The generation of plans that make host memory, if one was under way.
    pub(crate) host_plans: Option<u64>,
}

impl Room {
    /// Is it the user's limit, less memory that a plan may give back, that bounds the host?
    pub(crate) fn awaited(&self) -> Option<u64> {
        self.host_plans.filter(|_| self.host_figure != HostFigure::Unasked && self.host_limit <= self.host)
    }
}

/// How recent the figure for the host is. A query of the host takes a hundred microseconds, so it
/// is made only where the device is full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum HostFigure {
    #[default]
    Unasked,
    /// Some milliseconds old: enough to refuse a request, not enough to make memory.
    Recent,
    Current,
}
