//! A program on the model: it copies at random, overlapping on purpose, and knows the expected
//! value of every byte.

use std::sync::OnceLock;

use proptest::prelude::*;
use wm_abi::{CUcontext, CUdevice, CUstream};
use wm_multipath::bench::{ChunkAddrs, direct_transfer};
use wm_multipath::measured::{Costs, Identity, MachineKey, Rates, Topology};
use wm_multipath::{
    CopyDriver, CopyOutcome, CopyRequest, Engine, EngineSettings, Home, HostDeviceCopy, HostMemory,
    LinkDirection, ProgramStream, StreamOrdering,
};

use super::model::{Model, Place};

pub(crate) const MIB: usize = 1 << 20;
/// Bytes of each end of a copy.
pub(crate) const RANGE: usize = 12 * MIB;

/// A machine whose links are all alike.
pub(crate) fn topology(devices: CUdevice) -> Topology {
    let count = devices as usize;
    let identity = |n: usize| Identity { uuid: n.to_string(), pci: n.to_string(), numa: None };
    let all = 50e9 * count as f64;
    let rates = Rates { alone: vec![50e9; count], together: vec![vec![100e9; count]; count], all };
    Topology {
        key: MachineKey { driver: 1, devices: (0..count).map(identity).collect() },
        reach: vec![vec![true; count]; count],
        into: rates.clone(),
        out: rates,
        costs: Costs { fixed: 1e-5, lag: 1e-6, step: 1e-6, open: 0.3e-3 },
    }
}

pub(crate) fn settings() -> EngineSettings {
    EngineSettings {
        minimum: Some(MIB),
        patience: 0,
        eager: true,
        prompt: true,
        cores: 4,
        portion: MIB,
        learn: 2 * MIB,
        ..EngineSettings::default()
    }
}

pub(crate) fn engine(devices: CUdevice, seed: u64) -> Engine<Model> {
    Engine::with_topology(Model::new(devices, seed), settings(), topology(devices))
}

/// One copy of the program.
#[derive(Debug, Clone)]
pub(crate) struct Action {
    pub(crate) direction: LinkDirection,
    pub(crate) pageable: bool,
    pub(crate) waits: bool,
    /// The index of the program's stream.
    pub(crate) stream: usize,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

pub(crate) fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = (any::<bool>(), 0..8_u8, any::<bool>(), 0..2_usize, 0..RANGE - MIB, 0..RANGE).prop_map(
        |(into, pageable, waits, stream, offset, bytes)| Action {
            direction: if into { LinkDirection::In } else { LinkDirection::Out },
            pageable: pageable == 0,
            waits,
            stream,
            offset,
            bytes: bytes.min(RANGE - offset),
        },
    );
    prop::collection::vec(action, 1..6)
}

/// The program's memory: for each of its streams a device range, a pinned and a pageable one, and
/// their expected content.
pub(crate) struct Program<'a> {
    engine: &'a Engine<Model>,
    pub(crate) user: Vec<ProgramStream>,
    ranges: Vec<[u64; 3]>,
    expected: Vec<[Vec<u8>; 3]>,
    bytes: usize,
    pub(crate) plain: usize,
}

const DEVICE: usize = 0;
const PINNED: usize = 1;
const PAGEABLE: usize = 2;

/// Bytes whose period is a prime, so that no misplaced piece hides in it; different ones for each
/// seed.
fn noise(seed: usize, bytes: usize) -> Vec<u8> {
    const PERIOD: usize = 1_048_573;
    static TILE: OnceLock<Vec<u8>> = OnceLock::new();
    let tile = TILE.get_or_init(|| {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        };
        (0..=PERIOD / 8).flat_map(|_| next()).take(PERIOD).collect()
    });
    let start = seed * 4099;
    let mut noise = tile.repeat((start + bytes).div_ceil(PERIOD));
    noise.drain(..start);
    noise.truncate(bytes);
    noise
}

impl<'a> Program<'a> {
    /// Two streams on `device`, with [`RANGE`] bytes each.
    pub(crate) fn new(engine: &'a Engine<Model>, device: CUdevice, context: CUcontext) -> Self {
        Self::sized(engine, device, context, 2, RANGE)
    }

