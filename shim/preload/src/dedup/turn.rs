//! Turns: what is done behind the closed gate, with nothing in flight. Chunks are fingerprinted, compared, given away and taken, for at most two milliseconds at a time.
//!
//! A turn is taken at a wait of the program's, where the GPU has just nothing to do, or by the background thread while the program waits for nothing. It gives up at once
//! where work is in flight.
//!
//! A block is shared after its kernels are known to read only; then each chunk's name is looked up. Where somebody has memory of that name, the bytes are compared here, and
//! it takes the chunk's place if they are equal. Where nobody has, the chunk is mapped for reading only and offered to others.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, TryLockError};
use std::time::{Duration, Instant};

use wm_abi::CUcontext;
use wm_dedup::chunk::{CHUNK_BYTES, ChunkName, Fingerprint};
use wm_dedup::readers::{ParameterKey, ParameterVerdict, WindowOutcome};
use wm_driver::{Api, Device, Gpu, Handle};
use wm_memory::{Manager, ShareOutcome};

use super::client::Lease;
use super::figures::COUNTS;
use super::kernels::{ChunkKernels, MOST};
use super::learned::readers;
use super::mailbox::{self, NamedChunk, Reply, Request};
use super::watched::{self, BlockFacts, ChunkState, WatchedBlock};
use super::{part, standing};
use crate::moves::obstacle;
use crate::process::{self, driver, streams};
use crate::sockets::descriptor::Descriptor;
use crate::{gate, settings};

/// How long to wait for calls that are being made.
const CLOSE: Duration = Duration::from_millis(2);

/// How long to look whether work is over.
const LOOK: Duration = Duration::from_micros(300);

/// How long calls are held at once.
const TURN: Duration = Duration::from_millis(2);

/// Chunks that are taken or given in a turn.
const EXCHANGED: usize = 16;

/// Chunks that are looked up at once.
const ASKED: usize = 64;

/// A block is looked at so long after it was last loaded or written.
const QUIET: Duration = Duration::from_millis(300);

/// Between turns in which there is little to do.
const REST: Duration = Duration::from_millis(20);

/// Milliseconds since the first turn, when the next one is due.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// What turns are taken with, in one context.
struct Tools {
    kernels: ChunkKernels,
    /// Addresses for memory that is compared, [`EXCHANGED`] chunks.
    scratch: u64,
    /// When the next fingerprints may be taken.
    next_prints: Instant,
    /// The block whose turn it was last.
    cursor: u64,
    device: [u8; 16],
}

static TOOLS: Mutex<Option<Tools>> = Mutex::new(None);

fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_millis() as u64
}

/// Is there anything to do now?
pub(super) fn is_due() -> bool {
    standing::is_on() && (now() >= NEXT.load(Relaxed) || mailbox::has_replies())
}

/// Takes a turn, in the context of the calling thread.
pub(super) fn take(manager: &'static Manager<Device>, context: CUcontext) {
    let mut tools = match TOOLS.try_lock() {
        Ok(tools) => tools,
        Err(TryLockError::Poisoned(tools)) => tools.into_inner(),
        // Another thread takes one.
        Err(TryLockError::WouldBlock) => return,
    };
    NEXT.store(now() + REST.as_millis() as u64, Relaxed);
    if streams().capturing() || process::exiting() {
        return;
    }
    if tools.as_ref().is_none_or(|tools| !tools.kernels.is_of(context)) {
        match Tools::new(manager, context) {
            Ok(new) => *tools = Some(new),
            Err(code) => {
                log::warn!("nothing is shared: its kernels could not be loaded: {code}");
                standing::end("the library's kernels could not be loaded");
                return;
            }
        }
    }
    let Some(tools) = tools.as_mut() else { return };
    let done = gate::alone(CLOSE, || {
        if process::exiting() || streams().capturing() {
            return 0;
        }
        if let Some(why) = obstacle::to_sharing() {
            stop_behind_gate(why);
            return 0;
        }
        if manager.gpu().is_quiet(LOOK) != Ok(true) {
            return 0;
        }
        COUNTS.turns.fetch_add(1, Relaxed);
        Turn { manager, tools, until: Instant::now() + TURN }.run()
    });
    if let Some(freed) = done.filter(|freed| *freed > 0) {
        mailbox::post(Request::GiveBack(manager, freed));
    }
    let _unparked = manager.unpark(Duration::from_millis(1));
}

