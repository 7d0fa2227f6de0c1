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
    /// Nothing yet.
    pub const NONE: Self = Self { tiers: TierBytes { device: 0, peer: 0, host: 0 }, total: 0 };

    /// As if there had never been more than now.
    pub(crate) fn of(now: &TierBytes) -> Self {
        Self { tiers: *now, total: now.total() }
    }

    /// There is so much now.
    pub fn raise_to(&mut self, now: &TierBytes) {
        self.join(&Self::of(now));
    }

    /// Another time's peaks of the same bytes.
    pub fn join(&mut self, other: &Self) {
        self.tiers.raise_to(&other.tiers);
        self.total = self.total.max(other.total);
    }
}

/// A quantity, and the most of it since its [`PastPeaks`] were told.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Gauge {
    pub(crate) now: TierBytes,
    recent: Peaks,
}

impl Gauge {
    pub(crate) fn add(&mut self, bytes: &TierBytes) {
        self.now.add(bytes);
        self.recent.raise_to(&self.now);
    }

    pub(crate) fn subtract(&mut self, bytes: &TierBytes) {
        self.now.subtract(bytes);
    }

    /// The most since the peaks were told is what there is now.
    pub(crate) fn forget_recent(&mut self) {
        self.recent = Peaks::of(&self.now);
    }

    /// The peaks that a block of the device raises.
    pub(crate) fn peaks(&self) -> (u64, u64) {
        (self.recent.tiers.device, self.recent.total)
    }
}

/// The most of a quantity, by itself and together with pieces of the program.
///
/// Blocks come and go by the million while no piece does. So an allocation raises its gauge alone,
/// and the peaks are told of it when the bytes of pieces change, and when the peaks are read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PastPeaks {
    /// Since the last reset.
    pub(crate) since_reset: TierBytes,
    /// Since the start: a reset does not change it.
    pub(crate) ever: Peaks,
    /// Since the start, pieces included.
    pub(crate) with_pieces: Peaks,
}

impl PastPeaks {
    /// Since the last time there were so many bytes of pieces beside the gauge's.
    pub(crate) fn fold(&mut self, gauge: &mut Gauge, pieces: &TierBytes) {
        let Peaks { tiers, total } = std::mem::replace(&mut gauge.recent, Peaks::of(&gauge.now));
        self.since_reset.raise_to(&tiers);
        self.ever.join(&Peaks { tiers, total });
        self.with_pieces.join(&Peaks { tiers: tiers.plus(*pieces), total: total + pieces.total() });
    }

    /// The peaks as they would be, were they told now.
    pub(crate) fn read(mut self, mut gauge: Gauge, pieces: &TierBytes) -> Self {
        self.fold(&mut gauge, pieces);
        self
    }

    /// Lowers the peak that a program may reset to what there is now.
    pub(crate) fn reset(&mut self, gauge: &mut Gauge, pieces: &TierBytes) {
        self.fold(gauge, pieces);
        self.since_reset = gauge.now;
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

    const NONE: TierBytes = TierBytes { device: 0, peer: 0, host: 0 };

    #[test]
    fn peaks_outlive_a_reset_and_the_total_is_what_there_was_at_once() {
        let (mut gauge, mut past) = (Gauge::default(), PastPeaks::default());
        gauge.add(&only(Tier::Device, 8));
        gauge.subtract(&only(Tier::Device, 6));
        gauge.add(&only(Tier::Host, 5));
        past.reset(&mut gauge, &NONE);
        gauge.add(&only(Tier::Peer(1), 2));
        let read = past.read(gauge, &NONE);
        assert_eq!(read.since_reset, TierBytes { device: 2, peer: 2, host: 5 });
        assert_eq!(read.ever, Peaks { tiers: TierBytes { device: 8, peer: 2, host: 5 }, total: 9 });
        assert_eq!(read.with_pieces, read.ever);
    }

    /// Hazard (wrong report): two peaks of different times are added.
    #[test]
    fn blocks_count_with_the_pieces_that_were_there_at_the_same_time() {
        let (mut gauge, mut past) = (Gauge::default(), PastPeaks::default());
        let pieces = [only(Tier::Device, 3), only(Tier::Host, 9), NONE];
        past.fold(&mut gauge, &NONE);
        gauge.add(&only(Tier::Device, 8));
        past.fold(&mut gauge, &pieces[0]);
        gauge.subtract(&only(Tier::Device, 8));
        gauge.add(&only(Tier::Device, 1));
        past.fold(&mut gauge, &pieces[1]);
        gauge.subtract(&only(Tier::Device, 1));
        gauge.add(&only(Tier::Host, 4));
        let read = past.read(gauge, &pieces[2]);
        assert_eq!(read.ever, Peaks { tiers: TierBytes { device: 8, peer: 0, host: 4 }, total: 8 });
        let tiers = TierBytes { device: 11, peer: 0, host: 9 };
        // The block of 8 was there still when the second lot of pieces came.
        assert_eq!(read.with_pieces, Peaks { tiers, total: 17 });
    }
}
