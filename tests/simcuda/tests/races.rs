//! Hazard: a race that `SIMCUDA_RACES` does not find, or ordered copies that it calls one.
//!
//! A race ends the process, so each program runs in one of its own.

mod common;

use std::process::{Command, Output};

use common::*;

const INNER: &str = "SIMCUDA_RACES_INNER";
const BYTES: usize = 1 << 20;

/// Runs the test's program in a process of its own, under the check.
fn alone(name: &str, program: fn()) -> Output {
    if std::env::var_os(INNER).is_some() {
        start(&[]);
        program();
        std::process::exit(0);
    }
    let mut command = Command::new(std::env::current_exe().expect("this test has a path"));
    command.args(["--exact", name, "--nocapture"]).env(INNER, "1").env("SIMCUDA_RACES", "1");
    command.output().expect("it can be started")
}

fn races(name: &str, program: fn()) {
    let output = alone(name, program);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("simcuda: a race: "), "{text}");
}

fn does_not_race(name: &str, program: fn()) {
    let output = alone(name, program);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn pinned() -> u64 {
    let mut place = std::ptr::null_mut();
    ok!(cuMemHostAlloc(&raw mut place, BYTES, 0));
    place as u64
}

fn into(device: u64, host: u64, stream: CUstream) {
    ok!(cuMemcpyHtoDAsync_v2(device, host as *const _, BYTES, stream));
}

fn out(host: u64, device: u64, stream: CUstream) {
    ok!(cuMemcpyDtoHAsync_v2(host as *mut _, device, BYTES, stream));
}

fn two_streams() -> [CUstream; 2] {
    [stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING)]
}

#[test]
fn an_event_that_is_not_waited_for() {
    races("an_event_that_is_not_waited_for", || {
        let ([one, other], device, event) = (two_streams(), allocate(BYTES), event());
        into(device, pinned(), one);
        ok!(cuEventRecord(event, one));
        // Time does not order anything.
        std::thread::sleep(std::time::Duration::from_millis(50));
        out(pinned(), device, other);
    });
}

#[test]
fn an_event_that_was_recorded_too_early() {
    races("an_event_that_was_recorded_too_early", || {
        let ([one, other], device, event) = (two_streams(), allocate(BYTES), event());
        ok!(cuEventRecord(event, one));
        into(device, pinned(), one);
        ok!(cuStreamWaitEvent(other, event, 0));
        ok!(cuMemsetD8Async(device + 4096, 0, 1, other));
    });
}

#[test]
fn events_streams_and_the_host_order_copies() {
    does_not_race("events_streams_and_the_host_order_copies", || {
        let ([one, other], device, event) = (two_streams(), allocate(BYTES), event());
        into(device, pinned(), one);
        ok!(cuEventRecord(event, one));
        ok!(cuStreamWaitEvent(other, event, 0));
        out(pinned(), device, other);
        // Seen by the host: by waiting, and by looking.
        ok!(cuStreamSynchronize(other));
        into(device, pinned(), one);
        ok!(cuEventRecord(event, one));
        // SAFETY: an event of this test's own.
        while unsafe { cuEventQuery(event) } == CUresult::NOT_READY {}
        ok!(cuMemsetD8Async(device, 0, BYTES, other));
        ok!(cuCtxSynchronize());
        // The legacy default stream and blocking ones wait for each other.
        let blocking = stream(CU_STREAM_DEFAULT);
        into(device, pinned(), blocking);
        into(device, pinned(), CUstream::LEGACY);
        out(pinned(), device, blocking);
    });
}

#[test]
fn copies_that_share_nothing_or_only_read_need_no_order() {
    does_not_race("copies_that_share_nothing_or_only_read_need_no_order", || {
        let ([one, other], device, host) = (two_streams(), allocate(2 * BYTES), pinned());
        into(device, host, one);
        into(device + BYTES as u64, host, other);
    });
}

#[test]
fn memory_that_was_freed_is_anybodys() {
    does_not_race("memory_that_was_freed_is_anybodys", || {
        let ([one, other], device) = (two_streams(), allocate(BYTES));
        into(device, pinned(), one);
        ok!(cuStreamDestroy_v2(one));
        ok!(cuMemFree_v2(device));
        into(allocate(BYTES), pinned(), other);
    });
}
