//! The few driver calls that the program makes, each with its outcome checked.
//!
//! The library is opened the way CUDA's own runtime does it: `dlopen("libcuda.so.1")`, then one
//! look-up a function.

use std::cell::Cell;
use std::fmt;

use wm_abi::symbol::Symbol;
use wm_abi::{CUdevice, CUdeviceptr, CUresult, CUstream};
use wm_driver::api::Failed;
use wm_driver::{Api, Table};

use crate::account;

/// The call that ended the program, in words.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Failed> for Failure {
    fn from(failed: Failed) -> Self {
        Self(failed.to_string())
    }
}

/// A device as the driver describes it at the start.
pub(crate) struct Device {
    pub(crate) name: String,
    /// Bytes that were free when the program began.
    pub(crate) free: u64,
    /// Bytes of the device.
    pub(crate) total: u64,
}

/// The opened driver, with one stream once [`Driver::start`] has run.
pub(crate) struct Driver {
    table: Table,
    stream: Cell<CUstream>,
}

impl Api for Driver {
    type Error = Failure;

    fn call<S: Symbol>(&self, call: impl FnOnce(S::Function) -> CUresult) -> CUresult {
        self.table.call::<S>(call)
    }
}

impl Driver {
    /// Loads `libcuda.so.1` from wherever the loader finds it.
    pub(crate) fn open() -> Result<Self, Failure> {
        let table = Table::of_process().map_err(|error| Failure(error.to_string()))?;
        Ok(Self { table, stream: CUstream::NULL.into() })
    }

    /// Initialises the driver, makes `ordinal`'s primary context current and creates a stream.
    pub(crate) fn start(&self, ordinal: CUdevice) -> Result<Device, Failure> {
        self.init()?;
        self.ctx_set_current(self.primary_ctx_retain(ordinal)?)?;
        self.stream.set(self.stream_create(0)?);
        let (free, total) = self.mem_info()?;
        Ok(Device { name: self.device_name(ordinal)?, free: free as u64, total: total as u64 })
    }

    /// `cuMemAllocAsync` if `ordered`, else `cuMemAlloc`: programs mix them.
    pub(crate) fn allocate(&self, bytes: u64, ordered: bool) -> Result<CUdeviceptr, Failure> {
        let made = if ordered {
            self.mem_alloc_async(bytes as usize, self.stream.get())
        } else {
            self.mem_alloc(bytes as usize)
        };
        made.map_err(|failure| Failure(format!("{failure}, asked for {}", account::size(bytes))))
    }

    /// Gives a block back the way it was got.
    pub(crate) fn free(&self, address: CUdeviceptr, ordered: bool) -> Result<(), Failure> {
        if ordered { self.mem_free_async(address, self.stream.get()) } else { self.mem_free(address) }
    }

    /// Writes `words` times the 32-bit `value`, in stream order.
    pub(crate) fn fill(&self, address: CUdeviceptr, value: u32, words: usize) -> Result<(), Failure> {
        // SAFETY: device memory, of which no Rust reference is ever made.
        unsafe { self.memset_d32_async(address, value, words, self.stream.get()) }
    }

    /// Copies to the host, and returns when the words are there.
    pub(crate) fn read(&self, words: &mut [u32], address: CUdeviceptr) -> Result<(), Failure> {
        // SAFETY: the words are borrowed until the copy is over.
        unsafe {
            self.memcpy_dtoh_async(words.as_mut_ptr().cast(), address, size_of_val(words), self.stream.get())
        }?;
        self.wait()
    }

    /// Waits for everything in the stream.
    pub(crate) fn wait(&self) -> Result<(), Failure> {
        self.stream_synchronize(self.stream.get())
    }
}
