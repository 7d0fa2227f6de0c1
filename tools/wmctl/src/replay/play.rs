//! Plays a trace against an allocator: each thread walks all of it, in its own streams, and
//! measures every call.
//!
//! Nothing is launched, so the GPU is always idle and a replay shows the allocator alone. One
//! thread's replay is deterministic. A refused allocation ends it: a program would have failed
//! there.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::allocator::Allocator;
use super::driver::{ReplayGpu, Stream};
use super::latency::Histogram;
use super::progress::Progress;
use crate::trace::{Trace, TraceEvent};

/// How a trace is played.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mode {
    /// Threads, each of which plays the whole trace.
    pub(crate) threads: usize,
    /// Times that each thread plays it; in between, live blocks are freed and the host waits.
    pub(crate) periods: usize,
}

/// The result of a replay.
#[derive(Debug, Default)]
pub(crate) struct Played {
    pub(crate) events: u64,
    /// Most bytes live at once, all threads together.
    pub(crate) peak_live: u64,
    pub(crate) allocate: Histogram,
    pub(crate) free: Histogram,
    pub(crate) vmm_calls: u64,
    /// Since the first thread began its last quarter.
    pub(crate) vmm_calls_last_quarter: u64,
    /// By period, as the first thread saw them.
    pub(crate) vmm_calls_by_period: Vec<u64>,
    /// From the first event to the end, without threads' and streams' making.
    pub(crate) took: Duration,
    /// Why it did not complete.
    pub(crate) refusal: Option<String>,
}

/// The state that all threads share.
struct ReplayStage<'a, A> {
    gpu: &'a ReplayGpu,
    allocator: &'a A,
    trace: &'a Trace,
    mode: Mode,
    progress: &'a Progress,
    live: AtomicU64,
    peak: AtomicU64,
    /// Calls of the driver when the first thread began its last quarter.
    quarter: AtomicU64,
    /// A thread failed: the others stop.
    stop: AtomicBool,
}

/// Plays the trace, and frees the blocks that are live at its end.
///
/// # Errors
/// A failure of the driver that has nothing to do with memory.
pub(crate) fn play<A: Allocator>(
    gpu: &ReplayGpu,
    allocator: &A,
    trace: &Trace,
    mode: Mode,
    progress: &Progress,
) -> Result<Played> {
    let stage = ReplayStage {
        gpu,
        allocator,
        trace,
        mode,
        progress,
        live: AtomicU64::new(0),
        peak: AtomicU64::new(0),
        quarter: AtomicU64::new(u64::MAX),
        stop: AtomicBool::new(false),
    };
    let parts = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..mode.threads)
            .map(|number| {
                let stage = &stage;
                scope.spawn(move || Player::run(stage, number == 0))
            })
            .collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, Result<ThreadResult>>| {
            worker.join().unwrap_or_else(|_| Err(anyhow!("a thread of the replay panicked")))
        };
        workers.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    progress.clear();
    Ok(stage.sum(parts))
}

/// The result of one thread.
#[derive(Default)]
struct ThreadResult {
    events: u64,
    allocate: Histogram,
    free: Histogram,
    /// Calls of the driver at the end of each period.
    periods: Vec<u64>,
    took: Duration,
    refusal: Option<String>,
}

impl<A: Allocator> ReplayStage<'_, A> {
    fn sum(&self, parts: Vec<ThreadResult>) -> Played {
        let mut played = Played { peak_live: self.peak.load(Relaxed), ..Played::default() };
        for (number, part) in parts.into_iter().enumerate() {
            played.events += part.events;
            played.allocate.join(&part.allocate);
            played.free.join(&part.free);
            played.vmm_calls = played.vmm_calls.max(part.periods.last().copied().unwrap_or(0));
            played.took = played.took.max(part.took);
            played.refusal = played.refusal.or(part.refusal);
            if number == 0 {
                played.vmm_calls_by_period = differences(&part.periods);
            }
        }
        played.vmm_calls_last_quarter = played.vmm_calls.saturating_sub(self.quarter.load(Relaxed));
        played
    }

    /// Events that one thread plays in all.
    fn total(&self) -> u64 {
        (self.trace.events.len() * self.mode.periods) as u64
    }
}

