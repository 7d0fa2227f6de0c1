//! Calls that need device memory which is not ours to serve.
//!
//! Our unused memory must not make them fail: when the driver says it is out of memory, we give some back, then all, and
//! the call is made again. The driver's out-of-memory errors leave nothing behind, so another call is safe.

use wm_abi::CUresult;
use wm_driver::Device;
use wm_memory::Manager;

use crate::boundary::keep_errno;
use crate::counters::Calls;
use crate::{lifecycle, managers};

/// Given back at once: code, local memory and the like come in pieces of this order.
const BYTES: usize = 256 << 20;

/// Makes a counted call, and again if memory was short and some could be given back.
pub(super) fn twice(calls: &Calls, call: impl Fn() -> CUresult) -> CUresult {
    let result = patiently(call);
    calls.note(result);
    result
}

/// Makes the call, and again if memory was short and some could be given back.
pub(super) fn patiently(call: impl Fn() -> CUresult) -> CUresult {
    let mut result = call();
    for bytes in [BYTES as u64, u64::MAX] {
        if result != CUresult::OUT_OF_MEMORY || !keep_errno(|| make_room(bytes)) {
            break;
        }
        result = call();
    }
    result
}

#[cold]
fn make_room(bytes: u64) -> bool {
    if lifecycle::forked() || lifecycle::exiting() {
        return false;
    }
    managers::present().is_some_and(|site| site.manager.relieve(bytes) > 0)
}

/// Gives `bytes` of a device's unused memory back to the driver, and a little more; `false` if there is none.
pub(super) fn relieve(manager: &Manager<Device>, bytes: usize) -> bool {
    manager.relieve(bytes.max(BYTES) as u64) > 0
}
