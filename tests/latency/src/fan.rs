//! An allocation while many other streams hold memory that they have freed, and the host holds
//! these streams. A pool that orders streams behind each other for such memory makes the allocation
//! wait for all of them, or for ever.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use wm_abi::{CU_MEMHOSTALLOC_PORTABLE, CU_STREAM_NON_BLOCKING, CUdeviceptr};
use wm_driver::Api;

use crate::driver::{Driver, Failure};

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
    let stream = || driver.stream_create(CU_STREAM_NON_BLOCKING);
    let mine = stream()?;
    let others = (0..streams).map(|_| stream()).collect::<Result<Vec<_>, _>>()?;
    let mut samples = Vec::with_capacity(rounds);
    for round in 1..=rounds as u32 {
        let blocks = others
            .iter()
            .map(|other| driver.mem_alloc_async(bytes, *other))
            .collect::<Result<Vec<_>, _>>()?;
        for (other, block) in others.iter().zip(blocks) {
            driver.mem_free_async(block, *other)?;
            // SAFETY: pinned memory has one address for the host and its devices; it stays until
            // the process ends.
            unsafe {
                driver.stream_wait_value32(*other, std::ptr::from_ref(gate) as CUdeviceptr, round, AT_LEAST)
            }?;
        }
        let start = Instant::now();
        let block = driver.mem_alloc_async(bytes, mine)?;
        samples.push(start.elapsed().as_nanos() as u64);
        driver.mem_free_async(block, mine)?;
        gate.store(round, Ordering::Release);
        for stream in others.iter().chain([&mine]) {
            driver.stream_synchronize(*stream)?;
        }
    }
    Ok(samples)
}

fn pinned_word(driver: &Driver) -> Result<&'static AtomicU32, Failure> {
    let word = driver.mem_host_alloc(size_of::<AtomicU32>(), CU_MEMHOSTALLOC_PORTABLE)?;
    // SAFETY: fresh memory, aligned to a page, that is never freed.
    let word = unsafe { &*word.cast::<AtomicU32>() };
    word.store(0, Ordering::Release);
    Ok(word)
}
