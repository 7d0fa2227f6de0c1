//! Memory of other tiers than the device: whether other GPUs and the host have room.

use wm_driver::{Gpu, Tier};

use super::Manager;
use crate::vocabulary::sizes::round_up;

impl<G: Gpu> Manager<G> {
    /// Is there another GPU on which so many bytes more may lie, beside its headroom? The driver
    /// does not tell how much memory a GPU has left where no context is: so much is made there and
    /// released, in some microseconds.
    pub fn has_peer_room(&self, bytes: u64) -> bool {
        let settings = &self.rules.settings;
        let peers = settings.overflow.iter().filter(|tier| matches!(tier, Tier::Peer(_)));
        peers.copied().any(|tier| {
            let state = self.lock();
            let held = state.facts().held_on(tier);
            let is_idle = state.holdings.ledger.handles().idle_bytes().peer >= bytes;
            drop(state);
            is_idle || held.saturating_add(bytes) <= settings.peer_limit && self.could_make(tier, bytes)
        })
    }

    fn could_make(&self, tier: Tier, bytes: u64) -> bool {
        let wanted = bytes.checked_add(self.rules.settings.headroom);
        let Some(wanted) = wanted.and_then(|wanted| round_up(wanted, self.rules.granularity)) else {
            return false;
        };
        let made = self.gpu.create(tier, wanted as usize);
        // A handle that is not released is lost to all until the process ends, so nothing more is
        // taken there.
        made.is_ok_and(|handle| self.gpu.release(handle).is_ok())
    }

    /// Gives so much idle host memory back, as far as there is some; returns the bytes given back.
    pub fn relieve_host(&self, bytes: u64) -> u64 {
        self.relieve_tier(Tier::Host, bytes)
    }
}
