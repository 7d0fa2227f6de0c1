//! An embedding's cache: copies of rows on the GPUs that read them.
//!
//! A read needs no wait for another rank (`cache.cuh` has the protocol, and the reason why no byte
//! is wrong). The rank that owns a part of the cache fills and evicts lines there. Rows are written
//! in the table first, so an evicted line loses no data.
//!
//! Over memory that spans islands each island has a cache of its own rows, which are numbered from
//! 0 among them. All reads of a row are made in its island, so they pass through that one. A cache
//! of other ranks than the rows' has copies of the rows of all islands, under their numbers in the
//! table. No address leads to these rows, so lines get them from the gathers of their own rank.
//!
//! Invariant: a cache is made on all ranks or on none; its operations are launches in the caller's
//! stream.
//!
//! * [`shape`]: how large it is.

pub mod shape;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use wm_abi::{CUdeviceptr, CUstream};
use wm_driver::Api;
use wm_kernels::wholememory::{
    ArrivedRows, CacheAdjust, CacheAdjustArrived, CacheCount, CacheDrop, CacheRenew, CacheTables, Chunks,
    Numbers,
};

use crate::communicator::Communicator;
use crate::embedding::cache::shape::{CacheShape, TAG_BYTES, WAYS, count_shift, turns};
use crate::embedding::policy::{CachePlan, CachePolicy};
use crate::error::{Error, Result};
use crate::kernels::{Kernels, WARP};
use crate::memory::{Memory, MemoryRequest, RowCopies};
use crate::operations::lookups::{Lookups, RowCache};
use crate::operations::upload;
use crate::tensor::Tensor;
use crate::vocabulary::codes::{Location, MemoryType};
use crate::vocabulary::partition::Partition;

/// A cache, as one of its ranks sees it.
#[derive(Debug)]
pub struct Cache {
    home: Arc<Memory>,
    memory: Memory,
    shape: CacheShape,
    /// Of the rows of all islands.
    is_of_all: bool,
    /// Of the next sample of lookups.
    seed: AtomicU64,
}

/// Makes the cache that a policy asks for, if any. A collective call of the embedding's ranks.
///
/// # Errors
/// The same on every rank, with nothing left behind: [`Error::Input`] for a policy that does not
/// fit; as [`Memory::new`].
pub fn make(whole: &Arc<Tensor>, policy: Option<&CachePolicy>) -> Result<Option<Arc<Cache>>> {
    let home = whole.memory()?;
    let communicator = home.communicator();
    let plan = policy.map_or(Ok(CachePlan::None), |policy| {
        can_have(home, policy)?;
        policy.plan(home)
    });
    let told = format!("{plan:?} {:?}", policy.map(|policy| (policy.memory_type, policy.ratio)));
    communicator.agree("cache", plan.as_ref().map(drop).map_err(Clone::clone), told.as_bytes())?;
    let (Some(policy), plan) = (policy, plan?) else { return Ok(None) };
    if plan == CachePlan::None {
        return Ok(None);
    }
    let ranks = sharers(home, policy)?;
    let made = Cache::new(home, &ranks, (plan, policy.ratio));
    // Caches of other ranks' communicators may have failed.
    communicator.agree("cache is made", made.as_ref().map(drop).map_err(Clone::clone), &[])?;
    let cache = Arc::new(made?);
    let copies: Weak<Cache> = Arc::downgrade(&cache);
    home.has_copies(copies);
    Ok(Some(cache))
}

/// Refuses a cache whose lines, or whose rows, not all of its ranks reach.
fn can_have(home: &Memory, policy: &CachePolicy) -> Result {
    let (islands, of_rows) = (policy.communicator.islands(Location::Device), home.islands());
    match (islands.count(), home.span()) {
        (1, None) => Ok(()),
        (1, Some(_)) if !policy.is_of(home.communicator()) => Ok(()),
        (_, Some(_)) if policy.is_of(home.communicator()) && islands == of_rows => Ok(()),
        (_, Some(_)) if policy.is_of(home.communicator()) => Err(Error::NotSupported(format!(
            "the rows are on {} islands and the GPUs of their ranks on {}: a cache needs the same islands",
            of_rows.count(),
            islands.count()
        ))),
        (count, _) => Err(Error::NotSupported(format!(
            "the ranks of a cache are on {count} islands: give it a communicator of ranks that reach each \
             other's GPUs"
        ))),
    }
}

/// The ranks that share a cache. A collective call, where the rows span islands.
fn sharers(home: &Memory, policy: &CachePolicy) -> Result<Arc<Communicator>> {
    if home.span().is_some() && policy.is_of(home.communicator()) {
        home.communicator().of_island(home.request().location)
    } else {
        Ok(Arc::clone(&policy.communicator))
    }
}

impl Lookups for Cache {
    fn adjust(&self, numbers: Numbers, stream: CUstream) -> Result {
        if numbers.count == 0 {
            return Ok(());
        }
        let turns = self.count(numbers, stream)?;
        let (table, cache, part) = (self.home.table_of_island(0), self.tables(), self.own() as u32);
        self.kernels()?.launch(&CacheAdjust { table, cache, part, turns }, turns * WARP, 0, stream)
    }

    fn adjust_to_arrived(&self, rows: ArrivedRows, stream: CUstream) -> Result {
        if rows.numbers.count == 0 {
            return Ok(());
        }
        let turns = self.count(rows.numbers, stream)?;
        let (cache, part) = (self.tables(), self.own() as u32);
        self.kernels()?.launch(&CacheAdjustArrived { rows, cache, part, turns }, turns * WARP, 0, stream)
    }
}

