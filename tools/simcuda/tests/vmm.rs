//! Hazard (vacuous test): a virtual-memory call accepts what a GPU refuses, and a broken allocator
//! passes its tests.

mod common;

use common::*;

const DEVICE: u32 = CU_MEM_LOCATION_TYPE_DEVICE;
const NUMA: u32 = CU_MEM_LOCATION_TYPE_HOST_NUMA;
const READ: u32 = CU_MEM_ACCESS_FLAGS_PROT_READ;
const WRITE: u32 = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

#[test]
fn sizes_and_ranges_are_strict() {
    start(&[]);
    let prop = properties(DEVICE, 0);
    let mut handle = 0;
    fails!(INVALID_VALUE, cuMemCreate(&raw mut handle, MIB, &raw const prop, 0));
    fails!(INVALID_VALUE, cuMemCreate(&raw mut handle, 0, &raw const prop, 0));
    let (range, handle) = (reserve(4 * UNIT), create(2 * UNIT, DEVICE, 0));
    fails!(NOT_SUPPORTED, cuMemMap(range, UNIT, 0, handle, 0));
    fails!(NOT_SUPPORTED, cuMemMap(range, 2 * UNIT, UNIT, handle, 0));
    fails!(INVALID_VALUE, cuMemMap(range + 3 * UNIT as u64, 2 * UNIT, 0, handle, 0));
    fails!(INVALID_VALUE, cuMemMap(range + 4096, 2 * UNIT, 0, handle, 0));
    ok!(cuMemMap(range, 2 * UNIT, 0, handle, 0));
    fails!(INVALID_VALUE, cuMemMap(range + UNIT as u64, 2 * UNIT, 0, handle, 0));
}

#[test]
fn a_mapping_goes_as_a_whole() {
    start(&[]);
    let (range, handle) = mapped(2 * UNIT);
    fails!(INVALID_VALUE, cuMemUnmap(range, UNIT));
    fails!(INVALID_VALUE, cuMemUnmap(range + UNIT as u64, UNIT));
    fails!(INVALID_VALUE, cuMemAddressFree(range, 2 * UNIT));
    ok!(cuMemUnmap(range, 2 * UNIT));
    ok!(cuMemUnmap(range, 2 * UNIT));
    fails!(INVALID_VALUE, cuMemAddressFree(range, UNIT));
    ok!(cuMemAddressFree(range, 2 * UNIT));
    ok!(cuMemRelease(handle));
    fails!(INVALID_VALUE, cuMemRelease(handle));
}

#[test]
fn access_needs_a_range_without_holes() {
    start(&[]);
    let (range, handle) = (reserve(3 * UNIT), create(UNIT, DEVICE, 0));
    ok!(cuMemMap(range, UNIT, 0, handle, 0));
    ok!(cuMemMap(range + 2 * UNIT as u64, UNIT, 0, handle, 0));
    assert_eq!(access(range, 3 * UNIT, DEVICE, 0, WRITE), CUresult::INVALID_VALUE);
    ok!(cuMemMap(range + UNIT as u64, UNIT, 0, handle, 0));
    assert_eq!(access(range, 3 * UNIT, DEVICE, 0, WRITE), CUresult::SUCCESS);
}

#[test]
fn a_mapping_starts_without_access() {
    start(&[]);
    let (range, handle) = (reserve(UNIT), create(UNIT, DEVICE, 0));
    ok!(cuMemMap(range, UNIT, 0, handle, 0));
    fails!(INVALID_VALUE, cuMemsetD8_v2(range, 1, UNIT));
    let (mut flags, location) = (9, CUmemLocation { type_: DEVICE, id: 0 });
    ok!(cuMemGetAccess(&raw mut flags, &raw const location, range));
    assert_eq!(flags, 0);
}

#[test]
fn a_released_handle_lives_while_it_is_mapped() {
    start(&[]);
    let before = free_memory();
    let (range, handle) = mapped(UNIT);
    ok!(cuMemRelease(handle));
    assert_eq!(free_memory(), before - UNIT);
    upload(range, &[1, 2, 3]);
    let mut again = 0;
    ok!(cuMemRetainAllocationHandle(&raw mut again, range as *mut _));
    assert_eq!(again, handle);
    ok!(cuMemUnmap(range, UNIT));
    assert_eq!(free_memory(), before - UNIT);
    ok!(cuMemRelease(again));
    assert_eq!(free_memory(), before);
}

#[test]
fn one_handle_in_two_places_is_the_same_memory() {
    start(&[]);
    let (first, handle) = mapped(UNIT);
    let second = reserve(UNIT);
    ok!(cuMemMap(second, UNIT, 0, handle, 0));
    assert_eq!(access(second, UNIT, DEVICE, 0, READ), CUresult::SUCCESS);
    upload(first, &[41, 42]);
    assert_eq!(download(second, 2), [41, 42]);
}

