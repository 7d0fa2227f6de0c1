//! A thread that advises the library about a program's blocks while its steps are made, so that
//! memory moves at any time and not only where the library itself finds one.
//!
//! The driver alone has no such call, so it is no step of a program, and its answers do not count.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use random::{Choices, Random};

type Call = unsafe extern "C" fn(*const c_void, usize, c_int) -> c_int;

/// As `wmshim.h` has them.
const PREFETCH: c_int = 1;
const COLD: c_int = 2;

/// Between two pieces of advice: calls of the program come in between.
const PAUSE: Duration = Duration::from_micros(300);

/// Pieces of advice while the device is idle.
const SOME: usize = 3;

/// The library's function for advice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Advice(Call);

impl Advice {
    /// Of the library that this process runs under.
    pub(crate) fn find() -> Option<Self> {
        // SAFETY: looks a name up in the loaded libraries.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"wmshim_advise".as_ptr()) };
        if found.is_null() {
            return None;
        }
        // SAFETY: the library's function has this type.
        Some(Self(unsafe { std::mem::transmute::<*mut c_void, Call>(found) }))
    }

    /// Advises about some of the blocks.
    pub(crate) fn give_some(self, seed: u64, blocks: &[(u64, u64)]) {
        let mut random = Random::with_seed(seed);
        (0..SOME).for_each(|_| self.give(&mut random, blocks));
    }

    fn give(self, random: &mut Random, blocks: &[(u64, u64)]) {
        if let Some((address, bytes)) = random.pick(blocks) {
            let advice = if random.one_in(2) { COLD } else { PREFETCH };
            // SAFETY: the library looks at the address, which may be freed meanwhile.
            let _answer = unsafe { (self.0)(address as *const c_void, bytes as usize, advice) };
        }
    }

    /// Advises about one of the `blocks` at a time, drawn anew, until the program has `ended`.
    pub(crate) fn go_on(self, seed: u64, ended: &AtomicBool, blocks: impl Fn() -> Vec<(u64, u64)>) {
        let mut random = Random::with_seed(seed);
        while !ended.load(Ordering::SeqCst) {
            self.give(&mut random, &blocks());
            std::thread::sleep(PAUSE);
        }
    }
}
