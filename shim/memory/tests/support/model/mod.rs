//! A GPU in memory that checks every pre-condition of the `Gpu` contract.
//!
//! Streams are counters: `head` is the last work enqueued, `done` the last finished. A vector clock
//! a stream says which work its later work comes after, so that "ordered" is decided exactly and
//! not by luck; completion is advanced by the test, in any legal order. Every broken pre-condition
//! panics and names the condition. The k-th call can be made to fail.

mod contents;
mod cpu;
mod fingerprints;
mod gpu;
mod others;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use contents::Contents;
use fingerprints::ModelFingerprints;
use wm_abi::CUresult;
use wm_driver::gpu::Result;
use wm_driver::{Event, Handle, OomAnswer, StreamId, Tier};

pub const MIB: u64 = 1 << 20;
pub const GRANULARITY: u64 = 2 * MIB;

/// For each stream, up to where its work comes before something.
pub type Clock = BTreeMap<StreamId, u64>;

#[derive(Default)]
struct Stream {
    head: u64,
    done: u64,
    clock: Clock,
    /// Work at a position that waits for other streams' positions.
    waits: Vec<(u64, StreamId, u64)>,
    capturing: bool,
}

struct Physical {
    tier: Tier,
    bytes: u64,
    mappings: usize,
    released: bool,
    context: u64,
    /// Other processes use it too: no account counts it, and it must never be written.
    foreign: bool,
}

/// The accesses that the GPU may make where something is mapped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Access {
    None,
    Read,
    Write,
}

struct Mapping {
    bytes: u64,
    handle: u64,
    access: Access,
    /// The CPU may use it, too.
    on_cpu: bool,
}

/// A stretch of addresses that work at a position of a stream touches.
struct Use {
    range: Range<u64>,
    stream: StreamId,
    position: u64,
}

#[derive(Default)]
struct Inner {
    capacity: BTreeMap<Tier, u64>,
    physical: BTreeMap<u64, Physical>,
    /// Bytes of it, by tier, without memory that other processes use too.
    held: BTreeMap<Tier, u64>,
    reservations: BTreeMap<u64, u64>,
    mappings: BTreeMap<u64, Mapping>,
    streams: BTreeMap<StreamId, Stream>,
    events: BTreeMap<u64, Clock>,
    uses: Vec<Use>,
    next: u64,
    next_address: u64,
    context: u64,
    created: u64,
    released: u64,
    calls: u64,
    fail: Range<u64>,
    contents: Contents,
    fingerprints: ModelFingerprints,
    counts: BTreeMap<&'static str, u64>,
    oom_answer: Option<OomAnswer>,
    /// A tier whose memory the driver refuses, whatever it says to have left.
    refused: Option<Tier>,
    /// The host may hold a stream back.
    is_held: bool,
    /// Memory of the host that another owner in the process has idle.
    idle_elsewhere: Vec<(u64, Handle)>,
}

pub struct Model {
    inner: Mutex<Inner>,
    on_call: fn(),
    external_usage: OnceLock<Box<dyn Fn() -> u64 + Send + Sync>>,
}

impl Model {
    pub fn new(device: u64, host: u64) -> Self {
        Self::with_hook(device, host, || {})
    }

    /// `on_call` runs at the start of every call: a place for a scheduler to switch threads.
    pub fn with_hook(device: u64, host: u64, on_call: fn()) -> Self {
        let capacity = BTreeMap::from([
            (Tier::Device, device),
            (Tier::Host, host),
            (Tier::Peer(1), host),
            (Tier::Peer(2), host),
        ]);
        let inner = Inner { capacity, next: 1, next_address: 0x7000_0000_0000, ..Inner::default() };
        Self { inner: Mutex::new(inner), on_call, external_usage: OnceLock::new() }
    }

