//! Kernel parameters that are only read through, as this process and the user's other processes
//! have learned.
//!
//! A kernel is known by its code, so its verdict holds in every process that loads it, and is
//! kept in the user's cache folder. A kernel whose code is unknown has a key of this process, and
//! no other process learns of it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::cache::{CacheError, VerdictCache, Verdicts};
use crate::readers::{Lessons, ParameterKey, Readers};

/// The interval between two reads of the cache folder: the first one, and the longest one while
/// neither this process nor another one learns anything.
const INTERVALS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));

/// All verdicts of a process, and those that it has not given to the others.
#[derive(Debug)]
pub struct KernelEffects {
    proof: u32,
    readers: Readers,
    unpublished: Mutex<Lessons>,
}

impl KernelEffects {
    /// Without verdicts. `proof` launches without a change make a reader.
    pub fn new(proof: u32) -> Self {
        Self { proof, readers: Readers::new(proof), unpublished: Mutex::default() }
    }

    /// The verdicts.
    #[inline]
    pub fn readers(&self) -> &Readers {
        &self.readers
    }

    fn unpublished(&self) -> MutexGuard<'_, Lessons> {
        self.unpublished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This process has learned something by itself. Other processes are told of kernels that they
    /// can recognize.
    pub fn publish(&self, lessons: &Lessons) {
        let has_code = |parameter: &&ParameterKey| parameter.function.has_code();
        let mut unpublished = self.unpublished();
        unpublished.readers.extend(lessons.readers.iter().filter(has_code));
        unpublished.certain.extend(lessons.certain.iter().filter(has_code));
    }

    /// Adds what this process has learned to the cache folder at once, because it may end soon.
    ///
    /// # Errors
    /// The cache's. What was not added is added with the next exchange.
    pub fn keep(&self, cache: &VerdictCache, today: u32) -> Result<(), CacheError> {
        let mine = std::mem::take(&mut *self.unpublished());
        cache.add(&Verdicts::learned(&mine, self.proof, today)).map(drop).inspect_err(|_| self.publish(&mine))
    }
}

/// The times of the exchanges with the cache folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangeTimes {
    interval: Duration,
    next: Instant,
}

impl ExchangeTimes {
    /// The first exchange is due at once.
    pub fn new(now: Instant) -> Self {
        Self { interval: INTERVALS.0, next: now }
    }

    /// Is an exchange due?
    pub fn is_due(&self, now: Instant) -> bool {
        self.next <= now
    }

    /// An exchange is over. The interval doubles while nothing new is learned.
    pub fn exchanged(&mut self, now: Instant, has_changed: bool) {
        self.interval = if has_changed { INTERVALS.0 } else { (2 * self.interval).min(INTERVALS.1) };
        self.next = now + self.interval;
    }
}

/// The exchange of verdicts with the user's other processes. It belongs to one thread. Without a
/// cache folder every process learns for itself.
#[derive(Debug)]
pub struct VerdictExchange {
    cache: Option<VerdictCache>,
    known: usize,
    times: ExchangeTimes,
}

impl VerdictExchange {
    /// Through a file of the user's cache folder, if there is one.
    pub fn new(cache: Option<VerdictCache>, now: Instant) -> Self {
        Self { cache, known: 0, times: ExchangeTimes::new(now) }
    }

    /// Adds this process's new verdicts and believes the others', if an exchange is due. `today`
    /// counts days since 1970. Returns the parameters that were readers here and write by another
    /// process's verdict.
    pub fn exchange(&mut self, effects: &KernelEffects, now: Instant, today: u32) -> Vec<ParameterKey> {
        let Some(cache) = self.cache.as_ref().filter(|_| self.times.is_due(now)) else {
            return Vec::new();
        };
        let mine = std::mem::take(&mut *effects.unpublished());
        let is_new = !mine.readers.is_empty() || !mine.certain.is_empty();
        let added = || cache.add(&Verdicts::learned(&mine, effects.proof, today));
        let (mut reversed, mut has_changed) = (Vec::new(), is_new);
        match if is_new { added() } else { cache.load() } {
            Ok(all) => {
                has_changed |= all.len() != self.known;
                self.known = all.len();
                reversed = effects.readers.believe(all.believed(effects.proof)).reversed;
            }
            Err(CacheError::Busy) => effects.publish(&mine),
            Err(error) => {
                log::info!("the effects of kernels are learned by this process alone: {error}");
                self.cache = None;
            }
        }
        self.times.exchanged(now, has_changed);
        reversed
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): another process's verdict about a writer is not believed, or a
    //! verdict about an unknown kernel reaches another process.
    use std::path::PathBuf;

    use super::*;
    use crate::readers::{FunctionKey, LaunchWindow, ParameterVerdict, WindowOutcome};

    const PROOF: u32 = 2;

    fn parameter(name: &str) -> ParameterKey {
        ParameterKey { function: FunctionKey::of(1, name), offset: 0 }
    }

    /// A process with its exchange; all of one test have one folder.
    struct Learner {
        effects: KernelEffects,
        exchange: VerdictExchange,
        now: Instant,
    }

    impl Learner {
        fn new(folder: &Folder) -> Self {
            let (now, cache) = (Instant::now(), Some(VerdictCache::new(&folder.0)));
            Self { effects: KernelEffects::new(PROOF), exchange: VerdictExchange::new(cache, now), now }
        }

        fn learns(&self, parameter: ParameterKey, outcome: WindowOutcome) {
            let mut window = LaunchWindow::new();
            for _ in 0..PROOF {
                window.add(parameter);
            }
            self.effects.publish(&self.effects.readers().close(&window, outcome));
        }

