//! Memory of the host that is made ahead of need: it takes 170 ms a GiB, and who needs it waits for so long.

use wm_abi::CUresult;
use wm_driver::{Gpu, Tier};

use super::Manager;
use crate::vocabulary::tiers::only;

impl<G: Gpu> Manager<G> {
    /// Makes a handle on the host that lies idle, of a whole number of the driver's granularity. `false`: the user or the machine allows no more.
    ///
    /// # Errors
    /// Those of the driver; nothing has changed.
    pub fn stock_host(&self, bytes: u64) -> Result<bool, CUresult> {
        let room = self.room()?;
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

    /// Gives so much idle host memory back, as far as there is some; returns the bytes given back.
    pub fn relieve_host(&self, bytes: u64) -> u64 {
        self.relieve_tier(Tier::Host, bytes)
    }
}
