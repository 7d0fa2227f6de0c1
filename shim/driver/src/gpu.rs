//! The contract between a memory manager and one GPU.
//!
//! [`Gpu`] is the seam between policy (wm-memory decides) and mechanism (the driver). A model of it
//! runs the property tests; [`crate::Device`] is the real one.
//!
//! Pre- and post-conditions that hold for every method:
//! * No method is called with a lock held that another method's caller could want: each may take
//!   milliseconds.
//! * An `Err` means that nothing changed. The code is the driver's own.
//! * Sizes and addresses of physical memory and mappings are multiples of [`Gpu::granularity`].
//! * A mapping is whole: `unmap` takes exactly a range that `map` calls covered (several adjacent
//!   mappings at once are allowed), never part of one.

use std::ops::Range;
use std::time::Duration;

use wm_abi::CUresult;

/// Physical memory: a handle of `cuMemCreate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u64);

/// A point in a stream's work that can be waited for. Owned: return it with [`Gpu::recycle`].
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Event(pub u64);

/// A stream as the manager names it: unique for the process's lifetime, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// The place of physical memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// The GPU's own memory.
    Device,
    /// Another GPU's memory, by its ordinal.
    Peer(i32),
    /// Pinned memory of the host, on the GPU's NUMA node.
    Host,
}

/// A request for which the device has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortfall {
    /// The size that the program asked for.
    pub bytes: usize,
    /// The call names a stream, as `cuMemAllocAsync` does.
    pub in_stream: bool,
}

/// The answer to an out-of-memory, by caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OomAnswer {
    /// Memory of another tier.
    Spill,
    /// An error: the caller needs memory of the device, because other devices write into it.
    Fail,
    /// An error this time: the caller empties its cache and asks again.
    FailOnce,
    /// Another attempt: memory of the device has been given back meanwhile.
    Retry,
}

/// Bytes of the chunks that have [`KeyedFingerprint`]s.
pub const FINGERPRINTED_BYTES: u64 = 2 << 20;

/// A fingerprint of a chunk of memory under a random key of the process. Different chunks that were
/// chosen without the key have the same one with a probability below 2^-119
/// (`kernels/cuda/moves/keyed_fingerprint.cu` has the proof), so equal fingerprints count as equal
/// bytes. Only fingerprints of one process can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyedFingerprint(pub [u64; 2]);

/// The direction of a copy of the library's own. The link carries both directions at once, so each
/// has a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkWay {
    /// To the device, or within it.
    In,
    /// From the device.
    Out,
}

/// Outcome of a driver call.
pub type Result<T> = std::result::Result<T, CUresult>;

/// One GPU's memory, as its manager sees it.
pub trait Gpu: Send + Sync {
    /// Smallest unit of physical memory and mappings, in bytes: 2 MiB on every GPU so far.
    fn granularity(&self) -> usize;

    /// Makes `bytes` of physical memory. Costs 9 µs on the device and 170 ms per GiB on the host.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` when the tier is full.
    fn create(&self, tier: Tier, bytes: usize) -> Result<Handle>;

    /// Releases physical memory. It lives on while it is mapped.
    ///
    /// # Errors
    /// Those of the driver, for a handle that it does not know.
    fn release(&self, handle: Handle) -> Result<()>;

    /// Reserves `bytes` of address space. Nothing is accessible in it.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` when no such range is free.
    fn reserve(&self, bytes: usize) -> Result<u64>;

    /// Releases a whole reservation. It must have no mappings.
    ///
    /// # Errors
    /// Those of the driver, for a range that is not a reservation.
    fn unreserve(&self, address: u64, bytes: usize) -> Result<()>;

    /// Maps a whole handle of `bytes` at `address`, inside a reservation. No access yet.
    ///
    /// # Errors
    /// Those of the driver.
    fn map(&self, address: u64, bytes: usize, handle: Handle) -> Result<()>;

    /// Removes whole mappings. It does not wait for the GPU: the caller ensures that no work uses
    /// the range.
    ///
    /// # Errors
    /// Those of the driver.
    fn unmap(&self, address: u64, bytes: usize) -> Result<()>;

    /// Lets the GPU, and every peer with access, read and write a range that is mapped throughout.
    /// The CPU gets no access: with it, a copy across a border of tiers would crash inside the
    /// driver.
    ///
    /// # Errors
    /// Those of the driver.
    fn allow(&self, address: u64, bytes: usize) -> Result<()>;

    /// As [`Gpu::allow`], for this GPU and no peer.
    ///
    /// # Errors
    /// Those of the driver.
    fn allow_alone(&self, address: u64, bytes: usize) -> Result<()>;

    /// As [`Gpu::allow`], read-only, also for a range that could be written before. A kernel that
    /// writes there fails its own context with `ILLEGAL_ADDRESS`, a copy or a memset is refused,
    /// and no byte changes.
    ///
    /// # Errors
    /// Those of the driver.
    fn allow_reading(&self, address: u64, bytes: usize) -> Result<()>;

    /// As [`Gpu::allow`], for the CPU too, at the same addresses. All of the range is memory of the
    /// host. Only `unmap` takes the CPU's access away.
    ///
    /// # Errors
    /// `NOT_SUPPORTED` by drivers that give the CPU no access to memory that they map; else those
    /// of the driver.
    fn allow_cpu(&self, address: u64, bytes: usize) -> Result<()>;