        fn exchange(&mut self) -> Vec<ParameterKey> {
            self.now += INTERVALS.1;
            self.exchange.exchange(&self.effects, self.now, 20_000)
        }

        fn verdict(&self, parameter: ParameterKey) -> ParameterVerdict {
            self.effects.readers().verdict(parameter)
        }
    }

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("wm-dedup-effects-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            let _ = std::fs::remove_dir_all(&folder);
            Self(folder)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_reader_of_one_process_is_a_reader_of_the_next() {
        let folder = Folder::new("reader");
        let (mut one, mut other) = (Learner::new(&folder), Learner::new(&folder));
        one.learns(parameter("gemm"), WindowOutcome::Unchanged);
        assert_eq!((one.exchange(), other.exchange()), (vec![], vec![]));
        assert_eq!(other.verdict(parameter("gemm")), ParameterVerdict::Reader);
    }

    #[test]
    fn a_certain_writer_of_one_process_is_reversed_in_the_other() {
        let folder = Folder::new("writer");
        let (mut one, mut other) = (Learner::new(&folder), Learner::new(&folder));
        other.learns(parameter("gemm"), WindowOutcome::Unchanged);
        one.learns(parameter("gemm"), WindowOutcome::Changed);
        one.exchange();
        assert_eq!(other.exchange(), [parameter("gemm")]);
        assert_eq!(other.verdict(parameter("gemm")), ParameterVerdict::Writer);
        assert_eq!(other.exchange(), [], "once");
    }

    /// Hazard (process crash): a kernel that faulted is a reader again in the next run.
    #[test]
    fn what_a_fault_taught_is_kept_at_once() {
        let folder = Folder::new("fault");
        let (one, mut other) = (Learner::new(&folder), Learner::new(&folder));
        one.learns(parameter("gemm"), WindowOutcome::Unchanged);
        one.learns(parameter("norm"), WindowOutcome::Unchanged);
        one.effects.publish(&one.effects.readers().accuse([parameter("gemm")]));
        one.effects.keep(&VerdictCache::new(&folder.0), 20_000).expect("added");
        other.exchange();
        assert_eq!(other.verdict(parameter("gemm")), ParameterVerdict::Writer);
        assert_eq!(other.verdict(parameter("norm")), ParameterVerdict::Reader);
    }

    #[test]
    fn a_kernel_without_code_stays_in_its_process() {
        let folder = Folder::new("handle");
        let (mut one, mut other) = (Learner::new(&folder), Learner::new(&folder));
        let unknown = ParameterKey { function: FunctionKey::of_handle(3, 0x7f00_1234_5678), offset: 0 };
        one.learns(unknown, WindowOutcome::Unchanged);
        assert_eq!(one.verdict(unknown), ParameterVerdict::Reader);
        one.exchange();
        other.exchange();
        assert_eq!(other.verdict(unknown), ParameterVerdict::Unknown);
        assert!(!folder.0.exists(), "there was nothing to add");
    }

    #[test]
    fn a_busy_cache_gets_the_verdicts_later() {
        let folder = Folder::new("busy");
        let (mut one, mut other) = (Learner::new(&folder), Learner::new(&folder));
        one.learns(parameter("first"), WindowOutcome::Unchanged);
        one.exchange();
        one.learns(parameter("gemm"), WindowOutcome::Unchanged);
        let lock = std::fs::File::open(folder.0.join("readers-1.lock")).expect("the lock's file");
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("locked");
        one.exchange();
        other.exchange();
        assert_eq!(other.verdict(parameter("gemm")), ParameterVerdict::Unknown);
        drop(lock);
        one.exchange();
        other.exchange();
        assert_eq!(other.verdict(parameter("gemm")), ParameterVerdict::Reader);
    }

    #[test]
    fn an_unusable_folder_ends_the_exchange_and_no_verdict() {
        let folder = Folder::new("file");
        std::fs::write(&folder.0, "no folder").expect("written");
        let mut one = Learner::new(&folder);
        one.learns(parameter("gemm"), WindowOutcome::Unchanged);
        assert_eq!(one.exchange(), []);
        assert!(one.exchange.cache.is_none());
        assert_eq!(one.verdict(parameter("gemm")), ParameterVerdict::Reader);
        let _ = std::fs::remove_file(&folder.0);
    }

    #[test]
    fn an_exchange_that_is_not_due_reads_nothing() {
        let folder = Folder::new("due");
        let (mut one, mut other) = (Learner::new(&folder), Learner::new(&folder));
        other.exchange();
        one.learns(parameter("gemm"), WindowOutcome::Unchanged);
        one.exchange();
        other.now -= INTERVALS.1;
        other.exchange();
        assert_eq!(other.verdict(parameter("gemm")), ParameterVerdict::Unknown);
    }

    #[test]
    fn the_interval_doubles_up_to_a_minute_and_starts_anew() {
        let mut now = Instant::now();
        let mut times = ExchangeTimes::new(now);
        let mut intervals = Vec::new();
        for has_changed in [true, false, false, false, false, false, false, true] {
            assert!(times.is_due(now));
            times.exchanged(now, has_changed);
            assert!(!times.is_due(now + times.interval - Duration::from_millis(1)));
            intervals.push(times.interval.as_secs());
            now += times.interval;
        }
        assert_eq!(intervals, [2, 4, 8, 16, 32, 60, 60, 2]);
    }
}