    /// This many streams, with this many bytes each.
    pub(crate) fn sized(
        engine: &'a Engine<Model>,
        device: CUdevice,
        context: CUcontext,
        streams: usize,
        bytes: usize,
    ) -> Self {
        let model = engine.driver();
        let places = [Place::Device(device), Place::Pinned, Place::Pageable];
        let (mut ranges, mut expected, mut user) = (Vec::new(), Vec::new(), Vec::new());
        for stream in 0..streams {
            let contents: [Vec<u8>; 3] = std::array::from_fn(|place| noise(stream * 3 + place, bytes));
            ranges.push(std::array::from_fn(|place| {
                model.allocate(places[place].clone(), contents[place].clone())
            }));
            expected.push(contents);
            user.push(ProgramStream {
                home: Home { context, life: 1 },
                device,
                stream: model.user_stream(context),
                kind: StreamOrdering::Alone,
            });
        }
        Self { engine, user, ranges, expected, bytes, plain: 0 }
    }

    fn request(&self, action: &Action) -> CopyRequest {
        let host = self.ranges[action.stream][if action.pageable { PAGEABLE } else { PINNED }];
        let copy = HostDeviceCopy {
            user: self.user[action.stream],
            direction: action.direction,
            host: host + action.offset as u64,
            device: self.ranges[action.stream][DEVICE] + action.offset as u64,
            bytes: action.bytes,
        };
        let memory = if action.pageable { HostMemory::Pageable } else { HostMemory::Pinned };
        CopyRequest { copy, memory, waits: action.waits }
    }

    /// Makes the copy through the engine, or plainly if the engine answers so.
    pub(crate) fn run(&mut self, action: &Action) -> CopyOutcome {
        let request = self.request(action);
        let answer = self.engine.copy(&request);
        if answer == CopyOutcome::Plain {
            self.plain += 1;
            self.copy_plainly(&request);
        }
        self.expect(action);
        answer
    }

    fn copy_plainly(&self, request: &CopyRequest) {
        let CopyRequest { copy, memory, waits } = *request;
        let (model, ProgramStream { home: Home { context, .. }, stream, .. }) =
            (self.engine.driver(), copy.user);
        let addrs = ChunkAddrs { host: copy.host, device: copy.device, bytes: copy.bytes };
        if memory == HostMemory::Pageable {
            model.drain(context, stream).expect("the program's own context");
            match copy.direction {
                LinkDirection::In => model.user_move(copy.device, copy.host, copy.bytes),
                LinkDirection::Out => model.user_move(copy.host, copy.device, copy.bytes),
            }
            return;
        }
        model.user_copy(context, stream, direct_transfer(copy.direction, addrs));
        if waits {
            model.drain(context, stream).expect("the program's own context");
        }
    }

    fn expect(&mut self, action: &Action) {
        let range = action.offset..action.offset + action.bytes;
        let host = if action.pageable { PAGEABLE } else { PINNED };
        let (from, to) = match action.direction {
            LinkDirection::In => (host, DEVICE),
            LinkDirection::Out => (DEVICE, host),
        };
        let bytes = self.expected[action.stream][from][range.clone()].to_vec();
        self.expected[action.stream][to][range].copy_from_slice(&bytes);
    }

    /// Waits for one stream, as the program does, and compares everything that it wrote.
    pub(crate) fn verify(&self, stream: usize) {
        let (model, user) = (self.engine.driver(), self.user[stream]);
        model.drain(user.home.context, user.stream).expect("the program's own context");
        for (place, name) in [(DEVICE, "device"), (PINNED, "pinned"), (PAGEABLE, "pageable")] {
            let found = model.read(self.ranges[stream][place], self.bytes);
            let expected = &self.expected[stream][place];
            let first = || found.iter().zip(expected).position(|(a, b)| a != b);
            let wrong = if found == *expected { None } else { first() };
            assert_eq!(wrong, None, "first wrong byte in {name} memory of stream {stream}");
        }
    }

    pub(crate) fn stream(&self, index: usize) -> CUstream {
        self.user[index].stream
    }
}
