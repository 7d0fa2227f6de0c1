//! Batches of copies: each of their copies on its way, where all of them are large.

use std::slice;

use wm_abi::{CUdeviceptr, CUmemcpyAttributes, CUresult, CUstream, symbol};

use super::copies::SERVED;
use super::reach;
use crate::boundary::Answer;
use crate::multipath::{self, Linear};
use crate::state::driver;

/// `cuMemcpyBatchAsync`.
#[allow(clippy::too_many_arguments, reason = "the driver's function")]
pub(super) unsafe fn first(
    to: *mut CUdeviceptr,
    from: *mut CUdeviceptr,
    bytes: *mut usize,
    count: usize,
    attributes: *mut CUmemcpyAttributes,
    _indices: *mut usize,
    attribute_count: usize,
    failed: *mut usize,
    stream: CUstream,
) -> Answer {
    // SAFETY: the program's arguments.
    unsafe { serve(&Batch { to, from, bytes, count, attributes, attribute_count, failed }, stream) }
}

/// `cuMemcpyBatchAsync_v2`, which does not say what failed.
#[allow(clippy::too_many_arguments, reason = "the driver's function")]
pub(super) unsafe fn second(
    to: *mut CUdeviceptr,
    from: *mut CUdeviceptr,
    bytes: *mut usize,
    count: usize,
    attributes: *mut CUmemcpyAttributes,
    indices: *mut usize,
    attribute_count: usize,
    stream: CUstream,
) -> Answer {
    let failed = std::ptr::null_mut();
    // SAFETY: the program's arguments.
    unsafe { first(to, from, bytes, count, attributes, indices, attribute_count, failed, stream) }
}

/// Ours if every copy of it is large and may be ordered by the stream. The copies of a batch have
/// no order among them, so those that do not take several links follow one by one.
unsafe fn serve(batch: &Batch, stream: CUstream) -> Answer {
    // SAFETY: the program's arrays, as long as it says.
    unsafe { reach::batch(batch.to, batch.from, batch.count) };
    // The driver refuses the null stream here.
    if stream.is_null() {
        return Answer::Pass;
    }
    // SAFETY: the program's arrays, as long as it says.
    let Some(copies) = (unsafe { batch.copies(stream) }) else { return Answer::Pass };
    let served: Vec<_> = copies.iter().map(|copy| multipath::copy(copy, None)).collect();
    if !served.contains(&true) {
        return Answer::Pass;
    }
    let rest = copies.iter().enumerate().filter(|(index, _)| !served[*index]);
    for (index, copy) in rest {
        // SAFETY: ranges that the program gave to a copy.
        let result =
            unsafe { driver().get::<symbol::cuMemcpyAsync>()(copy.to, copy.from, copy.bytes, stream) };
        if result != CUresult::SUCCESS {
            // SAFETY: null, or the program's place for the position of what failed.
            if let Some(place) = unsafe { batch.failed.as_mut() } {
                *place = index;
            }
            return Answer::Is(result);
        }
    }
    SERVED
}

/// The arrays of a batch.
struct Batch {
    to: *const CUdeviceptr,
    from: *const CUdeviceptr,
    bytes: *const usize,
    count: usize,
    attributes: *const CUmemcpyAttributes,
    attribute_count: usize,
    failed: *mut usize,
}

impl Batch {
    /// Its copies, if all are large and none wants its source read during the call.
    ///
    /// # Safety
    /// Pointers are null or to arrays of the lengths that go with them.
    unsafe fn copies(&self, stream: CUstream) -> Option<Vec<Linear>> {
        const DURING_THE_CALL: u32 = 2;
        let arrays =
            [self.to.is_null(), self.from.is_null(), self.bytes.is_null(), self.attributes.is_null()];
        if arrays.contains(&true) || self.count == 0 {
            return None;
        }
        // SAFETY: not null, and as long as the caller promises.
        let (to, from, bytes, attributes) = unsafe {
            (
                slice::from_raw_parts(self.to, self.count),
                slice::from_raw_parts(self.from, self.count),
                slice::from_raw_parts(self.bytes, self.count),
                slice::from_raw_parts(self.attributes, self.attribute_count),
            )
        };
        let fits = bytes.iter().all(|bytes| multipath::may_be_large(*bytes))
            && attributes.iter().all(|attribute| attribute.srcAccessOrder != DURING_THE_CALL);
        let ends = to.iter().zip(from).zip(bytes);
        fits.then(|| {
            ends.map(|((to, from), bytes)| Linear {
                to: *to,
                from: *from,
                bytes: *bytes,
                stream,
                waits: false,
            })
            .collect()
        })
    }
}
