//! Functions of `wholememory.h` on the library and on communicators.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wm_driver::Api;

use super::call::{answer, give, is_place, value};
use super::exports::exports;
use super::names::{BackendCode, CommunicatorHandle, ErrorCode, LocationCode, LogLevelCode, MemoryTypeCode};
use super::registry::{
    COMMUNICATORS, EMBEDDINGS, MEMORIES, OPTIMIZERS, ObjectHandle, POLICIES, TENSORS, driver,
};
use crate::communicator::{Communicator, UNIQUE_ID_BYTES, unique_id};
use crate::error::{Error, Result, require};
use crate::vocabulary::codes::{Backend, Location, MemoryType};

/// `wholememory_unique_id_t`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct UniqueId {
    bytes: [u8; UNIQUE_ID_BYTES],
}

/// `clique_info_t`: ranks whose GPUs form one NVLink domain over several machines.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct CliqueInfo {
    pub(super) is_in_clique: c_int,
    pub(super) clique_first_rank: c_int,
    pub(super) clique_rank: c_int,
    pub(super) clique_rank_num: c_int,
    pub(super) clique_id: c_int,
    pub(super) clique_num: c_int,
}

static IS_INITIALIZED: AtomicBool = AtomicBool::new(false);
static TAKES_RMM: AtomicBool = AtomicBool::new(false);

/// Another communicator's ranks, or an error that names it.
pub(super) fn communicator(handle: ObjectHandle) -> Result<Arc<Communicator>> {
    COMMUNICATORS.get(handle)
}

/// How many devices there are. A process that has not begun with CUDA stays without it: one of its
/// own looks.
fn count_devices() -> Result<c_int> {
    driver()?.device_count().or_else(|_| count_devices_apart())
}

fn count_devices_apart() -> Result<c_int> {
    // SAFETY: the child calls the driver, which no thread of this process may be using, and ends at
    // once.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error().into()),
        0 => {
            let count = driver().ok().and_then(|driver| {
                driver.init().ok()?;
                driver.device_count().ok()
            });
            // SAFETY: ends the child without its parent's exit handlers.
            unsafe { libc::_exit(count.unwrap_or(0).min(255)) }
        }
        child => {
            let mut status = 0;
            // SAFETY: a child of ours, and a live local.
            while unsafe { libc::waitpid(child, &mut status, 0) } == -1 {
                let error = std::io::Error::last_os_error();
                if error.kind() != std::io::ErrorKind::Interrupted {
                    return Err(error.into());
                }
            }
            Ok(if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 0 })
        }
    }
}