/// Nothing more is shared, and what is becomes private.
fn stop_behind_gate(why: &'static str) {
    standing::end(why);
    watched::all().iter().filter(|block| block.is_shared()).for_each(|block| part::part_now(block));
}

/// A descriptor of a chunk that is shared, for a broker that starts anew.
pub(super) fn export_chunk(address: u64) -> Option<OwnedFd> {
    let block = watched::find(address)?;
    let handle = block.facts().handles.get(&((address - block.range.start) / CHUNK_BYTES)).copied()?;
    block.manager.gpu().export(handle).ok()
}

/// The context is about to end, and the kernels with it. Waits for a turn that is being taken.
pub(super) fn end_context() {
    let mut tools = TOOLS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    *tools = None;
}

impl Tools {
    fn new(manager: &Manager<Device>, context: CUcontext) -> Result<Self, wm_abi::CUresult> {
        Ok(Self {
            kernels: ChunkKernels::load(context)?,
            scratch: manager.gpu().reserve(EXCHANGED * CHUNK_BYTES as usize)?,
            next_prints: Instant::now(),
            cursor: 0,
            device: driver().device_uuid(manager.gpu().ordinal())?.bytes.map(|byte| byte as u8),
        })
    }
}

struct Turn<'a> {
    manager: &'static Manager<Device>,
    tools: &'a mut Tools,
    until: Instant,
}

/// A chunk that somebody has memory for.
struct FoundChunk {
    chunk: NamedChunk,
    lease: Lease,
    handle: Handle,
}

