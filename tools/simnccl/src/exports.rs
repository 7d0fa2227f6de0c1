//! The exports for communicators, groups and memory, with NCCL's checks of the arguments.
//!
//! # Safety
//! The contract of each is that of NCCL's function of the name: pointers are null or valid.
#![allow(non_snake_case, clippy::missing_safety_doc, reason = "NCCL's names and contracts")]

use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::abi::{Code, Config, Handle, Outcome, UniqueId};
use crate::communicator::Communicator;
use crate::group::{self, Call};
use crate::process::PROCESS;
use crate::registry::REGISTRY;
use crate::report::{REPORT, error};
use crate::{address, rendezvous};

/// Runs the body of a function, with a stop for panics.
pub(crate) fn answer(body: impl FnOnce() -> Outcome) -> Code {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Code::INTERNAL)).into()
}

/// An error about an argument, unless a condition holds.
pub(crate) fn require(holds: bool, text: &str) -> Outcome {
    if holds { Ok(()) } else { Err(error(Code::INVALID_ARGUMENT, text)) }
}

/// Writes a result to the caller's place.
///
/// # Safety
/// Null, or valid for a write.
unsafe fn put<T>(place: *mut T, value: T) -> Outcome {
    require(!place.is_null(), "a pointer for a result is null")?;
    // SAFETY: not null, and valid by contract.
    unsafe { place.write(value) };
    Ok(())
}

/// `ncclGetVersion`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> Code {
    // SAFETY: by contract.
    answer(|| unsafe { put(version, PROCESS.settings()?.version) })
}

/// `ncclGetErrorString`.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(code: Code) -> *const c_char {
    code.text().as_ptr()
}

/// `ncclGetLastError`: of any communicator of the process.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetLastError(_communicator: Handle) -> *const c_char {
    REPORT.text().as_ptr()
}

/// `ncclGetUniqueId`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> Code {
    answer(|| {
        require(!id.is_null(), "a pointer for a result is null")?;
        let wanted = &PROCESS.settings()?.interfaces;
        let at = address::own(wanted).map_err(|text| error(Code::INVALID_USAGE, &text))?;
        // SAFETY: by contract.
        unsafe { put(id, rendezvous::create_id(at)?) }
    })
}

/// `ncclCommInitRank`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRank(
    communicator: *mut Handle,
    size: c_int,
    id: UniqueId,
    rank: c_int,
) -> Code {
    // SAFETY: by contract.
    answer(|| unsafe { begin(communicator, size, id, rank, true) })
}

/// `ncclCommInitRankConfig`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRankConfig(
    communicator: *mut Handle,
    size: c_int,
    id: UniqueId,
    rank: c_int,
    config: *const Config,
) -> Code {
    answer(|| {
        // SAFETY: not null, and valid by contract.
        let config = (!config.is_null()).then(|| unsafe { Config::read(config) });
        let blocking = config.map_or(Ok(true), |config| config.blocking());
        let blocking = blocking.map_err(|text| error(Code::INVALID_ARGUMENT, text))?;
        // SAFETY: by contract.
        unsafe { begin(communicator, size, id, rank, blocking) }
    })
}

/// # Safety
/// `place` is null or valid for a write.
unsafe fn begin(place: *mut Handle, size: c_int, id: UniqueId, rank: c_int, blocking: bool) -> Outcome {
    // SAFETY: by contract.
    let call = unsafe { prepared(place, size, id, rank, blocking) };
    let begun = group::add(call);
    if !place.is_null() && begun.is_err_and(|code| code != Code::IN_PROGRESS) {
        // SAFETY: not null, and valid by contract.
        unsafe { place.write(Handle(0)) };
    }
    begun
}

/// # Safety
/// As for [`begin`].
unsafe fn prepared(
    place: *mut Handle,
    size: c_int,
    id: UniqueId,
    rank: c_int,
    blocking: bool,
) -> Outcome<Call> {
    require(!place.is_null(), "a pointer for a result is null")?;
    let valid = size >= 1 && (0..size).contains(&rank);
    require(valid, &format!("Invalid rank requested : {rank}/{size}"))?;
    require(rendezvous::is_own(&id), "the unique id was not made by ncclGetUniqueId")?;
    let communicator = Communicator::new(id, size as usize, rank as usize, blocking)?;
    let handle = REGISTRY.insert(communicator.clone());
    // SAFETY: not null, and valid by contract.
    unsafe { put(place, handle)? };
    Ok(Call::Start(handle, communicator))
}

