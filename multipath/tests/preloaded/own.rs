//! Hazard (API conformance): a large pageable copy on one device without settings, which threads of
//! the library carry, differs from the driver's own copy in bytes, order or errors.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use wm_abi::*;

use super::pageable::after_a_while;
use super::support::{
    BYTES, CORES, MIB, Machine, Program, bytes, calls, carried, copies, cu, is_active, is_touched,
    on_machine, threads_called,
};

const ONE: Machine = Machine { devices: 1, rate: 6e9 };

/// A program with one device and no setting but a lower threshold, which the test needs.
fn one_device(name: &str, variables: &[(&str, &str)], body: fn()) {
    on_machine(name, "", Some(ONE), &[&[CORES], variables].concat(), body);
}

/// Copies that threads carried.
fn by_threads() -> u64 {
    carried("threads")
}

fn pattern(seed: usize) -> Vec<u8> {
    (0..BYTES).map(|index| ((index + index / 4099) * seed % 251) as u8).collect()
}

/// Sends a pattern in by one call and fetches it by another one. Returns how many of the two
/// threads carried.
fn round(p: &Program, seed: usize, into: &dyn Fn(*const c_void), out: &dyn Fn(*mut c_void)) -> u64 {
    let (before, from, mut to) = (by_threads(), pattern(seed), vec![0_u8; BYTES]);
    // Behind work of the stream that would overwrite it.
    cu!(cuMemsetD8Async(p.device, 77, BYTES, p.stream));
    cu!(cuStreamSynchronize(p.stream));
    into(from.as_ptr().cast());
    out(to.as_mut_ptr().cast());
    let wrong = to.iter().zip(&from).position(|(one, other)| one != other);
    assert_eq!(wrong, None, "first wrong byte of round {seed}");
    by_threads() - before
}

fn every_stream() {
    let p = &Program::new();
    let device = p.device;
    let mut alone = CUstream::NULL;
    cu!(cuStreamCreate(&mut alone, CU_STREAM_NON_BLOCKING));
    let (own, legacy) = (CUstream::PER_THREAD, CUstream::NULL);
    let waiting = |from: *const c_void| cu!(cuMemcpyHtoD_v2(device, from, BYTES));
    assert_eq!(round(p, 3, &waiting, &|to| cu!(cuMemcpyDtoH_v2(to, device, BYTES))), 2, "waiting");
    let waiting = |from: *const c_void| cu!(cuMemcpyHtoD_v2_ptds(device, from, BYTES));
    assert_eq!(round(p, 5, &waiting, &|to| cu!(cuMemcpyDtoH_v2_ptds(to, device, BYTES))), 2, "per-thread");
    for (seed, stream) in [(7, p.stream), (11, alone), (13, legacy), (17, own)] {
        let into = |from: *const c_void| {
            // A loaded machine may see too late that the stream is idle; then the driver makes the
            // copy.
            cu!(cuMemcpyHtoDAsync_v2(device, from, BYTES, stream));
            cu!(cuStreamSynchronize(stream));
        };
        let through = round(p, seed, &into, &|to| cu!(cuMemcpyDtoHAsync_v2(to, device, BYTES, stream)));
        assert!(through >= 1, "in a stream: {seed}");
    }
    assert!(!is_touched(), "no sibling has a context of ours");
}

#[test]
fn every_byte_arrives_in_every_kind_of_stream() {
    for seed in ["0", "7"] {
        let name = "own::every_byte_arrives_in_every_kind_of_stream";
        one_device(name, &[("SIMCUDA_SEED", seed)], every_stream);
    }
}

#[test]
fn copies_that_share_bytes_do_not_race() {
    one_device("own::copies_that_share_bytes_do_not_race", &[("SIMCUDA_RACES", "1")], every_stream);
}

