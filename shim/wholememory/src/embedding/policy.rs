//! What of an embedding may be kept nearer, and where: checked when it is made.

use std::sync::Arc;

use crate::communicator::Communicator;
use crate::error::{Result, require};
use crate::vocabulary::codes::{AccessType, Location, MemoryType};

/// Largest and smallest part of the rows that a cache has.
const RATIOS: std::ops::RangeInclusive<f32> = 1.0 / 512.0..=1.0;

/// A policy.
#[derive(Debug)]
pub struct CachePolicy {
    /// The ranks that share a cache.
    pub communicator: Arc<Communicator>,
    /// How they reach each other's part of it.
    pub memory_type: MemoryType,
    /// Where it lies.
    pub location: Location,
    /// Whether rows are changed through it.
    pub access: AccessType,
    /// Its rows, as a part of all.
    pub ratio: f32,
}

impl CachePolicy {
    /// Checks one.
    ///
    /// # Errors
    /// [`Error::Input`](crate::error::Error::Input) for a ratio that no cache has.
    pub fn new(
        communicator: Arc<Communicator>,
        memory_type: MemoryType,
        location: Location,
        access: AccessType,
        ratio: f32,
    ) -> Result<Self> {
        require(RATIOS.contains(&ratio), &format!("a cache has 1/512 to all of the rows, not {ratio}"))?;
        Ok(Self { communicator, memory_type, location, access, ratio })
    }
}
