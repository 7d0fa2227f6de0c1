//! Hazard (stream order): a copy of several parts starts before earlier work ends, ends after
//! later work starts, or reports completion too early.
//!
//! The simulator delays streams at random, so an order that is not enforced is violated sooner or
//! later.

use std::ffi::c_void;

use wm_abi::*;

use super::pageable::after_a_while;
use super::support::{BYTES, CORES, Machine, Program, alone, bytes, cu, on_machine, relayed, table};

/// The default stream, under the name that a program uses.
const LEGACY: CUstream = CUstream::NULL;

fn blocking() -> CUstream {
    let mut stream = CUstream::NULL;
    cu!(cuStreamCreate(&mut stream, CU_STREAM_DEFAULT));
    stream
}

/// Blocking streams' work before and after a copy in the legacy default stream stays ordered with
/// it.
fn barriers() {
    let p = &Program::warm();
    let (before, after) = (blocking(), blocking());
    for round in 1..4 {
        cu!(cuMemsetD8Async(p.device, round, BYTES, before));
        cu!(cuMemcpyDtoHAsync_v2(p.to as *mut c_void, p.device, BYTES, LEGACY));
        cu!(cuMemsetD8Async(p.device, 0xee, BYTES, after));
        cu!(cuCtxSynchronize());
        assert!(bytes(p.to).iter().all(|byte| *byte == round), "round {round}");
        bytes(p.from).fill(round + 100);
        cu!(cuMemsetD8Async(p.device, 0xdd, BYTES, after));
        cu!(cuMemcpyHtoDAsync_v2(p.device, p.from as *const c_void, BYTES, LEGACY));
        cu!(cuMemcpyDtoHAsync_v2(p.to as *mut c_void, p.device, BYTES, before));
        cu!(cuCtxSynchronize());
        assert!(bytes(p.to).iter().all(|byte| *byte == round + 100), "round {round}, in");
    }
    assert!(relayed() >= 6, "{}", relayed());
}

#[test]
fn the_legacy_default_stream_is_a_barrier() {
    for seed in ["3", "11"] {
        alone("order::the_legacy_default_stream_is_a_barrier", "0,1", &[("SIMCUDA_SEED", seed)], barriers);
    }
}

/// Work of the legacy default stream before and after a copy in a blocking one, of pinned memory
/// and of pageable memory.
fn beside_the_default_stream() {
    let p = &Program::warm();
    let mut pageable = vec![0_u8; BYTES];
    let stream = blocking();
    let mut round = 0;
    for host in [p.to, pageable.as_mut_ptr() as u64] {
        for stream in [stream, CUstream::PER_THREAD] {
            round += 1;
            after_a_while(LEGACY);
            cu!(cuMemsetD8Async(p.device, round, BYTES, LEGACY));
            cu!(cuMemcpyDtoHAsync_v2(host as *mut c_void, p.device, BYTES, stream));
            cu!(cuMemsetD8Async(p.device, 0xee, BYTES, LEGACY));
            cu!(cuCtxSynchronize());
            assert!(bytes(host).iter().all(|byte| *byte == round), "round {round}, out");
            after_a_while(LEGACY);
            cu!(cuMemsetD8Async(p.device, 0xdd, BYTES, LEGACY));
            cu!(cuMemcpyHtoDAsync_v2(p.device, host as *const c_void, BYTES, stream));
            cu!(cuMemcpyDtoHAsync_v2(p.from as *mut c_void, p.device, BYTES, LEGACY));
            cu!(cuCtxSynchronize());
            assert!(bytes(p.from).iter().all(|byte| *byte == round), "round {round}, in");
        }
    }
    assert!(relayed() >= 2);
}

#[test]
fn the_default_stream_before_and_behind_a_copy_in_a_blocking_one() {
    let name = "order::the_default_stream_before_and_behind_a_copy_in_a_blocking_one";
    let machine = Machine { devices: 4, rate: 6e9 };
    for seed in ["3", "11"] {
        let variables = [CORES, ("SIMCUDA_SEED", seed)];
        on_machine(name, "0,1,2,3", Some(machine), &variables, beside_the_default_stream);
    }
}

/// The state of a stream, seen from each side.
fn one_stream() {
    let p = &Program::warm();
    for round in 1..4 {
        cu!(cuMemsetD8Async(p.device, round, BYTES, p.stream));
        cu!(cuMemcpyDtoHAsync_v2(p.to as *mut c_void, p.device, BYTES, p.stream));
        cu!(cuMemsetD8Async(p.device, 0xee, BYTES, p.stream));
        cu!(cuStreamSynchronize(p.stream));
        assert!(bytes(p.to).iter().all(|byte| *byte == round), "round {round}");
    }
    // Another stream that waits for an event behind the copy.
    let (mut other, mut event) = (CUstream::NULL, CUevent::NULL);
    cu!(cuStreamCreate(&mut other, CU_STREAM_NON_BLOCKING));
    cu!(cuEventCreate(&mut event, CU_EVENT_DISABLE_TIMING));
    bytes(p.from).fill(77);
    cu!(cuMemcpyHtoDAsync_v2(p.device, p.from as *const c_void, BYTES, p.stream));
    cu!(cuEventRecord(event, p.stream));
    cu!(cuStreamWaitEvent(other, event, 0));
    cu!(cuMemcpyDtoHAsync_v2(p.to as *mut c_void, p.device, BYTES, other));
    cu!(cuStreamSynchronize(other));
    assert!(bytes(p.to).iter().all(|byte| *byte == 77));
    assert!(relayed() >= 4);
}

#[test]
fn what_is_before_and_behind_stays_there() {
    for seed in ["5", "23"] {
        alone("order::what_is_before_and_behind_stays_there", "0,1", &[("SIMCUDA_SEED", seed)], one_stream);
    }
}

fn said_when_done() {
    let p = &Program::warm();
    let mut event = CUevent::NULL;
    cu!(cuEventCreate(&mut event, CU_EVENT_DISABLE_TIMING));
    // SAFETY: handles of this test's own.
    let states = || unsafe {
        let stream = table().get::<symbol::cuStreamQuery>()(p.stream);
        let event = table().get::<symbol::cuEventQuery>()(event);
        [stream, event]
    };
    for into in [true, false] {
        p.fill(19);
        if into {
            cu!(cuMemcpyHtoDAsync_v2(p.device, p.from as *const c_void, BYTES, p.stream));
        } else {
            cu!(cuMemcpyDtoHAsync_v2(p.to as *mut c_void, p.device, BYTES, p.stream));
        }
        cu!(cuEventRecord(event, p.stream));
        // Even over two links the copy takes 150 ms.
        assert_eq!(states(), [CUresult::NOT_READY; 2], "into: {into}");
        while states().contains(&CUresult::NOT_READY) {
            std::thread::yield_now();
        }
        assert_eq!(states(), [CUresult::SUCCESS; 2]);
        assert!(into || bytes(p.to) == bytes(p.from), "a byte came after it was said to be there");
    }
    assert_eq!(relayed(), 2);
}

#[test]
fn a_stream_and_an_event_are_done_when_the_last_byte_is_there() {
    let name = "order::a_stream_and_an_event_are_done_when_the_last_byte_is_there";
    alone(name, "0,1", &[("SIMCUDA_LINKS", "pcie=40MB/s,nvlink=20GB/s")], said_when_done);
}
