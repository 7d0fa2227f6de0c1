//! Batches of copies. Each copy of a batch goes over several links if all of them are large; copies
//! between devices are made in parts, or between the owners' contexts.
//!
//! The copies of a batch have no order among them, so it is correct to make them one after the
//! other in the stream.

use std::slice;

use wm_abi::symbol::{self, Symbol};
use wm_abi::{CUdeviceptr, CUmemcpyAttributes, CUresult, CUstream};

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
        let [to, from] = [parted.to.as_mut_ptr(), parted.from.as_mut_ptr()];
        let [bytes, indices] = [parted.bytes.as_mut_ptr(), parted.indices.as_mut_ptr()];
        // SAFETY: arrays of the lengths that go with them; the attributes are the program's.
        unsafe {
            let call = driver().get::<S>();
            call(to, from, bytes, parted.to.len(), attributes, indices, attribute_count, failed, stream)
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
        let [to, from] = [parted.to.as_mut_ptr(), parted.from.as_mut_ptr()];
        let [bytes, indices] = [parted.bytes.as_mut_ptr(), parted.indices.as_mut_ptr()];
        // SAFETY: arrays of the lengths that go with them; the attributes are the program's.
        unsafe {
            let call = driver().get::<S>();
            call(to, from, bytes, parted.to.len(), attributes, indices, attribute_count, stream)
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

/// `CU_MEMCPY_SRC_ACCESS_ORDER_STREAM` and `_ANY`: the source is read in the order of the stream,
/// or at any time.
const IN_STREAM_ORDER: u32 = 1;
const ANY_ORDER: u32 = 3;

/// `CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE`, the only flag.
const OVERLAP: u32 = 1;

/// The arguments of a batch. The one place that takes them apart: the check of bounds and the
/// handler both read it.
pub(super) struct Batch {
    pub(super) to: *const CUdeviceptr,
    pub(super) from: *const CUdeviceptr,
    pub(super) bytes: *const usize,
    /// Length of the three arrays above.
    pub(super) count: usize,
    pub(super) attributes: *const CUmemcpyAttributes,
    pub(super) indices: *const usize,
    /// Length of the two arrays above.
    pub(super) attribute_count: usize,
    /// Where the program wants to read which copy failed, or null.
    pub(super) failed: *mut usize,
}

/// The copies of a batch, as its arrays give them.
pub(super) struct BatchCopies<'a> {
    to: &'a [CUdeviceptr],
    from: &'a [CUdeviceptr],
    bytes: &'a [usize],
}

/// How the copies of a batch are to be made.
struct BatchAttributes<'a> {
    attributes: &'a [CUmemcpyAttributes],
    /// From which copy on each attribute holds.
    indices: &'a [usize],
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

impl Batch {
    /// The copies. `None` for a batch that the driver refuses before it reads them: in the null
    /// stream, with a null array, or with more attributes than copies.
    ///
    /// # Safety
    /// Pointers are null or to arrays of the lengths that go with them.
    pub(super) unsafe fn copies(&self, stream: CUstream) -> Option<BatchCopies<'_>> {
        let has_null = self.to.is_null() || self.from.is_null() || self.bytes.is_null();
        if stream.is_null() || has_null || !(1..=self.count).contains(&self.attribute_count) {
            return None;
        }
        // SAFETY: not null, and as long as the caller promises.
        unsafe {
            Some(BatchCopies {
                to: slice::from_raw_parts(self.to, self.count),
                from: slice::from_raw_parts(self.from, self.count),
                bytes: slice::from_raw_parts(self.bytes, self.count),
            })
        }
    }

    /// # Safety
    /// Pointers are null or to arrays of the lengths that go with them.
    unsafe fn attributes(&self) -> Option<BatchAttributes<'_>> {
        if self.attributes.is_null() || self.indices.is_null() {
            return None;
        }
        // SAFETY: not null, and as long as the caller promises.
        unsafe {
            Some(BatchAttributes {
                attributes: slice::from_raw_parts(self.attributes, self.attribute_count),
                indices: slice::from_raw_parts(self.indices, self.attribute_count),
            })
        }
    }

    /// Tells the program which copy failed, if it wants to know.
    pub(super) fn report_failed(&self, index: usize) {
        // SAFETY: null, or the program's place for it.
        unsafe { report_failed(self.failed, index) };
    }
}

/// # Safety
/// `failed` is null, or the program's place for the number of the copy that failed.
pub(super) unsafe fn report_failed(failed: *mut usize, index: usize) {
    // SAFETY: by contract.
    if let Some(place) = unsafe { failed.as_mut() } {
        *place = index;
    }
}

impl BatchCopies<'_> {
    /// Destination, source and length of each copy.
    pub(super) fn iter(&self) -> impl Iterator<Item = (CUdeviceptr, CUdeviceptr, usize)> {
        let ends = self.to.iter().zip(self.from).zip(self.bytes);
        ends.map(|((to, from), bytes)| (*to, *from, *bytes))
    }

    fn list(&self, stream: CUstream) -> impl Iterator<Item = LinearCopy> {
        self.iter().map(move |(to, from, bytes)| LinearCopy::unified(to, from, bytes, stream, false))
    }
}

impl BatchAttributes<'_> {
    /// Are all copies large, and do they ask for nothing but an order that copies in the stream
    /// have? Every copy has attributes, each attribute a copy. All other requests of a batch are
    /// the driver's to carry out, or to refuse.
    fn allow_spreading(&self, copies: &BatchCopies<'_>) -> bool {
        let orders = [IN_STREAM_ORDER, ANY_ORDER];
        copies.bytes.iter().all(|bytes| multipath::may_be_large(*bytes))
            && self.indices.first() == Some(&0)
            && self.indices.is_sorted_by(|one, other| one < other)
            && self.indices.iter().all(|first| *first < copies.bytes.len())
            && self.attributes.iter().all(|how| orders.contains(&how.srcAccessOrder) && how.flags <= OVERLAP)
    }

    fn reads_during_the_call(&self) -> bool {
        self.attributes.iter().any(|attribute| attribute.srcAccessOrder == DURING_THE_CALL)
    }
}

impl PartedBatch {
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
