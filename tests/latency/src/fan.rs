//! An allocation while many other streams hold memory that they have freed and are themselves held by the host. A pool that orders
//! streams behind each other for such memory makes the allocation wait for all of them, or for ever.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use wm_abi::{CU_MEMHOSTALLOC_PORTABLE, CU_STREAM_NON_BLOCKING, CUdeviceptr, CUstream};

use crate::driver::{Driver, Failure, check};

/// `CU_STREAM_WAIT_VALUE_GEQ`: the word has come to the value.
const AT_LEAST: u32 = 0;

/// Nanoseconds of each of `rounds` allocations of `bytes`, in a stream beside `streams` others.
///
/// # Errors
/// The driver's.
pub(crate) fn measure(
    driver: &Driver,
    streams: usize,
    bytes: usize,
    rounds: usize,
) -> Result<Vec<u64>, Failure> {
    let gate = pinned_word(driver)?;
    let mine = stream(driver)?;
    let others = (0..streams).map(|_| stream(driver)).collect::<Result<Vec<_>, _>>()?;
    let mut samples = Vec::with_capacity(rounds);
    for round in 1..=rounds as u32 {
        let blocks =
            others.iter().map(|other| allocate(driver, bytes, *other)).collect::<Result<Vec<_>, _>>()?;
        for (other, block) in others.iter().zip(blocks) {
            // SAFETY: functions without pointers of ours; the gate lives as long as the process.
            unsafe {
                check("cuMemFreeAsync", (driver.free)(block, *other))?;
                hold(driver, *other, gate, round)?;
            }
        }
        let start = Instant::now();
        let block = allocate(driver, bytes, mine)?;
        samples.push(start.elapsed().as_nanos() as u64);
        // SAFETY: a function without pointers of ours.
        check("cuMemFreeAsync", unsafe { (driver.free)(block, mine) })?;
        gate.store(round, Ordering::Release);
        for stream in others.iter().chain([&mine]) {
            // SAFETY: a function without pointers of ours.
            check("cuStreamSynchronize", unsafe { (driver.wait)(*stream) })?;
        }
    }
    Ok(samples)
}

/// # Safety
/// The word is pinned memory of the host's that outlives the wait.
unsafe fn hold(driver: &Driver, stream: CUstream, gate: &AtomicU32, value: u32) -> Result<(), Failure> {
    // SAFETY: by contract; pinned memory has one address for the host and its devices.
    check("cuStreamWaitValue32", unsafe {
        (driver.wait_value)(stream, std::ptr::from_ref(gate) as CUdeviceptr, value, AT_LEAST)
    })
}

fn pinned_word(driver: &Driver) -> Result<&'static AtomicU32, Failure> {
    let mut word: *mut c_void = std::ptr::null_mut();
    // SAFETY: the out-pointer is to a live local.
    check("cuMemHostAlloc", unsafe {
        (driver.pin)(&mut word, size_of::<AtomicU32>(), CU_MEMHOSTALLOC_PORTABLE)
    })?;
    // SAFETY: fresh memory, aligned to a page, that is never freed.
    let word = unsafe { &*word.cast::<AtomicU32>() };
    word.store(0, Ordering::Release);
    Ok(word)
}

fn stream(driver: &Driver) -> Result<CUstream, Failure> {
    let mut stream = CUstream::NULL;
    // SAFETY: the out-pointer is to a live local.
    check("cuStreamCreate", unsafe { (driver.create_stream)(&mut stream, CU_STREAM_NON_BLOCKING) })?;
    Ok(stream)
}

fn allocate(driver: &Driver, bytes: usize, stream: CUstream) -> Result<CUdeviceptr, Failure> {
    let mut address = 0;
    // SAFETY: the out-pointer is to a live local.
    check("cuMemAllocAsync", unsafe { (driver.allocate)(&mut address, bytes, stream) })?;
    Ok(address)
}
