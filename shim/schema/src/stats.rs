//! The answer to `stats`: the memory that a process holds, and its counters.

use serde::{Deserialize, Serialize};

use crate::pause::{PauseStats, TurnStats};

/// The answer to `stats` and `final`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stats {
    /// `wmshim-stats/2`.
    pub schema: String,
    /// The library's version.
    pub version: String,
    /// The process.
    pub pid: u32,
    /// File name of its executable.
    pub program: String,
    /// Seconds since its first successful `cuInit`.
    pub uptime_s: f64,
    /// The real driver; null before it is opened.
    pub driver: Option<DriverInfo>,
    /// The choice for PyTorch at load: `async`, `native`, `expandable`, or `untouched`; `pluggable`
    /// once tensors come through `wmshim.torch.enable()`.
    pub torch_allocator: String,
    /// One for each device that the program has used for memory.
    pub devices: Vec<DeviceStats>,
    /// Intercepted functions that the program called.
    pub calls: Vec<CallCount>,
    /// Functions that the library itself called.
    pub driver_calls: Vec<DriverCall>,
    /// Copies between host and devices, by path and direction.
    pub copies: Vec<CopyStats>,
    /// *Optional*: devices that other devices' copies go through.
    pub relays: Vec<RelayStats>,
    /// *Optional*: the counts of guards; null if there are none.
    pub guard: Option<GuardStats>,
    /// *Optional*: memory stored once for several processes; null if `WMSHIM_DEDUP` is off.
    pub dedup: Option<DedupStats>,
    /// *Optional*: whether the process is paused; null if it cannot be (`WMSHIM_PAUSE`).
    pub pause: Option<PauseStats>,
    /// *Optional*: the turns of the process; null if it takes none (`WMSHIM_SHARE`).
    pub turn: Option<TurnStats>,
    /// Times that the library fell back to the driver.
    pub fail_open: FailOpen,
    /// *Optional*: copies and memsets that ran past the end of a block, and were refused.
    pub out_of_bounds: u64,
    /// *Optional*: the library's features are off (`wmctl detach`).
    pub detached: bool,
}

impl Stats {
    /// The version of this answer.
    pub const SCHEMA: &'static str = "wmshim-stats/2";

    /// Why the process does not run on, in a word.
    #[must_use]
    pub fn halt(&self) -> Option<&str> {
        let for_others = self.turn.as_ref().and_then(TurnStats::halt);
        let pause = self.pause.as_ref().filter(|pause| !pause.runs());
        for_others.or_else(|| pause.map(PauseStats::word))
    }
}

/// The real driver.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DriverInfo {
    /// Its file.
    pub path: String,
    /// The CUDA version that it serves: 13000 is CUDA 13.0. Null if it does not report one.
    pub version: Option<i32>,
}

/// A device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceStats {
    /// As the process numbers it.
    pub ordinal: i32,
    /// As the driver names it.
    pub name: String,
    /// *Optional*: its identity as NVIDIA's tools write it, such as `GPU-8f3c...`; that of the part
    /// for a part of a GPU (MIG). Processes that number devices differently agree on it.
    pub uuid: String,
    /// *Optional*: its address on the PCI bus, such as `0000:1b:00.0`.
    pub pci: String,
    /// Its total memory.
    pub total_bytes: u64,
    /// Most device memory to hold.
    pub limit_bytes: u64,
    /// Device memory left free for the driver.
    pub headroom_bytes: u64,
    /// Where blocks are, by tier.
    pub tiers: Tiers,
    /// *Optional*: blocks and the memory that the program made itself, together. Its peaks are
    /// since the start.
    pub memory: Option<Tiers>,
    /// *Optional*: physical memory that the program made itself with `cuMemCreate`.
    pub pieces: PieceStats,
    /// *Optional*: the most that blocks of all tiers held at once, since the start.
    pub peak_live_bytes: u64,
    /// *Optional*: memory of live blocks that moved between tiers.
    pub moves: MoveStats,
    /// *Optional*: freed blocks that are kept whole for the next request of their size.
    pub cached_bytes: u64,
    /// *Optional*: reserved memory without a block, in whole handles.
    pub idle_bytes: u64,
    /// Live over reserved, 0 to 1; 0 where nothing is reserved.
    pub utilization: f64,
    /// Longest stretch of free addresses that is backed now.
    pub largest_free_run_bytes: u64,
    /// *Optional*: mapped ranges of addresses.
    pub extents: u64,
    /// *Optional*: of these, stitched ones without a block.
    pub idle_views: u64,
    /// *Optional*: objects that the driver refused to take back.
    pub quarantined: u64,
    /// Events so far.
    pub counters: Counters,
    /// *Optional*: in dumps and in the answer to `final`, whether the books are consistent: `ok`,
    /// or the inconsistency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit: Option<String>,
}

