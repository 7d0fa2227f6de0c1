//! A model of several GPUs: [`CopyDriver`] over plain byte vectors.
//!
//! Work of a stream runs in order. Of several streams that could go on, a seeded choice makes one
//! take a step, so an order that is not enforced is sooner or later violated. Work runs only when a
//! call waits or queries. So a call that waits where it should return at once is seen by
//! [`Model::hold`]: a held stream makes no step, and a wait for it is an error of the test.
//!
//! The model refuses the same calls as a driver: those with handles of other contexts, memory that
//! a device has no access to, and ranges that are not allocated. `fail_at` fails the n-th call from
//! then on, and `kill` a whole device for good.

mod links;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use wm_abi::{CUcontext, CUdevice, CUevent, CUresult, CUstream};
use wm_multipath::parts::{DriverResult, Hop, Transfer};

/// The place of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Pinned,
    Pageable,
    Device(CUdevice),
}

#[derive(Debug)]
struct Memory {
    place: Place,
    /// Devices that may use it.
    access: BTreeSet<CUdevice>,
    /// Its content; empty in a weightless model.
    bytes: Vec<u8>,
    size: usize,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Copy(Transfer),
    Record(CUevent, u64),
    Await(CUevent, u64),
}

#[derive(Debug, Default)]
struct Stream {
    context: CUcontext,
    steps: VecDeque<Step>,
    held: bool,
}

#[derive(Debug, Default, Clone, Copy)]
struct Event {
    context: CUcontext,
    recorded: u64,
    passed: u64,
    /// The time at which the last record was reached.
    at: u64,
}

#[derive(Debug, Default)]
struct State {
    memory: BTreeMap<u64, Memory>,
    streams: BTreeMap<CUstream, Stream>,
    events: BTreeMap<CUevent, Event>,
    /// Contexts of the library's own.
    open: BTreeSet<CUcontext>,
    dead: BTreeSet<CUdevice>,
    full: BTreeSet<CUdevice>,
    next: u64,
    random: u64,
    calls: u64,
    fail_at: Option<u64>,
    traffic: u64,
    weightless: bool,
    /// Other processes use the links now and then: a copy takes longer without a visible cause.
    noisy: bool,
    noise: u64,
    /// The run time and the wait for a core that each thread is told.
    crowd: Option<(Duration, Duration)>,
    /// Cores that the calling thread may use; `None` if they are not limited.
    cores: Option<usize>,
}

/// Several GPUs.
#[derive(Debug)]
pub(crate) struct Model {
    devices: CUdevice,
    state: Mutex<State>,
    moved: Condvar,
}

impl Model {
    pub(crate) fn new(devices: CUdevice, seed: u64) -> Self {
        let state = State { next: 1 << 32, random: seed | 1, ..State::default() };
        Self { devices, state: Mutex::new(state), moved: Condvar::new() }
    }

    /// One whose memory has no content: for measurements, which move many bytes and read none.
    pub(crate) fn weightless(devices: CUdevice) -> Self {
        let model = Self::new(devices, 1);
        model.state().weightless = true;
        model
    }

    /// The same on a machine where other processes copy now and then.
    pub(crate) fn noisy(devices: CUdevice) -> Self {
        let model = Self::weightless(devices);
        model.state().noisy = true;
        model
    }

    /// From now on each thread is told this run time, and this wait for a core.
    pub(crate) fn crowd(&self, ran: Duration, waited: Duration) {
        self.state().crowd = Some((ran, waited));
    }

    /// From now on threads may use this many cores.
    pub(crate) fn pin_to(&self, cores: usize) {
        self.state().cores = Some(cores);
    }

    /// The most commands that wait in one of our streams.
    pub(crate) fn longest_queue(&self) -> usize {
        let state = self.state();
        state.streams.values().filter(|stream| !stream.held).map(|s| s.steps.len()).max().unwrap_or(0)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("the model has not panicked")
    }

    /// The primary context of a device.
    pub(crate) fn context(device: CUdevice) -> CUcontext {
        CUcontext(0x100 + device as usize)
    }

    fn device(context: CUcontext) -> CUdevice {
        context.0 as CUdevice & 0xff
    }

