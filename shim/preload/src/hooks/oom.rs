//! Retries of driver calls that were out of memory.
//!
//! The driver needs device memory for its own purposes, and our unused memory must not make such a call fail. After the first failure we
//! give some back, after the second all, and make the call again. A call that fails so has changed nothing, so making it again is safe.

use wm_abi::CUresult;
use wm_driver::{Device, Tier};
use wm_memory::Manager;

use super::boundary;
use crate::counters::Calls;
use crate::physical::kept;
use crate::process::{self, keep_errno};
use crate::registry;

/// Bytes that are given back at first: the driver allocates code, local memory and the like in such amounts.
const BYTES: usize = 256 << 20;

/// As [`retry`], for a call that no handler serves: counts it by its result.
#[inline]
pub(super) fn retry_counted(calls: &Calls, call: impl Fn() -> CUresult) -> CUresult {
    let result = retry(call);
    boundary::count(calls, result);
    result
}

/// Makes the call, and makes it again if it was out of memory and we could give some back. `call` is called from one place only, so
/// that it is inlined once and the way of a launch stays short.
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

/// Gives back some of our unused memory after the first attempt, all after the second; `false` if there was none.
#[cold]
#[inline(never)]
fn make_room(attempt: usize) -> bool {
    let Some(bytes) = [BYTES as u64, u64::MAX].get(attempt) else { return false };
    if process::forked() || process::exiting() {
        return false;
    }
    keep_errno(|| registry::existing_site().is_some_and(|site| give_back(site.manager, *bytes) > 0))
}

/// Gives at least `bytes` of a device's unused memory back to the driver, as far as there is some; `false` if there was none.
pub(super) fn release_unused(manager: &Manager<Device>, bytes: usize) -> bool {
    give_back(manager, bytes.max(BYTES) as u64) > 0
}

fn give_back(manager: &Manager<Device>, bytes: u64) -> u64 {
    let kept = kept::give_back(manager.gpu().ordinal(), Tier::Device, bytes);
    kept + manager.relieve(bytes.saturating_sub(kept))
}
