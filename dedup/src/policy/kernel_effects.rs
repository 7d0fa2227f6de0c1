//! Kernel parameters that are only read through, by their code and by what this process and the
//! user's other processes found against it.
//!
//! A kernel is known by its code, so what was found holds in every process that loads it, and is
//! kept in the user's cache folder. A kernel whose code is unknown has a key of this process, and
//! no other process hears of it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::cache::{CacheError, KnownWriters, WriterCache};
use crate::readers::{ParameterKey, Readers};

/// The interval between two reads of the cache folder: the first one, and the longest one while
/// neither this process nor another one finds anything.
const INTERVALS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));

/// All verdicts of a process, and the writers that it has not told the others of.
#[derive(Debug, Default)]
pub struct KernelEffects {
    readers: Readers,
    unpublished: Mutex<Vec<ParameterKey>>,
}

impl KernelEffects {
    /// Without verdicts.
    pub fn new() -> Self {
        Self::default()
    }

    /// The verdicts.
    #[inline]
    pub fn readers(&self) -> &Readers {
        &self.readers
    }

    fn unpublished(&self) -> MutexGuard<'_, Vec<ParameterKey>> {
        self.unpublished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This process has found writers against their proof. Other processes are told of kernels that
    /// they can recognize.
    pub fn publish(&self, writers: &[ParameterKey]) {
        let has_code = |parameter: &&ParameterKey| parameter.function.has_code();
        self.unpublished().extend(writers.iter().filter(has_code));
    }

    /// Adds what this process has found to the cache folder at once, because it may end soon.
    ///
    /// # Errors
    /// The cache's. What was not added is added with the next exchange.
    pub fn keep(&self, cache: &WriterCache, today: u32) -> Result<(), CacheError> {
        let mine = std::mem::take(&mut *self.unpublished());
        cache.add(&KnownWriters::found(&mine, today)).map(drop).inspect_err(|_| self.publish(&mine))
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

    /// An exchange is over. The interval doubles while nothing new is found.
    pub fn exchanged(&mut self, now: Instant, has_changed: bool) {
        self.interval = if has_changed { INTERVALS.0 } else { (2 * self.interval).min(INTERVALS.1) };
        self.next = now + self.interval;
    }
}

/// The exchange of writers with the user's other processes. It belongs to one thread. Without a
/// cache folder every process finds them for itself.
#[derive(Debug)]
pub struct WriterExchange {
    cache: Option<WriterCache>,
    known: usize,
    times: ExchangeTimes,
}

impl WriterExchange {
    /// Through a file of the user's cache folder, if there is one.
    pub fn new(cache: Option<WriterCache>, now: Instant) -> Self {
        Self { cache, known: 0, times: ExchangeTimes::new(now) }
    }

    /// Adds this process's writers and believes the others', if an exchange is due. `today` counts
    /// days since 1970. Returns the parameters that are writers since now.
    pub fn exchange(&mut self, effects: &KernelEffects, now: Instant, today: u32) -> Vec<ParameterKey> {
        let Some(cache) = self.cache.as_ref().filter(|_| self.times.is_due(now)) else {
            return Vec::new();
        };
        let mine = std::mem::take(&mut *effects.unpublished());
        let is_new = !mine.is_empty();
        let added = || cache.add(&KnownWriters::found(&mine, today));
        let (mut accused, mut has_changed) = (Vec::new(), is_new);
        match if is_new { added() } else { cache.load() } {
            Ok(all) => {
                has_changed |= all.len() != self.known;
                self.known = all.len();
                accused = effects.readers.accuse(all.iter().map(|(parameter, _)| parameter));
            }
            Err(CacheError::Busy) => effects.publish(&mine),
            Err(error) => {
                log::info!("writers are found by this process alone: {error}");
                self.cache = None;
            }
        }
        self.times.exchanged(now, has_changed);
        accused
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): another process's writer is not believed, or one of an unknown kernel
    //! reaches another process.
    use std::path::PathBuf;

    use super::*;
    use crate::readers::{FunctionKey, ParameterVerdict};

    fn parameter(name: &str) -> ParameterKey {
        ParameterKey { function: FunctionKey::of(1, name), offset: 0 }
    }

