//! A device's place in the process's black box, and the figures there that each hit and each free
//! stores.
//!
//! Invariant: nothing is read back for a decision.

use std::sync::atomic::Ordering::Relaxed;

use wm_schema::Counters;
use wm_schema::black_box::DeviceBox;

use crate::vocabulary::tiers::Gauge;

/// Where the figures of a manager without a black box go.
static UNSHOWN: DeviceBox = DeviceBox::new();

/// A manager's place in the black box.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlackBoxPlace(pub(crate) &'static DeviceBox);

impl Default for BlackBoxPlace {
    fn default() -> Self {
        Self(&UNSHOWN)
    }
}

impl BlackBoxPlace {
    /// A hit has given a block out. It is whole on the device.
    #[inline]
    pub(crate) fn given(self, live: &Gauge, counters: &Counters) {
        let hot = &self.0.hot;
        hot.live_device.store(live.now.device, Relaxed);
        hot.allocations.store(counters.allocations, Relaxed);
        hot.hits.store(counters.hits, Relaxed);
    }

    /// The device has another limit.
    pub(crate) fn limited(self, bytes: u64) {
        let limits = &self.0.limits;
        limits.limit.store(bytes.min(limits.total.load(Relaxed)), Relaxed);
    }

    /// A block was taken back.
    #[inline]
    pub(crate) fn taken(self, live: &Gauge, counters: &Counters) {
        let hot = &self.0.hot;
        hot.live_device.store(live.now.device, Relaxed);
        hot.live_peer.store(live.now.peer, Relaxed);
        hot.live_host.store(live.now.host, Relaxed);
        hot.frees.store(counters.frees, Relaxed);
    }
}