    /// Records an event behind all work now in `stream`, for a free in that stream. In the legacy
    /// default stream the event and the free are both barriers for the blocking streams of its
    /// context.
    ///
    /// # Errors
    /// `STREAM_CAPTURE_UNSUPPORTED` if the stream is under capture (no event may be recorded there
    /// now), and the driver's error for a destroyed stream.
    fn record(&self, stream: StreamId) -> Result<Event>;

    /// As [`Gpu::record`], to observe the progress of the stream while the program makes no call in
    /// it.
    ///
    /// # Errors
    /// As [`Gpu::record`]; also if the record would order other streams.
    fn probe(&self, stream: StreamId) -> Result<Event> {
        self.record(stream)
    }

    /// Records events behind all work that is now in any stream of the GPU. Remaining work of
    /// destroyed streams counts.
    ///
    /// # Errors
    /// As [`Gpu::record`].
    fn record_all(&self) -> Result<Vec<Event>>;

    /// Has the GPU passed this event?
    ///
    /// # Errors
    /// A sticky error of the context.
    fn is_done(&self, event: &Event) -> Result<bool>;

    /// Blocks the calling thread until the GPU has passed all events of one of the sets, at most
    /// for `limit`. Returns the position of that set, or `None`.
    fn wait_any(&self, sets: &[&[Event]], limit: Duration) -> Option<usize>;

    /// Makes all later work of `stream` wait for the event, on the GPU.
    ///
    /// # Errors
    /// As [`Gpu::record`].
    fn order(&self, stream: StreamId, event: &Event) -> Result<()>;

    /// Is all work over that was submitted to the GPU before this call, in any stream and context?
    /// Polls for at most `limit`. The caller ensures that no work is submitted meanwhile.
    ///
    /// # Errors
    /// If that cannot be known: `NOT_PERMITTED` if the memory may be used in ways that the check
    /// does not cover, such as by other devices; `NOT_SUPPORTED` by drivers that can only wait;
    /// `STREAM_CAPTURE_UNSUPPORTED` while any stream is under capture. Else a sticky error of a
    /// context. Graphs that were captured do no harm: their launches are work like any other.
    fn is_settled(&self, limit: Duration) -> Result<bool>;

    /// Starts a copy between two ranges that the GPU may use, with a copy engine, in a stream of
    /// the library's own for that direction, which waits for no other stream. The event is behind
    /// the copy; copies of one direction end in the order of their start. The caller ensures that
    /// both ranges stay mapped and are not written until the event is done.
    ///
    /// # Errors
    /// Those of the driver; then no copy is in flight.
    fn copy(&self, way: LinkWay, to: u64, from: u64, bytes: usize) -> Result<Event>;

    /// Fingerprints of chunks of [`FINGERPRINTED_BYTES`], taken by the GPU, which the call waits
    /// for. The caller ensures that nothing in flight uses the chunks, and that they stay mapped
    /// and are not written until it returns.
    ///
    /// # Errors
    /// Those of the driver; `NOT_SUPPORTED` if the GPU takes none. Nothing reads the chunks then.
    fn fingerprints(&self, _chunks: &[u64]) -> Result<Vec<KeyedFingerprint>> {
        Err(CUresult::NOT_SUPPORTED)
    }

    /// Whether two ranges that the GPU may use have the same bytes. They are read to the CPU. The
    /// caller ensures that both stay mapped and are not written until it returns.
    ///
    /// # Errors
    /// Those of the driver; `NOT_SUPPORTED` if the ranges cannot be read.
    fn are_equal(&self, _one: u64, _other: u64, _bytes: usize) -> Result<bool> {
        Err(CUresult::NOT_SUPPORTED)
    }

    /// Bytes of a block were not equal although their fingerprints were.
    fn found_unequal(&self, _block: u64, _bytes: Range<u64>) {}

    /// Returns an event for reuse.
    fn recycle(&self, event: Event);

    /// Free and total bytes of the device, as the driver counts them.
    ///
    /// # Errors
    /// Those of the driver.
    fn memory_info(&self) -> Result<(u64, u64)>;

    /// Bytes of host memory that could be pinned now without starving the machine.
    fn host_available(&self) -> u64;

    /// The same, from a measurement that is up to some milliseconds old: good enough to refuse a
    /// request, not to create memory. Costs a microsecond if a recent figure exists.
    fn host_estimate(&self) -> u64 {
        self.host_available()
    }

    /// Bytes of the host that the process's other devices hold: they count against the same limit.
    fn external_usage(&self) -> u64 {
        0
    }

    /// How an out-of-memory of the program's present call is answered. Called only on a full
    /// device, since it may take microseconds.
    fn oom_answer(&self, _: Shortfall) -> OomAnswer {
        OomAnswer::Spill
    }

    /// May the host hold a stream of the process back now? Work that waits for that stream may wait
    /// for the very thread that submits it.
    fn may_be_held(&self) -> bool {
        false
    }

    /// Memory of the host of so many bytes, made as [`Gpu::create`] makes it and mapped nowhere,
    /// that lies idle elsewhere in the process: it is the caller's from now on. Called without a
    /// lock.
    fn idle_host_memory(&self, _bytes: u64) -> Option<Handle> {
        None
    }

    /// A block outside the device was given out because the device was full. Called without a lock,
    /// by the thread that asked for the block.
    fn overflowed(&self) {}

    /// The bytes that are live or held have changed, or may have. Called without a lock of the
    /// manager's, after each change that may need a driver call and now and then in a row of
    /// others.
    fn changed(&self) {}
}
