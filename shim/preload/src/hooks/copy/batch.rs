//! Batches of copies: each of their copies on its way, where all of them are large; parted or led around, where some are
//! between devices.
//!
//! The copies of a batch have no order among them, so one after the other in the stream is as good.

use std::slice;

use wm_abi::symbol::{self, Symbol};
use wm_abi::{CUdeviceptr, CUmemcpyAttributes, CUresult, CUstream};

use super::copies::SERVED;
use super::crossing::{self, DURING_THE_CALL, Family, PeerCopy};
use super::cut::{CopyEnd, CopyPart};
use crate::hooks::call::boundary::Outcome;
use crate::hooks::call::stream::{Legacy, resolve_default};
use crate::hooks::memory::peer_access;
use crate::multipath::{self, Linear};
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
    let call = |cut: &mut PartedBatch, failed: &mut usize| {
        let (to, from, bytes, indices) =
            (cut.to.as_mut_ptr(), cut.from.as_mut_ptr(), cut.bytes.as_mut_ptr(), cut.indices.as_mut_ptr());
        // SAFETY: arrays of the lengths that go with them; the attributes are the program's.
        unsafe {
            let call = driver().get::<S>();
            call(to, from, bytes, cut.to.len(), attributes, indices, attribute_count, failed, stream)
        }
    };
    // SAFETY: the program's arguments.
    unsafe { serve(&batch, stream, call) }
}

/// `cuMemcpyBatchAsync_v2`, which does not say what failed.
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
    let call = |cut: &mut PartedBatch, _: &mut usize| {
        let (to, from, bytes, indices) =
            (cut.to.as_mut_ptr(), cut.from.as_mut_ptr(), cut.bytes.as_mut_ptr(), cut.indices.as_mut_ptr());
        // SAFETY: as in `first`.
        unsafe {
            let call = driver().get::<S>();
            call(to, from, bytes, cut.to.len(), attributes, indices, attribute_count, stream)
        }
    };
    // SAFETY: the program's arguments.
    unsafe { serve(&batch, stream, call) }
}

/// `call` makes a batch like the program's, with other copies, and says which failed.
unsafe fn serve(
    batch: &Batch,
    stream: CUstream,
    call: impl FnOnce(&mut PartedBatch, &mut usize) -> CUresult,
) -> Outcome {
    // The driver refuses the null stream here.
    if stream.is_null() {
        return Outcome::Forward;
    }
    // SAFETY: the program's arrays, as long as it says.
    let Some(arrays) = (unsafe { batch.arrays() }) else { return Outcome::Forward };
    let peers = arrays.peers(stream);
    if peers.iter().flatten().any(|peer| peer.detour) {
        return arrays.singly(&peers, stream, batch.failed);
    }
    if peers.iter().any(Option::is_some) {
        let mut cut = arrays.cut(&peers);
        let mut failed = usize::MAX;
        let result = call(&mut cut, &mut failed);
        if result != CUresult::SUCCESS {
            batch.fail(cut.origin.get(failed).copied().unwrap_or(failed));
        }
        return Outcome::Return(result);
    }
    // SAFETY: as above.
    unsafe { spread(batch, &arrays, stream) }
}

/// Ours if every copy of it is large and may be ordered by the stream. Those that do not take several links follow one by
/// one.
unsafe fn spread(batch: &Batch, arrays: &Arrays<'_>, stream: CUstream) -> Outcome {
    let Some(copies) = arrays.large(stream) else { return Outcome::Forward };
    // The driver looks at all copies before it makes one: a batch with a copy that it may refuse is its own.
    if !copies.iter().all(multipath::is_plain) {
        return Outcome::Forward;
    }
    let served: Vec<_> = copies.iter().map(|copy| multipath::copy(copy, None)).collect();
    if !served.contains(&true) {
        return Outcome::Forward;
    }
    let rest = copies.iter().enumerate().filter(|(index, _)| !served[*index]);
    for (index, copy) in rest {
        let result = plain(copy);
        if result != CUresult::SUCCESS {
            batch.fail(index);
            return Outcome::Return(result);
        }
    }
    SERVED
}

