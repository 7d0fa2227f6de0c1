//! A black box as a reader sees it: bytes of a file that anything may have written.
//!
//! Pure. Every content has a meaning or an error, and none makes it panic: sums saturate, texts are
//! read leniently, and a number that means nothing is left out.

use std::time::Duration;

use super::marks::{self, PastMark};
use super::words::FileWords;
use super::{
    BlackBox, CopyWords, DeviceWords, HotWords, LimitWords, ProcessWords, RefusalWords, SampleWords,
};
use crate::pause::{ArenaStats, PauseStats};
use crate::stats::{
    BytesByTier, CopyStats, Counters, DedupStats, DeviceStats, DriverInfo, FailOpen, MoveStats, PieceStats,
    Reason, Stats, TierUsage, Tiers,
};

const DIRECTIONS: [&str; 3] = ["htod", "dtoh", "dtod"];
/// Words from the file's start to the devices.
pub(super) const BEFORE_DEVICES: usize = ProcessWords::COUNT
    + TEXTS[0]
    + TEXTS[1]
    + TEXTS[2]
    + TEXTS[3]
    + BlackBox::COPIES * CopyWords::COUNT
    + BlackBox::REFUSALS * RefusalWords::COUNT;
/// Words of the texts: program, library, allocator, driver.
const TEXTS: [usize; 4] = [8, 4, 4, 36];
const DEVICE: usize = size_of::<super::DeviceBox>() / 8;

/// Why a file is not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlackBoxError {
    /// It is being made, or the process ended while it was.
    Unfinished,
    /// Its first word is another.
    Foreign,
    /// Another version of the library wrote it.
    Version(u64),
    /// It is shorter than it says, or than a box is.
    Short,
}

impl std::fmt::Display for BlackBoxError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unfinished => f.write_str("was never finished"),
            Self::Foreign => f.write_str("is no black box of wmshim"),
            Self::Version(version) => {
                write!(
                    f,
                    "has layout {version}, and this wmctl reads {}: use the wmctl of that library",
                    BlackBox::VERSION
                )
            }
            Self::Short => f.write_str("is too short to be a black box"),
        }
    }
}

impl std::error::Error for BlackBoxError {}

/// Live bytes at a time: the most within a second or a minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PastSample {
    /// The second, or minute, since the box was made.
    pub at: u64,
    /// The bytes, in whole KiB.
    pub live: BytesByTier,
}

impl PastSample {
    /// `None` for a place that is empty.
    pub(super) fn of(words: &SampleWords) -> Option<Self> {
        let halves = |word: u64| (word & 0xffff_ffff, (word >> 32) << 10);
        let (at, device) = halves(words.at_and_device);
        let (peer, host) = halves(words.peer_and_host);
        let live = BytesByTier { device, peer: peer << 10, host };
        Some(Self { at: at.checked_sub(1)?, live })
    }

    pub(super) fn words(&self) -> SampleWords {
        let kib = |bytes: u64| bytes.div_ceil(1024).min(0xffff_ffff);
        let at = (self.at + 1).min(0xffff_ffff);
        SampleWords {
            at_and_device: at | kib(self.live.device) << 32,
            peer_and_host: kib(self.live.peer) | kib(self.live.host) << 32,
        }
    }
}

/// A request that was refused because all tiers were full.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RefusedRequest {
    /// When, from the time that the box was made.
    pub at: Duration,
    /// The device, as the process numbers it.
    pub ordinal: i32,
    /// Bytes that were asked for.
    pub asked: u64,
    /// Bytes that the process held for the device then.
    pub held: u64,
}

impl CopyWords {
    /// The path of copies that the driver makes.
    pub const DIRECT: u64 = 0;
    /// The path of copies by threads of the library.
    pub const THREADS: u64 = 1;
    /// The first path through a relay: that through device 0.
    pub const RELAY: u64 = 2;
    /// The direction of copies from the host.
    pub const TO_DEVICE: u64 = 1;
    /// The direction of copies to the host.
    pub const FROM_DEVICE: u64 = 2;

