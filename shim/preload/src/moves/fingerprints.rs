//! Keyed fingerprints of memory that moves, taken by the GPU.
//!
//! The key is random, of this process and of the kernel's context. Its only copy is in the memory
//! of the device. The kernel runs in a stream of the library's own, behind the closed gate beside
//! nothing but copies of other memory, and the calling thread waits for it.

use std::ffi::c_void;
use std::sync::Mutex;

use rustix::io::retry_on_intr;
use rustix::rand::{GetRandomFlags, getrandom};
use wm_abi::*;
use wm_driver::api::owned::{LoadedModule, OwnedStream};
use wm_driver::{Api, KeyedFingerprint, lock};
use wm_kernels::Arguments;
use wm_kernels::fingerprint::{self, SECTIONS};
use wm_kernels::moves::{FingerprintKeyed, IMAGE};

use crate::process::driver;

/// Chunks of one launch.
const MOST: usize = 1024;

/// As the kernel is written for.
const THREADS: u32 = 32;

/// Words that the kernel writes for a chunk.
const SUMMANDS: usize = 2 * SECTIONS;

/// Words of a key.
const KEY_WORDS: usize = 6656;

/// Failures after which no fingerprint is taken any more. The device may have no room for the
/// kernel now, and have some later.
const FAILURES: u32 = 8;

/// The kernel in one context.
struct LoadedKernel {
    context: CUcontext,
    stream: CUstream,
    function: CUfunction,
    key: CUdeviceptr,
    /// In pinned memory that the GPU reaches at the same address.
    chunks: *mut u64,
    prints: *mut u64,
}

// SAFETY: used under a lock, and the memory is the process's.
unsafe impl Send for LoadedKernel {}

#[derive(Default)]
struct KernelsOfContexts {
    loaded: Vec<LoadedKernel>,
    failures: u32,
}

/// The fingerprints of a process's memory.
pub(super) struct Fingerprints(Mutex<KernelsOfContexts>);

impl Fingerprints {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(KernelsOfContexts { loaded: Vec::new(), failures: 0 }))
    }

    /// Loads the kernel into the current context, unless it is there or has failed too often. May
    /// take milliseconds, so not behind the closed gate.
    pub(super) fn prepare(&self, context: CUcontext) {
        if self.is_prepared(context) {
            return;
        }
        let loaded = LoadedKernel::load(context);
        let mut kernels = lock(&self.0);
        match loaded {
            // Another thread may have loaded it meanwhile: the second one ends with the context.
            Ok(kernel) => kernels.loaded.push(kernel),
            Err(code) => kernels.note(code),
        }
    }

    /// Is there nothing to load any more?
    pub(super) fn is_prepared(&self, context: CUcontext) -> bool {
        let kernels = lock(&self.0);
        kernels.failures >= FAILURES || kernels.of(context).is_some()
    }

    /// Of chunks, in the current context. `NOT_SUPPORTED` if the kernel was not prepared there.
    pub(super) fn take(&self, context: CUcontext, chunks: &[u64]) -> Result<Vec<KeyedFingerprint>, CUresult> {
        // Behind the gate there is one mover, so no other thread waits for this lock.
        let mut kernels = lock(&self.0);
        let kernel = kernels.of(context).filter(|_| kernels.failures < FAILURES);
        let taken = kernel.ok_or(CUresult::NOT_SUPPORTED)?.fingerprints(chunks);
        if let Err(code) = taken {
            kernels.note(code);
        }
        taken
    }

    /// The context is about to end, and its kernel with it.
    pub(super) fn forget(&self, context: CUcontext) {
        lock(&self.0).loaded.retain(|kernel| kernel.context != context);
    }
}

impl KernelsOfContexts {
    fn of(&self, context: CUcontext) -> Option<&LoadedKernel> {
        self.loaded.iter().find(|kernel| kernel.context == context)
    }

    /// Counts a failure.
    fn note(&mut self, code: CUresult) {
        self.failures += 1;
        if self.failures == 1 {
            log::info!("what moves is copied whole: its fingerprints could not be taken: {code}");
        }
    }
}

impl LoadedKernel {
    fn fingerprints(&self, chunks: &[u64]) -> Result<Vec<KeyedFingerprint>, CUresult> {
        let mut prints = Vec::with_capacity(chunks.len());
        chunks.chunks(MOST).try_for_each(|batch| self.run(batch, &mut prints))?;
        Ok(prints)
    }

