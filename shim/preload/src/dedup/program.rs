//! What the program does that sharing has to know of, before the driver gets the call.
//!
//! The caller of these is inside the gate ([`crate::gate`]), except in [`freed`] and [`waited`].
//! Afterwards the call may go on: what it writes is memory of this process alone. All of them
//! return at once where sharing is off.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, MutexGuard};

use smallvec::SmallVec;
use wm_abi::{CUfunction, CUgraph, CUgraphExec};
use wm_dedup::readers::{ParameterKey, ParameterVerdict};
use wm_driver::Device;
use wm_memory::Manager;

use super::figures::COUNTS;
use super::learned::{function_key, readers};
use super::mailbox::{self, BackgroundRequest};
use super::watched::{self, BlockFacts, WatchedBlock};
use super::{broker_thread, captured, graphs, part, pending, standing, turn};
pub(crate) use crate::launches::Submission;
use crate::launches::{ArgumentsRead, Launch, LaunchedWork};
use crate::registry;

/// Does anything below look at what it is told?
#[inline]
pub(crate) fn is_on() -> bool {
    standing::is_on()
}

/// A copy from memory of the host into a range.
pub(crate) fn loaded(to: Range<u64>, when: Submission) {
    if !is_on() || to.is_empty() {
        return;
    }
    if when != Submission::Now {
        return written(to, when);
    }
    let Some(block) = watched_at(to.start) else { return written(to, when) };
    let mut facts = overwritten(&block, when);
    let (start, end) = (to.start - block.range.start, to.end - block.range.start);
    facts.candidates.loaded(start..end);
}

/// The block at an address, watched from now on if it was not.
fn watched_at(address: u64) -> Option<Arc<WatchedBlock>> {
    watched::find(address).or_else(|| {
        broker_thread::start();
        watched::watch(registry::owner(address)?, address)
    })
}

/// A memset, or a copy from somewhere else, into a range; where a call does not tell how much it
/// writes, up to the end of the block.
pub(crate) fn written(to: Range<u64>, when: Submission) {
    if !is_on() {
        return;
    }
    for block in watched::within(&to) {
        if when == Submission::Captured && block.is_shared() && captured::make_private(&block) {
            part::note_write(&block);
        }
        let mut facts = overwritten(&block, when);
        if when != Submission::Now {
            facts.left_alone = Some("a graph writes it");
        }
        let end = to.end.min(block.range.end) - block.range.start;
        facts.candidates.written(to.start.saturating_sub(block.range.start)..end);
    }
}

/// A copy within device memory.
pub(crate) fn copied(to: Range<u64>, from: u64, when: Submission) {
    if !is_on() || to.is_empty() {
        return;
    }
    let source = watched::find(from).filter(|_| when == Submission::Now);
    let Some((source, target)) = source.zip(watched_at(to.start)) else { return written(to, when) };
    let copied = source.facts().candidates.clone();
    let (at, begin) = (to.start - target.range.start, from - source.range.start);
    let mut facts = overwritten(&target, when);
    facts.candidates.written(at..at + (to.end - to.start));
    if Arc::ptr_eq(&source, &target) {
        facts.candidates.copied_within(begin..begin + (to.end - to.start), at);
    } else {
        facts.candidates.copied(&copied, begin..begin + (to.end - to.start), at);
    }
}

/// A call gives a block other bytes.
fn overwritten(block: &Arc<WatchedBlock>, when: Submission) -> MutexGuard<'_, BlockFacts> {
    // Before, too: no turn shares it again between its becoming private and the call.
    block.facts().touch();
    make_way(block, when);
    let mut facts = block.facts();
    facts.touch();
    facts
}

/// A write is coming: what is shared becomes private, or does so before the graph can be launched.
fn make_way(block: &Arc<WatchedBlock>, when: Submission) {
    if !block.is_shared() {
        return;
    }
    match when {
        Submission::Now => {
            part::note_write(block);
            part::make_private(block);
        }
        Submission::Captured | Submission::Node => {
            block.facts().left_alone = Some("a graph may write it");
            pending::add([Arc::clone(block)]);
        }
    }
}

/// A stream is about to be captured. `note` makes it known to all threads.
pub(crate) fn capturing(note: impl FnOnce()) {
    if is_on() {
        graphs::begin_capture();
        captured::begin(note);
    } else {
        note();
    }
}

/// A call that is not captured uses memory of the device while a stream is.
pub(crate) fn submitted_beside() {
    captured::note_beside();
}

/// A kernel or a graph is about to be launched, or a kernel's node is made.
pub(crate) fn launched(launch: &Launch) {
    if !is_on() {
        return;
    }
    match launch.work() {
        LaunchedWork::Kernel(function) => kernel_launched(launch, function),
        LaunchedWork::Graph(executable) => graph_launched(executable),
    }
}

