//! The cost of a launch for its thread: a kernel of three parameters, one of which points into one
//! of several blocks.

use std::time::Instant;

use wm_abi::{CU_STREAM_NON_BLOCKING, CUdeviceptr};
use wm_driver::Api;
use wm_kernels::diagnostics::IMAGE;

use crate::driver::{Driver, Failure};

/// Launches that are timed together: the clock costs as much as a hook.
const BATCH: usize = 16;

/// Words that a launch sets.
const WORDS: u64 = 64;

/// Nanoseconds of a launch, on average over each of `rounds` batches. The launches use `blocks`
/// blocks of `bytes` in turn.
///
/// # Errors
/// The driver's.
pub(crate) fn measure(
    driver: &Driver,
    blocks: usize,
    bytes: usize,
    rounds: usize,
) -> Result<Vec<u64>, Failure> {
    let module = driver.module_load_data(IMAGE.ptx.as_bytes())?;
    let kernel = driver.module_function(module, c"wm_fill_u32")?;
    let stream = driver.stream_create(CU_STREAM_NON_BLOCKING)?;
    let blocks = (0..blocks).map(|_| filled(driver, bytes)).collect::<Result<Vec<_>, _>>()?;
    let mut next = blocks.iter().cycle();
    let mut samples = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let start = Instant::now();
        for block in next.by_ref().take(BATCH) {
            let (mut address, mut words, mut value) = (*block, WORDS, 3_u32);
            let mut arguments = [(&raw mut address).cast(), (&raw mut words).cast(), (&raw mut value).cast()];
            // SAFETY: the kernel's three parameters, and a block with that many words.
            unsafe { driver.launch_kernel(kernel, 1, 32, stream, arguments.as_mut_ptr()) }?;
        }
        samples.push(start.elapsed().as_nanos() as u64 / BATCH as u64);
        driver.stream_synchronize(stream)?;
    }
    Ok(samples)
}

/// A block whose bytes came from the host.
fn filled(driver: &Driver, bytes: usize) -> Result<CUdeviceptr, Failure> {
    let block = driver.mem_alloc(bytes)?;
    let from = vec![7_u8; bytes];
    // SAFETY: both have as many bytes.
    unsafe { driver.memcpy_htod(block, from.as_ptr().cast(), bytes) }?;
    Ok(block)
}
