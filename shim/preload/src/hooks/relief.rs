//! Calls that need device memory which is not ours to serve.
//!
//! Our unused memory must not make them fail: when the driver says it is out of memory, we give some back and the call
//! is made once more. The driver's out-of-memory errors leave nothing behind, so the second call is safe.

use wm_abi::CUresult;
use wm_driver::Device;
use wm_memory::Manager;

use crate::counters::Calls;
use crate::{lifecycle, managers};

/// Given back at once: code, local memory and the like come in pieces of this order.
const BYTES: usize = 256 << 20;

/// Makes the call, and once more if memory was short and some could be given back.
pub(super) fn twice(calls: &Calls, call: impl Fn() -> CUresult) -> CUresult {
    let result = match call() {
        CUresult::OUT_OF_MEMORY if make_room() => call(),
        result => result,
    };
    calls.note(result);
    result
}

#[cold]
fn make_room() -> bool {
    if lifecycle::forked() || lifecycle::exiting() {
        return false;
    }
    managers::here().is_some_and(|site| relieve(site.manager, BYTES))
}

/// Gives `bytes` of a device's unused memory back to the driver, and a little more; `false` if there is none.
pub(super) fn relieve(manager: &Manager<Device>, bytes: usize) -> bool {
    manager.relieve(bytes.max(BYTES) as u64) > 0
}
