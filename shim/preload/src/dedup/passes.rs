//! Passes: the work behind the closed gate, with nothing in flight. Chunks are fingerprinted,
//! compared, given and taken, for at most two milliseconds at a time.
//!
//! A pass runs at a wait of the program, when the GPU is just idle, or on the background thread
//! while the program waits for nothing. It gives up at once if work is in flight.
//!
//! A block is shared after its kernels are known to read only. Then each chunk's name is looked up,
//! ahead of the pass ([`super::ask`]). If another process has memory of that name, the pass
//! compares the bytes, and the memory takes the chunk's place if they are equal. If another process
//! has the bytes and has not given its memory, the chunk is mapped for reading only and offered. If
//! no other process has them, the chunk stays as it is, and can be written: a process that is alone
//! with its bytes takes no risk for them.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, TryLockError};
use std::time::{Duration, Instant};

use wm_abi::{CUcontext, CUresult};
use wm_dedup::chunk::Fingerprint;
use wm_dedup::policy::schedule::{PASS, PassPauses, Schedule};
use wm_driver::{Device, Gpu, lock};
use wm_memory::Manager;

use super::exchange::ChunkExchange;
use super::kernels::MOST;
use super::mailbox::BackgroundRequest;
use super::pass_tools::{LoadError, PassTools};
use super::sharing::Sharing;
use super::tracked_blocks::TrackedBlock;
use crate::gate::GATE;
use crate::moves::pin_reason;
use crate::process::{self, SignalsHeld, streams};
use crate::settings;

/// How long to wait for calls that are being made.
const CLOSE: Duration = Duration::from_millis(2);

/// The longest check whether the GPU's work is over.
const CHECK: Duration = Duration::from_micros(300);

/// Chunks that a pass exchanges at most: each takes some 0.04 ms.
const EXCHANGED: usize = 48;

/// The longest that the process's end waits for a pass.
const LAST: Duration = Duration::from_secs(1);

/// The longest wait for memory of freed blocks.
const UNPARK: Duration = Duration::from_millis(1);

impl Sharing {
    /// Is there anything to do now?
    pub(super) fn is_pass_due(&self) -> bool {
        self.is_on()
            && self.status.is_awake()
            && self.times.is_due(Instant::now(), || self.mailbox.replies() > 0)
    }

    /// Runs a pass, in the context of the calling thread.
    pub(super) fn run_pass(&self, manager: &'static Manager<Device>, context: CUcontext) {
        let _signals = SignalsHeld::begin();
        let mut tools = match self.tools.try_lock() {
            Ok(tools) => tools,
            Err(TryLockError::Poisoned(tools)) => tools.into_inner(),
            // Another thread runs one.
            Err(TryLockError::WouldBlock) => return,
        };
        let schedule = tools.as_ref().map(|tools| &tools.schedule);
        self.times.pause(Instant::now(), Schedule::pauses_without_pass(schedule));
        if streams().capturing() || process::exiting() {
            return;
        }
        if self.status.is_ending() {
            return self.unshare_more(manager);
        }
        if tools.as_ref().is_none_or(|tools| !tools.kernels.is_of(context)) {
            match self.load_tools(manager, context) {
                Some(new) => *tools = Some(new),
                None => return,
            }
        }
        let Some(tools) = tools.as_mut() else { return };
        let freed = GATE.with_quiesced(CLOSE, |_| self.run_quiesced(manager, tools)).unwrap_or(0);
        if freed > 0 {
            self.mailbox.post(BackgroundRequest::GiveBack(manager, freed));
        }
        let _unparked = manager.unpark(UNPARK);
    }

    /// `None`: sharing is over.
    fn load_tools(&self, manager: &Manager<Device>, context: CUcontext) -> Option<PassTools> {
        match PassTools::load(manager, context) {
            Ok(tools) => Some(tools),
            Err(LoadError::PartialGpu) => {
                self.status.end("the device is a part of a GPU (MIG)");
                None
            }
            Err(LoadError::Driver(code)) => {
                log::warn!("nothing is shared: its kernels could not be loaded: {code}");
                self.status.end("the library's kernels could not be loaded");
                None
            }
        }
    }

    /// Behind the closed gate. Returns the bytes of this process's memory that are idle now.
    fn run_quiesced(&self, manager: &'static Manager<Device>, tools: &mut PassTools) -> u64 {
        if process::exiting() || streams().capturing() {
            return 0;
        }
        if let Some(why) = pin_reason::of_sharing() {
            self.status.end(why);
            return 0;
        }
        if manager.gpu().is_settled(CHECK) != Ok(true) {
            return 0;
        }
        self.counts.passes.fetch_add(1, Relaxed);
        let begin = Instant::now();
        let pass = OpenPass { sharing: self, manager, tools, until: begin + PASS, has_worked: false };
        let (freed, has_worked) = pass.run();
        let pauses = tools.schedule.end(begin.elapsed(), has_worked);
        self.times.pause(Instant::now(), pauses);
        freed
    }

