//! A thread that advises the library about a program's blocks while its steps are made, so that
//! memory moves at any time and not only where the library itself finds one.
//!
//! With `--limits` it also changes the process: another limit of device memory, a trim, a detach,
//! an attach. The driver alone has no such calls, so they are no steps of a program, and their
//! answers do not count.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use random::{Choices, Random};

use crate::program::Program;

type Call = unsafe extern "C" fn(*const c_void, usize, c_int) -> c_int;

/// As `wmshim.h` has them.
const PREFETCH: c_int = 1;
const COLD: c_int = 2;

/// Between two pieces of advice: calls of the program come in between.
const PAUSE: Duration = Duration::from_micros(300);

/// Pieces of advice while the device is idle.
const SOME: usize = 3;

/// One turn in so many changes the process.
const CHANGES: usize = 4;

/// The library's functions for advice, and for changes of the process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Advice {
    advise: Call,
    changes: Option<Changes>,
}

/// `wmshim_limit`, and `wmshim_trim`, `wmshim_detach` and `wmshim_attach`.
#[derive(Debug, Clone, Copy)]
struct Changes {
    limit: unsafe extern "C" fn(usize) -> c_int,
    others: [unsafe extern "C" fn() -> c_int; 3],
}

fn look_up(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: looks a name up in the loaded libraries.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

impl Changes {
    fn find() -> Option<Self> {
        type Other = unsafe extern "C" fn() -> c_int;
        let other = |name| {
            // SAFETY: the library's function has this type.
            look_up(name).map(|found| unsafe { std::mem::transmute::<*mut c_void, Other>(found) })
        };
        let found = look_up(c"wmshim_limit")?;
        // SAFETY: the same.
        let limit =
            unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(usize) -> c_int>(found) };
        let others = [other(c"wmshim_trim")?, other(c"wmshim_detach")?, other(c"wmshim_attach")?];
        Some(Self { limit, others })
    }

    /// Makes one change, drawn anew. Detached it stays for about as long as attached.
    ///
    /// `detaches`: not where the driver's pool may make a stream wait for another one's free. It
    /// begins without memory at a detach, so it does that where it would not have bare.
    fn make(self, random: &mut Random, detaches: bool) {
        const MIB: usize = 1 << 20;
        let limit = if random.one_in(4) { usize::MAX } else { random.below(64) * MIB };
        let others = if detaches { &self.others[..] } else { &self.others[..1] };
        match random.pick(others).filter(|_| random.one_in(2)) {
            // SAFETY: the function has no argument.
            Some(other) => unsafe { other() },
            // SAFETY: the function's argument is a number.
            None => unsafe { (self.limit)(limit) },
        };
    }
}

impl Advice {
    /// Of the library that this process runs under. `changes`: the process is changed, too.
    pub(crate) fn find(changes: bool) -> Option<Self> {
        let found = look_up(c"wmshim_advise")?;
        let changes = changes.then(Changes::find).flatten();
        // SAFETY: the library's function has this type.
        Some(Self { advise: unsafe { std::mem::transmute::<*mut c_void, Call>(found) }, changes })
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
            let _answer = unsafe { (self.advise)(address as *const c_void, bytes as usize, advice) };
        }
    }

    /// Advises about one of the `blocks` at a time, drawn anew, until the program has `ended`.
    pub(crate) fn go_on(self, program: &Program, ended: &AtomicBool, blocks: impl Fn() -> Vec<(u64, u64)>) {
        let mut random = Random::with_seed(program.seed);
        while !ended.load(Ordering::SeqCst) {
            match self.changes {
                Some(changes) if random.one_in(CHANGES) => changes.make(&mut random, !program.shape.internal),
                _ => self.give(&mut random, &blocks()),
            }
            std::thread::sleep(PAUSE);
        }
    }
}
