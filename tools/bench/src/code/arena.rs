//! Blocks of device memory with known bytes, into which the parameters of kernels point.

use std::ffi::c_void;

use anyhow::{Result, ensure};
use drawn_kernels::{POINTERS_IN_TABLE, REACH, THREADS};
use wm_abi::{CU_STREAM_NON_BLOCKING, CUdeviceptr, CUfunction, CUstream};
use wm_driver::Api;
use wm_driver::api::Named;

/// Blocks for parameters, then those of which only the table has the address.
pub(super) const NAMED: usize = 16;
pub(super) const BLOCKS: usize = NAMED + POINTERS_IN_TABLE as usize;
/// Words of the table.
const TABLE_WORDS: usize = 1 + POINTERS_IN_TABLE as usize;
/// Bytes of a block. Pointers begin at a quarter of it, so that what is near them is seen.
pub(super) const BLOCK: u64 = 2 * REACH;

/// Streams in which launches run beside each other.
const STREAMS: usize = 8;

/// The blocks, one behind the other.
pub(super) struct Arena {
    driver: Named<'static>,
    streams: Vec<CUstream>,
    base: CUdeviceptr,
    /// The same bytes, on the device and on the host.
    pristine: CUdeviceptr,
    known: Vec<u8>,
    found: Vec<u8>,
    /// The memory of the table.
    table: CUdeviceptr,
}

impl Arena {
    pub(super) fn new(driver: Named<'static>) -> Result<Self> {
        let bytes = BLOCKS * BLOCK as usize;
        let streams =
            (0..STREAMS).map(|_| driver.stream_create(CU_STREAM_NON_BLOCKING)).collect::<Result<_, _>>()?;
        let mut random = fastrand::Rng::with_seed(1);
        let known: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(bytes).collect();
        let arena = Self {
            driver,
            streams,
            base: driver.mem_alloc(bytes)?,
            pristine: driver.mem_alloc(bytes)?,
            found: vec![0; bytes],
            known,
            table: driver.mem_alloc(8 * TABLE_WORDS)?,
        };
        for to in [arena.base, arena.pristine] {
            // SAFETY: memory of as many bytes; the call returns when they were read.
            unsafe { driver.memcpy_htod(to, arena.known.as_ptr().cast(), bytes) }?;
        }
        Ok(arena)
    }

    /// Where pointers into a block begin.
    pub(super) fn start_in(&self, block: usize) -> u64 {
        self.base + block as u64 * BLOCK + BLOCK / 4
    }

    /// The block that an address is in.
    pub(super) fn block_of(&self, address: u64) -> Option<usize> {
        let block = address.checked_sub(self.base)? / BLOCK;
        (block < BLOCKS as u64).then_some(block as usize)
    }

    pub(super) fn table(&self) -> u64 {
        self.table
    }

    /// Launches a kernel so often, and waits. `table` is what the table has meanwhile, `parameters`
    /// a pointer to each of the kernel's.
    pub(super) fn launch(
        &self,
        function: CUfunction,
        table: &[u64],
        parameters: &[*const u8],
        times: u64,
    ) -> Result<()> {
        ensure!(table.len() == TABLE_WORDS, "the table has another length");
        // SAFETY: memory of as many bytes; the call returns when they were read. No launch runs.
        unsafe { self.driver.memcpy_htod(self.table, table.as_ptr().cast(), 8 * TABLE_WORDS) }?;
        self.driver.ctx_synchronize()?;
        for at in 0..times as usize {
            let stream = self.streams[at % STREAMS];
            let arguments = parameters.as_ptr().cast_mut().cast::<*mut c_void>();
            // SAFETY: the arguments are those of a drawn kernel, and the driver copies them during
            // the call; the memory that they point to lives as long as this value.
            unsafe { self.driver.launch_kernel(function, 1, THREADS, stream, arguments) }?;
        }
        Ok(self.driver.ctx_synchronize()?)
    }

    /// The blocks of which bytes have changed.
    pub(super) fn changed(&mut self) -> Result<Vec<bool>> {
        // SAFETY: a vector of as many bytes; the call returns when they are there.
        unsafe { self.driver.memcpy_dtoh(self.found.as_mut_ptr().cast(), self.base, self.found.len()) }?;
        let blocks = self.found.chunks(BLOCK as usize).zip(self.known.chunks(BLOCK as usize));
        Ok(blocks.map(|(found, known)| found != known).collect())
    }

    /// Gives blocks their bytes again.
    pub(super) fn restore(&self, changed: &[bool]) -> Result<()> {
        for block in (0..BLOCKS as u64).filter(|block| changed[*block as usize]) {
            let (to, from) = (self.base + block * BLOCK, self.pristine + block * BLOCK);
            // SAFETY: both are live memory of as many bytes, and no launch runs.
            unsafe { self.driver.memcpy_dtod_async(to, from, BLOCK as usize, self.streams[0]) }?;
        }
        Ok(self.driver.ctx_synchronize()?)
    }
}
