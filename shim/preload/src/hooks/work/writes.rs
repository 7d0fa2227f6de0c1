//! The writes of a call that passes the gate: sharing hears of them before the driver does.
//!
//! The column `writes` of `shim/abi/data/driver.tsv` names a function here for each driver
//! function, and the parameters that it gets; `hooks/generated/gated.rs` has the calls. A call that
//! is not understood ends sharing.
//!
//! Invariant: nothing here runs while sharing is off.

use std::ffi::{c_uint, c_void};

use wm_abi::*;

use super::effects::{WriteEffect, described, range, rows, unified, written_words};
use crate::hooks::call::boundary;
use crate::hooks::call::stream::{
    Legacy, NamesStream, PerThread, is_any_captured, is_captured, is_per_thread,
};
use crate::hooks::copy::volume::Description;
use crate::launches::{Launch, LaunchArguments, LaunchPlace, Submission};
use crate::subsystems::PROCESS;

/// One call of the program, as sharing is told of it.
#[derive(Clone, Copy)]
pub(in crate::hooks) struct ToldCall {
    name: &'static str,
    is_per_thread: bool,
    /// `None`: the call names none.
    stream: Option<CUstream>,
}

impl ToldCall {
    pub(in crate::hooks) const fn new(name: &'static str) -> Self {
        Self { name, is_per_thread: is_per_thread(name), stream: None }
    }

    pub(in crate::hooks) fn in_stream(self, stream: impl NamesStream) -> Self {
        Self { stream: Some(stream.stream()), ..self }
    }

    /// When the work of the call is done. Work beside a capture is noted.
    fn submission(&self) -> Submission {
        if !is_any_captured() {
            return Submission::Now;
        }
        if self.stream.is_some_and(|stream| self.captures(stream)) {
            return Submission::Captured;
        }
        PROCESS.sharing.submitted_beside();
        Submission::Now
    }

    fn captures(&self, stream: CUstream) -> bool {
        if self.is_per_thread { is_captured::<PerThread>(stream) } else { is_captured::<Legacy>(stream) }
    }

    /// Tells sharing of work that the call submits, under the rules of a handler.
    fn submits(&self, tell: impl FnOnce(Submission)) {
        boundary::observe(|| tell(self.submission()));
    }
}

/// A number of bytes, elements or rows. Forms of CUDA 3.1 and before have 32 bits.
pub(in crate::hooks) trait ArgumentSize {
    fn wide(self) -> u64;
}

impl ArgumentSize for usize {
    fn wide(self) -> u64 {
        self as u64
    }
}

impl ArgumentSize for c_uint {
    fn wide(self) -> u64 {
        self.into()
    }
}

/// Sharing does not go with the call.
pub(in crate::hooks) fn foreign(call: ToldCall) {
    boundary::observe(|| PROCESS.sharing.give_up(call.name));
}

/// Memory of the device is read.
pub(in crate::hooks) fn reads(call: ToldCall) {
    call.submission();
}

/// A copy from the host.
pub(in crate::hooks) fn load(
    call: ToldCall,
    to: impl Into<CUdeviceptr>,
    from: *const c_void,
    bytes: impl ArgumentSize,
) {
    call.submits(|when| PROCESS.sharing.loaded(range(to.into(), bytes.wide()), from as u64, when));
}

/// A copy from an array.
pub(in crate::hooks) fn store(call: ToldCall, to: impl Into<CUdeviceptr>, bytes: impl ArgumentSize) {
    call.submits(|when| PROCESS.sharing.written(range(to.into(), bytes.wide()), when));
}

/// A copy within the device.
pub(in crate::hooks) fn copy(
    call: ToldCall,
    to: impl Into<CUdeviceptr>,
    from: impl Into<CUdeviceptr>,
    bytes: impl ArgumentSize,
) {
    call.submits(|when| PROCESS.sharing.copied(range(to.into(), bytes.wide()), from.into(), when));
}

/// A copy whose ends are told by addresses alone.
pub(in crate::hooks) fn copy_unified(call: ToldCall, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) {
    call.submits(|when| unified(to, from, bytes as u64).tell(when));
}

