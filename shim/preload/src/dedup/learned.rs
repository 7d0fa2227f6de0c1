//! Kernel parameters that are only read through, as this process and others of the user have
//! learned.
//!
//! A kernel is known by its code ([`launches::images`]), so what is learned holds for every process
//! that loads it, and is kept in the user's cache folder. One whose code is not known is known by
//! its handle, in this process alone, and is another one after code was unloaded.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use dashmap::DashMap;
use rustc_hash::FxBuildHasher;
use wm_abi::CUfunction;
use wm_dedup::cache::{CacheError, VerdictCache, Verdicts};
use wm_dedup::readers::{FunctionKey, Lessons, ParameterKey, Readers};

use crate::{launches, settings};

/// The interval between two reads of the cache folder: from the first to the second, while nothing
/// new is learned.
const INTERVALS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));

/// All verdicts.
pub(super) fn readers() -> &'static Readers {
    static READERS: OnceLock<Readers> = OnceLock::new();
    READERS.get_or_init(|| Readers::new(settings::load().dedup_proof))
}

/// The key of a kernel that the program launches.
#[inline]
pub(super) fn function_key(function: CUfunction) -> FunctionKey {
    static KEYS: OnceLock<DashMap<(u64, usize), FunctionKey, FxBuildHasher>> = OnceLock::new();
    let keys = KEYS.get_or_init(DashMap::default);
    let identity = launches::identity(function);
    let known = keys.get(&identity).map(|key| *key);
    known.unwrap_or_else(|| {
        let key = key(function);
        keys.insert(identity, key);
        key
    })
}

/// A life is a small number, so none of these is the hash of code.
fn key(function: CUfunction) -> FunctionKey {
    let (life, handle) = launches::identity(function);
    launches::code(function).map_or_else(
        || FunctionKey(u128::from(life) << 64 | handle as u128),
        |code| FunctionKey::of(code.image, &code.name),
    )
}

fn has_code(parameter: &ParameterKey) -> bool {
    parameter.function.0 >> 96 != 0
}

/// What is to be kept for other processes.
static NEWS: Mutex<Lessons> = Mutex::new(Lessons {
    readers: Vec::new(),
    writers: Vec::new(),
    certain: Vec::new(),
    reversed: Vec::new(),
});

fn news() -> MutexGuard<'static, Lessons> {
    NEWS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This process has learned something by itself.
pub(super) fn keep(lessons: &Lessons) {
    let mut news = news();
    news.readers.extend(lessons.readers.iter().filter(|one| has_code(one)));
    news.certain.extend(lessons.certain.iter().filter(|one| has_code(one)));
}

/// The user's cache, as one thread sees it. Without it every process learns for itself.
pub(super) struct SharedLessons {
    cache: Option<VerdictCache>,
    known: usize,
    interval: Duration,
    next: Instant,
}

impl SharedLessons {
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        let cache = folder.map(|folder| VerdictCache::new(&folder));
        Self { cache, known: 0, interval: INTERVALS.0, next: Instant::now() }
    }

    /// Takes over what others have learned, and adds what is new here, if it is time to. Parameters
    /// that were readers here, and write by others' word.
    pub(super) fn exchange(&mut self) -> Vec<ParameterKey> {
        let Some(cache) = self.cache.as_ref().filter(|_| self.next <= Instant::now()) else {
            return Vec::new();
        };
        let proof = settings::load().dedup_proof;
        let mine = std::mem::take(&mut *news());
        let is_new = !mine.readers.is_empty() || !mine.certain.is_empty();
        let all = if is_new { cache.add(&Verdicts::learned(&mine, proof, today())) } else { cache.load() };
        let mut reversed = Vec::new();
        let mut has_changed = is_new;
        match all {
            Ok(all) => {
                has_changed |= all.len() != self.known;
                self.known = all.len();
                reversed = readers().believe(all.believed(proof)).reversed;
            }
            Err(CacheError::Busy) => keep(&mine),
            Err(error) => {
                log::info!("what kernels do is learned by this process alone: {error}");
                self.cache = None;
            }
        }
        self.interval = if has_changed { INTERVALS.0 } else { (2 * self.interval).min(INTERVALS.1) };
        self.next = Instant::now() + self.interval;
        reversed
    }
}

/// Days since 1970.
fn today() -> u32 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (since.as_secs() / (24 * 60 * 60)) as u32
}
