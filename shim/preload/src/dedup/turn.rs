//! Turns: what is done behind the closed gate, with nothing in flight. Chunks are fingerprinted,
//! compared, given away and taken, for at most two milliseconds at a time.
//!
//! A turn is taken at a wait of the program's, where the GPU has just nothing to do, or by the
//! background thread while the program waits for nothing. It gives up at once where work is in
//! flight.
//!
//! A block is shared after its kernels are known to read only; then each chunk's name is looked up,
//! ahead of the turn ([`super::ask`]). If another process has memory of that name, the bytes are
//! compared here, and it takes the chunk's place if they are equal. If none has, the chunk is
//! mapped for reading only and offered to others.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use wm_abi::{CUcontext, CUresult};
use wm_driver::{Api, Device, Gpu};
use wm_memory::Manager;

use super::exchange::{self, ChunkExchange};
use super::figures::COUNTS;
use super::judgement::{due_chunks, learn};
use super::kernels::{ChunkKernels, MOST};
use super::mailbox::{self, BackgroundRequest};
use super::watched::{self, WatchedBlock};
use super::{ask, part, standing};
use crate::gate::GATE;
use crate::moves::obstacle;
use crate::process::{self, SignalsHeld, driver, streams};
use crate::settings;

/// How long to wait for calls that are being made.
const CLOSE: Duration = Duration::from_millis(2);

/// How long to look whether work is over.
const LOOK: Duration = Duration::from_micros(300);

/// How long calls are held at once.
const TURN: Duration = Duration::from_millis(2);

/// Chunks that a turn exchanges at most: each takes some 0.04 ms.
const EXCHANGED: usize = 48;

/// What a launch costs beside what its chunks do.
const LAUNCH: Duration = Duration::from_micros(50);

/// Between turns in which there is little to do. After each in which there was nothing it is twice
/// as long, up to the longest: a server waits for the GPU at each token, and should not be held for
/// nothing.
const REST: Duration = Duration::from_millis(20);
const LONGEST_IDLE_REST: Duration = Duration::from_millis(320);

/// Between two counts of what could be shared.
const COUNTED: Duration = Duration::from_secs(2);

/// Between turns after sharing has ended.
const LONG_REST: Duration = Duration::from_millis(500);

/// Times as long as a turn took before there is another one, however much is to be done: a program
/// that waits all the time is slower by a tenth. But no longer than ten turns: what takes longer
/// waits for the GPU while other processes have it, and so would the program.
const PAUSE: u32 = 9;
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// The longest that the process's end waits for a turn.
const LAST: Duration = Duration::from_secs(1);

/// Milliseconds since the first turn, when the next one is due, and when one is for which there are
/// replies.
static NEXT: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// What turns are taken with, in one context.
struct Tools {
    kernels: ChunkKernels,
    /// When the next fingerprints may be taken.
    next_prints: Instant,
    cost: PrintCost,
    /// The last turn took some.
    has_printed: bool,
    /// The last turn has seen, or had no time to see, chunks that are given and not registered.
    has_to_take_back: bool,
    /// How long there is no turn for which there is nothing to do.
    rest: Duration,
    /// When what could be shared is counted again, where nothing is.
    next_count: Instant,
    /// The block whose turn it was last.
    cursor: u64,
    device: [u8; 16],
    /// The device is a part of a GPU.
    is_partial: bool,
}

static TOOLS: Mutex<Option<Tools>> = Mutex::new(None);

fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_millis() as u64
}

/// Is there anything to do now?
pub(super) fn is_due() -> bool {
    let (now, [next, earliest]) = (now(), NEXT.each_ref().map(|at| at.load(Relaxed)));
    standing::is_on() && (now >= next || now >= earliest && mailbox::replies() > 0)
}

/// The least time between two turns. It is longer if there is nothing to do.
fn pause(least: Duration, rest: Duration) {
    let after = |pause: Duration| now() + pause.as_millis() as u64;
    NEXT[0].store(after(rest.max(least)), Relaxed);
    NEXT[1].store(after(least), Relaxed);
}