    /// The bytes of the host that the process's other devices have.
    pub fn beside(&self, external_usage: impl Fn() -> u64 + Send + Sync + 'static) {
        assert!(self.external_usage.set(Box::new(external_usage)).is_ok(), "told once");
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call that may fail.
    fn enter(&self, name: &'static str) -> Result<MutexGuard<'_, Inner>> {
        (self.on_call)();
        let mut inner = self.lock();
        inner.calls += 1;
        *inner.counts.entry(name).or_default() += 1;
        if inner.fail.contains(&inner.calls) {
            return Err(if name == "create" { CUresult::OUT_OF_MEMORY } else { CUresult::UNKNOWN });
        }
        Ok(inner)
    }

    /// The answer that callers can bear from now on, where the device is full.
    pub fn answer_oom_with(&self, what: OomAnswer) {
        self.lock().oom_answer = Some(what);
    }

    /// Makes `count` calls fail, starting with the `k`-th from now; 1 is the next.
    pub fn fail_in(&self, k: u64, count: u64) {
        let mut inner = self.lock();
        inner.fail = inner.calls + k..inner.calls + k + count;
    }

    /// Another owner in the process has idle memory of the host.
    pub fn has_idle_elsewhere(&self, bytes: u64) -> Handle {
        let mut inner = self.lock();
        let handle = Handle(inner.new_physical(Tier::Host, bytes));
        inner.idle_elsewhere.push((bytes, handle));
        handle
    }

    /// The driver makes no more memory of a tier.
    pub fn fail_creates_on(&self, tier: Tier) {
        self.lock().refused = Some(tier);
    }

    /// No further call fails. Says whether any of those that were to fail was reached.
    pub fn fail_no_more(&self) -> bool {
        let mut inner = self.lock();
        let fail = std::mem::take(&mut inner.fail);
        inner.calls >= fail.start
    }

    pub fn calls(&self, name: &str) -> u64 {
        self.lock().counts.get(name).copied().unwrap_or(0)
    }

    pub fn all_calls(&self) -> u64 {
        self.lock().calls
    }

    pub fn held(&self, tier: Tier) -> u64 {
        self.lock().held(tier)
    }

    /// Handles made and given back so far.
    pub fn created_and_released(&self) -> (u64, u64) {
        let inner = self.lock();
        (inner.created, inner.released)
    }

    /// The context goes and another comes. The memory that the old one had stays until it is given
    /// back.
    pub fn renew_context(&self) {
        self.lock().context += 1;
    }

    /// Memory that was made in contexts that are gone.
    pub fn left_over(&self) -> u64 {
        let inner = self.lock();
        let old = inner.physical.values().filter(|physical| physical.context != inner.context);
        old.map(|physical| physical.bytes).sum()
    }

    /// Objects that exist: physical memory, reservations, mappings, events.
    pub fn objects(&self) -> [usize; 4] {
        let inner = self.lock();
        [inner.physical.len(), inner.reservations.len(), inner.mappings.len(), inner.events.len()]
    }

    pub fn mapped_bytes(&self) -> u64 {
        self.lock().mappings.values().map(|mapping| mapping.bytes).sum()
    }

    /// The physical bytes behind addresses: handle and range in it. Panics where the GPU would
    /// fault.
    pub fn resolve(&self, address: u64, bytes: u64) -> Vec<(u64, Range<u64>)> {
        let inner = self.lock();
        let (mut next, end) = (address, address + bytes);
        let mut parts = Vec::new();
        while next < end {
            let (start, mapping) = inner.mappings.range(..=next).next_back().expect("mapped");
            assert!(next < start + mapping.bytes, "{next:#x} is not mapped");
            assert!(mapping.access > Access::None, "{next:#x} has no access");
            let upto = end.min(start + mapping.bytes);
            parts.push((mapping.handle, next - start..upto - start));
            next = upto;
        }
        parts
    }

    /// Is anything mapped in a stretch of addresses?
    pub fn is_mapped(&self, address: u64, bytes: u64) -> bool {
        let inner = self.lock();
        let before = inner.mappings.range(..address + bytes).next_back();
        before.is_some_and(|(start, mapping)| start + mapping.bytes > address)
    }

    /// Enqueues work that touches addresses; returns its position.
    pub fn touch(&self, stream: StreamId, address: u64, bytes: u64) -> u64 {
        let mut inner = self.lock();
        let position = inner.advance_head(stream);
        inner.uses.retain(|old| !(old.stream == stream && old.range == (address..address + bytes)));
        inner.uses.push(Use { range: address..address + bytes, stream, position });
        position
    }

    /// Writes a word, and touches nothing: the work that does so was enqueued.
    pub fn write(&self, address: u64, word: u64) {
        let mut inner = self.lock();
        let place = inner.place(address);
        assert!(
            inner.is_writable(address),
            "{address:#x} is written, and mapped for reading only: the context would fail"
        );
        inner.contents.write(place, word);
    }

    /// May work write there?
    pub fn is_writable(&self, address: u64) -> bool {
        self.lock().is_writable(address)
    }

    /// Memory of another process with the bytes that lie where a handle is mapped, as a handle of
    /// its own.
    pub fn import_like(&self, address: u64) -> Handle {
        let mut inner = self.lock();
        let (handle, bytes) = {
            let mapping = &inner.mappings[&address];
            (mapping.handle, mapping.bytes)
        };
        let name = inner.new_physical(Tier::Device, bytes);
        inner.give_away(name);
        inner.contents.duplicate(name, handle);
        Handle(name)
    }

    /// Is a handle of one granule mapped there?
    pub fn is_chunk(&self, address: u64) -> bool {
        self.lock().mappings.get(&address).is_some_and(|mapping| mapping.bytes == GRANULARITY)
    }

    /// The word at an address, if one was written.
    pub fn read(&self, address: u64) -> Option<u64> {
        let inner = self.lock();
        inner.contents.read(inner.place(address))
    }

    /// Bytes of a range by the tier that backs them.
    pub fn tiers(&self, address: u64, bytes: u64) -> BTreeMap<Tier, u64> {
        let mut sums = BTreeMap::new();
        for (handle, range) in self.resolve(address, bytes) {
            let tier = self.lock().physical[&handle].tier;
            *sums.entry(tier).or_default() += range.end - range.start;
        }
        sums
    }

    /// Is all work done that was enqueued?
    pub fn is_quiet(&self) -> bool {
        self.lock().streams.values().all(|stream| stream.done >= stream.head)
    }

    /// From now on copies take longer than anyone waits, or end at once, those under way too. Says
    /// how it was before.
    pub fn copies_take_long(&self, slow: bool) -> bool {
        std::mem::replace(&mut self.lock().contents.slow, slow)
    }

    /// The same for copies of one way, or for none.
    pub fn copies_take_long_which_go(&self, way: Option<wm_driver::LinkWay>) {
        self.lock().contents.slow_way = way;
    }

    /// The program's own ordering: later work of `to` comes after all work now in `from`.
    pub fn program_order(&self, from: StreamId, to: StreamId) {
        let mut inner = self.lock();
        let clock = inner.snapshot(from);
        inner.wait_for(to, &clock);
    }

    /// The work that comes before later work of a stream.
    pub fn clock(&self, stream: StreamId) -> Clock {
        self.lock().snapshot(stream)
    }

    /// All work there is.
    pub fn heads(&self) -> Clock {
        self.lock().streams.iter().map(|(stream, state)| (*stream, state.head)).collect()
    }

    /// Does later work of `after` (`None`: of the host) come after work at a position?
    pub fn comes_after(&self, after: Option<StreamId>, stream: StreamId, position: u64) -> bool {
        let mut inner = self.lock();
        let by_order = after.is_some_and(|after| {
            after == stream || inner.stream(after).clock.get(&stream).is_some_and(|upto| *upto >= position)
        });
        by_order || inner.stream(stream).done >= position
    }

    /// Lets a stream run: up to `part` of 255 of the enqueued work, as far as its waits allow.
    pub fn run_some(&self, stream: StreamId, part: u8) {
        let mut inner = self.lock();
        let Stream { head, done, .. } = *inner.stream(stream);
        let aim = done + (head - done) * u64::from(part) / 255;
        let waits = inner.stream(stream).waits.clone();
        let open = |wait: &&(u64, StreamId, u64)| wait.0 <= aim && inner.streams[&wait.1].done < wait.2;
        let blocked = waits.iter().find(open).map(|wait| wait.0 - 1);
        let stream = inner.stream(stream);
        stream.done = stream.done.max(blocked.unwrap_or(aim));
    }

    /// The host waits for a stream.
    pub fn drain(&self, stream: StreamId) {
        let mut inner = self.lock();
        let head = inner.stream(stream).head;
        inner.finish(stream, head);
    }

    pub fn drain_all(&self) {
        let streams: Vec<StreamId> = self.lock().streams.keys().copied().collect();
        streams.into_iter().for_each(|stream| self.drain(stream));
    }

    pub fn set_capturing(&self, stream: StreamId, capturing: bool) {
        self.lock().stream(stream).capturing = capturing;
    }
}

impl Inner {
    fn stream(&mut self, stream: StreamId) -> &mut Stream {
        self.streams.entry(stream).or_default()
    }

    fn advance_head(&mut self, stream: StreamId) -> u64 {
        let stream = self.stream(stream);
        stream.head += 1;
        stream.head
    }

    /// The work that comes before a point at the end of a stream.
    fn snapshot(&mut self, stream: StreamId) -> Clock {
        let head = self.stream(stream).head;
        let mut clock = self.stream(stream).clock.clone();
        clock.insert(stream, head);
        clock
    }

    fn wait_for(&mut self, stream: StreamId, clock: &Clock) {
        let position = self.advance_head(stream);
        let waiting = self.stream(stream);
        for (other, upto) in clock.iter().filter(|(other, _)| **other != stream) {
            let known = waiting.clock.entry(*other).or_default();
            *known = (*known).max(*upto);
            waiting.waits.push((position, *other, *upto));
        }
    }

    fn finish(&mut self, stream: StreamId, position: u64) {
        if self.stream(stream).done >= position {
            return;
        }
        let waits = self.stream(stream).waits.clone();
        waits.iter().filter(|wait| wait.0 <= position).for_each(|wait| self.finish(wait.1, wait.2));
        let stream = self.stream(stream);
        stream.done = stream.done.max(position);
        stream.waits.retain(|wait| wait.0 > position);
    }

    fn is_done(&self, clock: &Clock) -> bool {
        clock.iter().all(|(stream, position)| self.streams[stream].done >= *position)
    }

    fn new_event(&mut self, clock: Clock) -> Event {
        self.next += 1;
        self.events.insert(self.next, clock);
        Event(self.next)
    }

    fn held(&self, tier: Tier) -> u64 {
        self.held.get(&tier).copied().unwrap_or(0)
    }

    /// No account counts it from now on.
    fn give_away(&mut self, handle: u64) {
        let physical = self.physical.get_mut(&handle).expect("a handle that exists");
        if !std::mem::replace(&mut physical.foreign, true) {
            *self.held.entry(physical.tier).or_default() -= physical.bytes;
        }
    }

    fn drop_if_dead(&mut self, handle: u64) {
        if self.physical.get(&handle).is_some_and(|physical| physical.released && physical.mappings == 0) {
            self.give_away(handle);
            self.physical.remove(&handle);
            self.contents.forget(handle);
        }
    }

    fn reservation(&self, address: u64, bytes: u64) -> (u64, u64) {
        let (base, length) = self.reservations.range(..=address).next_back().expect("inside a reservation");
        assert!(address + bytes <= base + length, "{address:#x} leaves its reservation");
        (*base, *length)
    }

    fn check_unused(&mut self, range: &Range<u64>) {
        let streams = &self.streams;
        self.uses.retain(|used| streams[&used.stream].done < used.position);
        let clash =
            self.uses.iter().find(|used| used.range.start < range.end && range.start < used.range.end);
        if let Some(clash) = clash {
            panic!("{range:x?} is unmapped while {:?} may be touching {:x?}", clash.stream, clash.range);
        }
        self.contents.check_still(range);
    }

    fn new_physical(&mut self, tier: Tier, bytes: u64) -> u64 {
        self.created += 1;
        self.next += 1;
        let context = self.context;
        let physical = Physical { tier, bytes, mappings: 0, released: false, context, foreign: false };
        self.physical.insert(self.next, physical);
        *self.held.entry(tier).or_default() += bytes;
        self.next
    }

    fn is_writable(&self, address: u64) -> bool {
        let mapping = self.mappings.range(..=address).next_back();
        mapping.is_some_and(|(start, mapping)| {
            address < start + mapping.bytes && mapping.access == Access::Write
        })
    }

    /// Handle behind an address, and place in it.
    fn place(&self, address: u64) -> (u64, u64) {
        let (start, mapping) = self.mappings.range(..=address).next_back().expect("mapped");
        assert!(
            address < start + mapping.bytes && mapping.access > Access::None,
            "{address:#x} is not mapped, or has no access"
        );
        (mapping.handle, address - start)
    }

    /// Has the GPU passed an event?
    fn passes(&mut self, event: u64) -> bool {
        let clock = self.events.get(&event).expect("an event that was not given back");
        self.is_done(clock) && self.contents.passes(event)
    }

    fn ensure_recordable(&mut self, stream: StreamId) -> Result<()> {
        if self.stream(stream).capturing { Err(CUresult::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }
}
