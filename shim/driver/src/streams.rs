//! Names for streams that never confuse two of them.
//!
//! The driver's stream handles are reused after a destroy, the legacy stream is one value for every
//! context, and the per-thread stream one value for every thread. A memory manager that used
//! handles as names would hand a block to the wrong stream. [`Streams`] gives each (context,
//! handle, thread) an identity that is never given again.
//!
//! The look-up is on the path of every stream-ordered allocation, so each thread caches its last
//! answer; an epoch that moves with every forgotten stream invalidates the caches.
//!
//! A thread's own stream ends with its thread, which no call reports. So wherever a new one is met,
//! the threads of a few others are checked: the names are bounded by the living threads.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use wm_abi::{CUcontext, CUstream};

use crate::gpu::StreamId;
use crate::lock::lock;
use crate::thread::KernelThread;

/// The stream behind a [`StreamId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamKey {
    /// The stream's context.
    pub context: CUcontext,
    /// The driver's handle, or [`CUstream::LEGACY`] or [`CUstream::PER_THREAD`].
    pub stream: CUstream,
    /// For a per-thread stream the number of its thread, else 0.
    thread: u64,
}

impl StreamKey {
    /// Can the calling thread put work into this stream? Only its own thread can use a per-thread
    /// stream.
    pub fn is_reachable(&self) -> bool {
        self.thread == 0 || self.thread == thread_number()
    }
}

/// A map that a static can hold from the start.
type StreamMap<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;

#[derive(Debug)]
struct Names {
    ids: StreamMap<StreamKey, StreamId>,
    keys: StreamMap<StreamId, StreamKey>,
    /// Contexts of created streams, by handle: a handle is in one context at a time.
    contexts: StreamMap<CUstream, CUcontext>,
    /// Threads' own streams, in the order of the last check of their threads.
    own: VecDeque<(KernelThread, StreamId)>,
}

/// Threads that are checked when another one's own stream is met.
const LOOKED_FOR: usize = 2;

impl Names {
    fn forget(&mut self, id: StreamId) {
        if let Some(key) = self.keys.remove(&id) {
            self.ids.remove(&key);
            self.contexts.remove(&key.stream);
        }
    }

    /// Notes a stream of the calling thread's own, and forgets some whose threads have ended.
    fn note_own(&mut self, id: StreamId) {
        for _ in 0..LOOKED_FOR.min(self.own.len()) {
            let Some((thread, known)) = self.own.pop_front() else { break };
            if thread.has_ended() {
                self.forget(known);
            } else if self.keys.contains_key(&known) {
                self.own.push_back((thread, known));
            }
        }
        self.own.push_back((KernelThread::current(), id));
    }
}

/// Every stream that the memory manager has met, and the number of present captures.
///
/// The first [`Streams::SEEN`] bytes are read on the path of a call, and seldom written.
#[derive(Debug)]
#[repr(C)]
pub struct Streams {
    capturing: AtomicUsize,
    epoch: AtomicUsize,
    mixes: AtomicBool,
    next: AtomicU64,
    captures: Mutex<Vec<Captured>>,
    /// Green contexts, each with the context that it is a part of.
    greens: RwLock<Vec<(CUcontext, CUcontext)>>,
    names: RwLock<Names>,
    /// A capture was begun once: there may be graphs.
    ever_captured: AtomicBool,
    /// Calls of ours in flight that assume no capture, and would break one that begins.
    unaware: AtomicUsize,
}

/// A call of ours. It checks for captures after this was made, and is over when this is dropped: so
/// a capture begins before the check, or after the call.
#[derive(Debug)]
#[must_use]
pub(crate) struct UnawareCall<'a>(&'a Streams);

