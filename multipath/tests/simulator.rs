//! Hazard (stream order): real threads, refused driver calls, every kind of memory and streams
//! that are delayed at random. A model shows none of these.
//!
//! Each test starts itself again with the simulator's settings in its environment, because they are
//! read only once.

use std::process::Command;
use std::sync::OnceLock;

use wm_abi::*;
use wm_driver::{Api, Loader, Table};
use wm_multipath::measured::{Costs, Identity, MachineKey, Rates, Topology};
use wm_multipath::{
    CopyOutcome, CopyRequest, CopyRoute, Engine, EngineSettings, Home, HostDeviceCopy, HostMemory,
    LinkDirection, ProgramStream, StreamOrdering, TableDriver,
};

const MIB: usize = 1 << 20;
const RANGE: usize = 12 * MIB;

/// The exit code of a process that ran a test's body. A harness that finds no test of the name ends
/// with 0.
const DONE: i32 = 94;

/// Runs `body` in a process of its own with these variables, and fails if the body fails.
fn alone(name: &str, variables: &[(&str, &str)], body: fn()) {
    if std::env::var_os("WM_MULTIPATH_INNER").is_some() {
        body();
        // One run of the body is enough, also for a test with several environments.
        std::process::exit(DONE);
    }
    let path = hazards::places::simulated_driver();
    let mut command = Command::new(std::env::current_exe().expect("this test has a path"));
    command.args(["--exact", name, "--nocapture"]).env("WM_MULTIPATH_INNER", path);
    command.envs(variables.iter().copied());
    let output = command.output().expect("it can be started");
    let text = String::from_utf8_lossy(&output.stderr);
    let is_done = output.status.code() == Some(DONE);
    assert!(is_done, "{name} {variables:?}\n{text}{}", String::from_utf8_lossy(&output.stdout));
}

/// Hazard: a test that was renamed runs nothing, and passes.
#[test]
#[should_panic(expected = "no_test_has_this_name")]
fn a_name_that_no_test_has_is_a_failure() {
    alone("no_test_has_this_name", &[], || {});
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let path = std::env::var_os("WM_MULTIPATH_INNER").expect("set by `alone`");
        Table::open(&Loader::system(), path.as_ref()).expect("the simulator opens")
    })
}

/// Four equal links: a measurement takes a test's time, and one test makes it.
fn topology() -> Topology {
    let rates = Rates { alone: vec![2e9; 4], together: vec![vec![4e9; 4]; 4], all: 8e9 };
    let identity = |n: usize| Identity { uuid: n.to_string(), pci: n.to_string(), numa: None };
    let costs = Costs { fixed: 1e-4, lag: 5e-5, step: 1e-5, open: 1e-2 };
    let key = MachineKey { driver: 13_000, devices: (0..4).map(identity).collect() };
    Topology { key, reach: vec![vec![true; 4]; 4], into: rates.clone(), out: rates, costs }
}

/// A program with a buffer on one device, a pinned one and a pageable one.
struct Program {
    engine: Engine<TableDriver>,
    user: ProgramStream,
    device: u64,
    pinned: u64,
    pageable: Vec<u8>,
    random: u64,
}

impl Program {
    fn new(settings: EngineSettings) -> Self {
        table().init().expect("the simulator starts");
        let context = table().primary_ctx_retain(0).expect("a context");
        table().ctx_set_current(context).expect("current");
        let stream = table().stream_create(CU_STREAM_DEFAULT).expect("a stream");
        let device = table().mem_alloc(RANGE).expect("memory");
        let pinned = table().mem_host_alloc(RANGE, 0).expect("memory");
        let engine = Engine::with_topology(TableDriver::new(table()), settings, topology());
        let user = ProgramStream {
            home: Home { context, life: 1 },
            device: 0,
            stream,
            kind: StreamOrdering::Blocking,
        };
        Self {
            engine,
            user,
            device,
            pinned: pinned as u64,
            pageable: vec![0; RANGE],
            random: 0x1234_5678_9abc,
        }
    }