/// `ncclCommGetAsyncError`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommGetAsyncError(communicator: Handle, code: *mut Code) -> Code {
    // SAFETY: by contract.
    answer(|| unsafe { put(code, REGISTRY.find(communicator)?.state().code()) })
}

/// `ncclCommCount`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommCount(communicator: Handle, count: *mut c_int) -> Code {
    // SAFETY: by contract.
    answer(|| unsafe { put(count, REGISTRY.find(communicator)?.shape().size as c_int) })
}

/// `ncclCommUserRank`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommUserRank(communicator: Handle, rank: *mut c_int) -> Code {
    // SAFETY: by contract.
    answer(|| unsafe { put(rank, REGISTRY.find(communicator)?.shape().rank as c_int) })
}

/// `ncclCommCuDevice`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommCuDevice(communicator: Handle, device: *mut c_int) -> Code {
    // SAFETY: by contract.
    answer(|| unsafe { put(device, REGISTRY.find(communicator)?.device) })
}

/// `ncclCommFinalize`.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommFinalize(communicator: Handle) -> Code {
    answer(|| REGISTRY.find(communicator)?.finalize())
}

/// `ncclCommDestroy`. A null communicator is none.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommDestroy(communicator: Handle) -> Code {
    answer(|| if communicator.0 == 0 { Ok(()) } else { REGISTRY.remove(communicator)?.destroy() })
}

/// `ncclCommAbort`. A null communicator is none.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommAbort(communicator: Handle) -> Code {
    answer(|| if communicator.0 == 0 { Ok(()) } else { REGISTRY.remove(communicator)?.abort() })
}

/// `ncclGroupStart`.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupStart() -> Code {
    answer(|| {
        group::start();
        Ok(())
    })
}

/// `ncclGroupEnd`.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupEnd() -> Code {
    answer(group::end)
}

/// `ncclMemAlloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclMemAlloc(place: *mut *mut c_void, size: usize) -> Code {
    answer(|| {
        require(!place.is_null() && size > 0, "ncclMemAlloc needs a pointer and a size")?;
        let address = PROCESS.driver()?.allocate(size)?;
        // SAFETY: by contract.
        unsafe { put(place, address as *mut c_void) }
    })
}

/// `ncclMemFree`.
#[unsafe(no_mangle)]
pub extern "C" fn ncclMemFree(place: *mut c_void) -> Code {
    answer(|| if place.is_null() { Ok(()) } else { PROCESS.driver()?.free(place as u64) })
}

/// `ncclCommRegister`: checked, without an effect. Like NCCL it takes a size of zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommRegister(
    communicator: Handle,
    buffer: *mut c_void,
    _size: usize,
    handle: *mut *mut c_void,
) -> Code {
    answer(|| {
        let communicator = REGISTRY.find(communicator)?;
        require(!buffer.is_null(), "a buffer to register has an address")?;
        let mut buffers = crate::lock(&communicator.buffers);
        let next = buffers.iter().max().map_or(1, |last| last + 1);
        // SAFETY: by contract.
        unsafe { put(handle, next as *mut c_void)? };
        buffers.push(next);
        Ok(())
    })
}

/// `ncclCommDeregister`. A null handle is none.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommDeregister(communicator: Handle, handle: *mut c_void) -> Code {
    answer(|| {
        let communicator = REGISTRY.find(communicator)?;
        if handle.is_null() {
            return Ok(());
        }
        let mut buffers = crate::lock(&communicator.buffers);
        let found = buffers.iter().position(|other| *other == handle as usize);
        let at = found.ok_or_else(|| error(Code::INVALID_USAGE, "no buffer is registered by this handle"))?;
        buffers.swap_remove(at);
        Ok(())
    })
}

/// The messages and bytes that this rank has sent to other ranks. Not a function of NCCL's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn simnccl_counters(communicator: Handle, messages: *mut u64, bytes: *mut u64) -> Code {
    answer(|| {
        let counted = REGISTRY.find(communicator)?.counted();
        // SAFETY: by contract.
        unsafe { put(messages, counted.0).and(put(bytes, counted.1)) }
    })
}