/// Takes a turn, in the context of the calling thread.
pub(super) fn take(manager: &'static Manager<Device>, context: CUcontext) {
    let _signals = SignalsHeld::begin();
    let mut tools = match TOOLS.try_lock() {
        Ok(tools) => tools,
        Err(TryLockError::Poisoned(tools)) => tools.into_inner(),
        // Another thread takes one.
        Err(TryLockError::WouldBlock) => return,
    };
    // For where it comes to nothing now.
    pause(Duration::ZERO, tools.as_ref().map_or(REST, |tools| tools.rest));
    if streams().capturing() || process::exiting() {
        return;
    }
    if standing::is_ending() {
        return end(manager);
    }
    if tools.as_ref().is_none_or(|tools| !tools.kernels.is_of(context)) {
        match Tools::new(manager, context) {
            Ok(new) if new.is_partial => {
                standing::end("the device is a part of a GPU (MIG)");
                return;
            }
            Ok(new) => *tools = Some(new),
            Err(code) => {
                log::warn!("nothing is shared: its kernels could not be loaded: {code}");
                standing::end("the library's kernels could not be loaded");
                return;
            }
        }
    }
    let Some(tools) = tools.as_mut() else { return };
    let done = GATE.with_quiesced(CLOSE, || {
        if process::exiting() || streams().capturing() {
            return 0;
        }
        if let Some(why) = obstacle::to_sharing() {
            standing::end(why);
            return 0;
        }
        if manager.gpu().is_quiet(LOOK) != Ok(true) {
            return 0;
        }
        COUNTS.turns.fetch_add(1, Relaxed);
        let begin = Instant::now();
        let (freed, has_worked) = OpenTurn { manager, tools, until: begin + TURN, has_worked: false }.run();
        tools.rest = if has_worked { REST } else { (2 * tools.rest).min(LONGEST_IDLE_REST) };
        pause((PAUSE * begin.elapsed()).min(LONGEST_PAUSE), tools.rest);
        freed
    });
    if let Some(freed) = done.filter(|freed| *freed > 0) {
        mailbox::post(BackgroundRequest::GiveBack(manager, freed));
    }
    let _unparked = manager.unpark(Duration::from_millis(1));
}

/// Sharing has ended: some more becomes private.
fn end(manager: &'static Manager<Device>) {
    let _parted = GATE.with_quiesced(CLOSE, || {
        let until = Instant::now() + TURN;
        let shared = watched::of(manager).into_iter().filter(|block| block.is_shared());
        shared.for_each(|block| part::part_until(&block, until));
    });
    // What could not be had now may not be had soon.
    pause(LONG_REST, LONG_REST);
    retire_if_private();
}

/// Calls need not be looked at any more where sharing has ended and nothing is shared.
pub(super) fn retire_if_private() {
    if standing::is_ending() && !watched::all().iter().any(|block| block.is_shared()) {
        standing::retire();
    }
}

