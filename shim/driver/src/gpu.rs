//! What a memory manager needs of one GPU, as one small contract.
//!
//! [`Gpu`] is the seam between policy (wm-memory: what to do) and mechanism (the driver). A model
//! of it runs the property tests; [`crate::Device`] is the real one.
//!
//! Pre- and post-conditions that hold for every method:
//! * No method is called with a lock held that another method's caller could want: each may take
//!   milliseconds.
//! * An `Err` means nothing changed. The code is the driver's own.
//! * Sizes and addresses of physical memory and mappings are multiples of [`Gpu::granularity`].
//! * A mapping is whole: `unmap` takes exactly a range that `map` calls covered (several adjacent
//!   mappings at once are allowed), never part of one.

use std::time::Duration;

use wm_abi::CUresult;

/// Physical memory: what `cuMemCreate` returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u64);

/// A point in a stream's work that can be waited for. Owned: give it back with [`Gpu::recycle`].
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Event(pub u64);

/// A stream as the manager names it: unique for the process's lifetime, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// Where physical memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// The GPU's own memory.
    Device,
    /// Another GPU's memory, by its ordinal.
    Peer(i32),
    /// Pinned memory of the host, on the GPU's NUMA node.
    Host,
}

/// Bytes that count against the user's limits and are not the manager's: what the program made by
/// itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Aside {
    /// On the device.
    pub device: u64,
    /// In pinned host memory.
    pub host: u64,
}

/// A request that the device has no room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortfall {
    /// As the program asked for them.
    pub bytes: usize,
    /// It names a stream, as `cuMemAllocAsync` does.
    pub in_stream: bool,
}

/// What a caller bears where the device is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bears {
    /// Memory of another tier.
    Elsewhere,
    /// Nothing but memory of the device: others write into it.
    Never,
    /// To be refused this time: it has memory to give up, and asks again.
    NotYet,
    /// Not asked: memory of the device has been given back meanwhile.
    LookAgain,
}

/// Which way a copy of the library's own goes. The link carries both ways at once, so each has a
/// stream.
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

    /// Gives physical memory back. It lives on while it is mapped.
    ///
    /// # Errors
    /// Those of the driver, for a handle that it does not know.
    fn release(&self, handle: Handle) -> Result<()>;

    /// Reserves `bytes` of address space. Nothing is accessible in it.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` when no such range is free.
    fn reserve(&self, bytes: usize) -> Result<u64>;

    /// Gives a whole reservation back. Nothing may be mapped in it.
    ///
    /// # Errors
    /// Those of the driver, for a range that is not a reservation.
    fn unreserve(&self, address: u64, bytes: usize) -> Result<()>;

    /// Maps a whole handle of `bytes` at `address`, inside a reservation. No access yet.
    ///
    /// # Errors
    /// Those of the driver.
    fn map(&self, address: u64, bytes: usize, handle: Handle) -> Result<()>;

    /// Removes whole mappings. Does not wait for the GPU: the caller knows that nothing uses the
    /// range.
    ///
    /// # Errors
    /// Those of the driver.
    fn unmap(&self, address: u64, bytes: usize) -> Result<()>;

    /// Lets the GPU, and every peer whose access is enabled, read and write a range that is mapped
    /// throughout. The CPU never gets access: a copy across a border of tiers would crash inside
    /// the driver if it had.
    ///
    /// # Errors
    /// Those of the driver.
    fn allow(&self, address: u64, bytes: usize) -> Result<()>;

    /// As [`Gpu::allow`], to read and no more, also where writing was allowed before: a kernel that
    /// writes there fails its own context with `ILLEGAL_ADDRESS`, a copy or a memset is refused,
    /// and no byte changes.
    ///
    /// # Errors
    /// Those of the driver.
    fn allow_reading(&self, address: u64, bytes: usize) -> Result<()>;

    /// Records an event behind all work now in `stream`. For a free in the stream: in the legacy
    /// default stream both are a barrier for the blocking streams of its context.
    ///
    /// # Errors
    /// `STREAM_CAPTURE_UNSUPPORTED` where the stream is being captured (nothing may be recorded
    /// there now), and the driver's error for a stream that is gone.
    fn record(&self, stream: StreamId) -> Result<Event>;

    /// As [`Gpu::record`], to learn how far the stream has come at a time when the program does
    /// nothing in it.
    ///
    /// # Errors
    /// As [`Gpu::record`]; also where recording would order other streams.
    fn probe(&self, stream: StreamId) -> Result<Event> {
        self.record(stream)
    }

    /// Records events behind all work that is now in any stream of the GPU. Work that is left of
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

    /// Blocks the calling thread until the GPU has passed all events of one of the sets, or until
    /// `limit` is over. The position of that set; `None` where none was passed.
    fn wait_any(&self, sets: &[&[Event]], limit: Duration) -> Option<usize>;

    /// Makes all later work of `stream` wait for the event, on the GPU.
    ///
    /// # Errors
    /// As [`Gpu::record`].
    fn order(&self, stream: StreamId, event: &Event) -> Result<()>;

    /// Is all work over that was submitted to the GPU before this call, in whatever stream and
    /// context? Looks for at most `limit`, and never waits longer. For a caller that sees to it
    /// that no work is submitted meanwhile.
    ///
    /// # Errors
    /// Where that cannot be known: `NOT_PERMITTED` where the memory may be used in ways that the
    /// look does not cover, as by other devices, `NOT_SUPPORTED` by drivers that can only wait,
    /// `STREAM_CAPTURE_UNSUPPORTED` while anything is being captured. Else a sticky error of a
    /// context.
    fn is_settled(&self, limit: Duration) -> Result<bool>;

    /// As [`Gpu::is_settled`], for memory that gives its place to other memory of the device:
    /// graphs that were captured do no harm, since their addresses, and what kind of memory lies
    /// there, stay what they were.
    ///
    /// # Errors
    /// As [`Gpu::is_settled`].
    fn is_quiet(&self, limit: Duration) -> Result<bool> {
        self.is_settled(limit)
    }

    /// Starts a copy between two ranges that the GPU may use, with a copy engine, in a stream of
    /// the library's own for that way, which waits for nothing else. The event is behind it; copies
    /// of one way end in the order in which they were started. The caller sees to it that nothing
    /// writes either range, and that both stay mapped, until that is done.
    ///
    /// # Errors
    /// Those of the driver; nothing is being copied then.
    fn copy(&self, way: LinkWay, to: u64, from: u64, bytes: usize) -> Result<Event>;

    /// Takes an event back for reuse.
    fn recycle(&self, event: Event);

    /// Free and total bytes of the device, as the driver counts them.
    ///
    /// # Errors
    /// Those of the driver.
    fn memory_info(&self) -> Result<(u64, u64)>;

    /// Bytes of host memory that could be pinned now without starving the machine.
    fn host_available(&self) -> u64;

    /// The same, or what it was some milliseconds ago: good enough to refuse a request, not to make
    /// memory. Costs a microsecond where the host was asked lately.
    fn host_estimate(&self) -> u64 {
        self.host_available()
    }

    /// What others hold on the account of the same limits.
    fn aside(&self) -> Aside {
        Aside::default()
    }

    /// What the program's present call bears where the device is full. Asked only then, since it
    /// may take microseconds to find out.
    fn bears(&self, _: Shortfall) -> Bears {
        Bears::Elsewhere
    }

    /// A block that the device has no room for was given out. Called without a lock, by the thread
    /// that asked for it.
    fn overflowed(&self) {}
}
