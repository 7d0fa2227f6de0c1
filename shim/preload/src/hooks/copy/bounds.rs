//! Does a call stay inside the blocks that its ranges begin in?
//!
//! The driver refuses a copy or memset that runs past the end of an allocation, and writes nothing.
//! Our blocks are cut from larger mappings, so the driver sees no end there, and the next block
//! would be overwritten. One function here answers for each form of call, by the arguments of the
//! driver's own.
//!
//! The driver judges a range that begins in no block of ours, and a call that it refuses for
//! another reason: without a context, or in one that has failed. A block ends where the size that
//! the program asked for ends, as in every query. Rows count as the one range from the first byte
//! to the last.
//!
//! Invariant: a call that stays inside costs a look-up an end, without a lock, a system call or a
//! driver call. The handler does not get the result: it looks an end up in processes with several
//! devices and for large copies only, and the gate that stands between has the driver's parameters.

use std::ffi::{c_uint, c_void};

use wm_abi::*;
use wm_driver::Api;

use super::batch_arguments::{Batch, operations, pointer_ends, report_failed};
use super::volume::{self, Description};
use crate::copies::{CopySize, StridedRange};
use crate::counters::COUNTERS;
use crate::hooks::call::boundary;
use crate::process::{driver, exiting, forked, sticky_error};
use crate::registry;
use crate::subsystems::PROCESS;

/// Does a range run past the end of the block that it begins in?
#[inline]
fn runs_past(address: u64, bytes: u64) -> bool {
    let Some(manager) = registry::owner(address) else { return false };
    match manager.bounds(address) {
        Some(block) => bytes > block.end.saturating_sub(address),
        None => runs_past_opened(address, bytes),
    }
}

/// The same for a block of another process, whose whole extent is mapped here.
#[cold]
#[inline(never)]
fn runs_past_opened(address: u64, bytes: u64) -> bool {
    // In a forked child a thread that does not exist there may hold the table's lock.
    let opened = if forked() { None } else { PROCESS.ipc.view(address) };
    opened.is_some_and(|view| bytes > view.address + view.bytes as u64 - address)
}

/// Is the call refused? If it runs past a block and the driver would refuse it for another reason,
/// the driver gets it.
#[inline]
fn refused(runs_past: bool) -> bool {
    runs_past && is_ours_to_refuse()
}

#[cold]
#[inline(never)]
fn is_ours_to_refuse() -> bool {
    let mut refuses = false;
    boundary::observe(|| {
        let has_context = || driver().ctx_current().is_ok_and(|context| !context.is_null());
        refuses = !exiting() && sticky_error::failure().is_none() && has_context();
    });
    if refuses {
        COUNTERS.count_out_of_bounds();
    }
    refuses
}

/// A copy with one end in device memory.
#[inline]
pub(in crate::hooks) fn range(address: CUdeviceptr, bytes: usize) -> bool {
    refused(runs_past(address, bytes as u64))
}