    /// Sharing has ended: some more blocks become private.
    fn unshare_more(&self, manager: &'static Manager<Device>) {
        let _unshared = GATE.with_quiesced(CLOSE, |_| {
            let until = Instant::now() + PASS;
            let shared = self.blocks.of(manager).into_iter().filter(|block| block.is_shared());
            shared.for_each(|block| self.unshare_until(&block, until));
        });
        self.times.pause(Instant::now(), PassPauses::LAST);
        self.retire_if_private();
    }

    /// Once sharing has ended and no block is shared, calls are not observed any more.
    pub(super) fn retire_if_private(&self) {
        if self.status.is_ending() && self.blocks.shared().is_empty() {
            self.status.retire();
        }
    }

    /// The process ends: no pass begins any more. Waits, for a bounded time, for a pass that
    /// another thread runs.
    pub(crate) fn stop(&self) {
        let (is_on, begin) = (self.is_on(), Instant::now());
        while is_on
            && matches!(self.tools.try_lock(), Err(TryLockError::WouldBlock))
            && begin.elapsed() < LAST
        {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// The context is about to end, and the kernels with it. Waits for a pass that runs.
    pub(super) fn drop_tools(&self) {
        let _signals = SignalsHeld::begin();
        *lock(&self.tools) = None;
    }
}

/// A pass that runs.
struct OpenPass<'a> {
    sharing: &'a Sharing,
    manager: &'static Manager<Device>,
    tools: &'a mut PassTools,
    until: Instant,
    has_worked: bool,
}

impl OpenPass<'_> {
    /// Returns the bytes of this process's memory that are idle now, and whether there was anything
    /// to do.
    fn run(mut self) -> (u64, bool) {
        let (mailbox, status) = (&self.sharing.mailbox, &self.sharing.status);
        let plan = self.tools.schedule.begin(Instant::now(), mailbox.replies() > 0, status.advises());
        if plan.fingerprints {
            self.fingerprint_due();
        }
        if plan.counts {
            let names = self.sharing.eligible_names(self.manager, self.tools.device);
            mailbox.post(BackgroundRequest::Count(names));
        }
        if plan.unshares && !mailbox.is_offering() {
            self.unshare_unregistered();
        }
        let freed = self.exchange();
        (freed, self.has_worked)
    }

    /// Exchanges chunks for which the broker's replies are there.
    fn exchange(&mut self) -> u64 {
        let limit = self.left();
        let replies =
            if limit.is_zero() { Vec::new() } else { self.sharing.mailbox.oldest_replies(EXCHANGED, MOST) };
        if replies.is_empty() {
            return 0;
        }
        self.has_worked = true;
        ChunkExchange::run(self.sharing, self.manager, &mut self.tools.kernels, replies, limit)
    }

    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    fn unshare_unregistered(&mut self) {
        let mut is_any = false;
        for block in self.sharing.blocks.of(self.manager).iter().filter(|block| block.is_shared()) {
            // A block that there is no time to look at may have some.
            is_any |= self.left().is_zero()
                || self.sharing.take_back(block, self.left())
                || self.sharing.unshare_unregistered(block, self.left());
        }
        self.tools.schedule.looked_for_unregistered(is_any);
        self.has_worked |= is_any;
    }

    /// Fingerprints blocks that are due, one or as many as one launch can have.
    fn fingerprint_due(&mut self) {
        match self.manager.keep_mapped(|| self.fingerprint_chosen()) {
            Ok((chosen, prints, taken)) if !prints.is_empty() => {
                self.has_worked = true;
                let share = settings::load().dedup_share;
                let mut rest = prints.iter().copied();
                for (block, chunks) in &chosen {
                    let prints = chunks.iter().copied().zip(rest.by_ref()).collect();
                    self.sharing.learn(block, prints, self.until);
                }
                self.tools.schedule.fingerprinted(Instant::now(), prints.len(), taken, share);
            }
            Ok(_) => self.tools.schedule.not_fingerprinted(Instant::now()),
            Err(code) => {
                self.sharing.status.end("fingerprints could not be taken");
                log::warn!("fingerprints could not be taken: {code}");
                self.tools.schedule.not_fingerprinted(Instant::now());
            }
        }
    }

    fn fingerprint_chosen(&mut self) -> Result<(ChosenBlocks, Vec<Fingerprint>, Duration), CUresult> {
        let mut blocks = self.sharing.blocks.of(self.manager);
        blocks.retain(|block| block.lives());
        let due = |block: &Arc<TrackedBlock>| self.sharing.due_chunks(&block.facts());
        let chosen = self.tools.schedule.choose(blocks, MOST, |block| block.range.start, due);
        let of_block = |(block, chunks): &(Arc<TrackedBlock>, Vec<u64>)| {
            chunks.iter().map(|index| block.chunk_address(*index)).collect::<Vec<u64>>()
        };
        let addresses: Vec<u64> = chosen.iter().flat_map(of_block).collect();
        let begin = Instant::now();
        let mut prints = Vec::with_capacity(addresses.len());
        for batch in addresses.chunks(MOST) {
            prints.extend(self.tools.kernels.fingerprints(batch)?);
        }
        Ok((chosen, prints, begin.elapsed()))
    }
}

/// Blocks, and the chunks of each that are fingerprinted.
type ChosenBlocks = Vec<(Arc<TrackedBlock>, Vec<u64>)>;