fn kernel_launched(launch: &Launch, function: CUfunction) {
    match launch.submission() {
        Submission::Now => {
            COUNTS.launches.fetch_add(1, Relaxed);
        }
        Submission::Captured => graphs::note_kernel(),
        Submission::Node => {}
    }
    if launch.arguments() == ArgumentsRead::Unknown {
        return give_up("the driver does not tell the parameters of a kernel");
    }
    if !note_graph_words(launch, function) {
        return give_up("graphs have too many kernels");
    }
    make_writable(note_users(launch, function), launch.submission());
}

/// Records the words of a kernel that becomes part of a graph. `false`: there are too many.
fn note_graph_words(launch: &Launch, function: CUfunction) -> bool {
    if launch.submission() == Submission::Now || launch.words().is_empty() {
        return true;
    }
    let is_captured = launch.submission() == Submission::Captured;
    let function = function_key(function);
    let parameter = |offset| ParameterKey { function, offset };
    launch.words().iter().all(|word| graphs::note_word((word.address, parameter(word.offset)), is_captured))
}

/// A shared block that a kernel may write, and the parameter that points into it.
type PossibleWrite = (Arc<WatchedBlock>, ParameterKey);

/// Records in each watched block which parameter points into it. Returns the shared blocks that the
/// kernel is not known to only read.
fn note_users(launch: &Launch, function: CUfunction) -> SmallVec<[PossibleWrite; 4]> {
    let mut writes = SmallVec::new();
    for word in launch.words() {
        let Some(block) = watched::find(word.address) else { continue };
        let key = ParameterKey { function: function_key(function), offset: word.offset };
        note_user(&mut block.facts(), key, launch.submission());
        if block.is_shared() && readers().verdict(key) != ParameterVerdict::Reader {
            writes.push((block, key));
        }
    }
    writes
}

fn note_user(facts: &mut BlockFacts, key: ParameterKey, submission: Submission) {
    match submission {
        Submission::Now => facts.note(key),
        Submission::Captured | Submission::Node => facts.note_user(key),
    }
}

/// Makes shared blocks private that a kernel may write.
#[inline]
fn make_writable(writes: SmallVec<[PossibleWrite; 4]>, submission: Submission) {
    for (block, key) in writes {
        make_way(&block, submission);
        // Earlier launches have only read: a write would have faulted. So this kernel makes every
        // change from now on.
        let mut facts = block.facts();
        facts.window.clear();
        note_user(&mut facts, key, submission);
    }
}

/// An executable graph is about to be launched.
fn graph_launched(executable: CUgraphExec) {
    pending::settle();
    COUNTS.launches.fetch_add(graphs::launched(executable), Relaxed);
}

/// A capture has ended, with a graph or without.
pub(crate) fn capture_ended(graph: Option<CUgraph>) {
    if is_on() {
        graphs::end_capture(graph);
    }
}

/// A graph gets or changes a node other than by a capture, or ends.
pub(crate) fn graph_changes(graph: CUgraph) {
    graphs::forget(graph);
}

/// Some graph does.
pub(crate) fn graphs_change() {
    graphs::forget_all();
}

/// A graph was made executable, or an executable graph was made like it.
pub(crate) fn instantiated(executable: CUgraphExec, graph: CUgraph) {
    graphs::instantiated(executable, graph);
}

/// An executable graph changes otherwise, or ends.
pub(crate) fn executable_changes(executable: CUgraphExec) {
    graphs::forget_executable(executable);
}

/// A graph is about to be made executable, or changed.
pub(crate) fn instantiating() {
    if !is_on() {
        return;
    }
    pending::settle();
}

/// The program does something that sharing does not go with, for the rest of the process.
pub(crate) fn give_up(why: &'static str) {
    if standing::end(why) {
        for block in watched::all().iter().filter(|block| block.is_shared()) {
            part::make_private(block);
        }
        turn::retire_if_private();
    }
}

/// A context is about to end.
pub(crate) fn context_ends() {
    if is_on() {
        give_up("a context has ended");
        standing::retire();
        turn::end_context();
        captured::end_context();
    }
}

/// The program frees a block. What it shares is the manager's to give up.
pub(super) fn freed(address: u64) {
    if !is_on() {
        return;
    }
    if let Some(block) = watched::forget(address) {
        let leases = block.facts().take_leases();
        if !leases.is_empty() {
            mailbox::post(BackgroundRequest::Release(leases));
        }
    }
}

/// The host has waited for the GPU.
pub(crate) fn waited(manager: &'static Manager<Device>) {
    if turn::is_due()
        && let Some(site) = registry::existing_site().filter(|site| std::ptr::eq(site.manager, manager))
    {
        turn::take(manager, site.context);
    }
}