    /// Another context of a device.
    pub(crate) fn second_context(device: CUdevice) -> CUcontext {
        CUcontext(0x200 + device as usize)
    }

    /// The call `ahead` calls from now fails once.
    pub(crate) fn fail_at(&self, ahead: u64) {
        let mut state = self.state();
        state.fail_at = Some(state.calls + ahead);
    }

    pub(crate) fn calls(&self) -> u64 {
        self.state().calls
    }

    /// From now on, every call to this device fails.
    pub(crate) fn kill(&self, device: CUdevice) {
        self.state().dead.insert(device);
    }

    /// Time passes without work.
    pub(crate) fn rest(&self, time: Duration) {
        self.state().noise += time.as_nanos() as u64;
    }

    /// Another process has filled this device's memory.
    pub(crate) fn fill(&self, device: CUdevice) {
        self.state().full.insert(device);
    }

    /// The program ends a context, with all its work.
    pub(crate) fn end(&self, context: CUcontext) {
        self.state().end(context);
    }

    /// A stream of the program.
    pub(crate) fn user_stream(&self, context: CUcontext) -> CUstream {
        self.state().stream(context)
    }

    /// Stops a stream, like a kernel that waits for the host; or releases it.
    pub(crate) fn hold(&self, stream: CUstream, held: bool) {
        self.state().streams.get_mut(&stream).expect("a stream").held = held;
        self.moved.notify_all();
    }

    pub(crate) fn allocate(&self, place: Place, content: Vec<u8>) -> u64 {
        let size = content.len();
        self.state().allocate(place, size, content)
    }

    /// The driver's own pageable copy, once the stream is empty.
    pub(crate) fn user_move(&self, to: u64, from: u64, bytes: usize) {
        self.state().transplant(to, from, bytes);
    }

    pub(crate) fn read(&self, address: u64, bytes: usize) -> Vec<u8> {
        let state = self.state();
        let (memory, offset) = state.find(address, bytes).expect("allocated");
        memory.bytes[offset..offset + bytes].to_vec()
    }

    /// Enqueues a copy of the program.
    pub(crate) fn user_copy(&self, context: CUcontext, stream: CUstream, transfer: Transfer) {
        self.state().enqueue(context, stream, Step::Copy(transfer)).expect("a sound copy");
    }

    /// Bytes that crossed links so far.
    pub(crate) fn traffic(&self) -> u64 {
        self.state().traffic
    }

    /// Contexts opened and not closed, and memory, streams and events that exist.
    pub(crate) fn live(&self) -> (usize, usize, usize, usize) {
        let state = self.state();
        (state.open.len(), state.memory.len(), state.streams.len(), state.events.len())
    }

    /// Runs until a condition holds.
    fn until(&self, done: impl Fn(&State) -> bool) {
        let mut state = self.state();
        while !done(&state) {
            if state.step() {
                self.moved.notify_all();
            } else {
                let waited = self.moved.wait_timeout(state, Duration::from_secs(100)).expect("not poisoned");
                assert!(!waited.1.timed_out(), "waits for a stream that makes no step");
                state = waited.0;
            }
        }
    }
}

impl State {
    /// A context ends with its objects; memory stays.
    fn end(&mut self, context: CUcontext) {
        self.streams.retain(|_, stream| stream.context != context);
        self.events.retain(|_, event| event.context != context);
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1 << 32;
        self.next
    }

    /// Memory of our own, filled with bytes that no test expects.
    fn raw(&mut self, place: Place, size: usize) -> u64 {
        let content = if self.weightless { Vec::new() } else { vec![0xee; size] };
        self.allocate(place, size, content)
    }

    fn allocate(&mut self, place: Place, size: usize, bytes: Vec<u8>) -> u64 {
        let address = self.fresh();
        let access = match place {
            Place::Device(device) => BTreeSet::from([device]),
            _ => BTreeSet::new(),
        };
        self.memory.insert(address, Memory { place, access, bytes, size });
        address
    }