/// Work of every kind before and behind a copy, in the stream and in the legacy default stream.
fn in_order() {
    let p = &Program::new();
    let mut host = vec![0_u8; BYTES];
    for stream in [p.stream, CUstream::LEGACY, CUstream::PER_THREAD] {
        let before = by_threads();
        after_a_while(stream);
        cu!(cuMemsetD8Async(p.device, 1, BYTES, stream));
        cu!(cuMemcpyDtoHAsync_v2(host.as_mut_ptr().cast(), p.device, BYTES, stream));
        assert_eq!(host.iter().position(|byte| *byte != 1), None, "read before the memset");
        assert_eq!(by_threads() - before, 1);
        host.fill(2);
        after_a_while(stream);
        cu!(cuMemsetD8Async(p.device, 3, BYTES, stream));
        // The driver makes this copy, because its stream has work.
        cu!(cuMemcpyHtoDAsync_v2(p.device, host.as_ptr().cast(), BYTES, stream));
        cu!(cuMemcpyDtoHAsync_v2(p.to as *mut c_void, p.device, BYTES, stream));
        cu!(cuStreamSynchronize(stream));
        assert_eq!(bytes(p.to).iter().position(|byte| *byte != 2), None, "overtaken by the memset");
    }
}

#[test]
fn work_before_a_copy_is_before_it() {
    one_device("own::work_before_a_copy_is_before_it", &[], in_order);
}

/// Without any setting.
fn defaults() {
    const LARGE: usize = 48 * MIB;
    let p = &Program::new();
    let mut device = 0;
    cu!(cuMemAlloc_v2(&mut device, LARGE));
    let mut host = vec![5_u8; LARGE];
    cu!(cuMemcpyHtoD_v2(device, host.as_ptr().cast(), LARGE - 1));
    (0..10).for_each(|_| cu!(cuMemcpyHtoD_v2(p.device, host.as_ptr().cast(), BYTES)));
    cu!(cuMemcpyHtoD_v2(p.device, p.from as *const c_void, BYTES));
    assert_eq!(by_threads(), 0, "small ones and pinned ones are the driver's");
    cu!(cuMemcpyHtoD_v2(device, host.as_ptr().cast(), LARGE));
    host.fill(0);
    cu!(cuMemcpyDtoH_v2(host.as_mut_ptr().cast(), device, LARGE));
    assert!(host.iter().all(|byte| *byte == 5));
    assert_eq!(by_threads(), 2);
    assert!(threads_called("wm-copy").is_empty(), "they end with the copy");
    let count = copies()[&("direct".to_owned(), "htod".to_owned())];
    assert_eq!(count, 12, "the driver's copies are counted as ever");
}

#[test]
fn with_nothing_set_large_pageable_copies_are_carried_by_threads() {
    let name = "own::with_nothing_set_large_pageable_copies_are_carried_by_threads";
    one_device(name, &[("WMSHIM_MULTIPATH_MIN", "")], defaults);
}

fn forms_for_siblings() {
    let p = &Program::new();
    cu!(cuMemcpyHtoD_v2(p.device, pattern(3).as_ptr().cast(), BYTES));
    (0..3).for_each(|_| cu!(cuMemcpy(p.device, p.from, BYTES)));
    assert_eq!(calls("cuMemcpy"), 0, "it is not intercepted");
    assert_eq!(by_threads(), 1);
}

#[test]
fn forms_of_call_that_are_hooked_for_siblings_are_withdrawn() {
    one_device("own::forms_of_call_that_are_hooked_for_siblings_are_withdrawn", &[], forms_for_siblings);
}

fn several_devices() {
    let p = &Program::new();
    let (from, before) = (pattern(3), by_threads());
    // By address too.
    cu!(cuMemcpy(p.device, from.as_ptr() as u64, BYTES));
    cu!(cuMemcpyHtoD_v2(p.device, p.from as *const c_void, BYTES));
    assert_eq!(by_threads() - before, 1, "the pinned one is the driver's");
    for _ in 0..(1 << 30) / BYTES + 2 {
        cu!(cuMemcpyHtoD_v2(p.device, from.as_ptr().cast(), BYTES));
    }
    assert!(!is_touched() && !is_active(1), "the sibling is not touched");
    let folder = std::env::var("XDG_CACHE_HOME").expect("set by `on_machine`");
    assert!(!std::path::Path::new(&folder).exists(), "nothing was measured");
}

#[test]
fn siblings_are_not_touched() {
    let name = "own::siblings_are_not_touched";
    on_machine(name, "", None, &[CORES], several_devices);
}

