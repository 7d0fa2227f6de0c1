//! The tests' common functions: the exports, called as C calls them, with results that a test can
//! read.
#![allow(
    unused_imports,
    unused_macros,
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test uses a part of it"
)]

use std::ffi::{CString, c_int, c_void};

pub use simcuda::exports::*;
pub use wm_abi::*;

/// Calls a driver function and fails the test unless it returns success, or the given code.
macro_rules! ok {
    ($name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the test passes valid arguments.
        assert_eq!(unsafe { $name($($argument),*) }, CUresult::SUCCESS, stringify!($name))
    };
}

/// As `ok!`, for calls that must fail.
macro_rules! fails {
    ($code:ident, $name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the test passes valid arguments.
        assert_eq!(unsafe { $name($($argument),*) }, CUresult::$code, stringify!($name))
    };
}

pub(crate) use {fails, ok};

/// Starts the driver under some settings, with the first device's primary context current.
/// Tests run one process each, so the settings are this test's own.
pub fn start(settings: &[(&str, &str)]) -> CUcontext {
    for (name, value) in settings {
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var(name, value) };
    }
    ok!(cuInit(0));
    context(0)
}

/// Makes a device's primary context current.
pub fn context(device: c_int) -> CUcontext {
    let mut context = CUcontext::NULL;
    ok!(cuDevicePrimaryCtxRetain(&raw mut context, device));
    ok!(cuCtxSetCurrent(context));
    context
}

pub fn stream(flags: u32) -> CUstream {
    let mut stream = CUstream::NULL;
    ok!(cuStreamCreate(&raw mut stream, flags));
    stream
}

pub fn event() -> CUevent {
    let mut event = CUevent::NULL;
    ok!(cuEventCreate(&raw mut event, CU_EVENT_DEFAULT));
    event
}

pub fn allocate(bytes: usize) -> CUdeviceptr {
    let mut address = 0;
    ok!(cuMemAlloc_v2(&raw mut address, bytes));
    address
}

/// Pinned host memory for one word.
pub fn flag() -> *mut u32 {
    let mut place: *mut c_void = std::ptr::null_mut();
    ok!(cuMemHostAlloc(&raw mut place, 64, 0));
    place.cast()
}

pub fn set(flag: *mut u32, value: u32) {
    // SAFETY: from `flag`, and every access is atomic.
    unsafe { std::sync::atomic::AtomicU32::from_ptr(flag) }.store(value, std::sync::atomic::Ordering::SeqCst);
}

pub fn upload(address: CUdeviceptr, words: &[u32]) {
    ok!(cuMemcpyHtoD_v2(address, words.as_ptr().cast(), size_of_val(words)));
}

pub fn download(address: CUdeviceptr, count: usize) -> Vec<u32> {
    let mut words = vec![0_u32; count];
    ok!(cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), address, count * 4));
    words
}

pub fn free_memory() -> usize {
    let mut free = 0;
    ok!(cuMemGetInfo_v2(&raw mut free, std::ptr::null_mut()));
    free
}

/// A kernel of wm-kernels, from PTX that names it.
pub fn kernel(name: &str) -> CUfunction {
    let image =
        CString::new(format!(".version 8.2\n.target sm_80\n.visible .entry {name}(\n)\n{{\n}}\n")).unwrap();
    let (mut module, mut function) = (CUmodule::NULL, CUfunction::NULL);
    ok!(cuModuleLoadData(&raw mut module, image.as_ptr().cast()));
    let name = CString::new(name).unwrap();
    ok!(cuModuleGetFunction(&raw mut function, module, name.as_ptr()));
    function
}

/// Launches 2 blocks of 64 threads.
pub fn launch(function: CUfunction, stream: CUstream, parameters: &mut [*mut c_void]) -> CUresult {
    // SAFETY: the test passes the kernel's own parameters.
    unsafe {
        cuLaunchKernel(function, 2, 1, 1, 64, 1, 1, 0, stream, parameters.as_mut_ptr(), std::ptr::null_mut())
    }
}

/// Address of a value, as a launch takes it.
pub fn at<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}

/// Queues a kernel that writes `value` to `count` words.
pub fn fill(address: CUdeviceptr, count: u64, value: u32, stream: CUstream) -> CUresult {
    let (mut address, mut count, mut value) = (address, count, value);
    launch(kernel("wm_fill_u32"), stream, &mut [at(&mut address), at(&mut count), at(&mut value)])
}

/// Queues a kernel that runs until a flag is 1.
pub fn hold(flag: *mut u32, stream: CUstream) {
    let (mut flag, mut value, mut limit) = (flag as u64, 1_u32, 20_000_000_000_u64);
    let mut expired = allocate(4);
    let function = kernel("wm_spin_until");
    let mut parameters = [at(&mut flag), at(&mut value), at(&mut limit), at(&mut expired)];
    // SAFETY: the kernel's own parameters.
    let result = unsafe {
        cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters.as_mut_ptr(), std::ptr::null_mut())
    };
    assert_eq!(result, CUresult::SUCCESS);
}

pub const MIB: usize = 1 << 20;
/// Unit of the virtual-memory calls.
pub const UNIT: usize = 2 * MIB;

pub fn properties(kind: u32, types: u32) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: types,
        location: CUmemLocation { type_: kind, id: 0 },
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: CUmemAllocationFlags::default(),
    }
}

pub fn create(bytes: usize, kind: u32, types: u32) -> u64 {
    let (mut handle, wanted) = (0, properties(kind, types));
    ok!(cuMemCreate(&raw mut handle, bytes, &raw const wanted, 0));
    handle
}

pub fn reserve(bytes: usize) -> CUdeviceptr {
    let mut address = 0;
    ok!(cuMemAddressReserve(&raw mut address, bytes, 0, 0, 0));
    address
}

pub fn access(address: CUdeviceptr, bytes: usize, kind: u32, id: c_int, flags: u32) -> CUresult {
    let descriptor = CUmemAccessDesc { location: CUmemLocation { type_: kind, id }, flags };
    // SAFETY: one descriptor.
    unsafe { cuMemSetAccess(address, bytes, &raw const descriptor, 1) }
}

/// A mapped range of one unit of device memory that the first device may use.
pub fn mapped(bytes: usize) -> (CUdeviceptr, u64) {
    let (address, handle) = (reserve(bytes), create(bytes, CU_MEM_LOCATION_TYPE_DEVICE, 0));
    ok!(cuMemMap(address, bytes, 0, handle, 0));
    let granted = access(address, bytes, CU_MEM_LOCATION_TYPE_DEVICE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    assert_eq!(granted, CUresult::SUCCESS);
    (address, handle)
}