#[test]
fn a_copy_into_read_only_memory_errs_and_the_context_lives() {
    start(&[]);
    let (range, _) = mapped(UNIT);
    upload(range, &[5]);
    assert_eq!(access(range, UNIT, DEVICE, 0, READ), CUresult::SUCCESS);
    fails!(INVALID_VALUE, cuMemcpyHtoD_v2(range, [0_u32; 4].as_ptr().cast(), 16));
    assert_eq!(download(range, 1), [5]);
}

#[test]
fn a_kernel_that_writes_read_only_memory_faults_its_context() {
    start(&[]);
    let (range, _) = mapped(UNIT);
    assert_eq!(access(range, UNIT, DEVICE, 0, READ), CUresult::SUCCESS);
    assert_eq!(fill(range, 4, 1, CUstream::NULL), CUresult::SUCCESS);
    fails!(ILLEGAL_ADDRESS, cuCtxSynchronize());
    let mut address = 0;
    fails!(ILLEGAL_ADDRESS, cuMemAlloc_v2(&raw mut address, 16));
    fails!(ILLEGAL_ADDRESS, cuStreamSynchronize(CUstream::NULL));
}

#[test]
fn a_kernel_in_unmapped_memory_faults() {
    start(&[]);
    let (range, _) = mapped(UNIT);
    ok!(cuMemUnmap(range, UNIT));
    assert_eq!(fill(range, 4, 1, CUstream::NULL), CUresult::SUCCESS);
    fails!(ILLEGAL_ADDRESS, cuCtxSynchronize());
}

/// Device memory and host memory side by side, with access for the device.
fn mixed() -> CUdeviceptr {
    let range = reserve(2 * UNIT);
    let (device, host) = (create(UNIT, DEVICE, 0), create(UNIT, NUMA, 0));
    ok!(cuMemMap(range, UNIT, 0, device, 0));
    ok!(cuMemMap(range + UNIT as u64, UNIT, 0, host, 0));
    assert_eq!(access(range, 2 * UNIT, DEVICE, 0, WRITE), CUresult::SUCCESS);
    range
}

#[test]
fn kernels_and_copies_cross_from_device_to_host_memory() {
    start(&[]);
    let border = mixed() + UNIT as u64 - 8;
    upload(border, &[1, 2, 3, 4]);
    assert_eq!(download(border, 4), [1, 2, 3, 4]);
    assert_eq!(fill(border, 4, 7, CUstream::NULL), CUresult::SUCCESS);
    assert_eq!(download(border, 4), [7; 4]);
}

#[test]
fn with_cpu_access_copies_across_the_border_err() {
    start(&[]);
    let range = mixed();
    let half = range + UNIT as u64;
    assert_eq!(access(half, UNIT, NUMA, 0, WRITE), CUresult::SUCCESS);
    fails!(INVALID_VALUE, cuMemcpyHtoD_v2(half - 8, [0_u32; 4].as_ptr().cast(), 16));
    fails!(INVALID_VALUE, cuMemsetD8_v2(half - 8, 0, 16));
    upload(half, &[9]);
    // SAFETY: the CPU has access to this word.
    assert_eq!(unsafe { *(half as *const u32) }, 9);
    assert_eq!(access(range, UNIT, NUMA, 0, WRITE), CUresult::NOT_SUPPORTED);
}

#[test]
fn queries_answer_as_the_driver_does() {
    start(&[]);
    let range = mixed();
    let half = range + UNIT as u64;
    let (mut base, mut size) = (1, 1);
    ok!(cuMemGetAddressRange_v2(&raw mut base, &raw mut size, range + 100));
    assert_eq!((base, size), (range, UNIT));
    ok!(cuMemGetAddressRange_v2(&raw mut base, &raw mut size, half + 100));
    assert_eq!(base, 0);
    let mut kind = 0_u32;
    ok!(cuPointerGetAttribute((&raw mut kind).cast(), CU_POINTER_ATTRIBUTE_MEMORY_TYPE, half));
    assert_eq!(kind, CU_MEMORYTYPE_HOST);
    let mut context = 1_usize;
    ok!(cuPointerGetAttribute((&raw mut context).cast(), CU_POINTER_ATTRIBUTE_CONTEXT, range));
    assert_eq!(context, 0);
    let mut ticket = CUipcMemHandle { reserved: [0; 64] };
    fails!(INVALID_VALUE, cuIpcGetMemHandle(&raw mut ticket, range));
}

#[test]
fn none_of_it_waits_for_a_kernel() {
    start(&[]);
    let (go, busy) = (flag(), stream(CU_STREAM_NON_BLOCKING));
    hold(go, busy);
    let (range, handle) = mapped(UNIT);
    ok!(cuMemUnmap(range, UNIT));
    ok!(cuMemRelease(handle));
    ok!(cuMemAddressFree(range, UNIT));
    fails!(NOT_READY, cuStreamQuery(busy));
    set(go, 1);
    ok!(cuStreamSynchronize(busy));
}

