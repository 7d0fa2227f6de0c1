//! Our kernels on the GPU: fingerprints and comparisons of chunks, and the memory in which they get
//! their lists and leave their results.
//!
//! They run in a stream of the library's own, and the thread that starts one waits for it: about
//! 0.5 us a chunk. They may run only behind the closed gate, with nothing in flight, and while
//! mappings are pinned ([`Manager::keep_mapped`](wm_memory::Manager::keep_mapped)).

use std::ffi::c_void;

use wm_abi::*;
use wm_dedup::chunk::Fingerprint;
use wm_driver::Api;
use wm_driver::api::owned::{LoadedModule, OwnedStream};
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
    fingerprint_chunks: CUfunction,
    compare_chunks: CUfunction,
    lists: KernelLists,
}

// SAFETY: used under a lock, and the memory is the process's.
unsafe impl Send for ChunkKernels {}

impl ChunkKernels {
    /// Loads them into the current context. May take a millisecond, and memory of the device for
    /// their code.
    pub(super) fn load(context: CUcontext) -> Result<Self, CUresult> {
        let driver = driver();
        let module = LoadedModule::load(driver, |major| IMAGE.code_for(major))?;
        let fingerprint_chunks = module.function(FingerprintChunks::KERNEL.name)?;
        let compare_chunks = module.function(CompareChunks::KERNEL.name)?;
        let stream = OwnedStream::new(driver, CU_STREAM_NON_BLOCKING)?;
        let bytes = MOST * 2 * size_of::<u64>();
        let memory = || {
            driver
                .mem_host_alloc(bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP)
                .map(<*mut c_void>::cast::<u64>)
        };
        let lists = KernelLists { addresses: memory()?, results: memory()? };
        let (_loaded, stream) = (module.into_raw(), stream.into_raw());
        Ok(Self { context, stream, fingerprint_chunks, compare_chunks, lists })
    }

    pub(super) fn is_of(&self, context: CUcontext) -> bool {
        self.context == context
    }

    /// Fingerprints of chunks, at most [`MOST`].
    pub(super) fn fingerprints(&mut self, chunks: &[u64]) -> Result<Vec<Fingerprint>, CUresult> {
        Ok(self.compare(&[], chunks)?.1)
    }

    /// Whether two chunks hold the same bytes, for each pair, and fingerprints of others; at most
    /// [`MOST`] of both together.
    pub(super) fn compare(
        &mut self,
        pairs: &[(u64, u64)],
        chunks: &[u64],
    ) -> Result<(Vec<bool>, Vec<Fingerprint>), CUresult> {
        let pairs = &pairs[..pairs.len().min(MOST)];
        let chunks = &chunks[..chunks.len().min(MOST - pairs.len())];
        let flat: Vec<u64> = pairs.iter().flat_map(|(one, other)| [*one, *other]).collect();
        let (after, words) = (self.lists.after(flat.len()), 2 * chunks.len());
        self.lists.put(&flat);
        after.put(chunks);
        let compare = CompareChunks {
            pairs: self.lists.addresses as u64,
            count: pairs.len() as _,
            equal: self.lists.results as u64,
        };
        let fingerprint = FingerprintChunks {
            chunks: after.addresses as u64,
            count: chunks.len() as _,
            fingerprints: after.results as u64,
        };
        let started = self.start(self.compare_chunks, pairs.len(), &compare);
        let started = started.and_then(|()| self.start(self.fingerprint_chunks, chunks.len(), &fingerprint));
        // The kernels read the chunks until this is over.
        driver().stream_synchronize(self.stream)?;
        started?;
        // SAFETY: the kernels have written so many words of 32 and of 64 bits, in memory of the
        // library's own.
        let (equal, halves) = unsafe {
            let equal = |at| self.lists.results.cast::<u32>().add(at).read_volatile() == 1;
            let half = |at| after.results.add(at).read_volatile();
            ((0..pairs.len()).map(equal).collect(), (0..words).map(half).collect::<Vec<u64>>())
        };
        Ok((equal, halves.chunks_exact(2).map(|pair| Fingerprint::from_halves(pair[0], pair[1])).collect()))
    }

    fn start<A: Arguments>(
        &self,
        function: CUfunction,
        blocks: usize,
        arguments: &A,
    ) -> Result<(), CUresult> {
        if blocks == 0 {
            return Ok(());
        }
        let pointers = arguments.pointers();
        let parameters = pointers.as_ref().as_ptr().cast_mut().cast();
        // SAFETY: the driver copies the arguments; the chunks are mapped, and stay so until the
        // caller has waited.
        unsafe { driver().launch_kernel(function, blocks as u32, THREADS, self.stream, parameters) }
    }
}

impl KernelLists {
    /// The rest behind so many words.
    fn after(&self, words: usize) -> Self {
        // SAFETY: both lists have twice [`MOST`] words.
        unsafe { Self { addresses: self.addresses.add(words), results: self.results.add(words) } }
    }

    fn put(&self, words: &[u64]) {
        // SAFETY: memory of the library's own, for at least so many words, which no kernel reads
        // now.
        unsafe { std::ptr::copy_nonoverlapping(words.as_ptr(), self.addresses, words.len()) };
    }
}
