//! Retries of driver calls that were out of memory.
//!
//! The driver needs device memory for its own purposes, and our unused memory must not make such a
//! call fail. After the first failure we give some back, after the second all, and make the call
//! again. Where memory may move (`WMSHIM_MIGRATE=on`) and the call fails for a third time, blocks
//! leave the device, if it has nothing to do. A call that fails so has changed nothing, so making
//! it again is safe.

use std::panic::{AssertUnwindSafe, catch_unwind};

use wm_abi::{CUdevice, CUresult};
use wm_driver::Device;
use wm_driver::thread::Uncancelled;
use wm_memory::Manager;

use super::boundary;
use crate::counters::{COUNTERS, Calls};
use crate::physical::give_back;
use crate::process::{self, preserve_errno};
use crate::registry;
use crate::subsystems::PROCESS;

/// Bytes that are given back at first: the driver allocates code and local memory in such amounts.
const BYTES: usize = 256 << 20;

/// As [`retry`], for a call that no handler serves and that takes at least so many bytes of the
/// device: counts it by its result.
#[inline]
pub(in crate::hooks) fn retry_counted(calls: &Calls, least: u64, call: impl Fn() -> CUresult) -> CUresult {
    let result = retry_within(None, least, call);
    boundary::count(calls, result);
    result
}

/// Makes the call, and makes it again if it was out of memory and we could give some back. `call`
/// is called from one place only, so that it is inlined once and the way of a launch stays short.
#[inline]
pub(in crate::hooks) fn retry(call: impl Fn() -> CUresult) -> CUresult {
    retry_on(None, call)
}

/// The same for a call that names the device whose memory it takes; `None`: it is the current one.
#[inline]
pub(in crate::hooks) fn retry_on(device: Option<CUdevice>, call: impl Fn() -> CUresult) -> CUresult {
    retry_within(device, 0, call)
}

#[inline]
fn retry_within(device: Option<CUdevice>, least: u64, call: impl Fn() -> CUresult) -> CUresult {
    let mut attempt = 0;
    loop {
        let result = call();
        if result != CUresult::OUT_OF_MEMORY || !make_room(device, least, &mut attempt) {
            return result;
        }
    }
}

/// The steps before a call is made again, one after the other. A step that frees no memory is
/// followed by the next one at once.
const STEPS: [fn(&Manager<Device>) -> u64; 3] =
    [|manager| give_back(manager, BYTES as u64), |manager| give_back(manager, u64::MAX), make_cold_leave];

/// Takes the next step that brings some memory; `false` if there is none, or if the call takes more
/// than all that could be given back. That call fails as it would without the library, at once.
#[cold]
#[inline(never)]
fn make_room(device: Option<CUdevice>, least: u64, next: &mut usize) -> bool {
    if process::forked() || process::exiting() {
        return false;
    }
    preserve_errno(|| {
        let _whole = Uncancelled::new();
        let current = || registry::existing_site().map(|site| site.manager);
        let Some(manager) = device.map_or_else(current, registry::existing) else { return false };
        if manager.cannot_give(least) {
            return false;
        }
        while let Some(step) = STEPS.get(*next) {
            *next += 1;
            if step(manager) > 0 {
                return true;
            }
        }
        false
    })
}

/// The memory that blocks leave behind goes to the driver.
fn make_cold_leave(manager: &Manager<Device>) -> u64 {
    let left = catch_unwind(AssertUnwindSafe(|| PROCESS.moves.leave_device(manager, BYTES as u64)));
    match left {
        Ok(0) => 0,
        Ok(_) => {
            PROCESS.overflow.note();
            give_back(manager, u64::MAX)
        }
        Err(_) => {
            COUNTERS.fail_open("a panic while blocks left the device");
            0
        }
    }
}

/// Gives at least `bytes` of a device's unused memory back to the driver, as far as there is some;
/// `false` if there was none.
pub(in crate::hooks) fn release_unused(manager: &Manager<Device>, bytes: usize) -> bool {
    give_back(manager, bytes.max(BYTES) as u64) > 0
}