impl Turn<'_> {
    /// Bytes of this process's memory that nobody needs now.
    fn run(mut self) -> u64 {
        let freed = self.serve_replies();
        if self.is_over() {
            return freed;
        }
        if Instant::now() >= self.tools.next_prints {
            let begin = Instant::now();
            let count = self.fingerprint_due();
            let share = settings::load().dedup_share;
            let pause = if count > 0 { begin.elapsed().div_f64(share) } else { REST };
            self.tools.next_prints = Instant::now() + pause;
        }
        if standing::shares() && mailbox::is_idle() {
            self.ask();
        }
        freed
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    fn serve_replies(&mut self) -> u64 {
        let (mut found, mut missing, mut freed) = (Vec::new(), Vec::new(), 0);
        while found.len() < EXCHANGED && missing.len() < EXCHANGED && !self.is_over() {
            match mailbox::take_reply() {
                Some(Reply::Found(chunk, lease, open)) => found.extend(self.import(chunk, lease, &open)),
                Some(Reply::Missing(chunk)) => missing.push(chunk),
                Some(Reply::Offered(chunk, lease)) => note_offered(&chunk, lease),
                Some(Reply::Declined(chunk)) => decline(&chunk),
                Some(Reply::Paused(chunk)) => forget(&chunk),
                None => break,
            }
        }
        if !found.is_empty() {
            freed = self.take_found(found);
        }
        if !missing.is_empty() {
            self.give(missing);
        }
        freed
    }

    fn import(&self, chunk: NamedChunk, lease: Lease, open: &Descriptor) -> Option<FoundChunk> {
        let handle = open.get().ok().filter(|_| is_ready_chunk(&chunk));
        match handle.and_then(|open| self.manager.gpu().import_handle(open).ok()) {
            Some(handle) => Some(FoundChunk { chunk, lease, handle }),
            None => {
                drop_chunk(&chunk, Some(lease), None);
                None
            }
        }
    }

    /// Compares, and takes what is equal. Bytes that were given up for it.
    fn take_found(&mut self, found: Vec<FoundChunk>) -> u64 {
        let equal = self.compare(&found).unwrap_or_else(|code| {
            log::info!("shared memory could not be compared: {code}");
            vec![false; found.len()]
        });
        let (same, other): (Vec<_>, Vec<_>) = found.into_iter().zip(equal).partition(|(_, equal)| *equal);
        other.into_iter().for_each(|(found, _)| self.refuse(&found, ChunkState::Refused));
        let same: Vec<FoundChunk> = same.into_iter().map(|(found, _)| found).collect();
        let pairs: Vec<(u64, Handle)> = same.iter().map(|found| (found.chunk.address(), found.handle)).collect();
        let shared = self.manager.share_chunks(&pairs, 2 * TURN);
        let mut freed = 0;
        for (found, outcome) in same.into_iter().zip(shared.outcomes) {
            if outcome == ShareOutcome::Shared {
                let block = &found.chunk.block;
                let mut facts = block.facts();
                facts.chunks.insert(found.chunk.index, ChunkState::Taken(found.lease));
                facts.handles.insert(found.chunk.index, found.handle);
                block.set_shared(true);
                freed += CHUNK_BYTES;
            } else {
                self.refuse(&found, ChunkState::Asked);
            }
        }
        freed
    }

    /// It stays private. `as_what`: [`ChunkState::Refused`] for good, else it is asked about again.
    fn refuse(&self, found: &FoundChunk, as_what: ChunkState) {
        let _released = self.manager.gpu().release(found.handle);
        drop_chunk(&found.chunk, Some(found.lease), Some(as_what).filter(|state| *state == ChunkState::Refused));
    }

    fn compare(&mut self, found: &[FoundChunk]) -> Result<Vec<bool>, wm_abi::CUresult> {
        let gpu = self.manager.gpu();
        let place = |at: usize| self.tools.scratch + at as u64 * CHUNK_BYTES;
        let bytes = CHUNK_BYTES as usize;
        let mut mapped = 0;
        let compared = (|| {
            for (at, found) in found.iter().enumerate() {
                gpu.map(place(at), bytes, found.handle)?;
                mapped = at + 1;
            }
            gpu.allow_reading(place(0), mapped * bytes)?;
            let pairs: Vec<_> =
                found.iter().enumerate().map(|(at, found)| (found.chunk.address(), place(at))).collect();
            self.tools.kernels.compare(&pairs)
        })();
        if mapped > 0 {
            gpu.unmap(place(0), mapped * bytes)?;
        }
        compared
    }

    /// Gives chunks away that nobody has, if their bytes still are what they were.
    fn give(&mut self, missing: Vec<NamedChunk>) {
        let (ready, other): (Vec<_>, Vec<_>) = missing.into_iter().partition(is_ready_chunk);
        other.iter().for_each(forget);
        let addresses: Vec<u64> = ready.iter().map(NamedChunk::address).collect();
        let prints = self.tools.kernels.fingerprints(&addresses).unwrap_or_default();
        let (same, other): (Vec<_>, Vec<_>) =
            ready.into_iter().enumerate().partition(|(at, chunk)| prints.get(*at) == Some(&chunk.name.fingerprint));
        other.iter().for_each(|(_, chunk)| forget(chunk));
        let same: Vec<NamedChunk> = same.into_iter().map(|(_, chunk)| chunk).collect();
        let addresses: Vec<u64> = same.iter().map(NamedChunk::address).collect();
        let mut open: Vec<(u64, Handle, OwnedFd)> = Vec::new();
        let gpu = self.manager.gpu();
        let given = self.manager.donate_chunks(&addresses, 2 * TURN, |address, handle| {
            open.push((address, handle, gpu.export(handle)?));
            Ok(())
        });
        let mut offers = Vec::new();
        for (chunk, outcome) in same.into_iter().zip(given.outcomes) {
            let exported = open.iter().position(|(address, ..)| *address == chunk.address());
            match (outcome, exported) {
                (ShareOutcome::Shared, Some(at)) => {
                    let (_, handle, descriptor) = open.swap_remove(at);
                    let mut facts = chunk.block.facts();
                    facts.chunks.insert(chunk.index, ChunkState::Given(None));
                    facts.handles.insert(chunk.index, handle);
                    chunk.block.set_shared(true);
                    drop(facts);
                    offers.push((chunk, descriptor));
                }
                (ShareOutcome::Stays(stays), _) => {
                    log::debug!("a chunk at {:#x} was not given away: {stays:?}", chunk.address());
                    drop_chunk(&chunk, None, Some(ChunkState::Refused));
                }
                _ => forget(&chunk),
            }
        }
        if !offers.is_empty() {
            mailbox::post(Request::Offer(offers));
        }
    }

    /// Fingerprints blocks that are due, as many as fit into a turn; chunks that were.
    fn fingerprint_due(&mut self) -> usize {
        let blocks = watched::all();
        let first = blocks.partition_point(|block| block.range.start <= self.tools.cursor);
        let mut chosen: Vec<(Arc<WatchedBlock>, Vec<u64>)> = Vec::new();
        let mut count = 0;
        for block in blocks[first..].iter().chain(&blocks[..first]) {
            if !std::ptr::eq(block.manager, self.manager) {
                continue;
            }
            let chunks = due_chunks(&block.facts());
            if chunks.is_empty() || count > 0 && count + chunks.len() > MOST {
                continue;
            }
            self.tools.cursor = block.range.start;
            count += chunks.len();
            chosen.push((Arc::clone(block), chunks));
            if count >= MOST {
                break;
            }
        }
        let addresses: Vec<u64> = chosen
            .iter()
            .flat_map(|(block, chunks)| chunks.iter().map(|index| block.chunk_address(*index)))
            .collect();
        let mut prints = Vec::with_capacity(addresses.len());
        for batch in addresses.chunks(MOST) {
            match self.tools.kernels.fingerprints(batch) {
                Ok(some) => prints.extend(some),
                Err(code) => {
                    stop_behind_gate("fingerprints could not be taken");
                    log::warn!("fingerprints could not be taken: {code}");
                    return 0;
                }
            }
        }
        let mut prints = prints.into_iter();
        for (block, chunks) in &chosen {
            let prints = chunks.iter().copied().zip(prints.by_ref()).collect();
            learn(block, prints);
        }
        count
    }

    /// Asks the broker about chunks of blocks that may be shared.
    fn ask(&mut self) {
        let mut asked = Vec::new();
        let blocks = watched::all();
        // Processes that start together begin with different blocks, so that each finds what others have given.
        let first = process_number() % blocks.len().max(1);
        for block in blocks[first..].iter().chain(&blocks[..first]) {
            let mut facts = block.facts();
            if !std::ptr::eq(block.manager, self.manager) || !is_ready(&facts) {
                continue;
            }
            let open: Vec<_> =
                facts.prints.iter().filter(|(index, _)| !facts.chunks.contains_key(index)).map(|(i, p)| (*i, *p)).collect();
            for (index, fingerprint) in open.into_iter().take(ASKED - asked.len()) {
                facts.chunks.insert(index, ChunkState::Asked);
                let name = ChunkName { device: self.tools.device, fingerprint };
                asked.push(NamedChunk { block: Arc::clone(block), index, name });
            }
            if asked.len() >= ASKED {
                break;
            }
        }
        if !asked.is_empty() {
            mailbox::post(Request::LookUp(asked));
        }
    }
}