exports! {
    // wholememory.h: The library.
    // wholememory.h: The library.
    // wholememory.h: The library.
    /// Begins the use of the library. Reasons for errors go to standard error, a line each, from
    /// `LEVEL_WARN` on.
    ///
    /// `flags` is 0. A call is not needed: without one, the level is `LEVEL_WARN`.
    ///
    /// * Errors: `LOGIC_ERROR` if the library is initialized already.
    fn wholememory_init(_flags: c_uint, level: LogLevelCode = LEVEL_INFO) -> ErrorCode {
        answer("wholememory_init", || {
            super::logger::set_level(level);
            let was = IS_INITIALIZED.swap(true, Ordering::AcqRel);
            if was { Err(Error::Logic("it is initialized already".to_owned())) } else { Ok(()) }
        })
    }

    /// Closes all handles of this process. Memory ends as `wholememory_free` says.
    ///
    /// * Errors: none.
    fn wholememory_finalize() -> ErrorCode {
        answer("wholememory_finalize", || {
            EMBEDDINGS.clear();
            OPTIMIZERS.clear();
            POLICIES.clear();
            TENSORS.clear();
            MEMORIES.clear();
            COMMUNICATORS.clear();
            IS_INITIALIZED.store(false, Ordering::Release);
            Ok(())
        })
    }

    /// Keeps a choice that has no effect: memory is the driver's, or the preloaded library's.
    ///
    /// * Errors: none.
    fn wholememory_set_rmm_enabled(enabled: bool) -> ErrorCode {
        TAKES_RMM.store(enabled, Ordering::Relaxed);
        super::call::SUCCESS
    }

    /// Returns that choice.
    ///
    /// * On failure: it does not fail.
    fn wholememory_is_rmm_enabled() -> bool {
        TAKES_RMM.load(Ordering::Relaxed)
    }

    // wholememory.h: Communicators.
    // wholememory.h: Communicators.
    // wholememory.h: Communicators.
    /// Writes a new unique id. One rank makes it and gives its bytes to the other ranks, before
    /// they create a communicator.
    ///
    /// * Errors: `SYSTEM_ERROR` if the system has no random bytes.
    fn wholememory_create_unique_id(unique_id_place: *mut UniqueId) -> ErrorCode {
        answer("wholememory_create_unique_id", || {
            is_place(unique_id_place)?;
            // SAFETY: not null; the caller's word for the rest.
            unsafe { give(unique_id_place, UniqueId { bytes: unique_id()? }) }
        })
    }

    /// Meets the other ranks that have the same unique id, and makes a communicator. `rank` is from
    /// 0 to `size` - 1. Ranks are processes or threads; the GPU of the calling thread's current
    /// context becomes the rank's, and without a context that of device 0.
    ///
    /// * Collective: returns when all `size` ranks have called.
    /// * Errors: `INVALID_INPUT` for a rank that is none of `size`, and for sizes that differ
    ///   between ranks; `COMMUNICATION_ERROR` if a rank does not come within
    ///   `WMSHIM_WHOLEMEMORY_TIMEOUT` seconds, or if a rank runs where it cannot be met;
    ///   `NOT_SUPPORTED` if there is no CUDA driver.
    fn wholememory_create_communicator(
        place: *mut CommunicatorHandle, id: UniqueId, rank: c_int, size: c_int,
    ) -> ErrorCode {
        answer("wholememory_create_communicator", || {
            is_place(place)?;
            let made = Communicator::create(driver()?, &id.bytes, rank, size)?;
            // SAFETY: not null; the caller's word for the rest.
            unsafe { give(place, COMMUNICATORS.add(Arc::new(made))) }
        })
    }

    /// Divides the ranks by color, and writes this rank's part. In a part, ranks are numbered by
    /// `key`, and by their old number where keys are equal. `color` is not negative, or
    /// `WHOLEMEMORY_SPILT_NO_COLOR`: the result is null then. Each rank keeps its GPU.
    ///
    /// * Collective.
    /// * Errors: `INVALID_INPUT` for another negative color, on all ranks.
    fn wholememory_split_communicator(
        place: *mut CommunicatorHandle, handle: CommunicatorHandle, color: c_int, key: c_int,
    ) -> ErrorCode {
        answer("wholememory_split_communicator", || {
            let own = is_place(place).map(|()| (color, key));
            let part = communicator(handle)?.split(own)?;
            let part = part.map_or(std::ptr::null_mut(), |part| COMMUNICATORS.add(Arc::new(part)));
            // SAFETY: not null; the caller's word for the rest.
            unsafe { give(place, part) }
        })
    }

    /// Closes a communicator. It lives on as long as memory needs it.
    ///
    /// * Errors: the common ones.
    fn wholememory_destroy_communicator(handle: CommunicatorHandle) -> ErrorCode {
        answer("wholememory_destroy_communicator", || COMMUNICATORS.close(handle).map(drop))
    }

    /// Says whether memory of a kind can be made: success, or the reason why not. Memory on GPUs,
    /// of any type, needs peer access between the ranks' GPUs.
    ///
    /// * Errors: `NOT_SUPPORTED` if this rank's GPU does not reach the memory of another rank's.
    fn wholememory_communicator_support_type_location(
        handle: CommunicatorHandle, memory_type: MemoryTypeCode, location: LocationCode,
    ) -> ErrorCode {
        answer("wholememory_communicator_support_type_location", || {
            communicator(handle)?.supports(MemoryType::of(memory_type)?, Location::of(location)?)
        })
    }

    /// Writes the number of this rank, from 0 on.
    ///
    /// * Errors: the common ones.
    fn wholememory_communicator_get_rank(
        place: *mut c_int, handle: CommunicatorHandle,
    ) -> ErrorCode {
        // SAFETY: `give` refuses null; the caller's word for the rest.
        answer("wholememory_communicator_get_rank", || unsafe { give(place, communicator(handle)?.rank() as c_int) })
    }

    /// Writes the number of ranks.
    ///
    /// * Errors: the common ones.
    fn wholememory_communicator_get_size(
        place: *mut c_int, handle: CommunicatorHandle,
    ) -> ErrorCode {
        // SAFETY: `give` refuses null; the caller's word for the rest.
        answer("wholememory_communicator_get_size", || unsafe { give(place, communicator(handle)?.size() as c_int) })
    }

    /// Writes the number of ranks on this rank's machine.
    ///
    /// * Errors: the common ones.
    fn wholememory_communicator_get_local_size(
        place: *mut c_int, handle: CommunicatorHandle,
    ) -> ErrorCode {
        answer("wholememory_communicator_get_local_size", || {
            let communicator = communicator(handle)?;
            let machines = communicator.islands(Location::Host);
            let local = machines.members(machines.of(communicator.rank())).len();
            // SAFETY: `give` refuses null; the caller's word for the rest.
            unsafe { give(place, local as c_int) }
        })
    }

    /// Writes zeros: ranks of one machine are in no clique of GPUs that spans machines.
    ///
    /// * Errors: the common ones.
    fn wholememory_communicator_get_clique_info(
        place: *mut CliqueInfo, handle: CommunicatorHandle,
    ) -> ErrorCode {
        answer("wholememory_communicator_get_clique_info", || {
            communicator(handle)?;
            // SAFETY: `give` refuses null; the caller's word for the rest.
            unsafe { give(place, CliqueInfo::default()) }
        })
    }

    /// Returns false: NVSHMEM is not built in.
    ///
    /// * On failure: it does not fail.
    fn wholememory_communicator_is_bind_to_nvshmem(_handle: CommunicatorHandle) -> bool {
        false
    }

    /// Chooses the transport of operations between machines. On one machine the choice has no
    /// effect.
    ///
    /// * Errors: `NOT_SUPPORTED` for `WHOLEMEMORY_DB_NVSHMEM`.
    fn wholememory_communicator_set_distributed_backend(
        handle: CommunicatorHandle, backend: BackendCode,
    ) -> ErrorCode {
        answer("wholememory_communicator_set_distributed_backend", || {
            communicator(handle)?.set_backend(Backend::of(backend)?)
        })
    }

    /// Returns that choice.
    ///
    /// * On failure: `WHOLEMEMORY_DB_NONE`.
    fn wholememory_communicator_get_distributed_backend(handle: CommunicatorHandle) -> BackendCode {
        value("wholememory_communicator_get_distributed_backend", 0, || {
            communicator(handle)?.backend().map(Backend::code)
        })
    }

    /// Waits for all work in the context of this rank's GPU, and for all ranks.
    ///
    /// * Collective.
    /// * Stream: waits for all streams of the context.
    /// * Errors: those of a collective call, and `CUDA_ERROR` if work on the GPU has failed.
    fn wholememory_communicator_barrier(handle: CommunicatorHandle) -> ErrorCode {
        answer("wholememory_communicator_barrier", || {
            let communicator = communicator(handle)?;
            // A wait that sees the end of a rank comes before one that does not.
            communicator.drain()?;
            communicator.driver().ctx_synchronize_named(communicator.context())?;
            communicator.barrier()
        })
    }

    /// Returns whether all ranks are on one machine.
    ///
    /// * On failure: false.
    fn wholememory_is_intranode_communicator(handle: CommunicatorHandle) -> bool {
        value("wholememory_is_intranode_communicator", false, || {
            Ok(communicator(handle)?.islands(Location::Host).count() == 1)
        })
    }

    /// Returns false: ranks of one machine are in no clique.
    ///
    /// * On failure: it does not fail.
    fn wholememory_is_intra_mnnvl_communicator(_handle: CommunicatorHandle) -> bool {
        false
    }

    /// Returns false.
    ///
    /// * On failure: it does not fail.
    fn wholememory_is_build_with_nvshmem() -> bool {
        false
    }

    // wholememory.h: The library.
    // wholememory.h: The library.
    // wholememory.h: The library.
    /// Returns how many devices this process sees. If the process has not begun with CUDA, a child
    /// process looks, so this one may still fork.
    ///
    /// * On failure: 0.
    fn fork_get_device_count() -> c_int {
        value("fork_get_device_count", 0, count_devices)
    }

    // wholememory.h: Memory.
    // wholememory.h: Memory.
    // wholememory.h: Memory.
    /// Writes the number of rows of each rank but the last ones, if `rows` rows are divided in
    /// equal parts: `rows` / `ranks`, rounded up.
    ///
    /// * Errors: `INVALID_INPUT` for less than one rank.
    fn wholememory_equal_entry_partition_plan(
        place: *mut usize, rows: usize, ranks: c_int,
    ) -> ErrorCode {
        answer("wholememory_equal_entry_partition_plan", || {
            require(ranks > 0, "no ranks")?;
            let each = crate::vocabulary::partition::equal_rows(rows as u64, ranks.unsigned_abs() as usize);
            // SAFETY: `give` refuses null; the caller's word for the rest.
            unsafe { give(place, each as usize) }
        })
    }
}
