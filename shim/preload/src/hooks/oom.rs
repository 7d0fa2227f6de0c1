//! Calls that need device memory which is not ours to serve.
//!
//! Our unused memory must not make them fail: when the driver says it is out of memory, we give some back, then all, and
//! the call is made again. The driver's out-of-memory errors leave nothing behind, so another call is safe.

use wm_abi::CUresult;
use wm_driver::Device;
use wm_memory::Manager;

use super::boundary;
use crate::counters::Calls;
use crate::physical::kept;
use crate::process::{self, keep_errno};
use crate::registry;

/// Given back at once: code, local memory and the like come in pieces of this order.
const BYTES: usize = 256 << 20;

/// Makes a counted call, and again if memory was short and some could be given back.
#[inline]
pub(super) fn retry_counted(calls: &Calls, call: impl Fn() -> CUresult) -> CUresult {
    let result = retry(call);
    boundary::count(calls, result);
    result
}

/// Makes the call, and again if memory was short and some could be given back. One place to call from, so that the path
/// of every launch is short.
#[inline]
pub(super) fn retry(call: impl Fn() -> CUresult) -> CUresult {
    let mut attempt = 0;
    loop {
        let result = call();
        if result != CUresult::OUT_OF_MEMORY || !make_room(attempt) {
            return result;
        }
        attempt += 1;
    }
}

/// Gives some of our unused memory back after the first attempt, all after the second.
#[cold]
#[inline(never)]
fn make_room(attempt: usize) -> bool {
    let Some(bytes) = [BYTES as u64, u64::MAX].get(attempt) else { return false };
    if process::forked() || process::exiting() {
        return false;
    }
    keep_errno(|| registry::existing_site().is_some_and(|site| give_back(site.manager, *bytes) > 0))
}

/// Gives `bytes` of a device's unused memory back to the driver, and a little more; `false` if there is none.
pub(super) fn release_unused(manager: &Manager<Device>, bytes: usize) -> bool {
    give_back(manager, bytes.max(BYTES) as u64) > 0
}

fn give_back(manager: &Manager<Device>, bytes: u64) -> u64 {
    let kept = kept::give_back(manager.gpu().ordinal(), bytes);
    kept + manager.relieve(bytes.saturating_sub(kept))
}
