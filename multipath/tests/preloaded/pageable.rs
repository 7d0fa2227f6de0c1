//! Hazard (stream order): a pageable copy that threads of the library carry leaves the stream that
//! the program named, reads its source earlier than the driver does, or moves the program's own
//! page fault into another thread.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use wm_abi::*;

use super::support::{BYTES, CORES, Machine, Program, bytes, cu, on_machine, relayed};

const PER_THREAD: CUstream = CUstream::PER_THREAD;

/// Long enough for threads to begin too early; no test waits for its end.
const DELAY: Duration = Duration::from_millis(300);

/// Links on which every thread of a copy has begun before the first could have carried all of it.
const LINKS: (&str, &str) = ("SIMCUDA_LINKS", "pcie=80MB/s,nvlink=20GB/s");

fn pageable(name: &str, body: fn()) {
    on_machine(name, "0,1,2,3", Some(Machine { devices: 4, rate: 6e9 }), &[CORES, LINKS], body);
}

unsafe extern "C" fn sleep(_: *mut c_void) {
    std::thread::sleep(DELAY);
}

pub(crate) fn after_a_while(stream: CUstream) {
    cu!(cuLaunchHostFunc(stream, sleep as unsafe extern "C" fn(_) as *mut c_void, std::ptr::null_mut()));
}

/// Behind a memset in this thread's own default stream.
fn per_thread() {
    let p = &Program::warm();
    let mut host = vec![0_u8; BYTES];
    cu!(cuMemsetD8_v2(p.device, 1, BYTES));
    let before = relayed();
    after_a_while(PER_THREAD);
    cu!(cuMemsetD8Async_ptsz(p.device, 2, BYTES, PER_THREAD));
    cu!(cuMemcpyDtoH_v2_ptds(host.as_mut_ptr().cast(), p.device, BYTES));
    let out = relayed() - before;
    assert_eq!(host.iter().filter(|byte| **byte != 2).count(), 0, "bytes were copied out before the memset");
    host.fill(3);
    after_a_while(PER_THREAD);
    cu!(cuMemsetD8Async_ptsz(p.device, 4, BYTES, PER_THREAD));
    cu!(cuMemcpyHtoD_v2_ptds(p.device, host.as_ptr().cast(), BYTES));
    let into = relayed() - before - out;
    cu!(cuMemcpyDtoH_v2(p.to as *mut c_void, p.device, BYTES));
    assert_eq!(
        bytes(p.to).iter().filter(|byte| **byte != 3).count(),
        0,
        "bytes were overwritten by the memset"
    );
    assert!(out > 0 && into > 0, "the copies took several paths: {out} {into}");
}

#[test]
fn a_threads_own_default_stream_is_its_own_in_every_thread_of_ours() {
    pageable("pageable::a_threads_own_default_stream_is_its_own_in_every_thread_of_ours", per_thread);
}

unsafe extern "C" fn fill(host: *mut c_void) {
    std::thread::sleep(DELAY);
    // SAFETY: BYTES bytes that the test keeps.
    unsafe { std::ptr::write_bytes(host.cast::<u8>(), 9, BYTES) };
}

/// A host function of the stream writes the source of the copy.
fn made_by_the_stream() {
    let p = &Program::warm();
    let mut host = vec![0_u8; BYTES];
    let before = relayed();
    cu!(cuLaunchHostFunc(p.stream, fill as unsafe extern "C" fn(_) as *mut c_void, host.as_mut_ptr().cast()));
    cu!(cuMemcpyHtoD_v2(p.device, host.as_ptr().cast(), BYTES));
    cu!(cuMemcpyDtoH_v2(p.to as *mut c_void, p.device, BYTES));
    assert_eq!(
        bytes(p.to).iter().filter(|byte| **byte != 9).count(),
        0,
        "bytes were read before they were made"
    );
    assert!(relayed() > before, "the copy took several paths");
}

#[test]
fn a_source_is_read_when_the_stream_has_made_it() {
    pageable("pageable::a_source_is_read_when_the_stream_has_made_it", made_by_the_stream);
}

/// The same in a thread's own default stream, where the copy's first bytes go ahead of the rest.
fn made_by_a_blocking_stream() {
    let p = &Program::warm();
    let mut host = vec![0_u8; BYTES];
    let before = relayed();
    cu!(cuLaunchHostFunc(
        PER_THREAD,
        fill as unsafe extern "C" fn(_) as *mut c_void,
        host.as_mut_ptr().cast()
    ));
    cu!(cuMemcpyHtoD_v2_ptds(p.device, host.as_ptr().cast(), BYTES));
    cu!(cuMemcpyDtoH_v2(p.to as *mut c_void, p.device, BYTES));
    let wrong = bytes(p.to).iter().position(|byte| *byte != 9);
    assert_eq!(wrong, None, "bytes were read before they were made");
    assert!(relayed() > before, "the copy took several paths");
}

#[test]
fn a_source_is_read_when_a_blocking_stream_has_made_it() {
    pageable("pageable::a_source_is_read_when_a_blocking_stream_has_made_it", made_by_a_blocking_stream);
}

