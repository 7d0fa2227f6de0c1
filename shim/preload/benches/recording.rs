//! The cost of an event in a recording, without the clock and the lock: the words of it, and its
//! share of the compression. A run has blocks of five sizes among 4096 addresses, as a training
//! program that repeats its requests.

use std::collections::VecDeque;
use std::io::Write;

use divan::Bencher;
use divan::counter::ItemsCount;
use flate2::Compression;
use flate2::write::GzEncoder;
use log::Log;
use recording::EventText;
use wm_driver::StreamId;

#[path = "../src/trace/line.rs"]
#[allow(dead_code, reason = "the helpers of its tests")]
mod line;
#[path = "../src/trace/log.rs"]
#[allow(dead_code, reason = "the bench uses a part of it")]
mod log;
#[path = "../src/trace/places.rs"]
#[allow(dead_code, reason = "the helpers of its tests")]
mod places;

/// What these sources import.
mod events {
    #[allow(dead_code, reason = "no piece is benched")]
    #[derive(Debug, Clone, Copy)]
    pub(crate) enum BenchedStep {
        Made { bytes: u64 },
        Mapped,
        Unmapped,
        Released,
        Held,
    }
    pub(crate) use BenchedStep as PieceStep;
}
mod launches {
    #[derive(Debug)]
    pub(crate) struct BenchedBlock {
        pub(crate) address: u64,
    }
    pub(crate) use BenchedBlock as TouchedBlock;
}
mod recording {
    #[allow(dead_code, reason = "the bench takes chunks alone")]
    pub(crate) trait BenchedText {
        fn text(&self) -> &[u8];
        fn clear(&mut self);
        fn take(&mut self) -> Vec<u8>;
    }
    pub(crate) use BenchedText as EventText;
}
const EVENTS: usize = 1 << 16;
const STREAM: Option<StreamId> = Some(StreamId(7));

/// An address, and the bytes of a block that comes there; none of one that leaves.
type BlockEvent = (u64, Option<usize>);

fn events() -> Vec<BlockEvent> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut free: Vec<u64> = (0..4096).map(|index| 0x7f12_0000_0000 + (index << 21)).collect();
    let mut live = VecDeque::new();
    let event = |_| {
        if live.len() < 2000 || random.bool() && !free.is_empty() {
            let address = free.swap_remove(random.usize(..free.len()));
            live.push_back(address);
            (address, random.choice([512, 40_000, 2 << 20, 9 << 20, 28 << 20]))
        } else {
            let address = live.pop_front().unwrap_or_default();
            free.push(address);
            (address, None)
        }
    };
    (0..EVENTS).map(event).collect()
}

/// Writes all events, and passes on each chunk.
fn write(events: &[BlockEvent], mut chunk: impl FnMut(Vec<u8>)) {
    let mut log = Log::new();
    for (address, bytes) in events {
        match bytes {
            Some(bytes) => log.allocated(*address, *bytes, STREAM),
            None => log.freed(*address, STREAM),
        }
        if log.is_full() {
            chunk(log.take());
        }
    }
}

#[divan::bench]
fn words(bencher: Bencher) {
    let events = events();
    bencher
        .counter(ItemsCount::new(EVENTS))
        .bench_local(|| write(&events, |text| drop(divan::black_box(text))));
}

#[divan::bench]
fn words_and_compression(bencher: Bencher) {
    let events = events();
    bencher.counter(ItemsCount::new(EVENTS)).bench_local(|| {
        write(&events, |text| {
            let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 4), Compression::fast());
            encoder.write_all(&text).expect("memory");
            divan::black_box(encoder.finish().expect("memory"));
        });
    });
}

fn main() {
    divan::main();
}
