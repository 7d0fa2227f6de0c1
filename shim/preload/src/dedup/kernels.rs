//! Our kernels on the GPU: fingerprints and comparisons of chunks, and the memory in which they get their lists and leave their results.
//!
//! They run in a stream of the library's own, and who starts one waits for it: about 0.5 us a chunk. Only behind the closed gate, with nothing in flight.

use std::ffi::c_void;

use wm_abi::*;
use wm_dedup::chunk::Fingerprint;
use wm_driver::Api;
use wm_kernels::Arguments;
use wm_kernels::dedup::{CompareChunks, FingerprintChunks, IMAGE};

use crate::process::driver;

/// Chunks that one launch can have.
pub(super) const MOST: usize = 2048;

/// As the kernels are written for.
const THREADS: u32 = 256;

/// Lists of addresses and results, in pinned memory that the GPU reaches at the same address.
struct KernelLists {
    addresses: *mut u64,
    results: *mut u64,
}

/// The kernels, loaded into one context.
pub(super) struct ChunkKernels {
    context: CUcontext,
    stream: CUstream,
    fingerprint: CUfunction,
    compare: CUfunction,
    lists: KernelLists,
}

// SAFETY: used under a lock, and the memory is the process's.
unsafe impl Send for ChunkKernels {}

impl ChunkKernels {
    /// Loads them into the current context. May take a millisecond, and memory of the device for their code.
    pub(super) fn load(context: CUcontext) -> Result<Self, CUresult> {
        let driver = driver();
        let device = driver.ctx_device()?;
        let module =
            driver
                .module_load_data(IMAGE.code_for(
                    driver.device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)?,
                ))?;
        let function = |name| driver.module_function(module, name);
        let bytes = MOST * 2 * size_of::<u64>();
        let memory = || {
            driver
                .mem_host_alloc(bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP)
                .map(<*mut c_void>::cast::<u64>)
        };
        Ok(Self {
            context,
            stream: driver.stream_create(CU_STREAM_NON_BLOCKING)?,
            fingerprint: function(&named(FingerprintChunks::KERNEL.name))?,
            compare: function(&named(CompareChunks::KERNEL.name))?,
            lists: KernelLists { addresses: memory()?, results: memory()? },
        })
    }

    pub(super) fn is_of(&self, context: CUcontext) -> bool {
        self.context == context
    }

    /// Fingerprints of chunks, at most [`MOST`].
    pub(super) fn fingerprints(&mut self, chunks: &[u64]) -> Result<Vec<Fingerprint>, CUresult> {
        let chunks = &chunks[..chunks.len().min(MOST)];
        self.put(chunks);
        let arguments = FingerprintChunks {
            chunks: self.lists.addresses as u64,
            count: chunks.len() as _,
            fingerprints: self.lists.results as u64,
        };
        self.run(self.fingerprint, chunks.len(), &arguments)?;
        let half = |index| self.result(index);
        Ok((0..chunks.len()).map(|at| Fingerprint::from_halves(half(2 * at), half(2 * at + 1))).collect())
    }

    /// Whether two chunks hold the same bytes, for each pair of at most [`MOST`].
    pub(super) fn compare(&mut self, pairs: &[(u64, u64)]) -> Result<Vec<bool>, CUresult> {
        let pairs = &pairs[..pairs.len().min(MOST)];
        let flat: Vec<u64> = pairs.iter().flat_map(|(one, other)| [*one, *other]).collect();
        self.put(&flat);
        let arguments = CompareChunks {
            pairs: self.lists.addresses as u64,
            count: pairs.len() as _,
            equal: self.lists.results as u64,
        };
        self.run(self.compare, pairs.len(), &arguments)?;
        // SAFETY: so many words of 32 bits were written, in memory of the library's own.
        let equal = |at| unsafe { self.lists.results.cast::<u32>().add(at).read_volatile() };
        Ok((0..pairs.len()).map(|at| equal(at) == 1).collect())
    }

    fn put(&mut self, words: &[u64]) {
        // SAFETY: memory of the library's own for twice [`MOST`] words, which no kernel reads now.
        unsafe { std::ptr::copy_nonoverlapping(words.as_ptr(), self.lists.addresses, words.len()) };
    }

    fn result(&self, index: usize) -> u64 {
        // SAFETY: the kernel has written it.
        unsafe { self.lists.results.add(index).read_volatile() }
    }

    fn run<A: Arguments>(&self, function: CUfunction, blocks: usize, arguments: &A) -> Result<(), CUresult> {
        if blocks == 0 {
            return Ok(());
        }
        let pointers = arguments.pointers();
        let parameters = pointers.as_ref().as_ptr().cast_mut().cast();
        // SAFETY: the arguments outlive the call; the chunks are mapped, and stay so until the wait below is over.
        unsafe { driver().launch_kernel(function, blocks as u32, THREADS, self.stream, parameters) }?;
        driver().stream_synchronize(self.stream)
    }
}

fn named(name: &str) -> std::ffi::CString {
    std::ffi::CString::new(name).unwrap_or_default()
}