    /// A process with its exchange; all of one test have one folder. Its kernels are proven.
    struct Finder {
        effects: KernelEffects,
        exchange: WriterExchange,
        now: Instant,
    }

    impl Finder {
        fn new(folder: &Folder) -> Self {
            let (now, cache) = (Instant::now(), Some(WriterCache::new(&folder.0)));
            let effects = KernelEffects::new();
            ["gemm", "norm"].iter().for_each(|name| effects.readers().prove(parameter(name), true));
            Self { effects, exchange: WriterExchange::new(cache, now), now }
        }

        fn accuses(&self, parameter: ParameterKey) {
            self.effects.publish(&self.effects.readers().accuse([parameter]));
        }

        fn exchange(&mut self) -> Vec<ParameterKey> {
            self.now += INTERVALS.1;
            self.exchange.exchange(&self.effects, self.now, 20_000)
        }

        fn verdict(&self, name: &str) -> ParameterVerdict {
            self.effects.readers().verdict(parameter(name))
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
    fn a_writer_of_one_process_is_one_of_the_other_once() {
        let folder = Folder::new("writer");
        let (mut one, mut other) = (Finder::new(&folder), Finder::new(&folder));
        one.accuses(parameter("gemm"));
        assert_eq!(one.exchange(), []);
        assert_eq!(other.exchange(), [parameter("gemm")]);
        assert_eq!(other.verdict("gemm"), ParameterVerdict::Writer);
        assert_eq!(other.verdict("norm"), ParameterVerdict::Reader);
        assert_eq!(other.exchange(), [], "once");
    }

    /// Hazard (process crash): a kernel that faulted is a reader again in the next run.
    #[test]
    fn what_a_fault_taught_is_kept_at_once() {
        let folder = Folder::new("fault");
        let (one, mut other) = (Finder::new(&folder), Finder::new(&folder));
        one.accuses(parameter("gemm"));
        one.effects.keep(&WriterCache::new(&folder.0), 20_000).expect("added");
        other.exchange();
        assert_eq!(other.verdict("gemm"), ParameterVerdict::Writer);
        other.effects.readers().prove(parameter("gemm"), true);
        assert_eq!(other.verdict("gemm"), ParameterVerdict::Writer, "whatever its code says");
    }

    #[test]
    fn a_kernel_without_code_stays_in_its_process() {
        let folder = Folder::new("handle");
        let mut one = Finder::new(&folder);
        one.accuses(ParameterKey { function: FunctionKey::of_handle(3, 0x7f00_1234_5678), offset: 0 });
        one.exchange();
        assert!(!folder.0.exists(), "there was nothing to add");
    }

    #[test]
    fn a_busy_cache_gets_the_writers_later() {
        let folder = Folder::new("busy");
        let (mut one, mut other) = (Finder::new(&folder), Finder::new(&folder));
        one.accuses(parameter("norm"));
        one.exchange();
        one.accuses(parameter("gemm"));
        let lock = std::fs::File::open(folder.0.join("writers-1.lock")).expect("the lock's file");
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).expect("locked");
        one.exchange();
        other.exchange();
        assert_eq!(other.verdict("gemm"), ParameterVerdict::Reader);
        drop(lock);
        one.exchange();
        other.exchange();
        assert_eq!(other.verdict("gemm"), ParameterVerdict::Writer);
    }

    #[test]
    fn an_unusable_folder_ends_the_exchange_and_no_verdict() {
        let folder = Folder::new("file");
        std::fs::write(&folder.0, "no folder").expect("written");
        let mut one = Finder::new(&folder);
        one.accuses(parameter("gemm"));
        assert_eq!(one.exchange(), []);
        assert!(one.exchange.cache.is_none());
        assert_eq!(one.verdict("gemm"), ParameterVerdict::Writer);
        let _ = std::fs::remove_file(&folder.0);
    }

    #[test]
    fn an_exchange_that_is_not_due_reads_nothing() {
        let folder = Folder::new("due");
        let (mut one, mut other) = (Finder::new(&folder), Finder::new(&folder));
        other.exchange();
        one.accuses(parameter("gemm"));
        one.exchange();
        other.now -= INTERVALS.1;
        other.exchange();
        assert_eq!(other.verdict("gemm"), ParameterVerdict::Reader);
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
