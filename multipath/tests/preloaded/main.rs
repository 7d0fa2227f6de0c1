//! Hazard (API conformance): a form of copy call does not reach the links, or reaches them with
//! other arguments. Each form goes through the preloaded library on the simulated driver.

mod arguments;
mod beside;
mod ends;
mod fallback;
mod held;
mod memory;
mod order;
mod own;
mod pageable;
mod support;
mod threads;

use std::collections::BTreeMap;

use support::{BYTES, MIB, Program, alone, cu, form};
use wm_abi::*;

fn every_form() {
    let p = &Program::warm();
    let (device, from, to, stream) = (p.device, p.from, p.to, p.stream);
    let mut seen = BTreeMap::new();
    let mut check = |name: &'static str, call: &dyn Fn()| {
        let through = form(p, name, 7 + seen.len(), |_| call());
        seen.insert(name, through);
    };
    check("linear, asynchronous", &|| {
        cu!(cuMemcpyHtoDAsync_v2(device, from as *const _, BYTES, stream));
        cu!(cuMemcpyDtoHAsync_v2(to as *mut _, device, BYTES, stream));
    });
    check("linear, waiting", &|| {
        cu!(cuMemcpyHtoD_v2(device, from as *const _, BYTES));
        cu!(cuMemcpyDtoH_v2(to as *mut _, device, BYTES));
    });
    check("per-thread", &|| {
        cu!(cuMemcpyHtoD_v2_ptds(device, from as *const _, BYTES));
        cu!(cuMemcpyDtoH_v2_ptds(to as *mut _, device, BYTES));
    });
    check("by address", &|| {
        cu!(cuMemcpy(device, from, BYTES));
        cu!(cuMemcpyAsync(to, device, BYTES, stream));
    });
    check("rows", &|| {
        let rows = |to_device: bool| CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: if to_device { CU_MEMORYTYPE_HOST } else { CU_MEMORYTYPE_DEVICE },
            srcHost: from as *const _,
            srcDevice: device,
            srcArray: CUarray::NULL,
            srcPitch: 4096,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: if to_device { CU_MEMORYTYPE_DEVICE } else { CU_MEMORYTYPE_HOST },
            dstHost: to as *mut _,
            dstDevice: device,
            dstArray: CUarray::NULL,
            dstPitch: 4096,
            WidthInBytes: 4096,
            Height: BYTES / 4096,
        };
        cu!(cuMemcpy2D_v2(&rows(true)));
        cu!(cuMemcpy2DAsync_v2(&rows(false), stream));
    });
    check("batch", &|| {
        let half = BYTES / 2;
        let mut attributes = CUmemcpyAttributes { srcAccessOrder: 1, ..CUmemcpyAttributes::default() };
        let (mut first, mut failed) = (0, 0);
        for [mut tos, mut froms] in [
            [[device, device + half as u64], [from, from + half as u64]],
            [[to, to + half as u64], [device, device + half as u64]],
        ] {
            let (tos, froms, mut sizes) = (tos.as_mut_ptr(), froms.as_mut_ptr(), [half; 2]);
            cu!(cuMemcpyBatchAsync(
                tos,
                froms,
                sizes.as_mut_ptr(),
                2,
                &mut attributes,
                &mut first,
                1,
                &mut failed,
                stream
            ));
        }
    });
    let unserved: Vec<_> = seen.iter().filter(|(_, through)| **through < 2).collect();
    assert!(unserved.is_empty(), "not both ways through the relay: {unserved:?}");
    // A simulated context takes no memory.
    let (staging, context) = support::held();
    assert!(staging >= 16 * MIB as u64 && context == 0, "what it costs is said: {staging} {context}");
}

#[test]
fn every_form_of_call_takes_several_links() {
    alone("every_form_of_call_takes_several_links", "0,1", &[], every_form);
}