impl DeviceStats {
    /// Everything that the program holds of the device. A library that does not tell gives the sum
    /// of blocks and pieces, whose peaks may be of different times.
    #[must_use]
    pub fn everything(&self) -> Tiers {
        let PieceStats { device_bytes, idle_bytes, host_bytes, host_idle_bytes, .. } = self.pieces;
        let PieceStats { peak_device_bytes, peak_host_bytes, .. } = self.pieces;
        let tier = |blocks: TierUsage, live: u64, idle: u64, peak: u64| TierUsage {
            live_bytes: blocks.live_bytes.saturating_add(live),
            reserved_bytes: blocks.reserved_bytes.saturating_add(live).saturating_add(idle),
            peak_live_bytes: blocks.peak_live_bytes.saturating_add(peak),
            peak_reserved_bytes: blocks.peak_reserved_bytes.saturating_add(peak),
        };
        self.memory.unwrap_or_else(|| Tiers {
            device: tier(self.tiers.device, device_bytes, idle_bytes, peak_device_bytes),
            peer: self.tiers.peer,
            host: tier(self.tiers.host, host_bytes, host_idle_bytes, peak_host_bytes),
        })
    }
}

/// The memory in a device's tiers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tiers {
    /// On the device itself.
    pub device: TierUsage,
    /// On other devices.
    pub peer: TierUsage,
    /// In pinned memory of the host.
    pub host: TierUsage,
}

/// The memory in a tier, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TierUsage {
    /// Held by the program.
    pub live_bytes: u64,
    /// Physical memory held.
    pub reserved_bytes: u64,
    /// The most that was live.
    pub peak_live_bytes: u64,
    /// The most that was reserved.
    pub peak_reserved_bytes: u64,
}

/// Bytes by tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BytesByTier {
    /// On the device itself.
    pub device: u64,
    /// On other devices.
    pub peer: u64,
    /// In pinned memory of the host.
    pub host: u64,
}

/// Physical memory that the program made itself with `cuMemCreate`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PieceStats {
    /// On the device.
    pub device_bytes: u64,
    /// Beside these, memory kept for PyTorch's next pages.
    pub idle_bytes: u64,
    /// On the host.
    pub host_bytes: u64,
    /// Beside these, host memory kept for PyTorch's next pages.
    pub host_idle_bytes: u64,
    /// The most that was on the device.
    pub peak_device_bytes: u64,
    /// The most that was on the host.
    pub peak_host_bytes: u64,
    /// The most that was on both at once.
    pub peak_bytes: u64,
    /// Times that it went to the host because the device was full.
    pub overflows: u64,
}

/// Memory of live blocks that moved between tiers, by size of handles.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MoveStats {
    /// Bytes that came to the device.
    pub in_bytes: u64,
    /// Bytes that left it.
    pub out_bytes: u64,
    /// Those of them that were not copied, because the host still had them.
    pub clean_bytes: u64,
    /// Bytes that the host still had, and of which no fingerprint was taken in time, or at all:
    /// when they leave the device they are copied.
    pub unprinted_bytes: u64,
    /// Bytes that `WMSHIM_VERIFY=moves` found to be written although their fingerprints were the
    /// same. They were copied.
    pub unequal_bytes: u64,
    /// Handles, and whole requests, that stayed where they were, by reason.
    pub refused: Vec<Reason>,
}

/// Events so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Blocks given out.
    pub allocations: u64,
    /// Blocks taken back.
    pub frees: u64,
    /// Allocations that a cached block answered: no driver call.
    pub hits: u64,
    /// Allocations cut from a free run.
    pub splits: u64,
    /// Allocations in an extent that was mapped before, after its handles were claimed back.
    pub reuses: u64,
    /// Allocations in an extent put together from free handles, or free and new ones.
    pub stitches: u64,
    /// Handles made.
    pub creates: u64,
    /// Allocations with a part that is not on the device.
    pub overflows: u64,
    /// Times that a stream had to wait, on the GPU, for another stream's free, because the device
    /// was full.
    pub orders: u64,
    /// Times that a thread waited for the GPU before a refusal. The wait that belongs to each
    /// `cuMemFree` is not counted.
    pub waits: u64,
    /// Stitched ranges unmapped because too many were idle.
    pub evictions: u64,
    /// Changes undone because a driver call failed.
    pub rollbacks: u64,
    /// Handles given back to the driver.
    pub releases: u64,
    /// Releases that were postponed, because the driver refused or another thread is about to unmap
    /// the range (`quarantined` until they are done).
    pub failed_releases: u64,
    /// Refused allocations, and refused requests for memory that the program makes itself.
    pub out_of_memory: u64,
}

