//! The black box: a file that a process maps, and in which it keeps its figures.
//!
//! Whatever ends the process, the file stays, and a running process is read without a question to
//! it. The file is one [`BlackBox`]: words of 64 bits in the machine's order, and nothing else, so
//! that any content is a valid one.
//!
//! Invariants: the process writes the file and decides nothing by it; a reader reads it as bytes
//! ([`BlackBoxReading::parse`]) and believes nothing of it. The figures of a device except its hot
//! line are written between two stores of its `sequence`, which is odd meanwhile. A change of the
//! layout changes [`BlackBox::VERSION`].

mod marks;
mod reading;
#[cfg(test)]
mod tests;
mod words;

use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

use crate::stats::BytesByTier;

pub use marks::{MarkRing, PastMark};
pub use reading::{BlackBoxError, BlackBoxReading, PastSample, RefusedRequest};

/// A part of the box: its words in the mapped file, and the same words as read.
macro_rules! part {
    ($(#[$about:meta])* $cells:ident, $words:ident { $($(#[$note:meta])* $field:ident,)* }) => {
        $(#[$about])*
        #[derive(Debug)]
        #[repr(C)]
        pub struct $cells {
            $($(#[$note])* pub $field: AtomicU64,)*
        }

        $(#[$about])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct $words {
            $($(#[$note])* pub $field: u64,)*
        }

        impl $cells {
            const fn new() -> Self {
                Self { $($field: AtomicU64::new(0),)* }
            }

            #[cfg(test)]
            fn cells(&self) -> [AtomicU64; $words::COUNT] {
                [$(AtomicU64::new(self.$field.load(Relaxed)),)*]
            }

            /// The words that are there now, one by one.
            pub fn words(&self) -> $words {
                $words { $($field: self.$field.load(Relaxed),)* }
            }

            /// Stores all words, one by one.
            pub fn store(&self, words: &$words) {
                $(self.$field.store(words.$field, Relaxed);)*
            }
        }

        impl $words {
            /// Words in the file.
            pub const COUNT: usize = size_of::<$cells>() / 8;

            fn take(file: &mut words::FileWords<'_>) -> Self {
                Self { $($field: file.next(),)* }
            }
        }
    };
}

part! {
    /// The process.
    ProcessCells, ProcessWords {
        /// [`BlackBox::MAGIC`]; stored last, so a file without it is being made.
        magic,
        /// [`BlackBox::VERSION`].
        version,
        /// Bytes of the file.
        bytes,
        /// The process's number, as it sees itself.
        pid,
        /// When it started, in ticks since the machine's start: its number may be another's later.
        started_ticks,
        /// Where its stack begins: another program that it executes has another stack.
        stack,
        /// The namespace of its number.
        namespace,
        /// When the box was made, nanoseconds since 1970.
        made_ns,
        /// Seconds from then to the last note, and one.
        noted_s,
        /// 1 once the process has begun to exit.
        has_ended,
        /// The run that it belongs to (`wmctl run --stats`), or 0.
        run_high,
        /// The second half of that.
        run_low,
        /// The driver's CUDA version; 0 if it does not tell.
        cuda_version,
        /// Calls that fell back to the driver.
        fail_open,
        /// Copies and memsets that were refused.
        out_of_bounds,
        /// Requests that were refused because all tiers were full.
        refusals,
        /// Sharing is in force: 1 `advise`, 2 `on`, 3 `auto`. Beside that
        /// [`ProcessWords::DETACHED`].
        dedup_mode,
        /// The process can be paused, and is: 1 running, 2 pausing, 3 paused, 4 resuming, 5
        /// paused with the rest taken by the driver.
        pause_state,
        /// Bytes that left the device in its last pause.
        pause_out,
        /// Bytes that stayed there.
        pause_stayed,
    }
}

impl ProcessWords {
    /// A bit of `dedup_mode`: the library's features are off.
    pub const DETACHED: u64 = 1 << 32;
}

part! {
    /// Copies over one path in one direction.
    CopyCells, CopyWords {
        /// [`CopyWords::DIRECT`], [`CopyWords::THREADS`], or [`CopyWords::RELAY`] and a device.
        path,
        /// 1 to the device, 2 from it, 3 between devices; 0 for a row that is not in use.
        direction,
        /// Copies.
        count,
        /// Bytes.
        bytes,
    }
}

part! {
    /// A refused request.
    RefusalCells, RefusalWords {
        /// Seconds since the box was made, and one.
        at_s,
        /// The device.
        ordinal,
        /// Bytes that were asked for.
        asked,
        /// Bytes that the process held for the device then, on all tiers.
        held,
    }
}

part! {
    /// Live bytes of the process on all devices, as the most within a second or a minute.
    SampleCells, SampleWords {
        /// The second or minute since the box was made, and one; in the high half the device's KiB.
        at_and_device,
        /// KiB on other devices; in the high half the host's.
        peer_and_host,
    }
}

part! {
    /// The figures of a device that hits and frees change: one cache line.
    HotCells, HotWords {
        /// Bytes of live blocks on the device.
        live_device,
        /// On other devices.
        live_peer,
        /// On the host.
        live_host,
        /// Blocks given out.
        allocations,
        /// Blocks taken back.
        frees,
        /// Blocks that the free cache gave.
        hits,
        /// Blocks with a part elsewhere.
        overflows,
        /// One more than the device's number; 0 for a device that is not in use.
        number,
    }
}

part! {
    /// The other figures of a device, written between two stores of `sequence`.
    DeviceCells, DeviceWords {
        /// Odd while the words below are written.
        sequence,
        /// Physical memory of blocks, by tier.
        reserved_device,
        /// On other devices.
        reserved_peer,
        /// On the host.
        reserved_host,
        /// The most that was live since the start or the program's last reset.
        live_peak_device,
        /// On other devices.
        live_peak_peer,
        /// On the host.
        live_peak_host,
        /// The most that was reserved since the start or the program's last reset.
        reserved_peak_device,
        /// On other devices.
        reserved_peak_peer,
        /// On the host.
        reserved_peak_host,
        /// The most that blocks held on all tiers at once.
        live_peak,
        /// The program's own pieces on the device.
        pieces_device,
        /// On the host.
        pieces_host,
        /// Idle ones on the device.
        pieces_idle_device,
        /// On the host.
        pieces_idle_host,
        /// The most of them on the device.
        pieces_peak_device,
        /// On the host.
        pieces_peak_host,
        /// On both at once.
        pieces_peak,
        /// Pieces on the host because the device was full.
        pieces_overflows,
        /// The most that blocks and pieces held together.
        all_live_peak_device,
        /// On other devices.
        all_live_peak_peer,
        /// On the host.
        all_live_peak_host,
        /// The most physical memory of both together.
        all_reserved_peak_device,
        /// On other devices.
        all_reserved_peak_peer,
        /// On the host.
        all_reserved_peak_host,
        /// Bytes that came to the device.
        moved_in,
        /// Bytes that left it.
        moved_out,
        /// Those of them that were not copied.
        moved_clean,
        /// Bytes whose fingerprints deceived.
        moved_unequal,
        /// See [`Counters`](crate::Counters), for this word and those below.
        splits,
        /// As there.
        reuses,
        /// As there.
        stitches,
        /// As there.
        creates,
        /// As there.
        orders,
        /// As there.
        waits,
        /// As there.
        evictions,
        /// As there.
        rollbacks,
        /// As there.
        releases,
        /// As there.
        failed_releases,
        /// As there.
        out_of_memory,
        /// Extents.
        extents,
        /// Objects that the driver refused to take back.
        quarantined,
    }
}

part! {
    /// A device's size and limits. Of these, the limit changes.
    LimitCells, LimitWords {
        /// The device's memory.
        total,
        /// Most device memory to hold.
        limit,
        /// Device memory left free.
        headroom,
    }
}

/// A text of at most `8 * WORDS` bytes; the rest is zero.
#[derive(Debug)]
#[repr(C)]
pub struct TextCells<const WORDS: usize>([AtomicU64; WORDS]);

impl<const WORDS: usize> TextCells<WORDS> {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; WORDS])
    }

    /// Stores a text, cut where it is too long.
    pub fn store(&self, text: &str) {
        let mut end = text.len().min(8 * WORDS);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let mut chunks = text.as_bytes()[..end].chunks(8);
        for cell in &self.0 {
            let mut word = [0; 8];
            let chunk = chunks.next().unwrap_or_default();
            word[..chunk.len()].copy_from_slice(chunk);
            cell.store(u64::from_ne_bytes(word), Relaxed);
        }
    }
}

/// A device: its figures and its name.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct DeviceBox {
    /// Figures that each hit and each free writes.
    pub hot: HotCells,
    /// The others, which [`DeviceBox::publish`] writes.
    figures: DeviceCells,
    /// Its size and limits.
    pub limits: LimitCells,
    /// Its name.
    pub name: TextCells<8>,
    /// Its identity, as NVIDIA's tools write it.
    pub uuid: TextCells<6>,
    /// Its address on the PCI bus.
    pub pci: TextCells<2>,
}

impl DeviceBox {
    /// Of no device yet.
    #[must_use]
    pub const fn new() -> Self {
        let (hot, figures, limits) = (HotCells::new(), DeviceCells::new(), LimitCells::new());
        let (name, uuid, pci) = (TextCells::new(), TextCells::new(), TextCells::new());
        Self { hot, figures, limits, name, uuid, pci }
    }

    /// Live bytes of blocks and pieces, as they were published last.
    #[must_use]
    pub fn live(&self) -> BytesByTier {
        let HotWords { live_device, live_peer, live_host, .. } = self.hot.words();
        let [device, host] =
            [&self.figures.pieces_device, &self.figures.pieces_host].map(|cell| cell.load(Relaxed));
        BytesByTier {
            device: live_device.saturating_add(device),
            peer: live_peer,
            host: live_host.saturating_add(host),
        }
    }

    /// Writes all but the hot figures and the name. The caller is the only writer at that time.
    /// `words.sequence` counts for nothing.
    pub fn publish(&self, words: &DeviceWords) {
        let sequence = self.figures.sequence.load(Relaxed) | 1;
        self.figures.sequence.store(sequence, Relaxed);
        fence(Release);
        self.figures.store(&DeviceWords { sequence, ..*words });
        self.figures.sequence.store(sequence.wrapping_add(1), Release);
    }
}

impl Default for DeviceBox {
    fn default() -> Self {
        Self::new()
    }
}

/// The file.
#[derive(Debug)]
#[repr(C)]
pub struct BlackBox {
    /// The process.
    pub process: ProcessCells,
    /// Its executable's name.
    pub program: TextCells<8>,
    /// The library's version.
    pub library: TextCells<4>,
    /// The choice for PyTorch.
    pub allocator: TextCells<4>,
    /// The driver's file.
    pub driver: TextCells<36>,
    /// Copies. The first rows are those that the driver makes, by direction.
    pub copies: [CopyCells; Self::COPIES],
    /// The last refused requests, in a ring.
    pub refusals: [RefusalCells; Self::REFUSALS],
    /// Devices.
    pub devices: [DeviceBox; Self::DEVICES],
    /// A ring of the last seconds.
    pub seconds: [SampleCells; Self::SECONDS],
    /// A ring of the last minutes.
    pub minutes: [SampleCells; Self::MINUTES],
    /// The last marks of the program.
    pub marks: MarkRing,
}

impl BlackBox {
    /// The first word of a whole file: `wmshimbb`.
    pub const MAGIC: u64 = u64::from_ne_bytes(*b"wmshimbb");
    /// The layout.
    pub const VERSION: u64 = 3;
    /// Bytes of the file.
    pub const BYTES: usize = size_of::<Self>();
    /// Bytes in front of the rings: all that a list needs.
    pub const FIGURES: usize = std::mem::offset_of!(Self, seconds);
    /// Paths of copies.
    pub const COPIES: usize = 32;
    /// Refused requests that are kept.
    pub const REFUSALS: usize = 16;
    /// Devices that have a place.
    pub const DEVICES: usize = 16;
    /// Samples of the last seconds.
    pub const SECONDS: usize = 64;
    /// Samples of the last minutes.
    pub const MINUTES: usize = 1440;

    /// An empty one.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            process: ProcessCells::new(),
            program: TextCells::new(),
            library: TextCells::new(),
            allocator: TextCells::new(),
            driver: TextCells::new(),
            copies: [const { CopyCells::new() }; Self::COPIES],
            refusals: [const { RefusalCells::new() }; Self::REFUSALS],
            devices: [const { DeviceBox::new() }; Self::DEVICES],
            seconds: [const { SampleCells::new() }; Self::SECONDS],
            minutes: [const { SampleCells::new() }; Self::MINUTES],
            marks: MarkRing::new(),
        }
    }

    /// Notes a refused request, in the place of the oldest one.
    pub fn refused(&self, request: &RefusalWords) {
        let number = self.process.refusals.fetch_add(1, Relaxed);
        self.refusals[(number % Self::REFUSALS as u64) as usize].store(request);
    }

    /// Notes so many live bytes `seconds` after the box was made: the most of that second, and of
    /// that minute, stays. One thread at a time.
    pub fn sample(&self, seconds: u64, live: BytesByTier) {
        note(&self.seconds, seconds, live);
        note(&self.minutes, seconds / 60, live);
        self.process.noted_s.store(seconds + 1, Relaxed);
    }
}

impl Default for BlackBox {
    fn default() -> Self {
        Self::new()
    }
}

/// Raises the sample of a second or minute, or begins it.
fn note(ring: &[SampleCells], at: u64, live: BytesByTier) {
    let cell = &ring[(at % ring.len() as u64) as usize];
    let before = PastSample::of(&cell.words()).filter(|sample| sample.at == at);
    let before = before.map_or_else(BytesByTier::default, |sample| sample.live);
    let most = BytesByTier {
        device: live.device.max(before.device),
        peer: live.peer.max(before.peer),
        host: live.host.max(before.host),
    };
    cell.store(&PastSample { at, live: most }.words());
}

const _: () = assert!(size_of::<HotCells>() == 64, "one cache line");
const _: () = assert!(std::mem::offset_of!(BlackBox, devices) == 8 * reading::BEFORE_DEVICES, "no padding");
const _: () = assert!(size_of::<DeviceBox>().is_multiple_of(64));