#[test]
fn memory_of_a_peer_needs_access_of_its_own() {
    start(&[("SIMCUDA_DEVICES", "2")]);
    let (range, _) = mapped(UNIT);
    let plain = allocate(64);
    let first = context(0);
    context(1);
    fails!(INVALID_VALUE, cuMemsetD8_v2(range, 1, 64));
    assert_eq!(access(range, UNIT, DEVICE, 1, WRITE), CUresult::SUCCESS);
    ok!(cuMemsetD8_v2(range, 1, 64));
    ok!(cuCtxEnablePeerAccess(first, 0));
    fails!(PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(first, 0));
    assert_eq!(fill(plain, 4, 3, CUstream::NULL), CUresult::SUCCESS);
    assert_eq!(download(plain, 4), [3; 4]);
    ok!(cuCtxDisablePeerAccess(first));
    assert_eq!(fill(plain, 4, 3, CUstream::NULL), CUresult::SUCCESS);
    fails!(ILLEGAL_ADDRESS, cuCtxSynchronize());
}

#[test]
fn the_budget_is_the_devices() {
    start(&[("SIMCUDA_MEMORY", "8MiB")]);
    let prop = properties(DEVICE, 0);
    let mut handle = 0;
    let _held: Vec<u64> = (0..4).map(|_| create(UNIT, DEVICE, 0)).collect();
    fails!(OUT_OF_MEMORY, cuMemCreate(&raw mut handle, UNIT, &raw const prop, 0));
    let mut address = 0;
    fails!(OUT_OF_MEMORY, cuMemAlloc_v2(&raw mut address, 1));
    create(UNIT, NUMA, 0);
}

/// Maps two units that two devices may use, the first of device memory and the second of the
/// host's.
fn on_two_tiers() -> CUdeviceptr {
    let range = reserve(2 * UNIT);
    ok!(cuMemMap(range, UNIT, 0, create(UNIT, DEVICE, 0), 0));
    ok!(cuMemMap(range + UNIT as u64, UNIT, 0, create(UNIT, NUMA, 0), 0));
    (0..2).for_each(|device| assert_eq!(access(range, 2 * UNIT, DEVICE, device, WRITE), CUresult::SUCCESS));
    range
}

/// The end status of a child that starts the driver with two devices and makes a copy; the child
/// must do both after the fork.
fn child(copy: impl FnOnce(CUdeviceptr, CUdeviceptr, CUcontext, CUcontext)) -> i32 {
    // SAFETY: the child runs the test's own code, and ends without returning.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let first = start(&[("SIMCUDA_DEVICES", "2")]);
        let range = on_two_tiers();
        let second = context(1);
        let target = allocate(2 * UNIT);
        ok!(cuCtxSetCurrent(first));
        copy(range, target, first, second);
        ok!(cuCtxSynchronize());
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: a child of this process, and a live local.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    status
}

#[test]
fn a_copy_between_devices_across_a_border_ends_the_process() {
    let status = child(|range, target, first, second| {
        ok!(cuMemcpyPeer(target, second, range, first, 2 * UNIT));
    });
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT, "{status}");
}

/// In either direction. The form with a description does not crash.
#[test]
fn host_memory_that_only_one_device_may_use_ends_the_process_between_contexts() {
    for to_the_host in [false, true] {
        let status = child(|range, target, first, second| {
            assert_eq!(access(range, 2 * UNIT, DEVICE, 1, 0), CUresult::SUCCESS);
            let host = range + UNIT as u64;
            ok!(cuMemcpyPeer(target, second, range, first, UNIT));
            if to_the_host {
                ok!(cuMemcpyPeerAsync(host, first, target, second, UNIT, CUstream::NULL));
            } else {
                ok!(cuMemcpyPeer(target, second, host, first, UNIT));
            }
        });
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT, "{status}");
    }
}

#[test]
fn its_parts_do_not_and_neither_does_a_copy_within_the_device() {
    let status = child(|range, target, first, second| {
        ok!(cuMemcpyPeer(target, second, range, first, UNIT));
        ok!(cuMemcpyPeer(target, second, range + UNIT as u64, first, UNIT));
        let here = allocate(2 * UNIT);
        ok!(cuMemcpyDtoD_v2(here, range, 2 * UNIT));
        ok!(cuMemcpyHtoD_v2(range, vec![1_u8; 2 * UNIT].as_ptr().cast(), 2 * UNIT));
    });
    assert_eq!(status, 0);
}

#[test]
fn a_device_without_a_way_to_the_memory_is_refused() {
    start(&[("SIMCUDA_DEVICES", "2"), ("SIMCUDA_PEERS", "0")]);
    let (range, handle) = (reserve(UNIT), create(UNIT, DEVICE, 0));
    ok!(cuMemMap(range, UNIT, 0, handle, 0));
    assert_eq!(access(range, UNIT, DEVICE, 1, WRITE), CUresult::INVALID_DEVICE);
    assert_eq!(access(range, UNIT, DEVICE, 0, WRITE), CUresult::SUCCESS);
    ok!(cuMemUnmap(range, UNIT));
    ok!(cuMemRelease(handle));
    let handle = create(UNIT, NUMA, 0);
    ok!(cuMemMap(range, UNIT, 0, handle, 0));
    assert_eq!(access(range, UNIT, DEVICE, 1, WRITE), CUresult::SUCCESS);
}