    fn find(&self, address: u64, bytes: usize) -> DriverResult<(&Memory, usize)> {
        let (start, memory) = self.memory.range(..=address).next_back().ok_or(CUresult::INVALID_VALUE)?;
        let offset = (address - start) as usize;
        if offset + bytes > memory.size { Err(CUresult::INVALID_VALUE) } else { Ok((memory, offset)) }
    }

    fn stream(&mut self, context: CUcontext) -> CUstream {
        let stream = CUstream(self.fresh() as usize);
        self.streams.insert(stream, Stream { context, ..Stream::default() });
        stream
    }

    fn random(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % below as u64) as usize
    }

    /// Counts a call, and fails it if its turn has come.
    fn call(&mut self, context: CUcontext) -> DriverResult<()> {
        self.calls += 1;
        if self.dead.contains(&Model::device(context)) {
            return Err(CUresult::DEVICE_UNAVAILABLE);
        }
        if self.fail_at == Some(self.calls) { Err(CUresult::UNKNOWN) } else { Ok(()) }
    }

    fn enqueue(&mut self, context: CUcontext, stream: CUstream, step: Step) -> DriverResult<()> {
        if let Step::Copy(transfer) = step {
            self.check(Model::device(context), transfer)?;
        }
        let stream = self.streams.get_mut(&stream).ok_or(CUresult::INVALID_HANDLE)?;
        assert_eq!(stream.context, context, "a stream of another context");
        stream.steps.push_back(step);
        Ok(())
    }

    /// May this device make this transfer?
    fn check(&self, device: CUdevice, transfer: Transfer) -> DriverResult<()> {
        let places = [transfer.from, transfer.to].map(|address| self.find(address, transfer.bytes));
        let [from, to] = places;
        let (from, to) = (from?.0, to?.0);
        let reached = |memory: &Memory| match memory.place {
            Place::Pinned => true,
            Place::Pageable => false,
            Place::Device(_) => memory.access.contains(&device),
        };
        assert!(reached(from) && reached(to), "device {device} has no access: {transfer:?}");
        let on_device = |memory: &Memory| matches!(memory.place, Place::Device(_));
        let hop = match (on_device(from), on_device(to)) {
            (false, true) => Hop::HostToDevice,
            (true, false) => Hop::DeviceToHost,
            _ => Hop::DeviceToDevice,
        };
        assert_eq!(hop, transfer.hop);
        Ok(())
    }

    /// One step of one stream that can go on. `false` if none can.
    fn step(&mut self) -> bool {
        let ready: Vec<CUstream> =
            self.streams.iter().filter(|(_, s)| self.can_go_on(s)).map(|(id, _)| *id).collect();
        if ready.is_empty() {
            return false;
        }
        let chosen = ready[self.random(ready.len())];
        let step = self.streams.get_mut(&chosen).and_then(|stream| stream.steps.pop_front());
        match step.expect("it was not empty") {
            Step::Copy(transfer) => self.transfer(transfer),
            Step::Record(event, number) => {
                let now = self.traffic + self.calls;
                if let Some(event) = self.events.get_mut(&event) {
                    event.at = now;
                    event.passed = event.passed.max(number);
                }
            }
            Step::Await(..) => {}
        }
        true
    }

    fn can_go_on(&self, stream: &Stream) -> bool {
        match stream.steps.front() {
            None => false,
            _ if stream.held => false,
            Some(Step::Await(event, number)) => self.events.get(event).is_none_or(|e| e.passed >= *number),
            Some(_) => true,
        }
    }

    fn transfer(&mut self, transfer: Transfer) {
        self.traffic += transfer.bytes as u64;
        if !self.weightless {
            self.transplant(transfer.to, transfer.from, transfer.bytes);
        }
    }

    fn transplant(&mut self, to: u64, from: u64, bytes: usize) {
        let (memory, offset) = self.find(from, bytes).expect("memory lives while it is copied");
        let content = memory.bytes[offset..offset + bytes].to_vec();
        self.write(to, &content);
    }

    fn write(&mut self, address: u64, bytes: &[u8]) {
        let (start, memory) = self.memory.range_mut(..=address).next_back().expect("allocated");
        let offset = (address - start) as usize;
        memory.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
}
