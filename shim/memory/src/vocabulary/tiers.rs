//! Bytes by kind of tier: how blocks, budgets and statistics say where memory is.

use serde::Serialize;
use wm_driver::Tier;

/// Bytes on each kind of tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TierBytes {
    /// On the GPU itself.
    pub device: u64,
    /// On other GPUs.
    pub peer: u64,
    /// In pinned host memory.
    pub host: u64,
}

impl From<TierBytes> for wm_schema::BytesByTier {
    fn from(TierBytes { device, peer, host }: TierBytes) -> Self {
        Self { device, peer, host }
    }
}

impl TierBytes {
    /// Bytes that are not on the GPU itself.
    pub fn elsewhere(&self) -> u64 {
        self.peer + self.host
    }

    /// Bytes on all tiers.
    pub fn total(&self) -> u64 {
        self.device + self.peer + self.host
    }

    /// Bytes on the kind that `tier` is of.
    pub fn on(&self, tier: Tier) -> u64 {
        let mut copy = *self;
        *copy.bytes_mut(tier)
    }

    /// The bytes on the kind that `tier` is of, to change them.
    pub fn bytes_mut(&mut self, tier: Tier) -> &mut u64 {
        match tier {
            Tier::Device => &mut self.device,
            Tier::Peer(_) => &mut self.peer,
            Tier::Host => &mut self.host,
        }
    }

    /// These bytes and others.
    #[must_use]
    pub fn plus(mut self, other: Self) -> Self {
        self.add(&other);
        self
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.device += other.device;
        self.peer += other.peer;
        self.host += other.host;
    }

    pub(crate) fn subtract(&mut self, other: &Self) {
        debug_assert!(self.device >= other.device && self.peer >= other.peer && self.host >= other.host);
        self.device = self.device.saturating_sub(other.device);
        self.peer = self.peer.saturating_sub(other.peer);
        self.host = self.host.saturating_sub(other.host);
    }

    pub(crate) fn raise_to(&mut self, other: &Self) {
        self.device = self.device.max(other.device);
        self.peer = self.peer.max(other.peer);
        self.host = self.host.max(other.host);
    }
}

/// The most that there was since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Peaks {
    /// On each kind of tier, each at its own time.
    pub tiers: TierBytes,
    /// On all of them at once.
    pub total: u64,
}

impl Peaks {
    /// There is so much now.
    pub fn raise_to(&mut self, now: &TierBytes) {
        self.tiers.raise_to(now);
        self.total = self.total.max(now.total());
    }
}

/// A quantity and the highest values it had.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Gauge {
    pub(crate) now: TierBytes,
    /// Since the last reset.
    pub(crate) peak: TierBytes,
    /// Before the last reset.
    before: TierBytes,
    /// On all tiers at once, since the start: a reset does not change it.
    total_peak: u64,
}

impl Gauge {
    pub(crate) fn add(&mut self, bytes: &TierBytes) {
        self.now.add(bytes);
        self.peak.raise_to(&self.now);
        self.total_peak = self.total_peak.max(self.now.total());
    }

    /// The peaks since the start: a reset does not change them.
    pub(crate) fn peaks(&self) -> Peaks {
        let mut tiers = self.before;
        tiers.raise_to(&self.peak);
        Peaks { tiers, total: self.total_peak }
    }

    pub(crate) fn subtract(&mut self, bytes: &TierBytes) {
        self.now.subtract(bytes);
    }

    pub(crate) fn reset_peak(&mut self) {
        self.before.raise_to(&self.peak);
        self.peak = self.now;
    }
}

/// A count of bytes, and the highest it was.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Level {
    pub(crate) now: u64,
    pub(crate) peak: u64,
}

impl Level {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.now += bytes;
        self.peak = self.peak.max(self.now);
    }

    pub(crate) fn subtract(&mut self, bytes: u64) {
        self.now = self.now.saturating_sub(bytes);
    }

    pub(crate) fn reset_peak(&mut self) {
        self.peak = self.now;
    }
}

/// `bytes` of one tier.
pub(crate) fn only(tier: Tier, bytes: u64) -> TierBytes {
    let mut all = TierBytes::default();
    *all.bytes_mut(tier) = bytes;
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_outlive_a_reset_and_the_total_is_what_there_was_at_once() {
        let mut gauge = Gauge::default();
        gauge.add(&only(Tier::Device, 8));
        gauge.subtract(&only(Tier::Device, 6));
        gauge.add(&only(Tier::Host, 5));
        gauge.reset_peak();
        gauge.add(&only(Tier::Peer(1), 2));
        assert_eq!(gauge.peak, TierBytes { device: 2, peer: 2, host: 5 });
        assert_eq!(gauge.peaks(), Peaks { tiers: TierBytes { device: 8, peer: 2, host: 5 }, total: 9 });
    }
}
