//! What a program may say of its memory, and memory that it asks for in words of ours:
//! `wmshim_advise`, `wmshim_alloc` and `wmshim_free` of wmshim.h.
//!
//! They stand on the program's side, as those of [`crate::pluggable`] do: what the driver has a
//! function for they ask of its exports. A wrong argument is an error and changes nothing. Nothing
//! waits for the GPU: advice that finds the memory in use says so, and the program gives it again.

use std::ffi::{c_int, c_uint};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use wm_abi::{CUdeviceptr, CUresult, symbol};
use wm_driver::thread::Uncancelled;
use wm_driver::{Device, Tier};
use wm_memory::{FirstTier, Manager, MoveOrder, MoveRefusal};

use crate::entry::trampolines::exported;
use crate::hooks::allocate_placed;
use crate::moves::WhyNot;
use crate::process::{self, preserve_errno};
use crate::registry;
use crate::subsystems::PROCESS;

/// The advice on a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Advice {
    Prefetch,
    Cold,
    PinDevice,
    Discard,
    ReadMostly,
}

impl Advice {
    fn of(number: c_int) -> Option<Self> {
        Some(match number {
            1 => Self::Prefetch,
            2 => Self::Cold,
            3 => Self::PinDevice,
            4 => Self::Discard,
            5 => Self::ReadMostly,
            _ => return None,
        })
    }
}

const DEVICE_ONLY: c_uint = 1;
const HOST: c_uint = 2;

/// `int wmshim_advise(const void *ptr, size_t size, int advice)`.
#[unsafe(no_mangle)]
extern "C" fn wmshim_advise(address: CUdeviceptr, size: usize, advice: c_int) -> CUresult {
    safely(|| advise(address, size, advice))
}

fn advise(address: u64, size: usize, advice: c_int) -> Result<(), CUresult> {
    is_ready()?;
    let advice = Advice::of(advice).ok_or(CUresult::INVALID_VALUE)?;
    let manager = registry::owner(address).ok_or(CUresult::INVALID_VALUE)?;
    let (block, range) = within_block(manager, address, size).ok_or(CUresult::INVALID_VALUE)?;
    // The library does not see the program's writes, so no second copy stays right.
    if advice == Advice::ReadMostly {
        return Err(CUresult::NOT_SUPPORTED);
    }
    if !PROCESS.moves.is_on() {
        say_that_nothing_moves();
        return Err(CUresult::NOT_PERMITTED);
    }
    if advice == Advice::PinDevice {
        manager.pin_to_device(block);
    }
    let order = MoveOrder {
        range,
        to: if advice == Advice::Cold { Tier::Host } else { Tier::Device },
        alone: advice == Advice::Cold,
        discards: advice == Advice::Discard,
    };
    match PROCESS.moves.migrate(manager, &order) {
        None => Ok(()),
        // As far as there is room, and without what is not the program's to decide about alone.
        Some(WhyNot::Refused(MoveRefusal::Full)) if matches!(advice, Advice::Prefetch | Advice::Discard) => {
            Ok(())
        }
        Some(WhyNot::Refused(MoveRefusal::Shared | MoveRefusal::NoBlock)) => Ok(()),
        Some(refusal) => Err(code(refusal)),
    }
}

/// The block that a range is in, and the range up to the block's last byte if the program named all
/// of it: blocks end where the next one may begin.
fn within_block(manager: &Manager<Device>, address: u64, size: usize) -> Option<(u64, Range<u64>)> {
    let block = manager.block(address)?;
    let end = address.checked_add(size as u64).filter(|_| size > 0)?;
    let last = block.address + block.bytes as u64;
    let whole = block.address + block.tiers.total();
    (end <= last).then_some((block.address, address..if end == last { whole } else { end }))
}

fn code(refusal: WhyNot) -> CUresult {
    match refusal {
        WhyNot::Off | WhyNot::Pinned(_) => CUresult::NOT_PERMITTED,
        WhyNot::Crowded => CUresult::NOT_READY,
        WhyNot::Refused(stays) => match stays {
            MoveRefusal::Fixed | MoveRefusal::Pinned | MoveRefusal::Unfit | MoveRefusal::Shared => {
                CUresult::NOT_PERMITTED
            }
            MoveRefusal::NoBlock => CUresult::INVALID_VALUE,
            MoveRefusal::Busy | MoveRefusal::InUse | MoveRefusal::Slow => CUresult::NOT_READY,
            MoveRefusal::Full => CUresult::OUT_OF_MEMORY,
            MoveRefusal::Driver(code) | MoveRefusal::Lost(code) => code,
        },
    }
}

fn say_that_nothing_moves() {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        log::warn!("wmshim_advise moves no memory: set WMSHIM_MIGRATE=on when the program starts")
    });
}

/// `int wmshim_alloc(void **ptr, size_t size, unsigned int flags)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn wmshim_alloc(place: *mut CUdeviceptr, size: usize, flags: c_uint) -> CUresult {
    safely(|| {
        let first_tier = match flags {
            // SAFETY: the driver looks at the program's arguments.
            0 => return unsafe { exported::<symbol::cuMemAlloc_v2>()(place, size) }.ok(),
            DEVICE_ONLY => FirstTier::Device,
            HOST => FirstTier::Host,
            _ => return Err(CUresult::INVALID_VALUE),
        };
        if place.is_null() || size == 0 {
            return Err(CUresult::INVALID_VALUE);
        }
        is_ready()?;
        let address = allocate_placed(size, first_tier)?;
        // SAFETY: the program's place for an address, not null.
        unsafe { place.write(address) };
        Ok(())
    })
}

/// `int wmshim_free(void *ptr)`.
#[unsafe(no_mangle)]
extern "C" fn wmshim_free(address: CUdeviceptr) -> CUresult {
    // SAFETY: the driver looks at the address.
    unsafe { exported::<symbol::cuMemFree_v2>()(address) }
}

/// Is there a driver, and the process one that may use it?
fn is_ready() -> Result<(), CUresult> {
    match (process::opened().is_some() && !process::forked(), process::exiting()) {
        (false, _) => Err(CUresult::NOT_INITIALIZED),
        (true, true) => Err(CUresult::DEINITIALIZED),
        (true, false) => Ok(()),
    }
}

/// A panic stops here, `errno` is as it was, and the thread is not cancelled inside.
fn safely(body: impl FnOnce() -> Result<(), CUresult>) -> CUresult {
    let _whole = Uncancelled::new();
    let done = preserve_errno(|| catch_unwind(AssertUnwindSafe(body)));
    done.unwrap_or(Err(CUresult::UNKNOWN)).into()
}