/// A copy with both ends in device memory, or told by addresses alone.
#[inline]
pub(in crate::hooks) fn ranges(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> bool {
    refused(runs_past(to, bytes as u64) || runs_past(from, bytes as u64))
}

/// A memset of so many elements.
#[inline]
pub(in crate::hooks) fn set<T>(to: CUdeviceptr, _value: T, count: usize) -> bool {
    refused(runs_past(to, (count as u64).saturating_mul(size_of::<T>() as u64)))
}

/// A memset of rows, of so many elements each.
#[inline]
pub(in crate::hooks) fn set_rows<T>(
    to: CUdeviceptr,
    pitch: usize,
    _value: T,
    width: usize,
    height: usize,
) -> bool {
    refused(rows_run_past(to, pitch, size_of::<T>() as c_uint, [width, height]))
}

/// Rows of so many elements of so many bytes.
fn rows_run_past(to: u64, pitch: usize, element: c_uint, [width, height]: [usize; 2]) -> bool {
    let end = StridedRange { address: to, steps: [1, pitch as u64, 0] };
    end_runs_past(&end, &[(width as u64).saturating_mul(element.into()), height as u64, 1])
}

fn sets_past(set: &CUDA_MEMSET_NODE_PARAMS) -> bool {
    rows_run_past(set.dst, set.pitch, set.elementSize, [set.width, set.height])
}

fn end_runs_past(end: &StridedRange, size: &CopySize) -> bool {
    // Empty where nothing is copied, and where the range ends behind all addresses, which the
    // driver refuses.
    let range = end.range(size);
    runs_past(range.start, range.end - range.start)
}

fn copies_past<D: Description>(copy: &D) -> bool {
    let general = volume::filled(&copy.general());
    let size = volume::size(&general);
    volume::ends(&general).iter().flatten().any(|end| end_runs_past(&end.bytes, &size))
}

/// A copy of rows or of a volume, or a node that makes one.
///
/// # Safety
/// As of all that follow: pointers are null or the program's, for the function that it called.
pub(in crate::hooks) unsafe fn shaped<D: Description>(copy: *const D) -> bool {
    // SAFETY: by contract.
    refused(unsafe { copy.as_ref() }.is_some_and(copies_past))
}

/// A batch of copies; the program finds in `failed` the position of the one that is refused.
#[allow(clippy::too_many_arguments, reason = "the driver's function")]
pub(in crate::hooks) unsafe fn batch(
    to: *mut CUdeviceptr,
    from: *mut CUdeviceptr,
    bytes: *mut usize,
    count: usize,
    attributes: *mut CUmemcpyAttributes,
    indices: *mut usize,
    attribute_count: usize,
    failed: *mut usize,
    stream: CUstream,
) -> bool {
    let batch = Batch { to, from, bytes, count, attributes, indices, attribute_count, failed };
    // SAFETY: arrays of the lengths that go with them, by contract.
    let Some(copies) = (unsafe { batch.copies(stream) }) else { return false };
    let past = copies
        .iter()
        .position(|(to, from, bytes)| [to, from].into_iter().any(|end| runs_past(end, bytes as u64)));
    // SAFETY: null, or the program's place for it.
    unsafe { refused_for(past, failed) }
}

/// The same, where the form has no place for that position.
#[allow(clippy::too_many_arguments, reason = "the driver's function")]
pub(in crate::hooks) unsafe fn batch_v2(
    to: *mut CUdeviceptr,
    from: *mut CUdeviceptr,
    bytes: *mut usize,
    count: usize,
    attributes: *mut CUmemcpyAttributes,
    indices: *mut usize,
    attribute_count: usize,
    stream: CUstream,
) -> bool {
    let failed = std::ptr::null_mut();
    // SAFETY: by contract.
    unsafe { batch(to, from, bytes, count, attributes, indices, attribute_count, failed, stream) }
}

/// A batch of copies of volumes; the program finds in `failed` the position of the one that is
/// refused.
pub(in crate::hooks) unsafe fn volumes(
    count: usize,
    list: *mut c_void,
    failed: *mut usize,
    flags: u64,
    stream: CUstream,
) -> bool {
    // SAFETY: a list of so many, by contract.
    let list = unsafe { operations(count, list, stream) }.filter(|_| flags == 0);
    let past = list.and_then(|list| list.iter().position(operation_runs_past));
    // SAFETY: null, or the program's place for it.
    unsafe { refused_for(past, failed) }
}

/// The same, where the form has no place for that position.
pub(in crate::hooks) unsafe fn volumes_v2(
    count: usize,
    list: *mut c_void,
    flags: u64,
    stream: CUstream,
) -> bool {
    // SAFETY: by contract.
    unsafe { volumes(count, list, std::ptr::null_mut(), flags, stream) }
}

/// One copy of a volume.
pub(in crate::hooks) unsafe fn volume(operation: *mut c_void) -> bool {
    // SAFETY: by contract.
    refused(unsafe { operation.cast::<CUDA_MEMCPY3D_BATCH_OP>().as_ref() }.is_some_and(operation_runs_past))
}

/// An end that is an array has no address.
fn operation_runs_past(operation: &CUDA_MEMCPY3D_BATCH_OP) -> bool {
    let general = volume::filled(&operation.general());
    let size = volume::size(&general);
    pointer_ends(operation, &general).iter().flatten().any(|end| end_runs_past(&end.bytes, &size))
}

/// Refuses a batch for one of its copies, and says for which.
unsafe fn refused_for(copy: Option<usize>, failed: *mut usize) -> bool {
    let Some(copy) = copy.filter(|_| is_ours_to_refuse()) else { return false };
    // SAFETY: by contract.
    unsafe { report_failed(failed, copy) };
    true
}

/// A node that sets memory.
pub(in crate::hooks) unsafe fn set_node(set: *const CUDA_MEMSET_NODE_PARAMS) -> bool {
    // SAFETY: by contract.
    refused(unsafe { set.as_ref() }.is_some_and(sets_past))
}

/// A node whose description begins with its kind.
pub(in crate::hooks) unsafe fn node(params: *mut c_void) -> bool {
    // SAFETY: null, or the program's parameters: every kind of them begins with the kind.
    let kind = unsafe { params.cast::<c_uint>().as_ref() }.copied();
    let params = params.cast::<CUgraphNodeParams>();
    match kind {
        Some(CU_GRAPH_NODE_TYPE_MEMCPY) => {
            // SAFETY: of this kind.
            refused(copies_past(unsafe { &(*params).body.memcpy.copyParams }))
        }
        Some(CU_GRAPH_NODE_TYPE_MEMSET) => {
            // SAFETY: of this kind.
            let set = unsafe { (*params).body.memset };
            refused(rows_run_past(set.dst, set.pitch, set.elementSize, [set.width, set.height]))
        }
        _ => false,
    }
}
