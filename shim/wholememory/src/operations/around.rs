//! Gather through a cache that has copies of the rows of all islands: a collective call, of which
//! each rank asks the islands for the rows alone that its cache lacks.
//!
//! 1. A kernel takes the rows that have a line. Their numbers become -1, which names no row.
//! 2. The others are gathered as without a cache, also where a rank has none: all ranks take part.
//! 3. The cache is adjusted to what was asked for, and lines get the rows that have come, from the
//!    caller's packed memory. The call waits for that, so that no line gets a row that was changed
//!    since: ranks change rows behind the call.
//!
//! What can fail before the rows pass is told to all ranks, as any error is. A launch that fails
//! behind them is an error of its rank alone: the rows of all ranks are there, and the ranks' next
//! calls fit each other.

use wm_driver::Api;
use wm_kernels::wholememory::{ArrivedRows, CacheTake, Numbers};

use crate::error::Result;
use crate::memory::Memory;
use crate::operations::across;
use crate::operations::lookups::{Lookups, RowCache};
use crate::operations::moves::{RowDirection, RowRequest};
use crate::operations::scratch::{Scratch, Workspace};
use crate::operations::upload;
use crate::stream::CallerStream;
use crate::tensor::Tensor;

/// Bytes of a number that names a missed row.
const MISSED_BYTES: u32 = 8;
/// Bytes of a slot with a place.
const SLOT_BYTES: u64 = 4;
/// More places have no 32 bits.
const MOST_PLACES: u64 = 1 << 31;

/// Gathers rows. A collective call of all ranks of the table.
///
/// # Errors
/// As of [`copy`](crate::operations::rows::copy).
pub(super) fn gather(
    cache: RowCache<'_>,
    table: &Tensor,
    request: Result<RowRequest>,
    workspace: &Workspace<'_>,
    multiprocessors: i32,
) -> Result {
    let begun =
        request.and_then(|request| CachedGather::of(&cache, table, request, workspace, multiprocessors));
    let missed = begun.as_ref().map(|taken| taken.missed).map_err(Clone::clone);
    across::copy(RowDirection::Gather, None, table, missed, workspace, multiprocessors)?;
    let memory = table.memory()?;
    begun?.offer(memory, workspace).map_err(|error| memory.communicator().reason(error))
}

/// A gather of which the rows with a line are there.
struct CachedGather<'a> {
    _scratch: Option<Scratch>,
    /// The rows to be gathered.
    missed: RowRequest,
    /// The rows of the whole gather, and the cache that is adjusted to them.
    offered: Option<(ArrivedRows, &'a dyn Lookups)>,
}

impl<'a> CachedGather<'a> {
    fn of(
        cache: &RowCache<'a>,
        table: &Tensor,
        request: RowRequest,
        workspace: &Workspace<'_>,
        multiprocessors: i32,
    ) -> Result<Self> {
        let kernels = workspace.communicator.kernels()?;
        // Before memory is taken, which a refused call would leave in a capture.
        CallerStream::with(kernels, workspace.stream).can_wait()?;
        let (numbers, packed) = (request.numbers, request.packed);
        let is_converted = packed.kind != table.description().element_type()?;
        if numbers.count == 0 || packed.columns == 0 || is_converted {
            return Ok(Self { _scratch: None, missed: request, offered: None });
        }
        let adjusts = cache.lookups.filter(|_| numbers.count < MOST_PLACES);
        let capacity = if adjusts.is_some() { (2 * numbers.count).next_power_of_two() } else { 0 };
        let sizes = [numbers.count * u64::from(MISSED_BYTES), capacity * SLOT_BYTES];
        let (scratch, [missed, slots]) = workspace.allocate(sizes)?;
        if capacity > 0 {
            let _current = workspace.communicator.enter()?;
            let bytes = capacity * SLOT_BYTES;
            upload::fill_bytes(workspace.communicator, slots, bytes, 0xff, workspace.stream)?;
        }
        let (bytes, width) = packed.widest();
        let slots = if capacity > 0 { slots } else { 0 };
        let rows = ArrivedRows { numbers, packed: packed.rows, slots, capacity, bytes, width };
        let rows_in_table = table.description().rows()?.sizes[0].unsigned_abs();
        let take = CacheTake { rows, rows_in_table, cache: cache.tables, missed };
        kernels.launch(&take, numbers.count, multiprocessors, workspace.stream)?;
        let numbers = Numbers { address: missed, count: numbers.count, bytes: MISSED_BYTES };
        let offered = adjusts.map(|lookups| (rows, lookups));
        Ok(Self { _scratch: Some(scratch), missed: RowRequest { numbers, packed }, offered })
    }

    /// The rows are there: lines may get them.
    fn offer(&self, memory: &Memory, workspace: &Workspace<'_>) -> Result {
        let Some((rows, lookups)) = self.offered else { return Ok(()) };
        lookups.adjust_to_arrived(rows, workspace.stream)?;
        let communicator = memory.communicator();
        let _current = communicator.enter()?;
        Ok(communicator.driver().stream_synchronize(workspace.stream)?)
    }
}
