//! How much the program holds, and how much it wants to hold now.
//!
//! A program that only ever holds as much as fits never meets an allocator's harder ways. So the
//! wish goes up and down in *phases*: filled to the brim, half emptied, filled with other sizes,
//! beyond the brim, nearly empty.

use std::sync::atomic::{AtomicU64, Ordering};

/// The memory that a phase holds, as a share of the pressure; `None` stands for the peak.
const PHASES: [Option<f64>; 8] =
    [Some(0.6), Some(1.0), Some(0.4), Some(1.0), None, Some(0.9), Some(1.0), Some(0.1)];

/// How full a device is to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish {
    /// Share of the capacity that is held where a phase wants all.
    pub(crate) pressure: f64,
    /// Share of the capacity at the peak.
    pub(crate) peak: f64,
    /// Operations a phase.
    pub(crate) phase: u64,
}

impl Wish {
    /// The share of the capacity to hold after so many operations.
    pub(crate) fn share(&self, operations: u64) -> f64 {
        let phase = (operations / self.phase.max(1)) as usize % PHASES.len();
        PHASES[phase].map_or(self.peak, |share| share * self.pressure)
    }
}

/// Bytes of one device that the program holds.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) capacity: u64,
    held: AtomicU64,
    most: AtomicU64,
}

impl Budget {
    pub(crate) fn new(capacity: u64) -> Self {
        Self { capacity, held: AtomicU64::new(0), most: AtomicU64::new(0) }
    }

    /// Takes `bytes`, if no more than this share of the capacity is held then.
    pub(crate) fn reserve(&self, bytes: u64, share: f64) -> bool {
        let limit = (self.capacity as f64 * share) as u64;
        let more = |held: u64| Some(held + bytes).filter(|sum| *sum <= limit);
        let Ok(held) = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) else {
            return false;
        };
        self.most.fetch_max(held + bytes, Ordering::Relaxed);
        true
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// The most that was held at once.
    pub(crate) fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_the_share_allows() {
        let budget = Budget::new(1000);
        assert!(budget.reserve(600, 0.9) && !budget.reserve(301, 0.9) && budget.reserve(300, 0.9));
        budget.give_back(600);
        assert_eq!((budget.held(), budget.most()), (300, 900));
    }

    #[test]
    fn phases_come_round_and_reach_the_peak() {
        let wish = Wish { pressure: 0.9, peak: 1.3, phase: 10 };
        let shares: Vec<f64> = (0..160).map(|operations| wish.share(operations)).collect();
        assert_eq!(shares[..80], shares[80..]);
        assert!(shares.contains(&1.3) && shares.contains(&0.9));
    }
}
