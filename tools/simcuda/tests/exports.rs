//! Hazard (symbol interposition): the loader does not take the simulated library for the driver,
//! or a name of the driver is missing.

use std::ffi::{CStr, CString, c_void};
use std::process::Command;

use wm_abi::symbol;

/// The shared object that Cargo built next to this test.
fn library() -> String {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().with_file_name("libsimcuda.so").to_str().unwrap().to_owned()
}

fn open(path: &str) -> *mut c_void {
    let path = CString::new(path).unwrap();
    // SAFETY: our own library has no initialisers.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!handle.is_null(), "{path:?} does not load");
    handle
}

fn look_up(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: an open library and a C string.
    unsafe { libc::dlsym(handle, name.as_ptr()) }
}

#[test]
fn every_name_of_the_driver_is_there_and_is_a_function_of_its_own() {
    let handle = open(&library());
    let mut addresses: Vec<usize> = symbol::NAMES.iter().map(|name| look_up(handle, name) as usize).collect();
    assert!(addresses.iter().all(|address| *address != 0));
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), symbol::COUNT);
}

#[test]
fn the_loader_takes_it_for_the_driver() {
    let handle = open(&library());
    // SAFETY: a C string.
    let by_soname = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    assert_eq!(by_soname, handle);
}

#[test]
fn what_is_not_simulated_says_so_once() {
    if std::env::var_os("SIMCUDA_TEST_CHILD").is_some() {
        return say_it_twice();
    }
    let run = |quiet| {
        let test = std::env::current_exe().unwrap();
        let name = "what_is_not_simulated_says_so_once";
        let mut command = Command::new(test);
        command
            .args([name, "--exact", "--nocapture"])
            .env("SIMCUDA_TEST_CHILD", "1")
            .env("SIMCUDA_QUIET", quiet);
        let output = command.output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap().matches("cuTexRefCreate is not simulated").count()
    };
    assert_eq!((run("0"), run("1")), (1, 0));
}

fn say_it_twice() {
    type Start = unsafe extern "C" fn(u32) -> u32;
    type Create = unsafe extern "C" fn(*mut c_void) -> u32;
    let handle = open(&library());
    // SAFETY: the driver's signatures.
    unsafe {
        let create: Create = std::mem::transmute(look_up(handle, c"cuTexRefCreate"));
        assert_eq!(create(std::ptr::null_mut()), 3);
        let start: Start = std::mem::transmute(look_up(handle, c"cuInit"));
        assert_eq!(start(0), 0);
        assert_eq!((create(std::ptr::null_mut()), create(std::ptr::null_mut())), (801, 801));
    }
}

#[test]
fn look_ups_answer_with_the_exports_themselves() {
    type LookUp = unsafe extern "C" fn(*const i8, *mut *mut c_void, i32, u64, *mut u32) -> u32;
    let handle = open(&library());
    // SAFETY: the driver's signature.
    let ask: LookUp = unsafe { std::mem::transmute(look_up(handle, c"cuGetProcAddress_v2")) };
    for (name, version, flags, export) in [
        (c"cuMemAlloc", 13000, 0, c"cuMemAlloc_v2"),
        (c"cuLaunchKernel", 12000, 2, c"cuLaunchKernel_ptsz"),
        (c"cuGetProcAddress", 12000, 0, c"cuGetProcAddress_v2"),
        (c"cuTexRefCreate", 13000, 0, c"cuTexRefCreate"),
    ] {
        let (mut found, mut status) = (std::ptr::null_mut(), 9);
        // SAFETY: C strings and places for the results.
        assert_eq!(unsafe { ask(name.as_ptr(), &raw mut found, version, flags, &raw mut status) }, 0);
        assert_eq!((found, status), (look_up(handle, export), 0));
    }
}