fn within_a_quota() {
    let p = &Program::new();
    (0..2).for_each(|_| cu!(cuMemcpyHtoD_v2(p.device, pattern(3).as_ptr().cast(), BYTES)));
    let cores: u64 = std::env::var("TEST_QUOTA").expect("set by the test").parse().expect("a number");
    assert_eq!(by_threads(), if cores < 4 { 0 } else { 2 }, "{cores} cores");
}

/// The machine has eight cores, and the program's control group may use fewer of them.
#[test]
fn a_quota_is_kept() {
    for cores in ["3", "4"] {
        one_device("own::a_quota_is_kept", &[("TEST_QUOTA", cores)], within_a_quota);
    }
}

/// Eight cores by the mask and one in truth, as if other programs kept the rest busy.
fn crowded() {
    // SAFETY: asks for one core of this process's own, whose number fits the set.
    unsafe {
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut one);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&one), &one), 0);
    }
    let p = &Program::new();
    (0..8).for_each(|_| cu!(cuMemcpyHtoD_v2(p.device, pattern(3).as_ptr().cast(), BYTES)));
    let carried = by_threads();
    assert!((1..=3).contains(&carried), "threads that wait for cores become fewer, then none: {carried}");
}

#[test]
fn where_cores_are_busy_copies_are_soon_the_drivers() {
    let name = "own::where_cores_are_busy_copies_are_soon_the_drivers";
    // On slow links threads would sleep.
    one_device(name, &[("TEST_COUNTED", "1")], crowded);
}

static SERVED: AtomicUsize = AtomicUsize::new(0);

/// Serves a page beyond the file's new end to the thread that touched it.
unsafe extern "C" fn serve(_: i32, information: *mut libc::siginfo_t, _: *mut c_void) {
    const PAGE: usize = 4096;
    SERVED.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the kernel calls it with valid arguments; the calls inside are safe in a handler, and
    // name a page of the test's own.
    unsafe {
        let page = (*information).si_addr() as usize & !(PAGE - 1);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let mapped = libc::mmap(page as *mut c_void, PAGE, libc::PROT_READ, flags, -1, 0);
        let mut name = [0_u8; 16];
        libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr());
        if mapped == libc::MAP_FAILED || name.starts_with(b"wm-") {
            libc::_exit(9);
        }
    }
}

/// A mapped file is truncated, and the program handles the faults.
fn mapped_file() {
    let p = &Program::new();
    // SAFETY: a file and a mapping of this test's own, and a handler that is valid for good.
    let from = unsafe {
        let file = libc::memfd_create(c"mapped".as_ptr(), 0);
        assert_eq!(libc::ftruncate(file, BYTES as libc::off_t), 0);
        let from = libc::mmap(std::ptr::null_mut(), BYTES, libc::PROT_READ, libc::MAP_SHARED, file, 0);
        assert_ne!(from, libc::MAP_FAILED);
        assert_eq!(libc::ftruncate(file, (BYTES - MIB) as libc::off_t), 0);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = serve as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
        from
    };
    cu!(cuMemcpyHtoD_v2(p.device, from, BYTES));
    assert_eq!((SERVED.load(Ordering::Relaxed), by_threads()), (MIB / 4096, 0));
}

#[test]
fn faults_of_a_mapped_file_are_served_where_they_would_be_without_us() {
    let name = "own::faults_of_a_mapped_file_are_served_where_they_would_be_without_us";
    one_device(name, &[], mapped_file);
}

fn those_of_the_driver() {
    let p = &Program::new();
    cu!(cuMemcpyHtoD_v2(p.device, pattern(3).as_ptr().cast(), BYTES));
    assert_eq!(by_threads(), 0);
}

/// A server that orders copies itself, a device that reaches pageable memory by itself, and the
/// user's own setting.
#[test]
fn where_threads_have_no_place_copies_are_the_drivers() {
    let name = "own::where_threads_have_no_place_copies_are_the_drivers";
    for variable in [("SIMCUDA_MPS", "1"), ("SIMCUDA_COHERENT", "1"), ("WMSHIM_MULTIPATH", "off")] {
        on_machine(name, "", Some(ONE), &[CORES, variable], those_of_the_driver);
    }
}