    /// Loads it into the current context. May take time, and memory of the device for the
    /// code and the key.
    fn load(context: CUcontext) -> Result<Self, CUresult> {
        let driver = driver();
        let mut words = random_key().ok_or(CUresult::NOT_SUPPORTED)?;
        let module = LoadedModule::load(driver, |major| IMAGE.code_for(major))?;
        let function = module.function(FingerprintKeyed::KERNEL.name)?;
        let stream = OwnedStream::new(driver, CU_STREAM_NON_BLOCKING)?;
        // If a step from here on fails, the memory of those before stays with the context: freeing
        // it waits for the program's work.
        let lists = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
        let words_of_lists = (1 + SUMMANDS) * MOST;
        let chunks = driver.mem_host_alloc(words_of_lists * size_of::<u64>(), lists)?.cast::<u64>();
        let key = driver.mem_alloc(size_of_val(&words[..]))?;
        let (from, bytes) = (words.as_ptr().cast::<c_void>(), size_of_val(&words[..]));
        // Not in the default stream, which waits for the program's blocking streams, and they for
        // it.
        //
        // SAFETY: the key's memory is as long, and the words stay until the stream is idle.
        let begun = unsafe { driver.memcpy_htod_async(key, from, bytes, stream.raw()) };
        let written = driver.stream_synchronize(stream.raw()).and(begun);
        // SAFETY: a word of the list. Volatile, so that it happens although nothing reads it.
        words.iter_mut().for_each(|word| unsafe { std::ptr::from_mut(word).write_volatile(0) });
        written?;
        // SAFETY: there are more words than those of the first list.
        let prints = unsafe { chunks.add(MOST) };
        let (_loaded, stream) = (module.into_raw(), stream.into_raw());
        Ok(Self { context, stream, function, key, chunks, prints })
    }

    /// Fingerprints of at most [`MOST`] chunks.
    fn run(&self, chunks: &[u64], prints: &mut Vec<KeyedFingerprint>) -> Result<(), CUresult> {
        // SAFETY: the list has [`MOST`] words, and no kernel reads it now.
        unsafe { std::ptr::copy_nonoverlapping(chunks.as_ptr(), self.chunks, chunks.len()) };
        let arguments = FingerprintKeyed {
            chunks: self.chunks as u64,
            count: chunks.len() as u64,
            key: self.key,
            fingerprints: self.prints as u64,
        };
        let pointers = arguments.pointers();
        let parameters = pointers.as_ref().as_ptr().cast_mut().cast();
        // SAFETY: the driver copies the arguments; the chunks are mapped, and stay so until the
        // kernel is over.
        let started = unsafe {
            let blocks = (chunks.len() * SECTIONS) as u32;
            driver().launch_kernel(self.function, blocks, THREADS, self.stream, parameters)
        };
        // The kernel reads the chunks until this is over.
        driver().stream_synchronize(self.stream)?;
        started?;
        prints.extend((0..chunks.len()).map(|chunk| {
            // SAFETY: the kernel has written as many words for each chunk, and is over.
            let summands = unsafe { std::slice::from_raw_parts(self.prints.add(chunk * SUMMANDS), SUMMANDS) };
            KeyedFingerprint(fingerprint::of_summands(summands))
        }));
        Ok(())
    }
}

/// Uniform words. `None`: the system gives none.
fn random_key() -> Option<Vec<u64>> {
    let mut bytes = vec![0; KEY_WORDS * size_of::<u64>()];
    let mut filled = 0;
    while filled < bytes.len() {
        // It may give fewer bytes than asked for.
        filled += retry_on_intr(|| getrandom(&mut bytes[filled..], GetRandomFlags::NONBLOCK)).ok()?;
    }
    let words =
        bytes.chunks_exact(8).map(|word| word.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)));
    let words = words.collect();
    // SAFETY: as in [`LoadedKernel::load`].
    bytes.iter_mut().for_each(|byte| unsafe { std::ptr::from_mut(byte).write_volatile(0) });
    Some(words)
}

#[cfg(test)]
mod tests {
    //! Hazard (latency): the first fingerprint loads code behind the closed gate.
    use super::*;

    #[test]
    fn without_the_kernel_no_fingerprint_is_taken_and_none_is_loaded() {
        let fingerprints = Fingerprints::new();
        assert_eq!(fingerprints.take(CUcontext(1), &[0]), Err(CUresult::NOT_SUPPORTED));
        assert_eq!(lock(&fingerprints.0).failures, 0, "it may be prepared later");
    }
}