/// A copy of a batch by itself.
fn plain(copy: &Linear) -> CUresult {
    // SAFETY: ranges that the program gave to a copy.
    unsafe { driver().get::<symbol::cuMemcpyAsync>()(copy.to, copy.from, copy.bytes, copy.stream) }
}

/// `CU_MEMCPY_SRC_ACCESS_ORDER_STREAM` and `_ANY`: the source is read in the order of the stream, or whenever it suits.
const IN_STREAM_ORDER: u32 = 1;
const ANY_ORDER: u32 = 3;

/// `CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE`, the only flag.
const OVERLAP: u32 = 1;

/// The arguments of a batch.
struct Batch {
    to: *const CUdeviceptr,
    from: *const CUdeviceptr,
    bytes: *const usize,
    count: usize,
    attributes: *const CUmemcpyAttributes,
    indices: *const usize,
    attribute_count: usize,
    failed: *mut usize,
}

/// Its arrays.
struct Arrays<'a> {
    to: &'a [CUdeviceptr],
    from: &'a [CUdeviceptr],
    bytes: &'a [usize],
    attributes: &'a [CUmemcpyAttributes],
    indices: &'a [usize],
}

/// A batch like the program's whose copies cross no border.
struct PartedBatch {
    to: Vec<CUdeviceptr>,
    from: Vec<CUdeviceptr>,
    bytes: Vec<usize>,
    /// From which copy on each attribute holds.
    indices: Vec<usize>,
    /// The program's copy that each is of.
    origin: Vec<usize>,
}

impl Batch {
    /// # Safety
    /// Pointers are null or to arrays of the lengths that go with them.
    unsafe fn arrays(&self) -> Option<Arrays<'_>> {
        let addresses = [self.to.is_null(), self.from.is_null(), self.bytes.is_null()];
        let attributes = [self.attributes.is_null(), self.indices.is_null()];
        // The driver refuses a batch with other counts before it reads what they count.
        let has_counts = (1..=self.count).contains(&self.attribute_count);
        if addresses.contains(&true) || attributes.contains(&true) || !has_counts {
            return None;
        }
        // SAFETY: not null, and as long as the caller promises.
        unsafe {
            Some(Arrays {
                to: slice::from_raw_parts(self.to, self.count),
                from: slice::from_raw_parts(self.from, self.count),
                bytes: slice::from_raw_parts(self.bytes, self.count),
                attributes: slice::from_raw_parts(self.attributes, self.attribute_count),
                indices: slice::from_raw_parts(self.indices, self.attribute_count),
            })
        }
    }

    /// Tells the program which copy failed, if it wants to know.
    fn fail(&self, index: usize) {
        // SAFETY: null, or the program's place for it.
        if let Some(place) = unsafe { self.failed.as_mut() } {
            *place = index;
        }
    }
}

