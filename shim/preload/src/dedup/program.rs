//! The calls of the program that sharing has to know of, before the driver gets them.
//!
//! The caller of these is inside the gate ([`crate::gate`]), except in [`Sharing::freed`] and
//! [`Sharing::waited`]. Afterwards the call may go on: the memory that it writes is this process's
//! alone. All of them return at once if sharing is off.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use wm_abi::CUfunction;
use wm_dedup::chunk::CHUNK_BYTES;
use wm_dedup::policy::tracked_blocks::{BlockFacts, Exclusion, UseTime, WriteAnswer};
use wm_dedup::readers::{ParameterKey, ParameterVerdict};
use wm_driver::Device;
use wm_driver::thread::Uncancelled;
use wm_memory::Manager;

use super::mailbox::BackgroundRequest;
use super::sharing::Sharing;
use super::tracked_blocks::TrackedBlock;
use crate::launches::{self, ArgumentsRead, Launch, LaunchWord, LaunchedWork, Submission};
use crate::process::{preserve_errno, streams};
use crate::registry;

/// Shared blocks that a kernel may write, each once.
type PossibleWrites = SmallVec<[Arc<TrackedBlock>; 4]>;

/// PyTorch's allocator gives an object up to this many bytes that were not asked for. No kernel
/// uses them, and they are equal in equal processes.
const REST: u64 = 1 << 20;

/// The longest wait for the verdict on a kernel before its first launch.
const VERDICTS: Duration = Duration::from_millis(5);

/// A kernel is as bad for a block as its worst parameter. A writer is worse than one without a
/// verdict: the write counts.
fn badness(verdict: ParameterVerdict) -> u8 {
    match verdict {
        ParameterVerdict::Reader => 0,
        ParameterVerdict::Unknown => 1,
        ParameterVerdict::Writer => 2,
    }
}

/// When the work of a call runs.
fn time(when: Submission) -> UseTime {
    match when {
        Submission::Now => UseTime::Now,
        Submission::Captured | Submission::Node => UseTime::InGraph,
    }
}

impl Sharing {
    /// A copy from memory of the host, at `from`, into a range.
    pub(crate) fn loaded(&'static self, to: Range<u64>, from: u64, when: Submission) {
        if !self.is_on() || to.is_empty() {
            return;
        }
        self.note_stored_addresses(from, to.end - to.start);
        if when != Submission::Now {
            return self.written(to, when);
        }
        let to = self.objects.with_rest(to, REST);
        let mut next = to.start;
        while next < to.end {
            let Some(block) = self.tracked_at(next) else {
                next = (next / CHUNK_BYTES + 1) * CHUNK_BYTES;
                continue;
            };
            let (start, end) = (next, to.end.min(block.range.end));
            let mut facts = self.overwritten(&block, when);
            facts.candidates.loaded(start - block.range.start..end - block.range.start);
            drop(facts);
            self.company.add_loaded(end - start);
            next = end;
        }
        self.wake_in_company();
    }

    /// Begins to share if there is another process to share with.
    fn wake_in_company(&'static self) {
        if self.is_on() && !self.status.is_awake() && self.company.is_found() {
            log::info!("another process of this user could share memory with this one");
            self.status.wake();
            self.start_broker_thread();
        }
    }

    /// The block at an address, which is tracked from now on if it was not.
    fn tracked_at(&'static self, address: u64) -> Option<Arc<TrackedBlock>> {
        self.blocks.find(address).or_else(|| {
            if self.status.is_awake() {
                self.start_broker_thread();
            }
            let manager = match registry::owner(address) {
                Some(manager) => self.status.takes_blocks().then_some(manager)?,
                None => self.manager_of_piece(address)?,
            };
            let block = self.blocks.track(manager, address);
            self.recent.changed();
            block
        })
    }

    /// A memset, or a copy from somewhere else, into a range. If a call does not tell its length,
    /// the range extends to the end of the block.
    pub(crate) fn written(&self, to: Range<u64>, when: Submission) {
        if !self.is_on() {
            return;
        }
        for block in self.blocks.within(&to) {
            if when == Submission::Captured && block.is_shared() {
                self.make_private_in_capture(&block);
            }
            let mut facts = self.overwritten(&block, when);
            if when != Submission::Now {
                facts.exclude(Exclusion::GraphWrites);
            }
            let end = to.end.min(block.range.end) - block.range.start;
            facts.candidates.written(to.start.saturating_sub(block.range.start)..end);
        }
    }

