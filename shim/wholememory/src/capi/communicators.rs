//! Functions of `wholememory.h` on the library and on communicators.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wm_driver::Api;

use super::call::{answer, give, is_place, value};
use super::exports::exports;
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
    is_in_clique: c_int,
    clique_first_rank: c_int,
    clique_rank: c_int,
    clique_rank_num: c_int,
    clique_id: c_int,
    clique_num: c_int,
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
    /// Begins. From level 2 on warnings are logged, each reason for an error among them.
    fn wholememory_init(_flags: c_uint, level: c_uint) -> u32 {
        answer("wholememory_init", || {
            super::logger::set_level(level);
            let was = IS_INITIALIZED.swap(true, Ordering::AcqRel);
            if was { Err(Error::Logic("it is initialized already".to_owned())) } else { Ok(()) }
        })
    }

    /// Closes all handles of this process.
    fn wholememory_finalize() -> u32 {
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

    /// The choice has no effect: memory is the driver's, or the preloaded library's.
    fn wholememory_set_rmm_enabled(enabled: bool) -> u32 {
        TAKES_RMM.store(enabled, Ordering::Relaxed);
        super::call::SUCCESS
    }

    /// The choice.
    fn wholememory_is_rmm_enabled() -> bool {
        TAKES_RMM.load(Ordering::Relaxed)
    }

    /// Random bytes, which one rank makes and tells the others.
    fn wholememory_create_unique_id(unique_id_place: *mut UniqueId) -> u32 {
        answer("wholememory_create_unique_id", || {
            is_place(unique_id_place)?;
            // SAFETY: not null; the caller's word for the rest.
            unsafe { give(unique_id_place, UniqueId { bytes: unique_id()? }) }
        })
    }

    /// Meets the other ranks. A collective call.
    fn wholememory_create_communicator(place: *mut ObjectHandle, id: UniqueId, rank: c_int, size: c_int) -> u32 {
        answer("wholememory_create_communicator", || {
            is_place(place)?;
            let made = Communicator::create(driver()?, &id.bytes, rank, size)?;
            // SAFETY: not null; the caller's word for the rest.
            unsafe { give(place, COMMUNICATORS.add(Arc::new(made))) }
        })
    }

    /// Divides the ranks by color. A rank of color -1 gets null. A collective call.
    fn wholememory_split_communicator(place: *mut ObjectHandle, handle: ObjectHandle, color: c_int, key: c_int) -> u32 {
        answer("wholememory_split_communicator", || {
            let own = is_place(place).map(|()| (color, key));
            let part = communicator(handle)?.split(own)?;
            let part = part.map_or(std::ptr::null_mut(), |part| COMMUNICATORS.add(Arc::new(part)));
            // SAFETY: not null; the caller's word for the rest.
            unsafe { give(place, part) }
        })
    }

    /// Closes a communicator. It lives on as long as memory needs it.
    fn wholememory_destroy_communicator(handle: ObjectHandle) -> u32 {
        answer("wholememory_destroy_communicator", || COMMUNICATORS.close(handle).map(drop))
    }

    /// Whether memory of a kind can be made.
    fn wholememory_communicator_support_type_location(handle: ObjectHandle, memory_type: c_uint, location: c_uint) -> u32 {
        answer("wholememory_communicator_support_type_location", || {
            communicator(handle)?.supports(MemoryType::of(memory_type)?, Location::of(location)?)
        })
    }

    /// This rank.
    fn wholememory_communicator_get_rank(place: *mut c_int, handle: ObjectHandle) -> u32 {
        // SAFETY: `give` refuses null; the caller's word for the rest.
        answer("wholememory_communicator_get_rank", || unsafe { give(place, communicator(handle)?.rank() as c_int) })
    }

    /// How many ranks there are.
    fn wholememory_communicator_get_size(place: *mut c_int, handle: ObjectHandle) -> u32 {
        // SAFETY: `give` refuses null; the caller's word for the rest.
        answer("wholememory_communicator_get_size", || unsafe { give(place, communicator(handle)?.size() as c_int) })
    }

    /// How many of them are on this rank's machine.
    fn wholememory_communicator_get_local_size(place: *mut c_int, handle: ObjectHandle) -> u32 {
        answer("wholememory_communicator_get_local_size", || {
            let communicator = communicator(handle)?;
            let machines = communicator.islands(Location::Host);
            let local = machines.members(machines.of(communicator.rank())).len();
            // SAFETY: `give` refuses null; the caller's word for the rest.
            unsafe { give(place, local as c_int) }
        })
    }

    /// Ranks of one machine are in no clique.
    fn wholememory_communicator_get_clique_info(place: *mut CliqueInfo, handle: ObjectHandle) -> u32 {
        answer("wholememory_communicator_get_clique_info", || {
            communicator(handle)?;
            // SAFETY: `give` refuses null; the caller's word for the rest.
            unsafe { give(place, CliqueInfo::default()) }
        })
    }

    /// Never.
    fn wholememory_communicator_is_bind_to_nvshmem(_handle: ObjectHandle) -> bool {
        false
    }

    /// Chooses the transport of operations between machines.
    fn wholememory_communicator_set_distributed_backend(handle: ObjectHandle, backend: c_uint) -> u32 {
        answer("wholememory_communicator_set_distributed_backend", || {
            communicator(handle)?.set_backend(Backend::of(backend)?)
        })
    }

    /// The choice; 0 for no communicator.
    fn wholememory_communicator_get_distributed_backend(handle: ObjectHandle) -> c_uint {
        value("wholememory_communicator_get_distributed_backend", 0, || {
            communicator(handle)?.backend().map(Backend::code)
        })
    }

    /// Waits for all ranks. A collective call.
    fn wholememory_communicator_barrier(handle: ObjectHandle) -> u32 {
        answer("wholememory_communicator_barrier", || {
            let communicator = communicator(handle)?;
            communicator.driver().ctx_synchronize_named(communicator.context())?;
            communicator.barrier()
        })
    }

    /// Are all ranks on one machine?
    fn wholememory_is_intranode_communicator(handle: ObjectHandle) -> bool {
        value("wholememory_is_intranode_communicator", false, || {
            Ok(communicator(handle)?.islands(Location::Host).count() == 1)
        })
    }

    /// Ranks of one machine are in no clique.
    fn wholememory_is_intra_mnnvl_communicator(_handle: ObjectHandle) -> bool {
        false
    }

    /// Never.
    fn wholememory_is_build_with_nvshmem() -> bool {
        false
    }

    /// How many devices a process sees. This one need not use CUDA afterwards.
    fn fork_get_device_count() -> c_int {
        value("fork_get_device_count", 0, count_devices)
    }

    /// Rows of each rank but the last ones, in equal parts.
    fn wholememory_equal_entry_partition_plan(place: *mut usize, rows: usize, ranks: c_int) -> u32 {
        answer("wholememory_equal_entry_partition_plan", || {
            require(ranks > 0, "no ranks")?;
            let each = crate::vocabulary::partition::equal_rows(rows as u64, ranks.unsigned_abs() as usize);
            // SAFETY: `give` refuses null; the caller's word for the rest.
            unsafe { give(place, each as usize) }
        })
    }
}