/// A copy of rows or of a volume.
///
/// # Safety
/// The description is null, or the one of the program's call.
pub(in crate::hooks) unsafe fn copy_shaped<D: Description>(call: ToldCall, copy: *const D) {
    call.submits(|when| {
        // SAFETY: by contract.
        if let Some(effect) = described(unsafe { copy.as_ref() }) {
            effect.tell(when);
        }
    });
}

/// Copies whose ends are told by addresses alone. The driver refuses a batch without attributes
/// before it reads its copies.
///
/// # Safety
/// Arrays of `count` entries, or null, as in the program's call.
pub(in crate::hooks) unsafe fn copy_batch(
    call: ToldCall,
    to: *const CUdeviceptr,
    from: *const CUdeviceptr,
    bytes: *const usize,
    count: usize,
    attribute_count: usize,
) {
    let is_read =
        (1..=count).contains(&attribute_count) && !to.is_null() && !from.is_null() && !bytes.is_null();
    call.submits(|when| {
        for at in 0..if is_read { count } else { 0 } {
            // SAFETY: by contract.
            let (to, from, bytes) = unsafe { (*to.add(at), *from.add(at), *bytes.add(at)) };
            unified(to, from, bytes as u64).tell(when);
        }
    });
}

/// A memset of so many elements.
pub(in crate::hooks) fn set<T>(
    call: ToldCall,
    to: impl Into<CUdeviceptr>,
    _value: T,
    count: impl ArgumentSize,
) {
    let bytes = count.wide().saturating_mul(size_of::<T>() as u64);
    call.submits(|when| PROCESS.sharing.written(range(to.into(), bytes), when));
}

/// A memset of rows, of so many elements each.
pub(in crate::hooks) fn set_rows<T>(
    call: ToldCall,
    to: impl Into<CUdeviceptr>,
    pitch: impl ArgumentSize,
    _value: T,
    width: impl ArgumentSize,
    height: impl ArgumentSize,
) {
    let width = width.wide().saturating_mul(size_of::<T>() as u64);
    call.submits(|when| PROCESS.sharing.written(rows(to.into(), pitch.wide(), width, height.wide()), when));
}

/// The stream writes one word, of eight bytes at most.
pub(in crate::hooks) fn set_word(call: ToldCall, to: CUdeviceptr) {
    call.submits(|when| PROCESS.sharing.written(range(to, 8), when));
}

/// The stream writes words and waits for some.
///
/// # Safety
/// An array of so many operations, or null, as in the program's call.
pub(in crate::hooks) unsafe fn operations(call: ToldCall, operations: *mut c_void, count: c_uint) {
    call.submits(|when| {
        // SAFETY: by contract.
        match unsafe { written_words(operations.cast(), count as usize) } {
            Some(words) => words.into_iter().for_each(|word| PROCESS.sharing.written(word, when)),
            None => PROCESS.sharing.give_up(call.name),
        }
    });
}

/// An executable graph is about to be made or updated.
pub(in crate::hooks) fn instantiating(_call: ToldCall) {
    boundary::observe(|| PROCESS.sharing.instantiating());
}

/// A node that launches a kernel.
///
/// # Safety
/// The description is null, or the one of the program's call.
pub(in crate::hooks) unsafe fn kernel_node(_call: ToldCall, node: *const CUDA_KERNEL_NODE_PARAMS) {
    // SAFETY: by contract.
    changing(|| unsafe { kernel_of_node(node, false) });
}

/// The same, in the first version.
///
/// # Safety
/// As for [`kernel_node`], of a description that ends before `kern`.
pub(in crate::hooks) unsafe fn first_kernel_node(_call: ToldCall, node: *const c_void) {
    // SAFETY: by contract.
    changing(|| unsafe { kernel_of_node(node.cast(), true) });
}

/// A node that copies.
///
/// # Safety
/// The description is null, or the one of the program's call.
pub(in crate::hooks) unsafe fn copy_node(_call: ToldCall, copy: *const CUDA_MEMCPY3D) {
    boundary::observe(|| {
        // SAFETY: by contract.
        if let Some(effect) = described(unsafe { copy.as_ref() }) {
            effect.tell(Submission::Node);
        }
        PROCESS.sharing.instantiating();
    });
}

