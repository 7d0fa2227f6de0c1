//! Does PyTorch's allocator ask again for memory that it was refused?
//!
//! It empties its cache and asks again, but not while a private pool takes its allocations: those
//! of a warm-up before a capture (`torch.compile` with `reduce-overhead`), or of
//! `torch.cuda.use_mem_pool`. There a refusal is an error of the program. PyTorch counts the pools
//! that it has made in two numbers, both 1 at first, that its library exports. If they are still 1
//! there is no pool.
//!
//! A pool is made before it is used, and is not used before the allocator has its lock, which it
//! holds from the first attempt to the second. So an answer holds until the request has ended.
//!
//! Source: `c10::cuda::MemPool` since PyTorch 2.5, `at::cuda::MemPool` since 2.10. In earlier
//! versions nothing is known of pools.

use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use super::callers::{self, TORCH, TORCH_COLLECTIVES};

/// The number of pools by a program's wish, and of those that a graph made for itself.
type Counts = [&'static AtomicU64; 2];

/// The library that has the numbers, and their names.
const PLACES: [(&str, [&CStr; 2]); 2] = [
    (TORCH, [c"_ZN3c104cuda7MemPool4uid_E", c"_ZN3c104cuda7MemPool5uuid_E"]),
    (TORCH_COLLECTIVES, [c"_ZN2at4cuda7MemPool4uid_E", c"_ZN2at4cuda7MemPool5uuid_E"]),
];

const NONE_MADE: u64 = 1;

static COUNTS: OnceLock<Counts> = OnceLock::new();

/// Is it certain that PyTorch asks again for what it is refused now? Costs tens of microseconds the
/// first time.
pub(crate) fn asks_again() -> bool {
    let counts = COUNTS.get().copied().or_else(|| {
        let found = PLACES.iter().find_map(|(library, names)| find(library, names))?;
        Some(*COUNTS.get_or_init(|| found))
    });
    counts.is_some_and(|counts| counts.iter().all(|count| count.load(SeqCst) == NONE_MADE))
}

fn find(library: &str, [first, second]: &[&CStr; 2]) -> Option<Counts> {
    let count = |name| {
        let count = callers::symbol_of_loaded(library, name)?;
        // SAFETY: by its name, an atomic of 64 bits of a library that is never unloaded.
        Some(unsafe { &*count.cast::<AtomicU64>() })
    };
    Some([count(first)?, count(second)?])
}
