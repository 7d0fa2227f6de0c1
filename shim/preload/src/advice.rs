//! What a program may say of its memory, and memory that it asks for in words of ours:
//! `wmshim_advise`, `wmshim_alloc`, `wmshim_free` and `wmshim_access` of wmshim.h.
//!
//! They stand on the program's side, as those of [`crate::pluggable`] do: what the driver has a
//! function for they ask of its exports. A wrong argument is an error and changes nothing. Advice
//! waits for nothing: if it finds the memory in use it says so, and the program gives it again.
//! `wmshim_access` waits for earlier work, for [`ACCESS`] at most.

use std::ffi::{c_int, c_uint};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::time::Duration;

use wm_abi::{CUdeviceptr, CUresult, symbol};
use wm_driver::departure;
use wm_driver::thread::Uncancelled;
use wm_driver::{Device, Tier};
use wm_memory::{FirstTier, Manager, MoveOrder, MoveRefusal, Processor};

use crate::entry::trampolines::exported;
use crate::hooks::allocate_placed;
use crate::moves::{WhyNot, pin_reason};
use crate::process::{self, preserve_errno, sticky_error};
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
const UNIFIED: c_uint = 4;

const CPU: c_uint = 1;
const GPU: c_uint = 2;

/// How long `wmshim_access` waits for earlier work and for other threads. wmshim.h says so.
const ACCESS: Duration = Duration::from_secs(2);

/// `int wmshim_advise(const void *ptr, size_t size, int advice)`.
#[unsafe(no_mangle)]
extern "C" fn wmshim_advise(address: CUdeviceptr, size: usize, advice: c_int) -> CUresult {
    safely(|| advise(address, size, advice))
}

fn advise(address: u64, size: usize, advice: c_int) -> Result<(), CUresult> {
    is_ready()?;
    let advice = Advice::of(advice).ok_or(CUresult::INVALID_VALUE)?;
    let (manager, blocks, range) = within_memory(address, size).ok_or(CUresult::INVALID_VALUE)?;
    // The library does not see the program's writes, so no second copy stays right.
    if advice == Advice::ReadMostly {
        return Err(CUresult::NOT_SUPPORTED);
    }
    if !PROCESS.moves.is_migrating() {
        say_that_nothing_moves();
        return Err(CUresult::NOT_PERMITTED);
    }
    if advice == Advice::PinDevice {
        for block in &blocks {
            manager.pin_to_device(*block);
        }
    }
    let to = if advice == Advice::Cold { Tier::Host } else { Tier::Device };
    let order = MoveOrder {
        alone: advice == Advice::Cold,
        discards: advice == Advice::Discard,
        ..MoveOrder::new(range, to)
    };
    match PROCESS.moves.advised(manager, &order) {
        None => Ok(()),
        // As far as there is room, and without what is not the program's to decide about alone.
        Some(WhyNot::Refused(MoveRefusal::Full)) if matches!(advice, Advice::Prefetch | Advice::Discard) => {
            Ok(())
        }
        Some(WhyNot::Refused(MoveRefusal::Shared | MoveRefusal::NoBlock)) => Ok(()),
        Some(refusal) => Err(code(refusal)),
    }
}

/// The manager of a range, the blocks in it, and the range as it may move: in one block, or in
/// pieces of the program's that follow each other and take part in moves.
fn within_memory(address: u64, size: usize) -> Option<(&'static Manager<Device>, Vec<u64>, Range<u64>)> {
    if let Some(manager) = registry::owner(address) {
        let (block, range) = within_block(manager, address, size)?;
        return Some((manager, vec![block], range));
    }
    let range = address..address.checked_add(size as u64).filter(|_| size > 0)?;
    let (manager, pieces) = PROCESS.moves.pieces_in(&range)?;
    Some((manager, pieces, range))
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
        WhyNot::Crowded | WhyNot::Paused => CUresult::NOT_READY,
        WhyNot::Refused(stays) => code_of_move(stays),
    }
}

fn code_of_move(stays: MoveRefusal) -> CUresult {
    match stays {
        MoveRefusal::Fixed
        | MoveRefusal::InPlace
        | MoveRefusal::Pinned
        | MoveRefusal::InGraph
        | MoveRefusal::Unfit
        | MoveRefusal::Shared
        | MoveRefusal::OnCpu => CUresult::NOT_PERMITTED,
        MoveRefusal::NoBlock => CUresult::INVALID_VALUE,
        MoveRefusal::Busy | MoveRefusal::InUse | MoveRefusal::Slow => CUresult::NOT_READY,
        MoveRefusal::Full => CUresult::OUT_OF_MEMORY,
        MoveRefusal::Driver(code) | MoveRefusal::Lost(code) => code,
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
            UNIFIED => FirstTier::Unified,
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

/// `int wmshim_access(const void *ptr, size_t size, unsigned int processor)`.
#[unsafe(no_mangle)]
extern "C" fn wmshim_access(address: CUdeviceptr, size: usize, processor: c_uint) -> CUresult {
    safely(|| access(address, size, processor))
}

fn access(address: u64, size: usize, processor: c_uint) -> Result<(), CUresult> {
    is_ready()?;
    let to = match processor {
        CPU => Processor::Cpu,
        GPU => Processor::Gpu,
        _ => return Err(CUresult::INVALID_VALUE),
    };
    let manager = registry::owner(address).ok_or(CUresult::INVALID_VALUE)?;
    let (_, range) = within_block(manager, address, size).ok_or(CUresult::INVALID_VALUE)?;
    sticky_error::failure().map_or(Ok(()), Err)?;
    if process::streams().capturing() {
        return Err(CUresult::STREAM_CAPTURE_UNSUPPORTED);
    }
    if to == Processor::Cpu
        && let Some(why) = of_unseen_graphs().or_else(pin_reason::of_access)
    {
        log::info!("wmshim_access: memory stays on the GPU: {why}");
        return Err(CUresult::NOT_PERMITTED);
    }
    let given = departure::as_ours(|| manager.hand_over(&range, to, ACCESS));
    given.map_err(|refusal| {
        if refusal == MoveRefusal::Driver(CUresult::NOT_SUPPORTED) {
            say_that_the_driver_cannot();
        }
        code_of_move(refusal)
    })
}

/// What graphs name is noted only where memory may move.
fn of_unseen_graphs() -> Option<&'static str> {
    let is_unseen = !PROCESS.moves.is_on() && process::streams().has_captured();
    is_unseen.then_some("a graph that was captured may name it")
}

fn say_that_the_driver_cannot() {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        log::warn!(
            "wmshim_access: this driver gives the CPU no access to memory that it maps itself; \
             drivers of CUDA 12.2 and later do"
        );
    });
}

/// Is there a driver, and the process one that may use it?
pub(crate) fn is_ready() -> Result<(), CUresult> {
    match (process::opened().is_some() && !process::forked(), process::exiting()) {
        (false, _) => Err(CUresult::NOT_INITIALIZED),
        (true, true) => Err(CUresult::DEINITIALIZED),
        (true, false) => Ok(()),
    }
}

/// A panic stops here, `errno` is as it was, and the thread is not cancelled inside.
pub(crate) fn safely(body: impl FnOnce() -> Result<(), CUresult>) -> CUresult {
    let _whole = Uncancelled::new();
    let done = preserve_errno(|| catch_unwind(AssertUnwindSafe(body)));
    done.unwrap_or(Err(CUresult::UNKNOWN)).into()
}
