//! Two words that the host and kernels share, in pinned memory: whether the network was lost, and
//! how many calls' rows have come.
//!
//! The host reads and writes them without a call of the driver. While a thread of the program is
//! inside such a call that waits for rows, such as `cuMemFree`, the driver may let no other one in.

use std::ffi::c_void;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, SeqCst},
};

use wm_abi::{CUdeviceptr, CUstream};
use wm_driver::Api;
use wm_driver::api::Named;
use wm_kernels::wholememory::ReturnRows;

use crate::error::Result;
use crate::kernels::Kernels;

#[derive(Debug, Default)]
#[repr(C)]
struct SharedWords {
    come: AtomicU64,
    lost: AtomicU32,
}

/// See the file's text.
#[derive(Debug)]
pub(super) struct ReturnFlags {
    driver: Named<'static>,
    words: *mut SharedWords,
}

// SAFETY: the words are atomic, and in memory of the driver's, which any thread may use.
unsafe impl Send for ReturnFlags {}
// SAFETY: as above.
unsafe impl Sync for ReturnFlags {}

impl ReturnFlags {
    /// Of a network that was not lost. The context is current.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn new(driver: Named<'static>) -> Result<Self> {
        let words = driver.mem_host_alloc(size_of::<SharedWords>(), 0)?.cast::<SharedWords>();
        // SAFETY: new memory of this size, which the driver aligns to a page.
        unsafe { words.write(SharedWords::default()) };
        Ok(Self { driver, words })
    }

    fn words(&self) -> &SharedWords {
        // SAFETY: written in `new`; the memory lives as long as this.
        unsafe { &*self.words }
    }

    /// The network is lost: rows that have not come do not. Comes before NCCL's abort.
    pub(super) fn lose(&self) {
        self.words().lost.store(1, SeqCst);
    }

    /// The last call whose rows have come.
    pub(super) fn come(&self) -> u64 {
        self.words().come.load(Acquire)
    }

    /// Puts the end of a call's rows into a stream. If the network is lost then, the context ends.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn end_call(&self, number: u64, kernels: &Kernels, stream: CUstream) -> Result {
        let at = |offset: usize| self.words as CUdeviceptr + offset as u64;
        let (come, lost) =
            (at(std::mem::offset_of!(SharedWords, come)), at(std::mem::offset_of!(SharedWords, lost)));
        kernels.launch_blocks(&ReturnRows { lost, come, number }, 1, 1, stream)
    }

    /// Frees the words, which no kernel uses any more. The context is current.
    pub(super) fn free(self) {
        // SAFETY: made by the driver.
        let _ = unsafe { self.driver.mem_free_host(self.words.cast::<c_void>()) };
    }
}
