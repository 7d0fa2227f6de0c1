//! The verdicts about the kernels of this process, and the key of each kernel.
//!
//! A kernel is known by its code ([`launches::CODE`]), else by its handle.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use dashmap::DashMap;
use rustc_hash::FxBuildHasher;
use wm_abi::CUfunction;
use wm_dedup::policy::kernel_effects::KernelEffects;
use wm_dedup::readers::{FunctionKey, ParameterKey, Readers};
use wm_driver::lock;
use wm_driver::thread::Uncancelled;

use crate::launches::{self, FunctionCode};

/// By the kernel's identity in this process. Those of before an unload of code are dropped at the
/// first look-up after it: their handles may name other kernels now.
type KeysOfKernels = DashMap<(u64, usize), FunctionKey, FxBuildHasher>;

/// Keys that were looked up last, as a power of two.
const RECENT_BITS: u32 = 8;

/// A key that was looked up lately, with its kernel's identity: the number of unloads, the handle,
/// and two words of the key. Launches read it without a lock.
#[derive(Debug)]
struct RecentKey {
    /// Odd while a thread writes the words; it grows with each write.
    version: AtomicU64,
    words: [AtomicU64; 4],
}

impl RecentKey {
    /// Of no kernel: the handle is null.
    const fn empty() -> Self {
        Self { version: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; 4] }
    }

    #[inline]
    fn of(&self, (unloads, handle): (u64, usize)) -> Option<FunctionKey> {
        let before = self.version.load(Acquire);
        let [of, at, high, low] = self.words.each_ref().map(|word| word.load(Relaxed));
        // The words were read before the version is read again.
        fence(Acquire);
        let is_whole = before.is_multiple_of(2) && self.version.load(Relaxed) == before;
        let is_found = is_whole && (of, at) == (unloads, handle as u64);
        is_found.then(|| FunctionKey(u128::from(high) << u64::BITS | u128::from(low)))
    }

    /// Nothing is written while another thread writes: the key is looked up again then.
    fn set(&self, (unloads, handle): (u64, usize), FunctionKey(key): FunctionKey) {
        let before = self.version.load(Relaxed) & !1;
        if self.version.compare_exchange(before, before + 1, Acquire, Relaxed).is_err() {
            return;
        }
        // A reader that sees a new word sees the odd version, too.
        fence(Release);
        let words = [unloads, handle as u64, (key >> u64::BITS) as u64, key as u64];
        self.words.iter().zip(words).for_each(|(word, value)| word.store(value, Relaxed));
        self.version.store(before + 2, Release);
    }
}

/// Maps are made at their first use.
#[derive(Debug)]
pub(super) struct ProcessKernels {
    effects: OnceLock<KernelEffects>,
    keys: OnceLock<KeysOfKernels>,
    /// The code of each kernel that has a key.
    codes: OnceLock<DashMap<FunctionKey, Arc<FunctionCode>, FxBuildHasher>>,
    /// Parameters that are to be judged.
    asked: Mutex<Vec<ParameterKey>>,
    /// Some of them were judged.
    judged: Condvar,
    /// Unloads of code before the last look-up.
    unloads: AtomicU64,
    /// By a part of the handle.
    recent: [RecentKey; 1 << RECENT_BITS],
}

impl ProcessKernels {
    pub(super) const fn new() -> Self {
        Self {
            effects: OnceLock::new(),
            keys: OnceLock::new(),
            codes: OnceLock::new(),
            asked: Mutex::new(Vec::new()),
            judged: Condvar::new(),
            unloads: AtomicU64::new(0),
            recent: [const { RecentKey::empty() }; 1 << RECENT_BITS],
        }
    }

    pub(super) fn effects(&self) -> &KernelEffects {
        self.effects.get_or_init(KernelEffects::new)
    }

    #[inline]
    pub(super) fn readers(&self) -> &Readers {
        self.effects().readers()
    }

    /// The key of a kernel that the program launches.
    #[inline]
    pub(super) fn key(&self, function: CUfunction) -> FunctionKey {
        self.known_key(function).unwrap_or_else(|| self.look_up(function))
    }

    /// The same, if it was looked up lately. Takes no lock.
    #[inline]
    pub(super) fn known_key(&self, function: CUfunction) -> Option<FunctionKey> {
        self.place(function).of(launches::CODE.identity(function))
    }