impl RowCopies for Cache {
    fn forget(&self) -> Result {
        let communicator = self.home.communicator();
        let _current = communicator.enter()?;
        self.drop_lines(CUstream::NULL)?;
        Ok(communicator.driver().ctx_synchronize_named(communicator.context())?)
    }
}

impl Cache {
    fn new(
        home: &Arc<Memory>,
        communicator: &Arc<Communicator>,
        (plan, ratio): (CachePlan, f32),
    ) -> Result<Self> {
        let (rows, stride) = (home.island(), home.request().granularity);
        let shape = match plan {
            CachePlan::OfOwners => CacheShape::of_owners(rows.clone(), ratio, stride)?,
            CachePlan::Gathered => {
                CacheShape::spread(home.partition().rows(), communicator.size(), ratio, stride)?
            }
            _ => CacheShape::spread(rows.rows(), communicator.size(), ratio, stride)?,
        };
        let request = MemoryRequest {
            bytes: shape.sets.iter().sum::<u64>() * shape.set_bytes,
            // The memory type is internal. Each part has pages of its own, so its arrays are
            // aligned.
            memory_type: MemoryType::Distributed,
            location: Location::Device,
            granularity: shape.set_bytes,
            partition: Some(shape.sets.clone()),
        };
        let memory = Memory::new(communicator, request)?;
        let (home, is_of_all) = (Arc::clone(home), plan == CachePlan::Gathered);
        let cache = Self { home, memory, shape, is_of_all, seed: AtomicU64::new(0) };
        let emptied = cache.empty();
        communicator.agree("cache is empty", emptied, &[])?;
        Ok(cache)
    }

    fn empty(&self) -> Result {
        let (communicator, part) = (self.communicator(), self.own());
        let bytes = self.shape.first_bytes(part);
        let _current = communicator.enter()?;
        upload::fill_bytes(communicator, self.memory.own_part().address, bytes, 0, CUstream::NULL)?;
        Ok(communicator.driver().ctx_synchronize_named(communicator.context())?)
    }

    fn communicator(&self) -> &Communicator {
        self.memory.communicator()
    }

    /// Kernels in the context that the embedding's other operations run in.
    fn kernels(&self) -> Result<&Arc<Kernels>> {
        self.home.communicator().kernels()
    }

    /// This rank's part.
    fn own(&self) -> usize {
        self.communicator().rank()
    }

    /// The parts, as kernels find them.
    fn tables(&self) -> CacheTables {
        let (sets, owned) = (self.memory.chunks_of_island(), self.shape.owned.as_ref());
        let starts = if owned.is_some() { self.home.chunks_of_island().starts } else { 0 };
        let parts = Chunks { starts, equal: owned.map_or(0, Partition::equal_count), ..sets };
        CacheTables { parts, set_starts: sets.starts, stride: self.home.request().granularity }
    }

    /// The copies of rows, for a gather, to which the cache may be adjusted.
    pub fn rows(&self, adjusts: bool) -> RowCache<'_> {
        let (is_small, is_of_all) = (self.shape.is_small(self.rows_in_table()), self.is_of_all);
        RowCache { tables: self.tables(), is_of_all, is_small, lookups: adjusts.then_some(self) }
    }

    /// How many rows may have copies: a number is below it.
    fn rows_in_table(&self) -> u64 {
        if self.is_of_all { self.home.partition().rows() } else { self.home.island().rows() }
    }

    /// Counts lookups; of how many turns the launch that adjusts to them is.
    fn count(&self, numbers: Numbers, stream: CUstream) -> Result<u64> {
        let (lookups, cache, part) = (numbers.count, self.tables(), self.own() as u32);
        let (rows_in_table, shift) = (self.rows_in_table(), count_shift(lookups));
        let seed = self.seed.fetch_add(lookups, Ordering::Relaxed);
        // The kernel counts all lookups while the cache learns.
        let count = CacheCount { numbers, shift, seed, rows_in_table, cache, part };
        self.kernels()?.launch(&count, lookups, 0, stream)?;
        Ok(turns(lookups, self.shape.sets[self.own()]))
    }

    /// Fills the lines of rows again that this rank has changed. `count` points to the number of
    /// rows, which is at most `most`; `rows` to their distances from this rank's first row.
    ///
    /// # Errors
    /// [`Error::Logic`] for a cache whose parts are not those of the rows; the driver's.
    pub fn renew(&self, rows: CUdeviceptr, count: CUdeviceptr, most: u64, stream: CUstream) -> Result {
        let Some(owned) = &self.shape.owned else {
            return Err(Error::Logic("a cache for reading alone is not written".to_owned()));
        };
        let part = self.own();
        let renew = CacheRenew {
            rows,
            count,
            own_rows: self.home.own_part().address,
            first_row: owned.start(part),
            rows_in_part: owned.count(part),
            cache: self.tables(),
            part: part as u32,
        };
        self.kernels()?.launch(&renew, most * WARP, 0, stream)
    }

    /// Empties this rank's part.
    ///
    /// # Errors
    /// The driver's.
    pub fn drop_lines(&self, stream: CUstream) -> Result {
        let tags = self.shape.tags(self.own());
        let drop = CacheDrop { own_tags: self.memory.own_part().address, tags };
        self.kernels()?.launch(&drop, tags, 0, stream)
    }
}

const _: () = assert!(TAG_BYTES == WAYS * 8);
