//! An embedding's cache: copies of rows on the GPUs that read them.
//!
//! A read needs no wait for another rank (`cache.cuh` has the protocol, and the reason why no byte
//! is wrong). The rank that owns a part of the cache fills and evicts lines there. Rows are written
//! in the table first, so an evicted line loses no data.
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
use wm_kernels::wholememory::{CacheAdjust, CacheCount, CacheDrop, CacheRenew, CacheTables, Chunks};

use crate::communicator::Communicator;
use crate::embedding::cache::shape::{CacheShape, TAG_BYTES, WAYS, count_shift, turns};
use crate::embedding::policy::{CachePlan, CachePolicy};
use crate::error::{Error, Result};
use crate::kernels::{Kernels, WARP};
use crate::memory::{Memory, MemoryRequest, RowCopies};
use crate::operations::array::numbers;
use crate::operations::rows::RowCache;
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
    let (Some(policy), plan @ (CachePlan::OfOwners | CachePlan::Spread)) = (policy, plan?) else {
        return Ok(None);
    };
    let made = Cache::new(home, policy, plan);
    // Caches of other ranks' communicators may have failed.
    communicator.agree("cache is made", made.as_ref().map(drop).map_err(Clone::clone), &[])?;
    let cache = Arc::new(made?);
    let copies: Weak<Cache> = Arc::downgrade(&cache);
    home.has_copies(copies);
    Ok(Some(cache))
}

/// Refuses a cache whose lines, or whose rows, not all of its ranks reach.
fn can_have(home: &Memory, policy: &CachePolicy) -> Result {
    home.is_mapped()?;
    match policy.communicator.islands(Location::Device).count() {
        1 => Ok(()),
        count => Err(Error::NotSupported(format!(
            "the ranks of a cache are on {count} islands: give it a communicator of one machine's ranks"
        ))),
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
    fn new(home: &Arc<Memory>, policy: &CachePolicy, plan: CachePlan) -> Result<Self> {
        let communicator = &policy.communicator;
        let (partition, stride) = (home.partition(), home.request().granularity);
        let shape = match plan {
            CachePlan::OfOwners => CacheShape::of_owners(partition.clone(), policy.ratio, stride)?,
            _ => CacheShape::spread(partition.rows(), communicator.size(), policy.ratio, stride)?,
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
        let cache = Self { home: Arc::clone(home), memory, shape, seed: AtomicU64::new(0) };
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
    fn tables(&self) -> Result<CacheTables> {
        let (sets, owned) = (self.memory.chunks()?, self.shape.owned.as_ref());
        let starts = if owned.is_some() { self.home.tables()?.starts } else { 0 };
        let parts = Chunks { starts, equal: owned.map_or(0, Partition::equal_count), ..sets };
        Ok(CacheTables { parts, set_starts: sets.starts, stride: self.home.request().granularity })
    }

    /// The copies of rows, for a gather.
    ///
    /// # Errors
    /// As of [`Memory::chunks`].
    pub fn rows(&self) -> Result<RowCache> {
        let is_small = self.shape.is_small(self.home.partition().rows());
        Ok(RowCache { tables: self.tables()?, is_small })
    }

    /// Counts lookups, and fills lines of this rank's part with the rows that are looked up most.
    ///
    /// # Errors
    /// [`Error::Input`] for numbers that are none; the driver's.
    pub fn adjust(&self, indices: &Tensor, stream: CUstream) -> Result {
        let numbers = numbers(indices)?;
        let lookups = numbers.count;
        if lookups == 0 {
            return Ok(());
        }
        let (kernels, cache, part) = (self.kernels()?, self.tables()?, self.own() as u32);
        let (rows_in_table, shift) = (self.home.partition().rows(), count_shift(lookups));
        let seed = self.seed.fetch_add(lookups, Ordering::Relaxed);
        // The kernel counts all lookups while the cache learns.
        kernels.launch(
            &CacheCount { numbers, shift, seed, rows_in_table, cache, part },
            lookups,
            0,
            stream,
        )?;
        let turns = turns(lookups, self.shape.sets[self.own()]);
        let table = self.home.table(rows_in_table, cache.stride, 0)?;
        kernels.launch(&CacheAdjust { table, cache, part, turns }, turns * WARP, 0, stream)
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
            cache: self.tables()?,
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
