//! The arguments of batches of copies, taken apart: the check of bounds and the handlers read a
//! batch here.

use std::ffi::c_void;
use std::slice;

use wm_abi::{
    CU_MEMCPY_OPERAND_TYPE_POINTER, CUDA_MEMCPY3D_BATCH_OP, CUDA_MEMCPY3D_PEER, CUdeviceptr,
    CUmemcpyAttributes, CUstream,
};

use super::peer_calls::DURING_THE_CALL;
use super::volume;
use crate::copies::{CopyEnd, LinearCopy};
use crate::multipath;

/// `CU_MEMCPY_SRC_ACCESS_ORDER_STREAM` and `_ANY`: the source is read in the order of the stream,
/// or at any time.
const IN_STREAM_ORDER: u32 = 1;
const ANY_ORDER: u32 = 3;

/// `CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE`, the only flag.
const OVERLAP: u32 = 1;

/// The arguments of `cuMemcpyBatchAsync`.
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
pub(super) struct BatchAttributes<'a> {
    attributes: &'a [CUmemcpyAttributes],
    /// From which copy on each attribute holds.
    pub(super) indices: &'a [usize],
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
    pub(super) unsafe fn attributes(&self) -> Option<BatchAttributes<'_>> {
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

    /// Each copy as a value.
    pub(super) fn list(&self, stream: CUstream) -> impl Iterator<Item = LinearCopy> {
        self.iter().map(move |(to, from, bytes)| LinearCopy::unified(to, from, bytes, stream, false))
    }
}

impl BatchAttributes<'_> {
    /// Are all copies large, and do they ask for nothing but an order that copies in the stream
    /// have? Every copy has attributes, each attribute a copy. All other requests of a batch are
    /// the driver's to carry out, or to refuse.
    pub(super) fn allow_spreading(&self, copies: &BatchCopies<'_>) -> bool {
        let orders = [IN_STREAM_ORDER, ANY_ORDER];
        copies.bytes.iter().all(|bytes| multipath::may_be_large(*bytes))
            && self.indices.first() == Some(&0)
            && self.indices.is_sorted_by(|one, other| one < other)
            && self.indices.iter().all(|first| *first < copies.bytes.len())
            && self.attributes.iter().all(|how| orders.contains(&how.srcAccessOrder) && how.flags <= OVERLAP)
    }

    /// Does a copy ask for its source to be read before the call returns?
    pub(super) fn reads_during_the_call(&self) -> bool {
        self.attributes.iter().any(|attribute| attribute.srcAccessOrder == DURING_THE_CALL)
    }
}

/// The copies of `cuMemcpy3DBatchAsync`. `None` for a batch that the driver refuses before it reads
/// the list: in the null stream, or without a list.
///
/// # Safety
/// `operations` is null or a list of `count` copies.
pub(super) unsafe fn operations<'a>(
    count: usize,
    operations: *mut c_void,
    stream: CUstream,
) -> Option<&'a [CUDA_MEMCPY3D_BATCH_OP]> {
    let is_refused = operations.is_null() || stream.is_null();
    // SAFETY: not null, and as long as the caller promises.
    (!is_refused)
        .then(|| unsafe { slice::from_raw_parts(operations.cast::<CUDA_MEMCPY3D_BATCH_OP>(), count) })
}

/// The ends of a copy that are pointers: destination and source.
pub(super) fn pointer_ends(
    operation: &CUDA_MEMCPY3D_BATCH_OP,
    general: &CUDA_MEMCPY3D_PEER,
) -> [Option<CopyEnd>; 2] {
    let [to, from] = volume::ends(general);
    let is_pointer = |kind| kind == CU_MEMCPY_OPERAND_TYPE_POINTER;
    [to.filter(|_| is_pointer(operation.dst.type_)), from.filter(|_| is_pointer(operation.src.type_))]
}
