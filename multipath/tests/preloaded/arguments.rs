//! Hazard (API conformance): a call with wrong arguments succeeds or copies something. The driver
//! refuses it.

use std::ffi::c_void;

use wm_abi::*;

use super::support::{BYTES, Program, alone, bytes, cu, relayed, table};

const HALF: usize = BYTES / 2;

/// Rows whose last bytes lie beyond the pitch.
fn rows(p: &Program, x: usize) -> CUresult {
    let copy = CUDA_MEMCPY2D {
        srcXInBytes: x,
        srcY: 0,
        srcMemoryType: CU_MEMORYTYPE_HOST,
        srcHost: p.from as *const c_void,
        srcDevice: 0,
        srcArray: CUarray::NULL,
        srcPitch: 4096,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: CU_MEMORYTYPE_DEVICE,
        dstHost: std::ptr::null_mut(),
        dstDevice: p.device,
        dstArray: CUarray::NULL,
        dstPitch: 4096,
        WidthInBytes: 4096,
        Height: BYTES / 4096 - 1,
    };
    // SAFETY: a range of this test's own, described wrongly on purpose.
    unsafe { table().get::<symbol::cuMemcpy2DAsync_v2>()(&copy, p.stream) }
}

/// Two halves, with `count` attributes of an order, the first from copy `first` on; the second half
/// is `more` bytes longer.
fn batch(p: &Program, order: u32, first: usize, count: usize, more: usize) -> CUresult {
    let (mut to, mut from) = ([p.device, p.device + HALF as u64], [p.from, p.from + HALF as u64]);
    let (mut sizes, mut indices, mut failed) = ([HALF, HALF + more], [first, first + 1], 0);
    let mut attributes = [CUmemcpyAttributes { srcAccessOrder: order, ..CUmemcpyAttributes::default() }; 2];
    // SAFETY: arrays of two; their errors are on purpose.
    unsafe {
        table().get::<symbol::cuMemcpyBatchAsync>()(
            to.as_mut_ptr(),
            from.as_mut_ptr(),
            sizes.as_mut_ptr(),
            2,
            attributes.as_mut_ptr(),
            indices.as_mut_ptr(),
            count,
            &mut failed,
            p.stream,
        )
    }
}

fn refused() {
    let p = &Program::warm();
    p.fill(3);
    cu!(cuMemsetD8_v2(p.device, 7, BYTES));
    let wrong = [
        ("a row behind its pitch", rows(p, 8)),
        ("a batch without attributes", batch(p, 1, 0, 0, 0)),
        ("a batch of no order", batch(p, 0, 0, 1, 0)),
        ("a batch of an unknown order", batch(p, 4, 0, 1, 0)),
        ("a batch whose first copy has no attributes", batch(p, 1, 1, 1, 0)),
        ("a batch with an attribute of no copy", batch(p, 1, 1, 2, 0)),
        ("a batch with a copy that is too long", batch(p, 1, 0, 1, 64 << 20)),
    ];
    for (what, result) in wrong {
        assert_eq!(result, CUresult::INVALID_VALUE, "{what}");
    }
    assert_eq!(relayed(), 0);
    cu!(cuMemcpyDtoHAsync_v2(p.to as *mut c_void, p.device, BYTES, p.stream));
    cu!(cuStreamSynchronize(p.stream));
    assert!(bytes(p.to).iter().all(|byte| *byte == 7), "something was copied");
    assert_eq!(rows(p, 0), CUresult::SUCCESS);
    assert_eq!(batch(p, 3, 0, 1, 0), CUresult::SUCCESS);
    assert_eq!(relayed(), 4);
}

#[test]
fn what_the_driver_refuses_is_refused() {
    alone("arguments::what_the_driver_refuses_is_refused", "0,1", &[], refused);
}
