//! Hazard (use after free): the program destroys a context or resets a device while another
//! device's copy goes through it.

use std::ffi::c_void;

use wm_abi::*;

use super::support::{BYTES, FAST, Machine, Program, bytes, cu, on_machine, relayed};

const MACHINE: Machine = Machine { devices: 4, rate: FAST };

/// A thread uses its device, and ends its context at the end.
fn life(device: CUdevice, end: fn(CUdevice)) {
    for round in 0..3_u8 {
        let (mut context, mut stream) = (CUcontext::NULL, CUstream::NULL);
        cu!(cuDevicePrimaryCtxRetain(&mut context, device));
        cu!(cuCtxSetCurrent(context));
        cu!(cuStreamCreate(&mut stream, CU_STREAM_NON_BLOCKING));
        let p = Program::buffers(stream);
        for copy in 0..4_u8 {
            let byte = device as u8 * 60 + round * 10 + copy;
            bytes(p.from).fill(byte);
            cu!(cuMemcpyHtoDAsync_v2(p.device, p.from as *const c_void, BYTES, stream));
            cu!(cuMemcpyDtoHAsync_v2(p.to as *mut c_void, p.device, BYTES, stream));
            cu!(cuStreamSynchronize(stream));
            assert!(bytes(p.to) == bytes(p.from), "device {device}, copy {copy}");
        }
        end(device);
    }
}

fn lives(end: fn(CUdevice)) {
    Program::warm();
    std::thread::scope(|scope| {
        for device in 0..MACHINE.devices as CUdevice {
            scope.spawn(move || life(device, end));
        }
    });
    assert!(relayed() > 0);
}

#[test]
fn a_device_is_released_while_others_copy_through_it() {
    let name = "ends::a_device_is_released_while_others_copy_through_it";
    on_machine(name, "0,1,2,3", Some(MACHINE), &[], || {
        lives(|device| cu!(cuDevicePrimaryCtxRelease_v2(device)))
    });
}

#[test]
fn a_device_is_reset_while_others_copy_through_it() {
    let name = "ends::a_device_is_reset_while_others_copy_through_it";
    on_machine(name, "0,1,2,3", Some(MACHINE), &[], || {
        lives(|device| cu!(cuDevicePrimaryCtxReset_v2(device)))
    });
}

/// The target's own context ends, and a new one has the same handle.
fn the_targets_context_comes_again() {
    for round in 0..3 {
        let p = if round == 0 { Program::warm() } else { Program::new() };
        let before = relayed();
        p.fill(round + 3);
        cu!(cuMemcpyHtoDAsync_v2(p.device, p.from as *const c_void, BYTES, p.stream));
        cu!(cuMemcpyDtoHAsync_v2(p.to as *mut c_void, p.device, BYTES, p.stream));
        p.verify("in this life");
        assert_eq!(relayed() - before, 2, "round {round}");
        cu!(cuDevicePrimaryCtxReset_v2(0));
    }
}

#[test]
fn nothing_of_a_context_is_used_in_its_next_life() {
    let name = "ends::nothing_of_a_context_is_used_in_its_next_life";
    let machine = Machine { devices: 2, ..MACHINE };
    on_machine(name, "0,1", Some(machine), &[], the_targets_context_comes_again);
}
