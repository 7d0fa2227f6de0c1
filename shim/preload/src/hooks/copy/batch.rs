//! Batches of copies. Each copy of a batch goes over several links if all of them are large; copies
//! between devices are made in parts, or between the owners' contexts.
//!
//! The copies of a batch have no order among them, so it is correct to make them one after the
//! other in the stream.

use wm_abi::symbol::{self, Symbol};
use wm_abi::{CUdeviceptr, CUmemcpyAttributes, CUresult, CUstream};

use super::batch_arguments::Batch;
use super::cut::CopyPart;
use super::linear::SERVED;
use super::peer_calls::{self, DURING_THE_CALL, Family, carry_linear};
use super::peer_copy::{self, PeerCopy};
use crate::copies::LinearCopy;
use crate::hooks::call::boundary::Outcome;
use crate::hooks::call::stream::{Legacy, resolve_default};
use crate::hooks::memory::peer_access;
use crate::multipath;
use crate::process::driver;

pub(in crate::hooks) type BatchV1 = unsafe extern "C" fn(
    *mut CUdeviceptr,
    *mut CUdeviceptr,
    *mut usize,
    usize,
    *mut CUmemcpyAttributes,
    *mut usize,
    usize,
    *mut usize,
    CUstream,
) -> CUresult;

pub(in crate::hooks) type BatchV2 = unsafe extern "C" fn(
    *mut CUdeviceptr,
    *mut CUdeviceptr,
    *mut usize,
    usize,
    *mut CUmemcpyAttributes,
    *mut usize,
    usize,
    CUstream,
) -> CUresult;

/// `cuMemcpyBatchAsync`.
#[allow(clippy::too_many_arguments, reason = "the driver's function")]
pub(in crate::hooks) unsafe fn memcpy_batch_async<S: Symbol<Function = BatchV1>>(
    to: *mut CUdeviceptr,
    from: *mut CUdeviceptr,
    bytes: *mut usize,
    count: usize,
    attributes: *mut CUmemcpyAttributes,
    indices: *mut usize,
    attribute_count: usize,
    failed: *mut usize,
    stream: CUstream,
) -> Outcome {
    let batch = Batch { to, from, bytes, count, attributes, indices, attribute_count, failed };
    let call = |parted: &mut PartedBatch, failed: &mut usize| {
        let (to, from, bytes, indices, count) = parted.arrays();
        // SAFETY: arrays of the lengths that go with them; the attributes are the program's.
        unsafe {
            let call = driver().get::<S>();
            call(to, from, bytes, count, attributes, indices, attribute_count, failed, stream)
        }
    };
    // SAFETY: the program's arrays, as long as it says.
    unsafe { serve(&batch, stream, call) }
}

/// `cuMemcpyBatchAsync_v2`, which does not say which copy failed.
#[allow(clippy::too_many_arguments, reason = "the driver's function")]
pub(in crate::hooks) unsafe fn memcpy_batch_async_v2<S: Symbol<Function = BatchV2>>(
    to: *mut CUdeviceptr,
    from: *mut CUdeviceptr,
    bytes: *mut usize,
    count: usize,
    attributes: *mut CUmemcpyAttributes,
    indices: *mut usize,
    attribute_count: usize,
    stream: CUstream,
) -> Outcome {
    let failed = std::ptr::null_mut();
    let batch = Batch { to, from, bytes, count, attributes, indices, attribute_count, failed };
    let call = |parted: &mut PartedBatch, _: &mut usize| {
        let (to, from, bytes, indices, count) = parted.arrays();
        // SAFETY: arrays of the lengths that go with them; the attributes are the program's.
        unsafe {
            let call = driver().get::<S>();
            call(to, from, bytes, count, attributes, indices, attribute_count, stream)
        }
    };
    // SAFETY: the program's arrays, as long as it says.
    unsafe { serve(&batch, stream, call) }
}

/// Serves a batch. `call` makes a batch like the program's with other copies, and says which of
/// them failed.
///
/// # Safety
/// Pointers are null or to arrays of the lengths that go with them.
unsafe fn serve(
    batch: &Batch,
    stream: CUstream,
    call: impl FnOnce(&mut PartedBatch, &mut usize) -> CUresult,
) -> Outcome {
    // SAFETY: by contract.
    let (copies, attributes) = unsafe { (batch.copies(stream), batch.attributes()) };
    let Some((copies, attributes)) = copies.zip(attributes) else { return Outcome::Forward };
    if !peer_access::has_several_devices() {
        return if attributes.allow_spreading(&copies) {
            spread(batch, &copies.list(stream).collect::<Vec<_>>())
        } else {
            Outcome::Forward
        };
    }
    let list: Vec<_> = copies.list(stream).collect();
    let plans: Vec<_> = list.iter().map(plan).collect();
    if plans.iter().flatten().any(|peer| peer.detour) {
        return one_by_one(batch, &list, &plans, attributes.reads_during_the_call(), stream).into();
    }
    if plans.iter().any(Option::is_some) {
        let mut parted = PartedBatch::new(&list, &plans, attributes.indices);
        let mut failed = usize::MAX;
        let result = call(&mut parted, &mut failed);
        if result != CUresult::SUCCESS {
            batch.report_failed(parted.origin.get(failed).copied().unwrap_or(failed));
        }
        return Outcome::Return(result);
    }
    if attributes.allow_spreading(&copies) { spread(batch, &list) } else { Outcome::Forward }
}