    fn read(&self) -> Option<CopyStats> {
        let direction = DIRECTIONS.get(usize::try_from(self.direction.checked_sub(1)?).ok()?)?;
        let path = match self.path {
            Self::DIRECT => "direct".to_owned(),
            Self::THREADS => "threads".to_owned(),
            relay => format!("relay {}", relay - Self::RELAY),
        };
        (self.count > 0).then(|| CopyStats {
            path,
            direction: (*direction).to_owned(),
            count: self.count,
            bytes: self.bytes,
        })
    }
}

/// A black box that was read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BlackBoxReading {
    /// The process.
    pub process: ProcessWords,
    /// The figures that it has, in the form of the process's own answer. `uptime_s` is the time to
    /// the last note; calls, guards and what the free cache keeps are not in a box.
    pub stats: Stats,
    /// The last refused requests, the latest first.
    pub refused: Vec<RefusedRequest>,
}

impl BlackBoxReading {
    /// Reads a file's first [`BlackBox::FIGURES`] bytes, or all of it.
    ///
    /// # Errors
    /// A file that is no box of this version.
    pub fn parse(file: &[u8]) -> Result<Self, BlackBoxError> {
        let mut words = FileWords::from(file, 0);
        let process = ProcessWords::take(&mut words);
        match process {
            ProcessWords { magic: 0, .. } => return Err(BlackBoxError::Unfinished),
            ProcessWords { magic, .. } if magic != BlackBox::MAGIC => return Err(BlackBoxError::Foreign),
            ProcessWords { version, .. } if version != BlackBox::VERSION => {
                return Err(BlackBoxError::Version(version));
            }
            _ if file.len() < BlackBox::FIGURES || process.bytes != BlackBox::BYTES as u64 => {
                return Err(BlackBoxError::Short);
            }
            _ => {}
        }
        let [program, version, torch_allocator, path] = TEXTS.map(|length| words.text(length));
        let copies = copies(&mut words);
        let refused = refused(&process, &mut words);
        let devices: Vec<DeviceStats> =
            (0..BlackBox::DEVICES).filter_map(|number| device(file, number)).collect();
        let pause = pause(&process, &devices);
        let cuda_version = i32::try_from(process.cuda_version).ok().filter(|version| *version > 0);
        let stats = Stats {
            schema: Stats::SCHEMA.to_owned(),
            version,
            pid: u32::try_from(process.pid).unwrap_or(0),
            program,
            uptime_s: process.noted_s.saturating_sub(1) as f64,
            driver: (!path.is_empty()).then_some(DriverInfo { path, version: cuda_version }),
            torch_allocator,
            devices,
            copies,
            dedup: dedup(&process),
            pause,
            fail_open: fail_open(&process),
            detached: process.dedup_mode & ProcessWords::DETACHED != 0,
            out_of_bounds: process.out_of_bounds,
            ..Stats::default()
        };
        Ok(Self { process, stats, refused })
    }

    /// Was a device being written while the file was read? Compares two readings in a row, which
    /// say so if a figure besides those of hits and frees differs.
    #[must_use]
    pub fn is_torn(first: &[u8], second: &[u8]) -> bool {
        (0..BlackBox::DEVICES).any(|number| {
            let range =
                BEFORE_DEVICES + number * DEVICE + HotWords::COUNT..BEFORE_DEVICES + (number + 1) * DEVICE;
            let bytes = range.start * 8..range.end * 8;
            let is_odd = FileWords::from(second, range.start).next() & 1 == 1;
            is_odd || first.get(bytes.clone()) != second.get(bytes)
        })
    }

    /// The samples of the last seconds and of the last minutes, the oldest first, from a whole
    /// file.
    #[must_use]
    pub fn samples(file: &[u8]) -> [Vec<PastSample>; 2] {
        let mut words = FileWords::from(file, BlackBox::FIGURES / 8);
        [BlackBox::SECONDS, BlackBox::MINUTES].map(|length| {
            let mut samples: Vec<_> =
                (0..length).filter_map(|_| PastSample::of(&SampleWords::take(&mut words))).collect();
            samples.sort_by_key(|sample| sample.at);
            samples
        })
    }