static SERVED: AtomicUsize = AtomicUsize::new(0);
static ABROAD: AtomicBool = AtomicBool::new(false);

/// Unprotects the touched page.
unsafe extern "C" fn serve(_: i32, information: *mut libc::siginfo_t, _: *mut c_void) {
    SERVED.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the kernel calls it with valid arguments; both calls are safe in a handler.
    unsafe {
        let mut name = [0_u8; 16];
        libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr());
        if name.starts_with(b"wm-") {
            ABROAD.store(true, Ordering::Relaxed);
        }
        let page = (*information).si_addr() as usize & !4095;
        if libc::mprotect(page as *mut c_void, 4096, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            libc::_exit(9);
        }
    }
}

/// Every 64th page cannot be used until the program's handler has unprotected it.
fn protected(protection: i32) -> &'static mut [u8] {
    // SAFETY: memory of this test's own, and a handler that is valid for good.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let start = libc::mmap(std::ptr::null_mut(), BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        let memory = std::slice::from_raw_parts_mut(start.cast::<u8>(), BYTES);
        memory.fill(6);
        for page in memory.chunks_mut(64 * 4096) {
            libc::mprotect(page.as_mut_ptr().cast(), 4096, protection);
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = serve as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut());
        memory
    }
}

fn faults() {
    let p = &Program::warm();
    let from = protected(libc::PROT_NONE);
    cu!(cuMemcpyHtoD_v2(p.device, from.as_ptr().cast(), BYTES));
    let to = protected(libc::PROT_READ);
    cu!(cuMemcpyDtoH_v2(to.as_mut_ptr().cast(), p.device, BYTES));
    assert!(to.iter().all(|byte| *byte == 6));
    assert_eq!(SERVED.load(Ordering::Relaxed), 2 * BYTES / (64 * 4096));
    assert!(!ABROAD.load(Ordering::Relaxed), "a fault of the program happened in a thread of ours");
}

#[test]
fn faults_that_the_program_serves_do_not_happen_in_our_threads() {
    pageable("pageable::faults_that_the_program_serves_do_not_happen_in_our_threads", faults);
}

/// Another thread's capture begins while a copy is in flight.
fn beside_a_capture() {
    let p = Program::warm();
    let mut context = CUcontext::NULL;
    cu!(cuCtxGetCurrent(&mut context));
    let mut captured = CUstream::NULL;
    cu!(cuStreamCreate(&mut captured, CU_STREAM_NON_BLOCKING));
    cu!(cuMemsetD8_v2(p.device, 5, BYTES));
    let before = relayed();
    for _ in 0..3 {
        let (context, stream, device) = (context.0, p.stream.0, p.device);
        after_a_while(p.stream);
        let copying = std::thread::spawn(move || {
            cu!(cuCtxSetCurrent(CUcontext(context)));
            let mut host = vec![0_u8; BYTES];
            cu!(cuMemcpyDtoHAsync_v2(host.as_mut_ptr().cast(), device, BYTES, CUstream(stream)));
            assert!(host.iter().all(|byte| *byte == 5));
        });
        // The thread is most likely in its copy by now; if not, the driver makes the copy.
        std::thread::sleep(DELAY / 3);
        let mut graph = CUgraph::NULL;
        cu!(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
        copying.join().expect("its copy succeeds");
        cu!(cuStreamEndCapture(captured, &mut graph));
        cu!(cuStreamSynchronize(p.stream));
    }
    assert!(relayed() > before, "a copy took several paths");
}

/// If a copy may return before it is done, the driver decides whether it waits for the stream.
fn not_awaited() {
    let p = &Program::warm();
    let (mut host, mut stream) = (vec![4_u8; BYTES], CUstream::NULL);
    cu!(cuStreamCreate(&mut stream, CU_STREAM_NON_BLOCKING));
    let (before, start) = (relayed(), Instant::now());
    // A loaded machine may see too late that the stream is idle.
    while relayed() == before {
        assert!(start.elapsed() < Duration::from_secs(300), "an idle stream's copies took several paths");
        cu!(cuMemcpyHtoDAsync_v2(p.device, host.as_ptr().cast(), BYTES, stream));
        cu!(cuStreamSynchronize(stream));
    }
    let by_us = relayed();
    after_a_while(stream);
    host.fill(8);
    cu!(cuMemcpyHtoDAsync_v2(p.device, host.as_ptr().cast(), BYTES, stream));
    assert_eq!(relayed(), by_us, "behind work it is the driver's");
    cu!(cuStreamSynchronize(stream));
    cu!(cuMemcpyDtoH_v2(p.to as *mut c_void, p.device, BYTES));
    assert!(bytes(p.to).iter().all(|byte| *byte == 8));
}

#[test]
fn a_copy_in_that_is_not_waited_for_waits_for_no_stream() {
    pageable("pageable::a_copy_in_that_is_not_waited_for_waits_for_no_stream", not_awaited);
}

#[test]
fn a_capture_that_begins_during_a_copy_is_not_spoiled() {
    pageable("pageable::a_capture_that_begins_during_a_copy_is_not_spoiled", beside_a_capture);
}