fn differences(totals: &[u64]) -> Vec<u64> {
    let before = std::iter::once(&0).chain(totals);
    totals.iter().zip(before).map(|(now, before)| now - before).collect()
}

/// A live block.
#[derive(Clone, Copy, Default)]
struct LiveBlock {
    address: u64,
    bytes: u64,
    stream: Option<u16>,
}

/// One thread's walk.
struct Player<'a, A: Allocator> {
    stage: &'a ReplayStage<'a, A>,
    streams: Vec<Stream>,
    /// By slot. Address 0 is no block.
    held: Vec<LiveBlock>,
    /// By slot, with their sizes.
    pieces: Vec<Option<(A::Piece<'a>, u64)>>,
    part: ThreadResult,
    /// The thread that shows progress and periods.
    first: bool,
}

/// The replay is over: a refusal, or an error.
enum ReplayEnd {
    Refused(String),
    Failed(anyhow::Error),
    /// Another thread's.
    Stopped,
}

/// Events between two looks at the others.
const STRIDE: u64 = 1024;

impl<'a, A: Allocator> Player<'a, A> {
    fn run(stage: &'a ReplayStage<'a, A>, first: bool) -> Result<ThreadResult> {
        stage.gpu.enter()?;
        let streams = stage.gpu.streams(stage.trace.streams)?;
        let held = vec![LiveBlock::default(); stage.trace.slots];
        let pieces = std::iter::repeat_with(|| None).take(stage.trace.piece_slots).collect();
        let mut player = Self { stage, streams, held, pieces, part: ThreadResult::default(), first };
        let start = Instant::now();
        let end = (0..stage.mode.periods).try_for_each(|_| player.period());
        player.part.took = start.elapsed();
        let cleared = player.clear();
        let drained = player.wait(None);
        player.streams.iter().for_each(|stream| stage.allocator.retire(stream));
        stage.gpu.destroy(std::mem::take(&mut player.streams))?;
        if end.is_err() {
            stage.stop.store(true, Relaxed);
        }
        match end {
            Err(ReplayEnd::Failed(error)) => return Err(error),
            Err(ReplayEnd::Refused(sentence)) => player.part.refusal = Some(sentence),
            Err(ReplayEnd::Stopped) | Ok(()) => {}
        }
        cleared.map_err(|sentence| anyhow!("freeing what is live at the end: {sentence}"))?;
        drained.map(|()| player.part)
    }

    fn period(&mut self) -> Result<(), ReplayEnd> {
        let ended = self.stage.trace.events.iter().try_for_each(|event| self.step(event));
        self.part.periods.push(self.stage.allocator.vmm_calls());
        ended?;
        let last = self.part.periods.len() == self.stage.mode.periods;
        if last {
            return Ok(());
        }
        self.clear().map_err(|reason| ReplayEnd::Refused(reason.to_string()))?;
        self.wait(None).map_err(ReplayEnd::Failed)
    }

    fn wait(&self, stream: Option<&Stream>) -> Result<()> {
        self.stage.allocator.wait(self.stage.gpu, stream)
    }

    fn step(&mut self, event: &TraceEvent) -> Result<(), ReplayEnd> {
        self.look_around()?;
        self.part.events += 1;
        match *event {
            TraceEvent::Allocate { slot, bytes, stream } => self.allocate(slot, bytes, stream),
            TraceEvent::Free { slot, stream } => self.free(slot, stream),
            TraceEvent::MakePiece { slot, bytes } => self.make_piece(slot, bytes),
            TraceEvent::EndPiece { slot } => self.end_piece(slot as usize).map_err(ReplayEnd::Failed),
            // Nothing runs in a replay.
            TraceEvent::Launch { .. } | TraceEvent::KeepPiece => Ok(()),
            TraceEvent::Wait { stream } => self.wait(self.stream(stream).as_ref()).map_err(ReplayEnd::Failed),
        }
    }