fn process_number() -> usize {
    (std::process::id() as usize).wrapping_mul(0x9e37_79b9) >> 7
}

/// Chunks of a block that is due for fingerprints; none of one that is not.
fn due_chunks(facts: &BlockFacts) -> Vec<u64> {
    let is_quiet = facts.left_alone.is_none() && facts.touched_at.elapsed() >= QUIET;
    let is_settled = facts.unchanged > 0 && !facts.is_void && readers().judge(&Vec::from_iter(facts.parameters.iter().copied()));
    if !is_quiet || is_settled {
        return Vec::new();
    }
    facts.candidates.chunks().collect()
}

/// May its chunks be shared, by what is known now?
fn is_ready(facts: &BlockFacts) -> bool {
    let reads = |parameter: &ParameterKey| readers().verdict(*parameter) == ParameterVerdict::Reader;
    facts.left_alone.is_none()
        && facts.unchanged > 0
        && !facts.is_void
        && !facts.window.is_unknown()
        && facts.parameters.iter().all(reads)
}

fn is_ready_chunk(chunk: &NamedChunk) -> bool {
    let block = &chunk.block;
    let lives = || block.manager.block(block.range.start).is_some_and(|live| live.id == block.id);
    let is_named = |facts: &BlockFacts| facts.prints.get(&chunk.index) == Some(&chunk.name.fingerprint);
    !block.is_gone() && standing::is_on() && lives() && {
        let facts = block.facts();
        is_ready(&facts) && is_named(&facts)
    }
}