/// A node that sets memory.
///
/// # Safety
/// The description is null, or the one of the program's call.
pub(in crate::hooks) unsafe fn set_node(_call: ToldCall, set: *const CUDA_MEMSET_NODE_PARAMS) {
    boundary::observe(|| {
        // SAFETY: by contract.
        if let Some(set) = unsafe { set.as_ref() } {
            let width = (set.width as u64).saturating_mul(set.elementSize.into());
            PROCESS
                .sharing
                .written(rows(set.dst, set.pitch as u64, width, set.height as u64), Submission::Node);
        }
        PROCESS.sharing.instantiating();
    });
}

/// A node whose description begins with its kind.
///
/// # Safety
/// The description is null, or the one of the program's call.
pub(in crate::hooks) unsafe fn node(call: ToldCall, node: *const c_void) {
    // SAFETY: by contract.
    changing(|| unsafe { any_node(call, node.cast()) });
}

/// Tells sharing of a node, under the rules of a handler.
fn changing(tell: impl FnOnce()) {
    boundary::observe(|| {
        tell();
        PROCESS.sharing.instantiating();
    });
}

/// # Safety
/// Null, or a description of a node that a call of the program's names. One of the first version
/// ends before `kern`: no more is read of it.
unsafe fn kernel_of_node(node: *const CUDA_KERNEL_NODE_PARAMS, is_first: bool) {
    if node.is_null() {
        return;
    }
    // SAFETY: by contract; no reference is made, for it would be to the whole.
    let (named, arguments) = unsafe {
        let kernel = if is_first { 0 } else { (*node).kern.0 };
        let arguments = LaunchArguments { parameters: (*node).kernelParams, extra: (*node).extra };
        ([(*node).func.0, kernel], arguments)
    };
    // The driver refuses a node without a function.
    if let Some(function) = named.into_iter().find(|handle| *handle != 0) {
        let function = CUfunction(function);
        // SAFETY: the arguments of the node's kernel, by the caller's guarantee.
        let launch = unsafe { Launch::of_kernel(function, arguments, LaunchPlace::NODE) };
        PROCESS.sharing.launched(&launch);
    }
}

/// # Safety
/// As for [`node`].
unsafe fn any_node(call: ToldCall, node: *const CUgraphNodeParams) {
    // SAFETY: by contract.
    let Some(node) = (unsafe { node.as_ref() }) else { return };
    let effect = match node.type_ {
        CU_GRAPH_NODE_TYPE_KERNEL => {
            // SAFETY: the part of a kernel, whose newer form begins like the one here.
            return unsafe { kernel_of_node((&raw const node.body).cast(), false) };
        }
        // SAFETY: the part of a copy.
        CU_GRAPH_NODE_TYPE_MEMCPY => described(Some(unsafe { &node.body.memcpy.copyParams })),
        CU_GRAPH_NODE_TYPE_MEMSET => {
            // SAFETY: the part of a memset.
            let set = unsafe { node.body.memset };
            let width = (set.width as u64).saturating_mul(set.elementSize.into());
            Some(WriteEffect::Written(rows(set.dst, set.pitch as u64, width, set.height as u64)))
        }
        kind if writes_nothing(kind) => None,
        _ => return PROCESS.sharing.give_up(call.name),
    };
    if let Some(effect) = effect {
        effect.tell(Submission::Node);
    }
}

/// Functions of the host, other graphs, whose nodes were seen when they were made, events, and
/// allocations. The semaphores of another interface are none of these: they order its writes.
fn writes_nothing(kind: c_uint) -> bool {
    matches!(
        kind,
        CU_GRAPH_NODE_TYPE_HOST..=CU_GRAPH_NODE_TYPE_EVENT_RECORD
            | CU_GRAPH_NODE_TYPE_MEM_ALLOC..=CU_GRAPH_NODE_TYPE_MEM_FREE
            | CU_GRAPH_NODE_TYPE_CONDITIONAL
    )
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a node that is added by the call for any kind counts as harmless, and
    //! the call for its own kind ends sharing.
    use super::*;

    #[test]
    fn semaphores_and_unknown_nodes_end_sharing() {
        let harmless: Vec<c_uint> = (3..20).filter(|kind| writes_nothing(*kind)).collect();
        assert_eq!(harmless, [3, 4, 5, 6, 7, 10, 11, 13]);
    }
}