/// An intercepted function.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CallCount {
    /// Its exported name.
    pub name: String,
    /// Calls.
    pub count: u64,
    /// Of these, calls that did not succeed.
    pub errors: u64,
}

/// A function that the library called.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DriverCall {
    /// Its exported name.
    pub name: String,
    /// Calls.
    pub count: u64,
    /// Of these, calls that did not succeed.
    pub errors: u64,
    /// Time spent in the driver.
    pub total_ns: u64,
    /// Calls by duration; empty buckets are left out.
    pub histogram: Vec<Bucket>,
}

impl DriverCall {
    /// Adds another device's figures for the same function.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.errors += other.errors;
        self.total_ns += other.total_ns;
        for bucket in &other.histogram {
            match self.histogram.iter_mut().find(|known| known.le_ns == bucket.le_ns) {
                Some(known) => known.count += bucket.count,
                None => self.histogram.push(*bucket),
            }
        }
        // The last one has no bound.
        self.histogram.sort_by_key(|bucket| bucket.le_ns.unwrap_or(u64::MAX));
    }
}

/// Calls that took at most this time, and longer than the bucket before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bucket {
    /// The longest; the last bucket has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub le_ns: Option<u64>,
    /// Calls in this bucket.
    pub count: u64,
}

/// The copies over one path in one direction.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CopyStats {
    /// `direct`; `threads` for the GPU's own link with threads of the library; `relay N` for the
    /// way through device N.
    pub path: String,
    /// `htod`, `dtoh` or `dtod`.
    pub direction: String,
    /// Copies that had a part there.
    pub count: u64,
    /// Bytes that went over the path.
    pub bytes: u64,
}

/// A device that other devices' copies go through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RelayStats {
    /// As the process numbers it.
    pub ordinal: i32,
    /// Memory held there for copies in flight.
    pub staging_bytes: u64,
    /// Upper bound of the memory of the context made for this: all memory in use there after it was
    /// made, also that of other programs.
    pub context_bytes_at_most: u64,
}

/// The counts of guards.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GuardStats {
    /// `page` or `canary`.
    pub mode: String,
    /// Blocks that were guarded.
    pub guarded: u64,
    /// Checks of their tails.
    pub looks: u64,
    /// Blocks that were overrun.
    pub overrun: u64,
    /// Blocks left unwatched.
    pub unwatched: u64,
}

/// Memory stored once for several processes. In the mode `advise` the figures are estimates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DedupStats {
    /// `advise` or `on`.
    pub mode: String,
    /// Bytes in whole chunks that arrived by copies and were not written since.
    pub candidate_bytes: u64,
    /// Mapped here from memory that other processes map, too, or have mapped: it is only read.
    pub shared_bytes: u64,
    /// Bytes mapped here from memory of other processes: without sharing, this process would hold
    /// them itself.
    pub saved_bytes: u64,
    /// Bytes that became private again.
    pub copied_back_bytes: u64,
    /// Writes into shared memory that a private copy preceded.
    pub faults_avoided: u64,
    /// Parameters of kernels that only read.
    pub readers: u64,
    /// Parameters of kernels that may write.
    pub writers: u64,
    /// Parameters of kernels that cannot be classified.
    pub unknown: u64,
    /// Launched kernels, including those of captured graphs.
    pub launches: u64,
    /// Times that launches were delayed while memory was exchanged.
    pub turns: u64,
    /// Blocks that were not shared, by reason.
    pub refused: Vec<Reason>,
}

impl DedupStats {
    /// Whether the mode is another one than `off`.
    #[must_use]
    pub fn is_in_force(&self) -> bool {
        !matches!(self.mode.as_str(), "" | "off")
    }
}

/// Times that the library fell back to the driver.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FailOpen {
    /// All of them.
    pub count: u64,
    /// By reason.
    pub reasons: Vec<Reason>,
}

/// A reason and its count: the library fell back to the driver, or memory stayed in place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reason {
    /// In words.
    pub reason: String,
    /// How often.
    pub count: u64,
}