impl Arrays<'_> {
    fn copies(&self, stream: CUstream) -> impl Iterator<Item = Linear> {
        let ends = self.to.iter().zip(self.from).zip(self.bytes);
        ends.map(move |((to, from), bytes)| Linear {
            to: *to,
            from: *from,
            bytes: *bytes,
            stream,
            waits: false,
        })
    }

    /// For each copy, `None` if it can be forwarded. Empty in a process with one device.
    fn peers(&self, stream: CUstream) -> Vec<Option<PeerCopy>> {
        if !peer_access::has_several_devices() {
            return Vec::new();
        }
        self.copies(stream).map(|copy| peer_copy(&copy)).collect()
    }

    /// All copies, if all are large and in the order of the stream, or of any. What else a batch can say is the driver's to carry
    /// out, or to refuse.
    fn large(&self, stream: CUstream) -> Option<Vec<Linear>> {
        let are_large = self.bytes.iter().all(|bytes| multipath::may_be_large(*bytes));
        (are_large && self.is_plain()).then(|| self.copies(stream).collect())
    }

    /// Every copy has attributes, each attribute a copy, and all ask for an order that copies in the stream have.
    fn is_plain(&self) -> bool {
        let orders = [IN_STREAM_ORDER, ANY_ORDER];
        self.indices.first() == Some(&0)
            && self.indices.is_sorted_by(|one, other| one < other)
            && self.indices.iter().all(|first| *first < self.bytes.len())
            && self.attributes.iter().all(|how| orders.contains(&how.srcAccessOrder) && how.flags <= OVERLAP)
    }

    fn reads_during_the_call(&self) -> bool {
        self.attributes.iter().any(|attribute| attribute.srcAccessOrder == DURING_THE_CALL)
    }

    fn cut(&self, peers: &[Option<PeerCopy>]) -> PartedBatch {
        let mut cut =
            PartedBatch { to: vec![], from: vec![], bytes: vec![], indices: vec![], origin: vec![] };
        for (index, copy) in self.copies(CUstream::NULL).enumerate() {
            cut.indices.extend(self.indices.iter().filter(|first| **first == index).map(|_| cut.to.len()));
            let whole = [CopyPart::whole([copy.bytes as u64, 1, 1])];
            for part in peers[index].as_ref().map_or(&whole[..], |peer| &peer.parts) {
                cut.to.push(copy.to + part.at[0]);
                cut.from.push(copy.from + part.at[0]);
                cut.bytes.push(part.size[0] as usize);
                cut.origin.push(index);
            }
        }
        // An index of no copy is the program's mistake, which the driver answers.
        cut.indices.resize(self.indices.len(), usize::MAX);
        cut
    }

    /// One copy after the other: some go between contexts, which a batch cannot say.
    fn singly(&self, peers: &[Option<PeerCopy>], stream: CUstream, failed: *mut usize) -> Outcome {
        for (index, (copy, peer)) in self.copies(stream).zip(peers).enumerate() {
            let result = if peer.is_some() { led(&copy) } else { plain(&copy) };
            if result != CUresult::SUCCESS {
                // SAFETY: null, or the program's place for the position of what failed.
                if let Some(place) = unsafe { failed.as_mut() } {
                    *place = index;
                }
                return Outcome::Return(result);
            }
        }
        let order = if self.reads_during_the_call() { DURING_THE_CALL } else { 0 };
        crossing::read_by(order, stream).into()
    }
}

/// One copy of the batch; `None` if it can be forwarded.
fn peer_copy(copy: &Linear) -> Option<PeerCopy> {
    let ends = [Some(CopyEnd::flat(copy.to)), Some(CopyEnd::flat(copy.from))];
    crossing::peer_copy(&ends, &[copy.bytes as u64, 1, 1], copy.stream)
}

/// A copy that is not the driver's as it is, by itself.
fn led(copy: &Linear) -> CUresult {
    match crossing::linear::<Legacy>(copy, None) {
        Some(Outcome::Return(result)) => result,
        _ => plain(copy),
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
    let copy = Linear { to, from, bytes, stream: resolve_default::<F>(stream), waits: false };
    let Some(peer) = peer_copy(&copy) else { return Outcome::Forward };
    if !peer.detour {
        let part = |part: &CopyPart| {
            let (to, from, bytes) = (to + part.at[0], from + part.at[0], part.size[0] as usize);
            // SAFETY: a part of the program's copy, with its attributes.
            unsafe { driver().get::<S>()(to, from, bytes, attributes, stream) }
        };
        return crossing::carried(peer.parts.into_iter(), part).into();
    }
    let result = led(&copy);
    // SAFETY: null, or the program's attributes.
    let order = unsafe { attributes.as_ref() }.map_or(0, |how| how.srcAccessOrder);
    if result == CUresult::SUCCESS { crossing::read_by(order, copy.stream).into() } else { result.into() }
}
