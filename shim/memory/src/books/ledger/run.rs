//! One free run, and which runs a search looks at.

use std::ops::RangeInclusive;

use wm_driver::Tier;

use super::segments::Segments;
use crate::vocabulary::sizes::Class;

/// Values of [`Run::late`] that a search accepts. Runs that are not late come first.
pub(crate) type LateFilter = RangeInclusive<bool>;

/// Memory that is not late.
pub(crate) const EARLY: LateFilter = false..=false;

/// Late memory.
pub(crate) const LATE: LateFilter = true..=true;

/// All memory.
pub(crate) const ALL: LateFilter = false..=true;

/// One free run; where it ends is its key.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) bytes: u64,
    pub(crate) class: Option<Class>,
    pub(crate) tier: Tier,
    /// Of late memory, see `policy/growth.rs`.
    pub(crate) late: bool,
    /// The points that its bytes wait for.
    pub(crate) segments: Segments,
}

impl Run {
    pub(crate) fn new(class: Option<Class>, tier: Tier, late: bool, segments: Segments) -> Self {
        Self { bytes: segments.bytes(), class, tier, late, segments }
    }
}