impl Drop for UnawareCall<'_> {
    fn drop(&mut self) {
        self.0.unaware.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A stream under capture. The handle of a per-thread stream means another one in every thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Captured {
    context: CUcontext,
    stream: CUstream,
    thread: u64,
}

/// The calling thread's number where the handle means a stream of its own, else 0.
pub(crate) fn thread_of(stream: CUstream) -> u64 {
    if stream == CUstream::PER_THREAD { thread_number() } else { 0 }
}

#[derive(Clone, Copy)]
struct Remembered {
    key: StreamKey,
    id: StreamId,
    epoch: usize,
}

thread_local! {
    static LAST: Cell<Option<Remembered>> = const { Cell::new(None) };
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

static THREADS: AtomicU64 = AtomicU64::new(1);

/// A number for the calling thread that no other thread of the process ever has.
fn thread_number() -> u64 {
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(THREADS.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

impl Default for Streams {
    fn default() -> Self {
        Self::new()
    }
}

impl Streams {
    /// Bytes at the start of the value that a call reads, if nothing has changed since the last
    /// one.
    pub const SEEN: usize = 2 * size_of::<AtomicUsize>() + size_of::<AtomicBool>();

    /// No stream is known yet.
    pub const fn new() -> Self {
        const fn map<K, V>() -> StreamMap<K, V> {
            HashMap::with_hasher(BuildHasherDefault::new())
        }
        Self {
            capturing: AtomicUsize::new(0),
            epoch: AtomicUsize::new(0),
            mixes: AtomicBool::new(false),
            next: AtomicU64::new(0),
            captures: Mutex::new(Vec::new()),
            greens: RwLock::new(Vec::new()),
            names: RwLock::new(Names { ids: map(), keys: map(), contexts: map(), own: VecDeque::new() }),
            ever_captured: AtomicBool::new(false),
            unaware: AtomicUsize::new(0),
        }
    }

    /// Moves whenever a thread's cached facts about streams may be stale. It is read *before* these
    /// facts are determined.
    #[inline]
    pub fn epoch(&self) -> usize {
        self.epoch.load(Ordering::Acquire)
    }

    /// Ends the epoch: a context has ended, or another fact that threads cache beside a stream's
    /// name has changed.
    pub fn advance_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// The stream's identity, created at first sight.
    pub fn identify(&self, context: CUcontext, stream: CUstream) -> StreamId {
        let key = StreamKey { context, stream, thread: thread_of(stream) };
        let epoch = self.epoch();
        if let Some(last) = LAST.get().filter(|last| last.key == key && last.epoch == epoch) {
            return last.id;
        }
        let id = self.find(&key).unwrap_or_else(|| self.admit(key));
        LAST.set(Some(Remembered { key, id, epoch }));
        id
    }

    fn find(&self, key: &StreamKey) -> Option<StreamId> {
        self.names.read().ok()?.ids.get(key).copied()
    }

    /// The stream's identity, if it has one.
    pub fn known(&self, context: CUcontext, stream: CUstream) -> Option<StreamId> {
        self.find(&StreamKey { context, stream, thread: thread_of(stream) })
    }

    /// The same of a created stream.
    pub fn known_handle(&self, stream: CUstream) -> Option<StreamId> {
        let names = self.names.read().ok()?;
        let context = *names.contexts.get(&stream)?;
        names.ids.get(&StreamKey { context, stream, thread: 0 }).copied()
    }

    fn admit(&self, key: StreamKey) -> StreamId {
        let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        let fresh = StreamId(self.next.fetch_add(1, Ordering::Relaxed));
        let id = *names.ids.entry(key).or_insert(fresh);
        names.keys.insert(id, key);
        names.contexts.insert(key.stream, key.context);
        if key.thread != 0 {
            names.note_own(id);
        }
        id
    }

    /// The identity of a created stream. Its context is determined at first sight only.
    pub fn identify_handle(
        &self,
        stream: CUstream,
        context: impl FnOnce() -> Option<CUcontext>,
    ) -> Option<StreamId> {
        let epoch = self.epoch();
        if let Some(last) = LAST.get().filter(|last| last.key.stream == stream && last.epoch == epoch) {
            return Some(last.id);
        }
        let known = self.names.read().ok()?.contexts.get(&stream).copied();
        Some(self.identify(known.or_else(context)?, stream))
    }

    /// The context of a stream; `None` once it was forgotten.
    pub fn context(&self, id: StreamId) -> Option<CUcontext> {
        match LAST.get() {
            Some(last) if last.id == id => Some(last.key.context),
            _ => self.key(id).map(|key| key.context),
        }
    }

    /// The stream behind an identity; `None` once it was forgotten.
    pub fn key(&self, id: StreamId) -> Option<StreamKey> {
        self.names.read().ok()?.keys.get(&id).copied()
    }

    /// Identities under a stream handle, in all contexts: those that a destroy of the handle ends.
    pub fn with_handle(&self, stream: CUstream) -> Vec<StreamId> {
        self.matching(|key| key.stream == stream)
    }

    /// Identities of a context's streams.
    pub fn of_context(&self, context: CUcontext) -> Vec<StreamId> {
        self.matching(|key| key.context == context)
    }

    fn matching(&self, wanted: impl Fn(&StreamKey) -> bool) -> Vec<StreamId> {
        let Ok(names) = self.names.read() else { return Vec::new() };
        names.ids.iter().filter(|(key, _)| wanted(key)).map(|(_, id)| *id).collect()
    }

    /// Forgets streams that are about to be destroyed. A later stream under the same handle gets a
    /// new identity.
    pub fn forget(&self, ids: &[StreamId]) {
        let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        ids.iter().for_each(|id| names.forget(*id));
        drop(names);
        self.advance_epoch();
    }

    /// A capture begins in a stream of `context`. Called before the driver's call, and taken back
    /// if that fails. [`Streams::await_unaware`] must follow.
    pub fn capture_began(&self, context: CUcontext, stream: CUstream) {
        self.ever_captured.store(true, Ordering::SeqCst);
        let began = Captured { context, stream, thread: thread_of(stream) };
        self.change_captures(|captures| captures.push(began));
    }

    /// Waits until calls of ours are over that were made before the program's call was announced.
    /// None of them waits for the GPU, and the wait is bounded nevertheless.
    pub fn await_unaware(&self, longest: Duration) {
        let begin = Instant::now();
        while self.unaware.load(Ordering::SeqCst) > 0 && begin.elapsed() < longest {
            std::thread::yield_now();
        }
    }

    /// Called before a call that does not wait and that a capture would forbid: the check for
    /// captures follows.
    pub(crate) fn unaware_call(&self) -> UnawareCall<'_> {
        self.unaware.fetch_add(1, Ordering::SeqCst);
        UnawareCall(self)
    }

    /// A capture in `stream` is over, or the stream is. Returns `false` if there was none.
    pub fn capture_ended(&self, stream: CUstream) -> bool {
        let thread = thread_of(stream);
        let is_it = |captured: &Captured| captured.stream == stream && captured.thread == thread;
        self.change_captures(|captures| {
            captures.iter().position(is_it).map(|at| captures.swap_remove(at)).is_some()
        })
    }

    /// A context is gone, and with it the captures in its streams.
    pub fn captures_ended_in(&self, context: CUcontext) {
        self.change_captures(|captures| captures.retain(|captured| captured.context != context));
    }

    fn change_captures<T>(&self, change: impl FnOnce(&mut Vec<Captured>) -> T) -> T {
        let mut captures = lock(&self.captures);
        let answer = change(&mut captures);
        self.capturing.store(captures.len(), Ordering::SeqCst);
        answer
    }

    /// A blocking stream has been created or used: work in the legacy default stream is a barrier
    /// for it.
    #[inline]
    pub fn note_blocking(&self) {
        // Written once: the line is in every core's cache.
        if !self.mixes() {
            self.mixes.store(true, Ordering::Release);
        }
    }

    /// May there be work in blocking streams?
    #[inline]
    pub fn mixes(&self) -> bool {
        self.mixes.load(Ordering::Acquire)
    }

    /// `green` is a part of another context.
    pub fn note_green(&self, green: CUcontext, home: CUcontext) {
        let mut greens = self.greens.write().unwrap_or_else(PoisonError::into_inner);
        greens.retain(|(known, _)| *known != green);
        greens.push((green, home));
    }

    /// The green contexts that are a part of a context.
    pub fn greens_of(&self, home: CUcontext) -> Vec<CUcontext> {
        let greens = self.greens.read().unwrap_or_else(PoisonError::into_inner);
        greens.iter().filter(|(_, of)| *of == home).map(|(green, _)| *green).collect()
    }

    /// A green context is gone.
    pub fn forget_green(&self, green: CUcontext) {
        self.greens.write().unwrap_or_else(PoisonError::into_inner).retain(|(known, _)| *known != green);
    }

    /// The context of memory and events of `context`: itself, or for a green context the one that
    /// it is a part of.
    pub fn home(&self, context: CUcontext) -> CUcontext {
        let greens = self.greens.read().unwrap_or_else(PoisonError::into_inner);
        greens.iter().find(|(green, _)| *green == context).map_or(context, |(_, home)| *home)
    }

    /// Has any stream of the process ever been under capture? A captured graph uses fixed
    /// addresses.
    pub fn has_captured(&self) -> bool {
        self.ever_captured.load(Ordering::SeqCst)
    }

    /// Is some stream of the process under capture?
    #[inline]
    pub fn capturing(&self) -> bool {
        self.capturing.load(Ordering::SeqCst) > 0
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: two streams under one name lead to a block that two kernels write at once.
    use super::*;

    const CONTEXT: CUcontext = CUcontext(16);
    const STREAM: CUstream = CUstream(4096);

    #[test]
    fn a_reused_handle_gets_a_new_identity() {
        let streams = Streams::default();
        let first = streams.identify(CONTEXT, STREAM);
        assert_eq!(streams.identify(CONTEXT, STREAM), first);
        streams.forget(&streams.with_handle(STREAM));
        assert_eq!(streams.key(first), None);
        assert_ne!(streams.identify(CONTEXT, STREAM), first);
    }

    #[test]
    fn what_another_thread_forgets_is_not_remembered_here() {
        let streams = Streams::default();
        let (epoch, first) = (streams.epoch(), streams.identify(CONTEXT, STREAM));
        std::thread::scope(|scope| scope.spawn(|| streams.forget(&[first])).join().expect("joins"));
        assert_ne!(streams.epoch(), epoch);
        assert_ne!(streams.identify(CONTEXT, STREAM), first);
    }

    #[test]
    fn default_streams_of_two_contexts_differ() {
        let streams = Streams::default();
        let one = streams.identify(CONTEXT, CUstream::LEGACY);
        assert_ne!(streams.identify(CUcontext(32), CUstream::LEGACY), one);
        assert_eq!(streams.of_context(CONTEXT), [one]);
    }

    #[test]
    fn per_thread_streams_of_two_threads_differ() {
        let streams = Streams::default();
        let mine = streams.identify(CONTEXT, CUstream::PER_THREAD);
        let theirs = std::thread::scope(|scope| {
            scope.spawn(|| streams.identify(CONTEXT, CUstream::PER_THREAD)).join().expect("joins")
        });
        assert_ne!(mine, theirs);
        assert!(streams.key(mine).expect("known").is_reachable());
        assert!(!streams.key(theirs).expect("known").is_reachable());
    }

    /// Hazard: a leak: each thread that ever used its own stream is remembered.
    #[test]
    fn streams_of_threads_that_have_ended_are_forgotten() {
        let streams = Streams::default();
        let mine = streams.identify(CONTEXT, CUstream::PER_THREAD);
        for _ in 0..100 {
            let meet = || streams.identify(CONTEXT, CUstream::PER_THREAD);
            std::thread::scope(|scope| scope.spawn(meet).join().expect("joins"));
        }
        let known = streams.of_context(CONTEXT);
        assert!(known.len() < 20 && known.contains(&mine), "{} are known", known.len());
    }

    #[test]
    fn a_capture_ends_with_its_stream_and_only_once() {
        let streams = Streams::default();
        assert!(!streams.has_captured());
        assert!(!streams.capture_ended(STREAM));
        streams.capture_began(CONTEXT, STREAM);
        assert!(streams.capturing());
        assert!(!streams.capture_ended(CUstream(1)));
        assert!(streams.capturing());
        assert!(streams.capture_ended(STREAM));
        assert!(!streams.capturing());
        assert!(streams.has_captured(), "a graph may have come of it");
    }

    /// Hazard (stream order): the driver refuses a second capture of a stream, and the first one is
    /// taken for ended: calls of ours invalidate it.
    #[test]
    fn a_refused_second_begin_leaves_the_first_capture() {
        let streams = Streams::default();
        streams.capture_began(CONTEXT, STREAM);
        streams.capture_began(CONTEXT, STREAM);
        assert!(streams.capture_ended(STREAM), "the second begin is taken back");
        assert!(streams.capturing());
    }

    #[test]
    fn captures_end_with_their_context_and_no_other() {
        let streams = Streams::default();
        streams.capture_began(CONTEXT, STREAM);
        streams.captures_ended_in(CUcontext(32));
        assert!(streams.capturing());
        streams.captures_ended_in(CONTEXT);
        assert!(!streams.capturing());
    }

    /// Hazard: two threads capture their default streams, whose handle is one value, and the first
    /// end hides the other capture.
    #[test]
    fn a_threads_capture_of_its_default_stream_is_its_own() {
        let streams = Streams::default();
        streams.capture_began(CONTEXT, CUstream::PER_THREAD);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                streams.capture_began(CONTEXT, CUstream::PER_THREAD);
                assert!(streams.capture_ended(CUstream::PER_THREAD));
            });
        });
        assert!(streams.capturing());
    }
}
