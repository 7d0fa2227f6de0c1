//! A request under way, and what was learned while trying to meet it.
//!
//! Each round of [`crate::state::decide`] reads what earlier rounds have noted here, so a question is asked once.

use wm_driver::{Bears, Tier};

use crate::vocabulary::order::Order;
use crate::vocabulary::request::Request;
use crate::vocabulary::settings::Rules;

/// A request, and what was learned while trying to meet it.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) request: Request,
    /// Some streams were asked how far they have come.
    pub(crate) asked_some: bool,
    /// All of them were.
    pub(crate) asked_all: bool,
    /// Memory will do that the requesting stream must be ordered behind events for.
    pub(crate) may_order: bool,
    /// The requesting stream cannot be made to wait.
    pub(crate) cannot_order: bool,
    /// Nothing was freed for as long as a request waits.
    pub(crate) waited: bool,
    /// What the driver and the host have left.
    pub(crate) room: Option<Room>,
    /// Tiers where a create failed.
    pub(crate) full: Vec<Tier>,
    /// What the caller bears; unknown until the device has no room.
    pub(crate) bears: Option<Bears>,
    /// A block with an extent of its own may take a handle that is far too large for it.
    pub(crate) may_oversize: bool,
}

impl Attempt {
    pub(crate) fn new(request: Request) -> Self {
        let cannot_order = request.order == Order::Device;
        Self {
            request,
            asked_some: false,
            asked_all: false,
            may_order: false,
            cannot_order,
            waited: false,
            room: None,
            full: Vec::new(),
            bears: None,
            may_oversize: false,
        }
    }

    /// All tiers in the order of preference; `None` where only the device's memory will do.
    pub(crate) fn tiers(&self, rules: &Rules) -> Option<Vec<Tier>> {
        let others = &rules.settings.overflow;
        let may = !others.is_empty() && self.bears == Some(Bears::Elsewhere);
        may.then(|| std::iter::once(Tier::Device).chain(others.iter().copied()).collect())
    }

    /// Another plan has ended: what was learned about room no longer holds.
    pub(crate) fn start_over(&mut self) {
        *self = Self::new(self.request);
    }
}

/// How far reserved bytes may grow by what the driver and the host have left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) device: u64,
    pub(crate) host: u64,
}