/// The process ends. Waits for a turn that another thread takes, but not for ever: the tools stay
/// as they are.
pub(super) fn await_last() {
    let begin = Instant::now();
    while matches!(TOOLS.try_lock(), Err(TryLockError::WouldBlock)) && begin.elapsed() < LAST {
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// The context is about to end, and the kernels with it. Waits for a turn that is being taken.
pub(super) fn end_context() {
    let _signals = SignalsHeld::begin();
    let mut tools = TOOLS.lock().unwrap_or_else(PoisonError::into_inner);
    *tools = None;
}

impl Tools {
    fn new(manager: &Manager<Device>, context: CUcontext) -> Result<Self, CUresult> {
        let ordinal = manager.gpu().ordinal();
        let device = driver().device_uuid(ordinal)?.bytes;
        Ok(Self {
            is_partial: driver().gpu_uuid(ordinal)?.bytes != device,
            device,
            kernels: ChunkKernels::load(context)?,
            next_prints: Instant::now(),
            cost: PrintCost::default(),
            has_printed: false,
            has_to_take_back: false,
            rest: REST,
            next_count: Instant::now(),
            cursor: 0,
        })
    }
}

struct OpenTurn<'a> {
    manager: &'static Manager<Device>,
    tools: &'a mut Tools,
    until: Instant,
    has_worked: bool,
}

impl OpenTurn<'_> {
    /// Bytes of this process's memory that are idle now, and whether there was anything to do.
    fn run(mut self) -> (u64, bool) {
        // Not in two turns on end while there is something else to do: they may take all the time.
        let gives_way = self.tools.has_printed && (mailbox::replies() > 0 || self.tools.has_to_take_back);
        self.tools.has_printed = !gives_way && Instant::now() >= self.tools.next_prints;
        if self.tools.has_printed {
            let pause = self.fingerprint_due();
            self.tools.next_prints = Instant::now() + pause;
        }
        if standing::advises() && Instant::now() >= self.tools.next_count {
            self.tools.next_count = Instant::now() + COUNTED;
            mailbox::post(BackgroundRequest::Count(ask::names(self.manager, self.tools.device)));
        }
        if !mailbox::is_offering() {
            self.take_back();
        }
        let freed = self.exchange();
        (freed, self.has_worked)
    }

    /// What was found out about chunks ahead of the turn.
    fn exchange(&mut self) -> u64 {
        let limit = self.left();
        let replies = if limit.is_zero() { Vec::new() } else { mailbox::take_replies(EXCHANGED) };
        if replies.is_empty() {
            return 0;
        }
        self.has_worked = true;
        ChunkExchange::run(self.manager, &mut self.tools.kernels, replies, limit)
    }

    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Chunks that were given and not registered.
    fn take_back(&mut self) {
        let mut is_any = false;
        for block in watched::of(self.manager).iter().filter(|block| block.is_shared()) {
            // Of what there is no time to look at there may be some.
            is_any |= self.left().is_zero() || exchange::take_back(block, self.left());
        }
        self.tools.has_to_take_back = is_any;
        self.has_worked |= is_any;
    }

    /// Fingerprints blocks that are due, one or as many as one launch can have; how long there are
    /// none afterwards.
    fn fingerprint_due(&mut self) -> Duration {
        let manager = self.manager;
        let chosen = manager.keep_mapped(|| {
            let chosen = self.choose();
            let of_block = |(block, chunks): &(Arc<WatchedBlock>, Vec<u64>)| {
                chunks.iter().map(|index| block.chunk_address(*index)).collect::<Vec<u64>>()
            };
            let addresses: Vec<u64> = chosen.iter().flat_map(of_block).collect();
            let begin = Instant::now();
            let mut prints = Vec::with_capacity(addresses.len());
            for batch in addresses.chunks(MOST) {
                prints.extend(self.tools.kernels.fingerprints(batch)?);
            }
            Ok((chosen, prints, begin.elapsed()))
        });
        let (chosen, prints, taken) = match chosen {
            Ok(taken) => taken,
            Err::<_, CUresult>(code) => {
                standing::end("fingerprints could not be taken");
                log::warn!("fingerprints could not be taken: {code}");
                return REST;
            }
        };
        if prints.is_empty() {
            return REST;
        }
        self.has_worked = true;
        let pause = self.tools.cost.of(prints.len(), taken).div_f64(settings::load().dedup_share);
        let mut prints = prints.into_iter();
        for (block, chunks) in &chosen {
            let prints = chunks.iter().copied().zip(prints.by_ref()).collect();
            learn(block, prints, self.until);
        }
        pause
    }

    /// Chunks of blocks that are due, and live.
    fn choose(&mut self) -> Vec<(Arc<WatchedBlock>, Vec<u64>)> {
        let blocks = watched::of(self.manager);
        let first = blocks.partition_point(|block| block.range.start <= self.tools.cursor);
        let mut chosen = Vec::new();
        let mut count = 0;
        for block in blocks[first..].iter().chain(&blocks[..first]).filter(|block| block.lives()) {
            let chunks = due_chunks(&block.facts());
            // A block that is larger than that has launches of its own.
            if chunks.is_empty() || count > 0 && count + chunks.len() > MOST {
                continue;
            }
            self.tools.cursor = block.range.start;
            count += chunks.len();
            chosen.push((Arc::clone(block), chunks));
        }
        chosen
    }
}

/// What fingerprints cost the GPU. While other processes use it they take longer than that.
#[derive(Debug, Default)]
struct PrintCost {
    /// For a chunk, at best.
    least: Option<Duration>,
}

impl PrintCost {
    /// The time that a number of chunks took.
    fn of(&mut self, chunks: usize, taken: Duration) -> Duration {
        let each = taken / chunks as u32;
        let least = self.least.map_or(each, |least| least.min(each));
        self.least = Some(least);
        taken.min(least * chunks as u32 + LAUNCH)
    }
}