    /// Now and then: the last quarter's begin, the others' end, and a sign of life.
    fn look_around(&self) -> Result<(), ReplayEnd> {
        let (done, total) = (self.part.events, self.stage.total());
        if done == total - total.div_ceil(4) {
            self.stage.quarter.fetch_min(self.stage.allocator.vmm_calls(), Relaxed);
        }
        if !done.is_multiple_of(STRIDE) {
            return Ok(());
        }
        if self.first {
            self.stage.progress.show(done, total);
        }
        if self.stage.stop.load(Relaxed) { Err(ReplayEnd::Stopped) } else { Ok(()) }
    }

    fn stream(&self, stream: Option<u16>) -> Option<Stream> {
        stream.map(|index| self.streams[usize::from(index)])
    }

    fn allocate(&mut self, slot: u32, bytes: u64, stream: Option<u16>) -> Result<(), ReplayEnd> {
        let on = self.stream(stream);
        if on.is_none() {
            self.settle().map_err(ReplayEnd::Failed)?;
        }
        let start = Instant::now();
        let answer = self.stage.allocator.allocate(bytes as usize, on.as_ref());
        self.part.allocate.add(start.elapsed().as_nanos() as u64);
        let address = answer.map_err(|reason| ReplayEnd::Refused(self.refusal(bytes, &reason)))?;
        self.held[slot as usize] = LiveBlock { address, bytes, stream };
        self.add_live(bytes);
        Ok(())
    }

    fn add_live(&self, bytes: u64) {
        let live = self.stage.live.fetch_add(bytes, Relaxed) + bytes;
        self.stage.peak.fetch_max(live, Relaxed);
    }

    fn make_piece(&mut self, slot: u32, bytes: u64) -> Result<(), ReplayEnd> {
        let made = self.stage.allocator.make_piece(bytes);
        let piece = made.map_err(|reason| ReplayEnd::Refused(self.refusal(bytes, &reason)))?;
        self.pieces[slot as usize] = Some((piece, bytes));
        self.add_live(bytes);
        Ok(())
    }

    fn end_piece(&mut self, slot: usize) -> Result<()> {
        let Some((piece, bytes)) = self.pieces[slot].take() else { return Ok(()) };
        self.stage.live.fetch_sub(bytes, Relaxed);
        self.stage.allocator.end_piece(piece)
    }

    /// `cuMemAlloc` reuses only memory whose work is known to be complete. In a replay the GPU has
    /// no work, but an event is complete some microseconds after it was recorded. Without this
    /// wait, block addresses and the memory of later periods would depend on timing.
    fn settle(&self) -> Result<()> {
        self.streams.iter().try_for_each(|stream| self.wait(Some(stream)))
    }

    fn refusal(&self, bytes: u64, reason: &anyhow::Error) -> String {
        let (event, total) = (self.part.events, self.stage.total());
        format!("event {event} of {total}, an allocation of {bytes} bytes: {reason}")
    }

    fn free(&mut self, slot: u32, stream: Option<u16>) -> Result<(), ReplayEnd> {
        let on = self.stream(stream);
        let held = std::mem::take(&mut self.held[slot as usize]);
        let start = Instant::now();
        let answer = self.stage.allocator.free(held.address, on.as_ref());
        self.part.free.add(start.elapsed().as_nanos() as u64);
        self.stage.live.fetch_sub(held.bytes, Relaxed);
        answer.map_err(|reason| ReplayEnd::Failed(anyhow!("a live block cannot be freed: {reason}")))
    }

    /// Frees the live blocks in the streams of their allocations, and the pieces. These frees are
    /// not in the trace and not measured.
    fn clear(&mut self) -> Result<()> {
        (0..self.pieces.len()).try_for_each(|slot| self.end_piece(slot))?;
        for slot in 0..self.held.len() {
            let held = std::mem::take(&mut self.held[slot]);
            if held.address != 0 {
                self.stage.live.fetch_sub(held.bytes, Relaxed);
                self.stage.allocator.free(held.address, self.stream(held.stream).as_ref())?;
            }
        }
        Ok(())
    }
}