    fn random(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % below as u64) as usize
    }

    fn host(&mut self, memory: HostMemory) -> u64 {
        match memory {
            HostMemory::Pinned => self.pinned,
            HostMemory::Pageable => self.pageable.as_mut_ptr() as u64,
        }
    }

    fn pinned(&mut self) -> &mut [u8] {
        // SAFETY: RANGE bytes of the simulator's, and no other thread uses them while a test reads
        // them.
        unsafe { std::slice::from_raw_parts_mut(self.pinned as *mut u8, RANGE) }
    }

    fn copy(
        &mut self,
        direction: LinkDirection,
        memory: HostMemory,
        waits: bool,
        at: usize,
        bytes: usize,
    ) -> CopyOutcome {
        let (host, device) = (self.host(memory) + at as u64, self.device + at as u64);
        let copy = HostDeviceCopy { user: self.user, direction, host, device, bytes };
        let answer = self.engine.copy(&CopyRequest { copy, memory, waits });
        if answer == CopyOutcome::Plain {
            self.plain(&copy);
        }
        answer
    }

    fn plain(&self, copy: &HostDeviceCopy) {
        let HostDeviceCopy { host, device, bytes, user, direction } = *copy;
        // SAFETY: ranges of this test's own.
        unsafe {
            match direction {
                LinkDirection::In => table().memcpy_htod_async(device, host as *const _, bytes, user.stream),
                LinkDirection::Out => table().memcpy_dtoh_async(host as *mut _, device, bytes, user.stream),
            }
        }
        .expect("a plain copy");
    }

    fn synchronize(&self) {
        table().stream_synchronize(self.user.stream).expect("the program's own stream");
    }

    /// In through one kind of memory, out through the other, at a random place: all bytes must come
    /// back.
    fn round(&mut self) {
        let at = self.random(RANGE / 2);
        let bytes = (3 * MIB + self.random(RANGE)).min(RANGE - at);
        let waits = self.random(2) == 0;
        let [into, out] = match self.random(4) {
            0 => [HostMemory::Pinned, HostMemory::Pageable],
            1 => [HostMemory::Pageable, HostMemory::Pinned],
            _ => [HostMemory::Pinned, HostMemory::Pinned],
        };
        let seed = self.random(251);
        // A prime period, so that no misplaced piece hides in it.
        let tile: Vec<u8> =
            (0..65_537).map(|index| ((index * 31 + index / 4099 + seed) % 253) as u8).collect();
        let mut expected = tile.repeat(bytes.div_ceil(tile.len()));
        expected.truncate(bytes);
        self.store(into, at, &expected);
        self.copy(LinkDirection::In, into, waits, at, bytes);
        if into == out && into == HostMemory::Pinned {
            self.synchronize();
            self.pinned()[at..at + bytes].fill(0);
        }
        self.copy(LinkDirection::Out, out, !waits, at, bytes);
        self.synchronize();
        assert!(self.load(out)[at..at + bytes] == expected[..], "{into:?} {out:?} {bytes} bytes at {at}");
    }

    fn store(&mut self, memory: HostMemory, at: usize, bytes: &[u8]) {
        let place = match memory {
            HostMemory::Pinned => self.pinned(),
            HostMemory::Pageable => &mut self.pageable,
        };
        place[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn load(&mut self, memory: HostMemory) -> &[u8] {
        match memory {
            HostMemory::Pinned => self.pinned(),
            HostMemory::Pageable => &self.pageable,
        }
    }

    fn relayed(&self) -> u64 {
        self.engine
            .traffic()
            .iter()
            .filter(|flow| matches!(flow.route, CopyRoute::Relay(_)))
            .map(|flow| flow.bytes)
            .sum()
    }
}

fn eager() -> EngineSettings {
    EngineSettings {
        minimum: Some(2 * MIB),
        patience: 0,
        eager: true,
        prompt: true,
        cores: 4,
        portion: MIB,
        learn: 2 * MIB,
        ..EngineSettings::default()
    }
}

const LINKS: (&str, &str) = ("SIMCUDA_LINKS", "pcie=2GB/s,nvlink=20GB/s");
const FOUR: (&str, &str) = ("SIMCUDA_DEVICES", "4");

fn rounds() {
    rounds_with(eager());
}

fn rounds_with(settings: EngineSettings) {
    let mut program = Program::new(settings);
    (0..6).for_each(|_| program.round());
    assert!(program.relayed() > 0, "{:?}", program.engine.topology());
}

#[test]
fn copies_of_every_kind_arrive() {
    alone("copies_of_every_kind_arrive", &[FOUR, LINKS], rounds);
}

#[test]
fn streams_that_are_delayed_at_random_keep_their_order() {
    let name = "streams_that_are_delayed_at_random_keep_their_order";
    for seed in ["1", "7", "99"] {
        alone(name, &[FOUR, LINKS, ("SIMCUDA_SEED", seed)], rounds);
    }
}

/// Every two copies that share bytes are ordered, by events alone: staging slots, both ends, and
/// the next copy.
#[test]
fn no_two_copies_race() {
    alone("no_two_copies_race", &[FOUR, LINKS, ("SIMCUDA_RACES", "1")], || {
        // Small pieces: each slot is used several times.
        rounds_with(EngineSettings { chunk: MIB, ..eager() });
    });
}

fn rounds_that_survive() {
    let mut program = Program::new(eager());
    (0..3).for_each(|_| program.round());
}

#[test]
fn a_call_that_fails_costs_no_byte() {
    let name = "a_call_that_fails_costs_no_byte";
    for failure in [
        "cuCtxCreate:1",
        "cuMemAddressReserve:1",
        "cuMemCreate:1",
        "cuMemMap:2",
        "cuMemSetAccess:4",
        "cuStreamCreate:2",
        "cuStreamCreate:5",
        "cuEventCreate:2",
        "cuEventCreate:9",
        "cuEventRecord:2",
        "cuEventRecord:12",
        "cuStreamWaitEvent:2",
        "cuStreamWaitEvent:13",
        "cuMemcpyDtoDAsync:1",
        "cuMemcpyDtoDAsync:4+",
        "cuMemCreate:3",
        "cuEventSynchronize:3",
        "cuCtxCreate:2+",
    ] {
        alone(name, &[FOUR, ("SIMCUDA_FAIL", failure)], rounds_that_survive);
    }
}

#[test]
fn several_links_are_faster_than_one() {
    alone(
        "several_links_are_faster_than_one",
        &[FOUR, ("SIMCUDA_LINKS", "pcie=200MB/s,nvlink=20GB/s")],
        || {
            let mut program = Program::new(eager());
            // The first copy makes the objects that the second one uses.
            program.copy(LinkDirection::In, HostMemory::Pinned, true, 0, RANGE);
            let mut copy = || {
                let start = std::time::Instant::now();
                assert_eq!(
                    program.copy(LinkDirection::In, HostMemory::Pinned, true, 0, RANGE),
                    CopyOutcome::Done
                );
                start.elapsed()
            };
            // 12 MiB at 200 MB/s take 63 ms on one link, by the simulator's own clock; a busy
            // machine only makes it later.
            let several = (0..5).map(|_| copy()).min().expect("five");
            assert!(several.as_millis() < 48, "{several:?}");
        },
    );
}

#[test]
fn links_are_measured_as_fast_as_they_are() {
    let variables = [("SIMCUDA_DEVICES", "2"), ("SIMCUDA_LINKS", "pcie=600MB/s,nvlink=20GB/s")];
    alone("links_are_measured_as_fast_as_they_are", &variables, || {
        table().init().expect("the simulator starts");
        let engine = Engine::new(TableDriver::new(table()), eager());
        let measured = engine.measured().expect("two devices");
        let near = |rate: f64, expected: f64| (0.5..1.5).contains(&(rate / expected));
        assert!(near(measured.into.alone[0], 6e8) && near(measured.out.all, 12e8), "{measured:?}");
        assert!(measured.costs.step > 0.0 && measured.costs.fixed > measured.costs.lag, "{measured:?}");
    });
}

#[test]
fn a_process_that_sees_one_device_makes_nothing() {
    alone("a_process_that_sees_one_device_makes_nothing", &[], || {
        table().init().expect("the simulator starts");
        assert!(Engine::new(TableDriver::new(table()), eager()).measured().is_none());
    });
}
