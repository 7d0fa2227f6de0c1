//! Hazard (deadlock): a call waits for a stream that itself waits for the host: an NCCL receive, a
//! persistent kernel, a host function. Such a program releases its stream only after its calls
//! have returned.

use std::ffi::c_void;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use wm_abi::*;

use super::support::{BYTES, MIB, Program, alone, bytes, cu, on_machine, relayed, table};

/// The longest wait of a call before it counts as endless.
const LIMIT: Duration = Duration::from_secs(100);

/// The gate that a held stream waits for.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

/// A stream that is held until this is opened.
pub(crate) struct Hold(&'static Gate);

unsafe extern "C" fn wait(gate: *mut c_void) {
    // SAFETY: a gate that was leaked for this.
    let gate = unsafe { &*gate.cast::<Gate>() };
    let open = gate.open.lock().expect("no panic");
    let (_open, late) = gate.opened.wait_timeout_while(open, LIMIT, |open| !*open).expect("no panic");
    if late.timed_out() {
        eprintln!("a call waits for a stream that is let go only afterwards");
        std::process::abort();
    }
}

impl Hold {
    pub(crate) fn close(stream: CUstream) -> Self {
        let gate: &'static Gate = Box::leak(Box::default());
        let wait = wait as unsafe extern "C" fn(_) as *mut c_void;
        cu!(cuLaunchHostFunc(stream, wait, std::ptr::from_ref(gate).cast_mut().cast()));
        Self(gate)
    }

    pub(crate) fn open(self) {
        *self.0.open.lock().expect("no panic") = true;
        self.0.opened.notify_all();
    }
}

fn stream() -> CUstream {
    let mut stream = CUstream::NULL;
    cu!(cuStreamCreate(&mut stream, CU_STREAM_NON_BLOCKING));
    stream
}

fn there(p: &Program) {
    cu!(cuMemcpyHtoDAsync_v2(p.device, p.from as *const _, BYTES, p.stream));
}

fn back(p: &Program) {
    cu!(cuMemcpyDtoHAsync_v2(p.to as *mut _, p.device, BYTES, p.stream));
}

/// The first copies of a process without a topology.
fn first_copies(in_held: bool, passed: usize) {
    let p = &Program::new();
    for _ in 0..passed {
        there(p);
    }
    p.fill(3);
    let hold = Hold::close(if in_held { p.stream } else { stream() });
    there(p);
    back(p);
    hold.open();
    p.verify("behind a held stream");
    assert!(p.warm_within(Duration::from_secs(300)), "the links were measured beside");
}

/// Two links whose rates add up.
const LINKS: (&str, &str) = ("SIMCUDA_LINKS", "pcie=800MB/s,nvlink=20GB/s");

#[test]
fn the_first_copy_of_a_process_waits_for_no_stream() {
    let name = "held::the_first_copy_of_a_process_waits_for_no_stream";
    on_machine(name, "0,1", None, &[LINKS], || first_copies(true, 0));
    on_machine(name, "0,1", None, &[LINKS], || first_copies(false, 0));
}

#[test]
fn nor_does_the_one_that_makes_the_library_look_for_relays() {
    let name = "held::nor_does_the_one_that_makes_the_library_look_for_relays";
    // 1 GiB has been copied before it comes.
    on_machine(name, "auto", None, &[LINKS], || first_copies(true, (1 << 30) / BYTES));
}

/// Makes a call that releases a device or ends a context while a copy waits in a held stream of
/// device 0.
fn given_up(call: impl FnOnce()) {
    let p = &Program::warm();
    p.fill(5);
    let hold = Hold::close(p.stream);
    there(p);
    back(p);
    call();
    hold.open();
    p.verify("behind a held stream");
    p.fill(7);
    there(p);
    back(p);
    p.verify("afterwards");
    assert_eq!(relayed(), 4);
}

#[test]
fn a_reference_to_a_device_comes_and_goes() {
    let name = "held::a_reference_to_a_device_comes_and_goes";
    for body in [|| given_up(|| pair(0)), || given_up(|| pair(1))] {
        alone(name, "0,1", &[], body);
    }
}

fn pair(device: CUdevice) {
    let mut context = CUcontext::NULL;
    cu!(cuDevicePrimaryCtxRetain(&mut context, device));
    cu!(cuDevicePrimaryCtxRelease_v2(device));
}

#[test]
fn a_sibling_is_reset() {
    alone("held::a_sibling_is_reset", "0,1", &[], || given_up(|| cu!(cuDevicePrimaryCtxReset_v2(1))));
}

/// A second context of the device ends, in which copies were made too.
fn another_context_ends() {
    let p = &Program::warm();
    let mut other = CUcontext::NULL;
    cu!(cuCtxCreate_v2(&mut other, 0, 0));
    let q = Program { stream: stream(), ..Program::buffers(p.stream) };
    q.fill(9);
    there(&q);
    back(&q);
    q.verify("in the other context");
    let mut popped = CUcontext::NULL;
    cu!(cuCtxPopCurrent_v2(&mut popped));
    p.fill(5);
    let hold = Hold::close(p.stream);
    there(p);
    back(p);
    cu!(cuCtxDestroy_v2(other));
    hold.open();
    p.verify("behind a held stream");
    assert_eq!(relayed(), 4);
}

#[test]
fn another_context_of_the_device_ends_at_once() {
    alone("held::another_context_of_the_device_ends_at_once", "0,1", &[], another_context_ends);
}

/// A relay fails between the two hops of a piece.
fn a_relay_fails() {
    let p = &Program::warm();
    cu!(cuMemcpyHtoD_v2(p.device, p.from as *const _, BYTES));
    p.fill(11);
    cu!(cuMemcpyHtoD_v2(p.device, p.from as *const _, BYTES));
    let hold = Hold::close(p.stream);
    back(p);
    hold.open();
    p.verify("behind a held stream");
    p.fill(13);
    there(p);
    back(p);
    p.verify("afterwards");
}

#[test]
fn a_relay_that_fails_is_not_waited_for() {
    let name = "held::a_relay_that_fails_is_not_waited_for";
    // The first is the direct share's.
    for failure in ["cuMemcpyDtoHAsync:2", "cuMemcpyDtoHAsync:3"] {
        alone(name, "0,1", &[("SIMCUDA_FAIL", failure)], a_relay_fails);
    }
}

/// Longer than the rest of the device range.
fn too_long() {
    const LONG: usize = 64 * MIB;
    const MORE: u64 = 16 << 20;
    let p = &Program::warm();
    let (mut host, mut device) = (std::ptr::null_mut(), 0);
    cu!(cuMemHostAlloc(&mut host, LONG + MORE as usize, 0));
    cu!(cuMemAlloc_v2(&mut device, LONG));
    cu!(cuMemsetD8_v2(device, 7, LONG));
    // SAFETY: handles and ranges of this test's own, too long on purpose.
    let copies = |stream| unsafe {
        let into = table().get::<symbol::cuMemcpyHtoDAsync_v2>();
        let out = table().get::<symbol::cuMemcpyDtoHAsync_v2>();
        [
            into(device, host, LONG + MORE as usize, stream),
            into(device + MORE, host, LONG, stream),
            out(host, device + MORE, LONG, stream),
        ]
    };
    let refused = [CUresult::INVALID_VALUE; 3];
    assert_eq!(copies(p.stream), refused);
    let hold = Hold::close(p.stream);
    assert_eq!(copies(p.stream), refused, "in a held stream");
    hold.open();
    cu!(cuStreamSynchronize(p.stream));
    assert_eq!(relayed(), 0);
    for at in (0..LONG).step_by(BYTES) {
        let part = BYTES.min(LONG - at);
        cu!(cuMemcpyDtoH_v2(p.to as *mut _, device + at as u64, part));
        assert!(bytes(p.to)[..part].iter().all(|byte| *byte == 7), "a part was copied");
    }
}

#[test]
fn a_copy_that_is_too_long_is_refused_at_once_and_whole() {
    let name = "held::a_copy_that_is_too_long_is_refused_at_once_and_whole";
    for stitch in ["on", "off"] {
        alone(name, "0,1", &[("WMSHIM_STITCH", stitch)], too_long);
    }
}