/// Fingerprints were taken: what the launches since the last ones did.
fn learn(block: &WatchedBlock, prints: BTreeMap<u64, Fingerprint>) {
    let lessons = {
        let mut facts = block.facts();
        let graphs = watched::graph_launches();
        if graphs != facts.graph_launches {
            let captured = facts.captured.clone();
            captured.into_iter().for_each(|parameter| facts.window.note(parameter));
        }
        let same = facts.prints.iter().all(|(index, before)| prints.get(index).is_none_or(|now| now == before));
        let is_first = facts.prints.is_empty() || facts.is_void;
        let outcome = match (is_first, same) {
            (true, _) => WindowOutcome::Void,
            (false, true) => WindowOutcome::Unchanged,
            (false, false) => WindowOutcome::Changed,
        };
        let lessons = readers().close(&facts.window, outcome);
        if outcome == WindowOutcome::Changed {
            let changed: Vec<u64> =
                facts.prints.iter().filter(|(index, before)| prints.get(index).is_some_and(|now| now != *before)).map(|(i, _)| *i).collect();
            for index in changed {
                facts.candidates.written(index * CHUNK_BYTES..(index + 1) * CHUNK_BYTES);
            }
        }
        facts.unchanged = if outcome == WindowOutcome::Unchanged { facts.unchanged + 1 } else { 0 };
        facts.window.clear();
        facts.is_void = false;
        facts.graph_launches = graphs;
        facts.prints = prints;
        lessons
    };
    if !lessons.reversed.is_empty() {
        let relied = |block: &&Arc<WatchedBlock>| {
            block.is_shared() && lessons.reversed.iter().any(|one| block.facts().parameters.contains(one))
        };
        watched::all().iter().filter(relied).for_each(|block| part::part_now(block));
    }
}

fn note_offered(chunk: &NamedChunk, lease: Lease) {
    let mut facts = chunk.block.facts();
    match facts.chunks.get_mut(&chunk.index) {
        Some(state) if *state == ChunkState::Given(None) && !chunk.block.is_gone() => *state = ChunkState::Given(Some(lease)),
        _ => {
            drop(facts);
            mailbox::post(Request::Release(vec![lease]));
        }
    }
}

/// Others were first: it becomes private, and is looked up again.
fn decline(chunk: &NamedChunk) {
    let given = chunk.block.facts().chunks.get(&chunk.index) == Some(&ChunkState::Given(None));
    if given && !chunk.block.is_gone() {
        part::part_chunk(&chunk.block, chunk.address());
    }
}

/// It is asked about again some time.
fn forget(chunk: &NamedChunk) {
    drop_chunk(chunk, None, None);
}

fn drop_chunk(chunk: &NamedChunk, lease: Option<Lease>, becomes: Option<ChunkState>) {
    let mut facts = chunk.block.facts();
    if facts.chunks.get(&chunk.index) == Some(&ChunkState::Asked) {
        match becomes {
            Some(state) => drop(facts.chunks.insert(chunk.index, state)),
            None => drop(facts.chunks.remove(&chunk.index)),
        }
    }
    drop(facts);
    if let Some(lease) = lease {
        mailbox::post(Request::Release(vec![lease]));
    }
}