/// Makes every copy over several links for which that pays, and the others one by one. Forwards the
/// batch if it pays for none.
fn spread(batch: &Batch, copies: &[LinearCopy]) -> Outcome {
    // The driver checks all copies before it makes one: a batch with a copy that it may refuse is
    // forwarded.
    if !copies.iter().all(multipath::is_plain) {
        return Outcome::Forward;
    }
    let served: Vec<_> = copies.iter().map(multipath::copy).collect();
    if !served.contains(&true) {
        return Outcome::Forward;
    }
    let rest = copies.iter().enumerate().filter(|(index, _)| !served[*index]);
    for (index, copy) in rest {
        multipath::go_on_plainly(copy.stream);
        let result = plain(copy);
        if result != CUresult::SUCCESS {
            batch.report_failed(index);
            return Outcome::Return(result);
        }
    }
    SERVED
}

/// Makes one copy after the other: some go between contexts, which a batch cannot say.
fn one_by_one(
    batch: &Batch,
    copies: &[LinearCopy],
    plans: &[Option<PeerCopy>],
    reads_during_the_call: bool,
    stream: CUstream,
) -> CUresult {
    for (index, (copy, peer)) in copies.iter().zip(plans).enumerate() {
        let result = peer.as_ref().map_or_else(|| plain(copy), |peer| carry_linear::<Legacy>(copy, peer));
        if result != CUresult::SUCCESS {
            batch.report_failed(index);
            return result;
        }
    }
    let order = if reads_during_the_call { DURING_THE_CALL } else { 0 };
    peer_calls::await_source(order, stream)
}

/// A copy of a batch by itself, as the driver makes it.
fn plain(copy: &LinearCopy) -> CUresult {
    let (to, from, bytes) = copy.addresses_of(0, copy.bytes as u64);
    // SAFETY: ranges that the program gave to a copy.
    unsafe { driver().get::<symbol::cuMemcpyAsync>()(to, from, bytes, copy.stream) }
}

/// Plans one copy; `None` if it can be forwarded.
fn plan(copy: &LinearCopy) -> Option<PeerCopy> {
    peer_copy::plan(copy.device_ends(), &copy.size(), copy.stream)
}

/// A batch like the program's whose copies cross no border.
struct PartedBatch {
    to: Vec<CUdeviceptr>,
    from: Vec<CUdeviceptr>,
    bytes: Vec<usize>,
    /// From which copy on each attribute holds.
    indices: Vec<usize>,
    /// The program's copy that each copy is a part of.
    origin: Vec<usize>,
}

impl PartedBatch {
    /// The arrays as the driver takes them, and the number of copies.
    fn arrays(&mut self) -> (*mut CUdeviceptr, *mut CUdeviceptr, *mut usize, *mut usize, usize) {
        let count = self.to.len();
        let [to, from] = [&mut self.to, &mut self.from].map(|ends| ends.as_mut_ptr());
        let [bytes, indices] = [&mut self.bytes, &mut self.indices].map(|numbers| numbers.as_mut_ptr());
        (to, from, bytes, indices, count)
    }

    /// The parts of all copies. `plans` has a plan for each copy that cannot be forwarded.
    fn new(copies: &[LinearCopy], plans: &[Option<PeerCopy>], indices: &[usize]) -> Self {
        let mut parted = Self { to: vec![], from: vec![], bytes: vec![], indices: vec![], origin: vec![] };
        for (index, (copy, plan)) in copies.iter().zip(plans).enumerate() {
            let begin_here = indices.iter().filter(|first| **first == index);
            parted.indices.extend(begin_here.map(|_| parted.to.len()));
            let whole = [CopyPart::whole(copy.size())];
            for part in plan.as_ref().map_or(&whole[..], |plan| &plan.parts) {
                parted.add(copy.addresses_of(part.at[0], part.size[0]), index);
            }
        }
        // An index of no copy is the program's mistake, which the driver answers.
        parted.indices.resize(indices.len(), usize::MAX);
        parted
    }

    fn add(&mut self, (to, from, bytes): (CUdeviceptr, CUdeviceptr, usize), origin: usize) {
        self.to.push(to);
        self.from.push(from);
        self.bytes.push(bytes);
        self.origin.push(origin);
    }
}

type WithAttributes =
    unsafe extern "C" fn(CUdeviceptr, CUdeviceptr, usize, *mut CUmemcpyAttributes, CUstream) -> CUresult;

/// `cuMemcpyWithAttributesAsync`.
pub(in crate::hooks) unsafe fn memcpy_with_attributes_async<
    S: Symbol<Function = WithAttributes>,
    F: Family,
>(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    attributes: *mut CUmemcpyAttributes,
    stream: CUstream,
) -> Outcome {
    let copy = LinearCopy::unified(to, from, bytes, resolve_default::<F>(stream), false);
    let Some(peer) = plan(&copy) else { return Outcome::Forward };
    if !peer.detour {
        let part = |part: &CopyPart| {
            let (to, from, bytes) = copy.addresses_of(part.at[0], part.size[0]);
            // SAFETY: a part of the program's copy, with its attributes.
            unsafe { driver().get::<S>()(to, from, bytes, attributes, stream) }
        };
        return peer_calls::one_by_one(peer.parts.into_iter(), part).into();
    }
    let result = carry_linear::<Legacy>(&copy, &peer);
    // SAFETY: null, or the program's attributes.
    let order = unsafe { attributes.as_ref() }.map_or(0, |how| how.srcAccessOrder);
    if result == CUresult::SUCCESS {
        peer_calls::await_source(order, copy.stream).into()
    } else {
        result.into()
    }
}