    /// The last marks of the program, the oldest first, from a whole file.
    #[must_use]
    pub fn marks(file: &[u8]) -> Vec<PastMark> {
        marks::read(&mut FileWords::from(file, std::mem::offset_of!(BlackBox, marks) / 8))
    }
}

/// Copies by path and direction. The driver's own and the library's may have one path.
fn copies(words: &mut FileWords<'_>) -> Vec<CopyStats> {
    let mut rows: Vec<CopyStats> = Vec::new();
    for copies in (0..BlackBox::COPIES).filter_map(|_| CopyWords::take(words).read()) {
        match rows.iter_mut().find(|row| (&row.path, &row.direction) == (&copies.path, &copies.direction)) {
            Some(row) => {
                row.count = row.count.saturating_add(copies.count);
                row.bytes = row.bytes.saturating_add(copies.bytes);
            }
            None => rows.push(copies),
        }
    }
    rows
}

/// The ring of refused requests, the latest first.
fn refused(process: &ProcessWords, words: &mut FileWords<'_>) -> Vec<RefusedRequest> {
    let ring: Vec<_> = (0..BlackBox::REFUSALS).map(|_| RefusalWords::take(words)).collect();
    let length = ring.len() as u64;
    let last = (1..=process.refusals.min(length)).map(|back| (process.refusals - back) % length);
    last.map(|at| &ring[at as usize])
        .filter(|refusal| refusal.at_s > 0)
        .map(|refusal| RefusedRequest {
            at: Duration::from_secs(refusal.at_s - 1),
            ordinal: i32::try_from(refusal.ordinal).unwrap_or(-1),
            asked: refusal.asked,
            held: refusal.held,
        })
        .collect()
}

fn fail_open(process: &ProcessWords) -> FailOpen {
    let reason = "for a reason that the process itself tells".to_owned();
    let count = process.fail_open;
    FailOpen { count, reasons: (count > 0).then_some(Reason { reason, count }).into_iter().collect() }
}

/// The figures of sharing are sums over blocks, which the process itself makes.
fn dedup(process: &ProcessWords) -> Option<DedupStats> {
    let mode = match process.dedup_mode & !ProcessWords::DETACHED {
        1 => "advise",
        2 => "on",
        3 => "auto",
        _ => return None,
    };
    Some(DedupStats { mode: mode.to_owned(), ..DedupStats::default() })
}

/// The reasons of a pause are the process's own to tell, and so is what an arena lacks. Host memory
/// without a block lies ready for a pause.
fn pause(process: &ProcessWords, devices: &[DeviceStats]) -> Option<PauseStats> {
    let state = match process.pause_state {
        1 => "running",
        2 => "pausing",
        3 | 5 => "paused",
        4 => "resuming",
        _ => return None,
    };
    Some(PauseStats {
        state: state.to_owned(),
        is_deep: process.pause_state == 5,
        out_bytes: process.pause_out,
        stayed_bytes: process.pause_stayed,
        arena: ArenaStats { bytes: idle_on_host(devices), ..ArenaStats::default() },
        ..PauseStats::default()
    })
}

fn idle_on_host(devices: &[DeviceStats]) -> u64 {
    let idle = devices.iter().map(|device| {
        let host = device.everything().host;
        host.reserved_bytes.saturating_sub(host.live_bytes)
    });
    idle.fold(0, u64::saturating_add)
}

