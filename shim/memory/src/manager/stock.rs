//! Memory of other tiers than the device, beside what blocks get: of the host, made ahead of need, for it takes 170 ms a GiB, and whether other GPUs have some.

use wm_abi::CUresult;
use wm_driver::{Gpu, Tier};

use super::Manager;
use crate::vocabulary::sizes::round_up;
use crate::vocabulary::tiers::only;

impl<G: Gpu> Manager<G> {
    /// Makes a handle on the host that lies idle, of a whole number of the driver's granularity. `false`: the user or the machine allows no more.
    ///
    /// # Errors
    /// Those of the driver; nothing has changed.
    pub fn stock_host(&self, bytes: u64) -> Result<bool, CUresult> {
        let room = self.room_on(Tier::Host)?;
        let state = self.lock();
        let epoch = state.under_way.epoch();
        let is_allowed = self.rules.settings.overflow.contains(&Tier::Host)
            && state.host_allowance(room, &self.rules) >= bytes;
        drop(state);
        if !is_allowed {
            return Ok(false);
        }
        // Not a plan under way: moves would wait for it. So others may have used the allowance meanwhile.
        let made = self.gpu.create(Tier::Host, bytes as usize)?;
        let mut state = self.lock();
        let is_kept = epoch == state.under_way.epoch() && state.host_allowance(room, &self.rules) >= bytes;
        if is_kept {
            state.holdings.ledger.insert_handle(made, Tier::Host, bytes);
            let more = only(Tier::Host, bytes);
            state.holdings.plan(&more);
            state.holdings.made(&more);
        }
        drop(state);
        if is_kept {
            self.waiters.notify();
        } else {
            self.gpu.release(made)?;
        }
        Ok(is_kept)
    }

    /// Is there another GPU on which so many bytes more may lie, beside its headroom? Nothing tells what it has left where it has no context: so much is made there and released, in some
    /// microseconds.
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
        // What is not released is lost to all until the process ends, so nothing more is taken there.
        made.is_ok_and(|handle| self.gpu.release(handle).is_ok())
    }

    /// Bytes of the host that are held, those included that plans under way will make.
    pub fn held_on_host(&self) -> u64 {
        self.lock().holdings.held().host
    }

    /// Gives so much idle host memory back, as far as there is some; returns the bytes given back.
    pub fn relieve_host(&self, bytes: u64) -> u64 {
        self.relieve_tier(Tier::Host, bytes)
    }
}
