//! One free run, and the ranks in which runs are used.

use std::ops::RangeInclusive;

use wm_driver::Tier;

use super::segments::Segments;
use crate::vocabulary::sizes::Class;

/// Ranks of free runs: those of a lower one are used first.
pub(crate) type Ranks = RangeInclusive<u64>;

/// Of memory that is not late.
pub(crate) const EARLY: Ranks = 0..=0;

/// Of late memory: the older the lower.
pub(crate) const LATE: Ranks = 1..=u64::MAX;

/// Of all memory.
pub(crate) const ALL: Ranks = 0..=u64::MAX;

/// One free run; where it ends is its key.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) bytes: u64,
    pub(crate) class: Class,
    pub(crate) tier: Tier,
    pub(crate) rank: u64,
    /// What it waits for.
    pub(crate) segments: Segments,
}

impl Run {
    pub(crate) fn new(class: Class, tier: Tier, rank: u64, segments: Segments) -> Self {
        Self { bytes: segments.bytes(), class, tier, rank, segments }
    }
}
