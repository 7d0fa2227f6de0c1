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
        *copy.part(tier)
    }

    /// The bytes on the kind that `tier` is of, to change them.
    pub fn part(&mut self, tier: Tier) -> &mut u64 {
        match tier {
            Tier::Device => &mut self.device,
            Tier::Peer(_) => &mut self.peer,
            Tier::Host => &mut self.host,
        }
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

/// A quantity and the highest value it had since the last reset.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Gauge {
    pub(crate) now: TierBytes,
    pub(crate) peak: TierBytes,
}

impl Gauge {
    pub(crate) fn add(&mut self, bytes: &TierBytes) {
        self.now.add(bytes);
        self.peak.raise_to(&self.now);
    }

    pub(crate) fn subtract(&mut self, bytes: &TierBytes) {
        self.now.subtract(bytes);
    }

    pub(crate) fn reset_peak(&mut self) {
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
    *all.part(tier) = bytes;
    all
}