fn device(file: &[u8], number: usize) -> Option<DeviceStats> {
    let mut words = FileWords::from(file, BEFORE_DEVICES + number * DEVICE);
    let hot = HotWords::take(&mut words);
    let ordinal = i32::try_from(hot.number.checked_sub(1)?).ok()?;
    let device = DeviceWords::take(&mut words);
    let limits = LimitWords::take(&mut words);
    let tiers = blocks(&hot, &device);
    let live = sum([hot.live_device, hot.live_peer, hot.live_host]);
    let reserved = sum([device.reserved_device, device.reserved_peer, device.reserved_host]);
    Some(DeviceStats {
        ordinal,
        name: words.text(8),
        uuid: words.text(6),
        pci: words.text(2),
        total_bytes: limits.total,
        limit_bytes: limits.limit,
        headroom_bytes: limits.headroom,
        memory: Some(everything(&tiers, &device)),
        tiers,
        pieces: pieces(&device),
        peak_live_bytes: device.live_peak.max(live),
        moves: MoveStats {
            in_bytes: device.moved_in,
            out_bytes: device.moved_out,
            clean_bytes: device.moved_clean,
            unequal_bytes: device.moved_unequal,
            ..MoveStats::default()
        },
        utilization: if reserved == 0 { 0.0 } else { (live as f64 / reserved as f64).min(1.0) },
        extents: device.extents,
        quarantined: device.quarantined,
        counters: counters(&hot, &device),
        ..DeviceStats::default()
    })
}

fn sum(parts: [u64; 3]) -> u64 {
    parts.into_iter().fold(0, u64::saturating_add)
}

/// A tier. What is live now was live at most, although the hot line is written before the others.
fn tier(live: u64, reserved: u64, peak_live: u64, peak_reserved: u64) -> TierUsage {
    let (peak_live_bytes, peak_reserved_bytes) = (peak_live.max(live), peak_reserved.max(reserved));
    TierUsage { live_bytes: live, reserved_bytes: reserved, peak_live_bytes, peak_reserved_bytes }
}

fn blocks(hot: &HotWords, at: &DeviceWords) -> Tiers {
    Tiers {
        device: tier(hot.live_device, at.reserved_device, at.live_peak_device, at.reserved_peak_device),
        peer: tier(hot.live_peer, at.reserved_peer, at.live_peak_peer, at.reserved_peak_peer),
        host: tier(hot.live_host, at.reserved_host, at.live_peak_host, at.reserved_peak_host),
    }
}

/// Blocks and the program's own pieces.
fn everything(blocks: &Tiers, at: &DeviceWords) -> Tiers {
    let all = |blocks: &TierUsage, pieces: u64, idle: u64, peaks: [u64; 2]| {
        let live = blocks.live_bytes.saturating_add(pieces);
        let reserved = sum([blocks.reserved_bytes, pieces, idle]);
        tier(live, reserved, peaks[0], peaks[1])
    };
    let DeviceWords { pieces_device, pieces_idle_device, pieces_host, pieces_idle_host, .. } = *at;
    let device = [at.all_live_peak_device, at.all_reserved_peak_device];
    let peer = [at.all_live_peak_peer, at.all_reserved_peak_peer];
    let host = [at.all_live_peak_host, at.all_reserved_peak_host];
    Tiers {
        device: all(&blocks.device, pieces_device, pieces_idle_device, device),
        peer: all(&blocks.peer, 0, 0, peer),
        host: all(&blocks.host, pieces_host, pieces_idle_host, host),
    }
}

fn pieces(at: &DeviceWords) -> PieceStats {
    PieceStats {
        device_bytes: at.pieces_device,
        idle_bytes: at.pieces_idle_device,
        host_bytes: at.pieces_host,
        host_idle_bytes: at.pieces_idle_host,
        peak_device_bytes: at.pieces_peak_device,
        peak_host_bytes: at.pieces_peak_host,
        peak_bytes: at.pieces_peak,
        overflows: at.pieces_overflows,
    }
}

fn counters(hot: &HotWords, at: &DeviceWords) -> Counters {
    Counters {
        allocations: hot.allocations,
        frees: hot.frees,
        hits: hot.hits,
        splits: at.splits,
        reuses: at.reuses,
        stitches: at.stitches,
        creates: at.creates,
        overflows: hot.overflows,
        orders: at.orders,
        waits: at.waits,
        evictions: at.evictions,
        rollbacks: at.rollbacks,
        releases: at.releases,
        failed_releases: at.failed_releases,
        out_of_memory: at.out_of_memory,
    }
}