    fn place(&self, function: CUfunction) -> &RecentKey {
        let mixed = (function.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.recent[(mixed >> (u64::BITS - RECENT_BITS)) as usize]
    }

    #[cold]
    #[inline(never)]
    fn look_up(&self, function: CUfunction) -> FunctionKey {
        // The driver is asked.
        let _whole = Uncancelled::new();
        let keys = self.keys.get_or_init(DashMap::default);
        let identity = launches::CODE.identity(function);
        let known = keys.get(&identity).map(|key| *key);
        let key = known.unwrap_or_else(|| {
            if self.unloads.swap(identity.0, Relaxed) != identity.0 {
                forget_unloaded(keys, identity.0);
            }
            // The map is not locked while the driver is asked.
            let key = self.make_key(function, identity);
            *keys.entry(identity).or_insert(key)
        });
        self.place(function).set(identity, key);
        key
    }

    fn make_key(&self, function: CUfunction, (unloads, handle): (u64, usize)) -> FunctionKey {
        let Some(code) = launches::CODE.of(function) else {
            return FunctionKey::of_handle(unloads, handle);
        };
        let key = FunctionKey::of(code.image, &code.name);
        self.codes.get_or_init(DashMap::default).entry(key).or_insert_with(|| Arc::new(code));
        key
    }

    /// A parameter points into a block that could be shared: it is to be judged, if it was not.
    #[cold]
    pub(super) fn ask(&self, parameters: &[ParameterKey]) {
        let open = self.readers().unjudged(parameters);
        lock(&self.asked).extend(open);
    }

    /// The parameters that were asked about since the last call, each once: a tensor of many pieces
    /// asks for each of them.
    pub(super) fn asked(&self) -> Vec<ParameterKey> {
        let mut asked = std::mem::take(&mut *lock(&self.asked));
        asked.sort_unstable();
        asked.dedup();
        asked
    }

    /// Parameters that were asked about have verdicts.
    pub(super) fn have_judged(&self) {
        drop(lock(&self.asked));
        self.judged.notify_all();
    }

    /// Waits until these parameters, which were asked about, have verdicts, for `limit` at most.
    pub(super) fn wait_for_verdicts(&self, parameters: &[ParameterKey], limit: Duration) {
        let is_open = |_: &mut Vec<ParameterKey>| !self.readers().unjudged(parameters).is_empty();
        drop(self.judged.wait_timeout_while(lock(&self.asked), limit, is_open));
    }

    /// The code of a kernel; `None` if it is unknown.
    pub(super) fn code(&self, function: FunctionKey) -> Option<Arc<FunctionCode>> {
        self.codes.get()?.get(&function).map(|code| Arc::clone(&code))
    }
}

/// Drops the keys of before so many unloads.
fn forget_unloaded(keys: &KeysOfKernels, unloads: u64) {
    keys.retain(|(of, _), _| *of >= unloads);
}

/// Days since 1970.
pub(super) fn today() -> u32 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (since.as_secs() / (24 * 60 * 60)) as u32
}

#[cfg(test)]
mod tests {
    //! Hazard (data race): a launch reads the key of another kernel. Hazard (resource leak): a
    //! program that unloads code again and again takes memory for each key of before.
    use super::*;

    /// A key that tells its handle.
    fn telling(handle: usize) -> FunctionKey {
        FunctionKey((handle as u128) << 64 | !(handle as u128) & u128::from(u64::MAX))
    }

    #[test]
    fn keys_of_before_an_unload_are_dropped() {
        let keys = KeysOfKernels::default();
        for unloads in 0..1000 {
            for handle in 1..=10 {
                assert_eq!(keys.insert((unloads, handle), telling(handle)), None);
            }
            forget_unloaded(&keys, unloads);
            assert_eq!(keys.len(), 10);
        }
    }

    #[test]
    fn a_recent_key_is_that_of_its_kernel_or_none() {
        let recent = RecentKey::empty();
        assert_eq!(recent.of((0, 7)), None);
        recent.set((1, 7), telling(7));
        assert_eq!(recent.of((1, 7)), Some(telling(7)));
        assert_eq!((recent.of((0, 7)), recent.of((1, 8))), (None, None));
        std::thread::scope(|scope| {
            for first in [100, 200] {
                let recent = &recent;
                scope.spawn(move || {
                    for round in 0..20_000 {
                        let handle = first + round % 3;
                        recent.set((1, handle), telling(handle));
                        for read in [first, 300 - first] {
                            assert!(recent.of((1, read)).is_none_or(|key| key == telling(read)));
                        }
                    }
                });
            }
        });
    }

    /// Hazard (latency): a launch waits for a verdict that is there, or for one that never comes.
    #[test]
    fn a_verdict_is_waited_for_until_it_is_there_and_no_longer_than_the_limit() {
        let kernels = ProcessKernels::new();
        let [one, other] = [0, 8].map(|offset| ParameterKey { function: telling(1), offset });
        kernels.ask(&[one, other]);
        kernels.wait_for_verdicts(&[one, other], Duration::from_millis(20));
        assert_eq!(kernels.readers().unjudged(&[one, other]).len(), 2, "the limit ends the wait");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for (parameter, only_reads) in [(one, true), (other, false)] {
                    kernels.readers().prove(parameter, only_reads);
                    kernels.have_judged();
                }
            });
            // Without the news it would wait for a day.
            kernels.wait_for_verdicts(&[one, other], Duration::from_secs(24 * 60 * 60));
        });
        kernels.wait_for_verdicts(&[one], Duration::from_secs(24 * 60 * 60));
        assert_eq!(kernels.asked(), [one, other], "the questions stay for the background thread");
    }
}
