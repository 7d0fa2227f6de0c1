//! Policies of caches: the share of rows that may have copies, and on which GPUs. They are checked
//! when they are made.

use std::sync::Arc;

use crate::communicator::Communicator;
use crate::error::{Error, Result, require};
use crate::memory::Memory;
use crate::vocabulary::codes::{AccessType, Location, MemoryType};

/// Largest and smallest part of the rows that a cache has.
const RATIOS: std::ops::RangeInclusive<f32> = 1.0 / 512.0..=1.0;

/// The cache that an embedding gets by a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CachePlan {
    /// Rows are read where they are.
    None,
    /// Each rank's GPU has copies of the rank's own rows.
    OfOwners,
    /// Ranks share copies of any rows, to be read alone.
    Spread,
    /// The same of rows that span islands, which lines get from the ranks' gathers.
    Gathered,
}

/// A policy.
#[derive(Debug)]
pub struct CachePolicy {
    /// The ranks that share a cache.
    pub communicator: Arc<Communicator>,
    /// How they reach each other's part of it.
    pub memory_type: MemoryType,
    /// Its location.
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
    /// [`Error::Value`] for a ratio that no cache has.
    pub fn new(
        communicator: Arc<Communicator>,
        memory_type: MemoryType,
        location: Location,
        access: AccessType,
        ratio: f32,
    ) -> Result<Self> {
        if !RATIOS.contains(&ratio) {
            return Err(Error::Value(format!("a cache has 1/512 to all of the rows, not {ratio}")));
        }
        Ok(Self { communicator, memory_type, location, access, ratio })
    }

    /// Is the cache one of all ranks of a communicator?
    pub fn is_of(&self, communicator: &Communicator) -> bool {
        self.communicator.id() == communicator.id()
    }

    /// The cache that rows in some memory get.
    ///
    /// # Errors
    /// [`Error::Input`] for a policy that does not fit the memory.
    pub fn plan(&self, rows: &Memory) -> Result<CachePlan> {
        if self.is_of(rows.communicator()) {
            require(self.location == Location::Device, "a cache of the rows' own ranks is on GPUs")?;
            require(
                self.memory_type.code() >= rows.request().memory_type.code(),
                "a cache shows no more addresses than the rows do",
            )?;
            // The rank that changes a row has its copy too. If no rank changes rows, the rows that
            // are read most are the same on all ranks.
            let is_written = self.access == AccessType::ReadWrite;
            return Ok(if is_written { CachePlan::OfOwners } else { CachePlan::Spread });
        }
        require(self.access == AccessType::ReadOnly, "a cache of other ranks than the rows' is for reading")?;
        let is_shown = matches!(self.memory_type, MemoryType::Continuous | MemoryType::Chunked);
        require(is_shown, "a cache of other ranks than the rows' is continuous or chunked")?;
        Ok(match (self.location, rows.span()) {
            // Host memory is no nearer than where the rows of a machine are, and GPUs do not change
            // a line's tag there.
            (Location::Host, _) => CachePlan::None,
            (Location::Device, None) => CachePlan::Spread,
            (Location::Device, Some(_)) => CachePlan::Gathered,
        })
    }

    /// May rows be trained that have it?
    ///
    /// # Errors
    /// [`Error::Input`] for a policy that is for reading alone.
    pub fn trains(&self, rows: &Memory) -> Result {
        let writes = self.access == AccessType::ReadWrite && self.is_of(rows.communicator());
        require(writes, "rows whose cache is for reading alone are not trained")
    }
}