    /// A copy within device memory.
    pub(crate) fn copied(&'static self, to: Range<u64>, from: u64, when: Submission) {
        if !self.is_on() || to.is_empty() {
            return;
        }
        let source = self.blocks.find(from).filter(|_| when == Submission::Now);
        let bytes = to.end - to.start;
        let is_inside = |block: &TrackedBlock, start: u64| bytes <= block.range.end - start;
        let both = source.zip(self.tracked_at(to.start));
        let whole = both.filter(|(source, target)| is_inside(source, from) && is_inside(target, to.start));
        // A piece may end before the object that is copied.
        let Some((source, target)) = whole else {
            return self.written(to, when);
        };
        let copied = source.facts().candidates.clone();
        let (at, begin) = (to.start - target.range.start, from - source.range.start);
        let mut facts = self.overwritten(&target, when);
        facts.candidates.written(at..at + bytes);
        if Arc::ptr_eq(&source, &target) {
            facts.candidates.copied_within(begin..begin + bytes, at);
        } else {
            facts.candidates.copied(&copied, begin..begin + bytes, at);
        }
    }

    /// A call gives a block other bytes.
    fn overwritten<'a>(&self, block: &'a Arc<TrackedBlock>, when: Submission) -> MutexGuard<'a, BlockFacts> {
        // Before, too: no pass shares the block again between its private copy and the call.
        block.facts().overwritten(Instant::now());
        self.prepare_write(block, when);
        let mut facts = block.facts();
        facts.overwritten(Instant::now());
        facts
    }

    /// A shared block gets a private copy before a call writes it, or before its graph can be
    /// launched.
    fn prepare_write(&self, block: &Arc<TrackedBlock>, when: Submission) {
        match WriteAnswer::to(time(when), block.is_shared()) {
            WriteAnswer::Proceed => {}
            WriteAnswer::CopyNow => self.make_private_for_write(block),
            WriteAnswer::CopyBeforeGraph => {
                block.facts().exclude(Exclusion::GraphMayWrite);
                self.count_write(block);
                self.pending.add([Arc::clone(block)]);
            }
        }
    }

    /// A stream is about to be captured. `begin` makes it known to all threads.
    pub(crate) fn capturing(&self, begin: impl FnOnce()) {
        if !self.is_on() {
            return begin();
        }
        let shared = if streams().capturing() { None } else { self.blocks.shared().into_iter().next() };
        match shared {
            Some(block) => self.captured.record(block.manager, begin),
            None => begin(),
        }
    }

    /// A call that is not captured uses memory of the device while a stream is.
    pub(crate) fn submitted_beside(&self) {
        self.captured.submitted_beside();
    }

    /// A kernel or a graph is about to be launched, or a kernel's node is made.
    pub(crate) fn launched(&self, launch: &Launch) {
        if !self.is_on() {
            return;
        }
        match launch.work() {
            LaunchedWork::Kernel(function) => self.kernel_launched(launch, function),
            LaunchedWork::Graph(_) => self.graph_launched(),
        }
    }

    fn kernel_launched(&self, launch: &Launch, function: CUfunction) {
        if launch.submission() == Submission::Now {
            self.counts.launches.fetch_add(1, Relaxed);
        }
        if launch.arguments() == ArgumentsRead::Unknown {
            return self.give_up("the driver does not tell the parameters of a kernel");
        }
        if !self.add_graph_words(launch, function) {
            return self.give_up("graphs have too many kernels");
        }
        let mut writes = PossibleWrites::new();
        self.add_users(launch, function, &mut writes);
        if !writes.is_empty() {
            self.make_writable(&writes, launch, function);
        }
    }

    /// Records the words of a kernel that becomes part of a graph. Returns `false` if there are too
    /// many.
    fn add_graph_words(&self, launch: &Launch, function: CUfunction) -> bool {
        if launch.submission() == Submission::Now || launch.words().is_empty() {
            return true;
        }
        let function = self.kernels.key(function);
        let parameter = |offset| ParameterKey { function, offset };
        launch.words().iter().all(|word| match self.reach(word.address) {
            Some(object) => self.graphs.add_object(&object, parameter(word.offset)),
            None => self.graphs.add_word((word.address, parameter(word.offset))),
        })
    }

    /// Records in each tracked block which parameter points into it. Adds the shared blocks that
    /// the kernel may write to `writes`, which stays where it is: to move it costs as much as a
    /// look-up.
    #[inline]
    fn add_users(&self, launch: &Launch, function: CUfunction, writes: &mut PossibleWrites) {
        let identity = launches::CODE.identity(function);
        for word in launch.words() {
            let tag = self.recent.tag(identity, word.offset, word.address);
            if self.recent.has(tag) {
                continue;
            }
            self.add_users_of_word(word, function, writes);
            if writes.is_empty() {
                self.recent.note(tag);
            }
        }
    }

    fn add_users_of_word(&self, word: &LaunchWord, function: CUfunction, writes: &mut PossibleWrites) {
        if let Some(object) = self.reach(word.address) {
            return self.add_users_of_object(&object, function, word.offset, writes);
        }
        let beside = self.blocks.beside(word.address);
        // A new key asks the driver, so it is made outside the index.
        if beside.is_some() || self.blocks.find(word.address).is_some() {
            let key = ParameterKey { function: self.kernels.key(function), offset: word.offset };
            self.blocks.with(word.address, |block| self.add_user(block, key, writes));
            beside.iter().for_each(|block| self.add_user(block, key, writes));
        }
    }

    /// The same for an object of which the allocator tells: it may lie in several blocks.
    fn add_users_of_object(
        &self,
        object: &Range<u64>,
        function: CUfunction,
        offset: u32,
        writes: &mut PossibleWrites,
    ) {
        let blocks = self.blocks.within(object);
        if !blocks.is_empty() {
            let key = ParameterKey { function: self.kernels.key(function), offset };
            blocks.iter().for_each(|block| self.add_user(block, key, writes));
        }
    }

    #[inline]
    fn add_user(&self, block: &Arc<TrackedBlock>, key: ParameterKey, writes: &mut PossibleWrites) {
        if block.noted.has(key, block.is_shared()) {
            return;
        }
        if block.facts().used_by(key) {
            self.kernels.ask(&[key]);
        }
        let is_reader = || self.kernels.readers().verdict(key) == ParameterVerdict::Reader;
        block.noted.note(key, is_reader());
        // An accusation in between has found nothing to forget.
        let only_reads = is_reader();
        if !only_reads {
            block.noted.note(key, false);
        }
        if block.is_shared() && !only_reads && !writes.iter().any(|known| Arc::ptr_eq(known, block)) {
            writes.push(Arc::clone(block));
        }
    }

    /// Makes shared blocks private that a kernel may write. A kernel that was not judged yet is no
    /// write: its verdict is waited for, and without one the block is shared again once the kernel
    /// is proven to read.
    #[cold]
    fn make_writable(&self, writes: &[Arc<TrackedBlock>], launch: &Launch, function: CUfunction) {
        let function = self.kernels.key(function);
        let parameters_into = |block: &Arc<TrackedBlock>| -> SmallVec<[ParameterKey; 4]> {
            let words = launch.words().iter().filter(|word| self.reaches(word.address, block));
            words.map(|word| ParameterKey { function, offset: word.offset }).collect()
        };
        let mut open: Vec<ParameterKey> = writes.iter().flat_map(parameters_into).collect();
        open.retain(|of| self.kernels.readers().verdict(*of) == ParameterVerdict::Unknown);
        self.wait_for_verdicts(&open);
        for block in writes {
            let readers = self.kernels.readers();
            let verdicts = parameters_into(block).into_iter().map(|of| readers.verdict(of));
            match verdicts.max_by_key(|verdict| badness(*verdict)) {
                Some(ParameterVerdict::Reader) => {}
                Some(ParameterVerdict::Writer) => self.prepare_write(block, launch.submission()),
                _ if launch.submission() == Submission::Now => self.make_private(block),
                _ => self.pending.add([Arc::clone(block)]),
            }
        }
    }

    /// Most kernels are judged in 2 to 3 ms, and a copy of the block takes longer.
    fn wait_for_verdicts(&self, open: &[ParameterKey]) {
        if open.is_empty() {
            return;
        }
        let _whole = Uncancelled::new();
        self.mailbox.post(BackgroundRequest::Judge);
        preserve_errno(|| self.kernels.wait_for_verdicts(open, VERDICTS));
    }

    /// An executable graph is about to be launched.
    fn graph_launched(&self) {
        self.make_pending_private();
        self.counts.launches.fetch_add(1, Relaxed);
    }

    fn make_pending_private(&self) {
        self.pending.settle(|block| self.make_private(block));
    }

    /// A graph is about to be made executable, or changed.
    pub(crate) fn instantiating(&self) {
        if self.is_on() {
            self.make_pending_private();
        }
    }

    /// The program makes a call that excludes sharing for the rest of the process.
    pub(crate) fn give_up(&self, why: &'static str) {
        if self.is_on() && self.status.end(why) {
            self.company.leave();
            self.blocks.shared().iter().for_each(|block| self.make_private(block));
            self.retire_if_private();
        }
    }

    /// A context is about to end.
    pub(crate) fn context_ends(&self) {
        if self.is_on() {
            self.give_up("a context has ended");
            self.status.retire();
            self.drop_tools();
            self.captured.forget();
        }
    }

    /// The program frees a block. The manager gives up the shared memory behind it.
    pub(crate) fn freed(&self, address: u64) {
        if !self.is_on() {
            return;
        }
        if let Some(block) = self.blocks.forget(address) {
            self.recent.changed();
            let leases = block.facts().freed();
            self.mailbox.release_freed(block, leases);
        }
    }

    /// The host has waited for the GPU.
    pub(crate) fn waited(&'static self, manager: &'static Manager<Device>) {
        self.wake_in_company();
        if self.is_pass_due()
            && let Some(site) = registry::existing_site().filter(|site| std::ptr::eq(site.manager, manager))
        {
            self.run_pass(manager, site.context);
        }
    }
}
