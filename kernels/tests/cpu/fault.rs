//! Hazard (error handling): a kernel's bad access kills the process that simulates the GPU, or
//! leaves it unable to launch again; or the signal handler hides a crash that is not a kernel's.

use std::ffi::c_void;
use std::process::Command;

use wm_kernels::cpu::Fault;
use wm_kernels::diagnostics::{CopyU32, FillU32, ReduceSumF32};

use crate::support::{launch, read, run, written};

/// Pages without access rights, as address and size in bytes.
struct Forbidden(*mut c_void, usize);

impl Forbidden {
    fn new(size: usize) -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping at an address of the system's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), size, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        Self(base, size)
    }

    fn address(&self) -> u64 {
        self.0.expose_provenance() as u64
    }
}

impl Drop for Forbidden {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and nothing refers to it.
        unsafe { libc::munmap(self.0, self.1) };
    }
}

fn a_launch_works() {
    let (x, mut out) = (vec![1f32; 5000], [0f32]);
    run((3, 200), &ReduceSumF32 { x: read(&x), n: 5000, out: written(&mut out) });
    assert_eq!(out[0], 5000.0);
}

#[test]
fn a_write_fault_names_its_address_and_the_next_launch_works() {
    let page = Forbidden::new(1 << 16);
    for _ in 0..100 {
        let fault = launch([2, 1, 1], [64, 1, 1], &FillU32 { dst: page.address(), n: 100, value: 1 });
        assert_eq!(fault, Err(Fault::IllegalAddress(page.address())));
        a_launch_works();
    }
}

#[test]
fn a_read_fault_names_its_address() {
    let (page, mut dst) = (Forbidden::new(1 << 16), vec![0u32; 10]);
    let arguments = CopyU32 { dst: written(&mut dst), src: page.address() + 4096, n: 10 };
    assert_eq!(launch([1; 3], [32, 1, 1], &arguments), Err(Fault::IllegalAddress(page.address() + 4096)));
}

#[test]
fn a_fault_while_siblings_wait_frees_their_stacks() {
    // Lane 0 stores the sum first: its 31 siblings are still parked in the last shuffle then.
    let (x, page) = (vec![1f32; 4096], Forbidden::new(1 << 16));
    for _ in 0..20 {
        let arguments = ReduceSumF32 { x: read(&x), n: 4096, out: page.address() };
        let fault = launch([4, 1, 1], [1024, 1, 1], &arguments);
        assert_eq!(fault, Err(Fault::IllegalAddress(page.address())));
        a_launch_works();
    }
}

#[test]
fn an_address_that_no_process_has_is_a_fault() {
    let arguments = FillU32 { dst: 0xdead_0000_0000_0000, n: 1, value: 1 };
    assert!(matches!(launch([1; 3], [1; 3], &arguments), Err(Fault::IllegalAddress(_))));
}

#[test]
fn a_past_the_end_fault_of_a_file_is_a_fault() {
    // A mapping beyond its file's end raises SIGBUS instead of SIGSEGV. SAFETY: a new file without
    // a name, mapped at an address of the system's choice and never read by Rust code.
    let base = unsafe {
        let file = libc::memfd_create(c"empty".as_ptr(), 0);
        libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file, 0)
    };
    assert_ne!(base, libc::MAP_FAILED);
    let address = base.expose_provenance() as u64;
    let fault = launch([1; 3], [1; 3], &FillU32 { dst: address, n: 1, value: 1 });
    assert_eq!(fault, Err(Fault::IllegalAddress(address)));
}

#[test]
fn a_thread_without_an_alternate_signal_stack_is_served() {
    // SAFETY: takes this test thread's alternate stack away; Rust's runtime needs it for its
    // overflow message only.
    unsafe {
        let none = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        assert_eq!(libc::sigaltstack(&none, std::ptr::null_mut()), 0);
    }
    a_write_fault_names_its_address_and_the_next_launch_works();
    // SAFETY: asks for the present state only.
    let flags = unsafe {
        let mut state = std::mem::zeroed::<libc::stack_t>();
        libc::sigaltstack(std::ptr::null(), &mut state);
        state.ss_flags
    };
    assert_eq!(flags & libc::SS_DISABLE, libc::SS_DISABLE, "a launch must leave the thread as it was");
}

/// Runs in a child process (see below): faults outside a kernel, after one ran.
#[test]
#[ignore = "ends its process; run by a_crash_outside_a_kernel_stays_a_crash"]
fn child_that_crashes() {
    a_launch_works();
    // SAFETY: not sound at all: the process is meant to die here.
    unsafe { std::ptr::null_mut::<u32>().wrapping_add(4).write_volatile(1) };
}

#[test]
fn a_crash_outside_a_kernel_stays_a_crash() {
    use std::os::unix::process::ExitStatusExt;
    let this = std::env::current_exe().expect("a test knows its own path");
    let status = Command::new(this).args(["--ignored", "--exact", "fault::child_that_crashes"]).output();
    let status = status.expect("the test binary runs").status;
    assert_eq!(status.signal(), Some(libc::SIGSEGV), "{status:?}");
}
