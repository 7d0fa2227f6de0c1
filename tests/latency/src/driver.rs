//! The driver calls that are measured, looked up once by name as CUDA's runtime does.

use std::ffi::c_void;
use std::fmt;

use wm_abi::symbol::Symbol;
use wm_abi::{CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING, CUcontext, CUdeviceptr, CUresult, CUstream};
use wm_driver::api::{Failed, PoolAttribute};
use wm_driver::{Api, Table};

/// A call that failed, in words.
pub(crate) struct Failure(String);

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self(format!("no memory to run through between calls: {error}"))
    }
}

impl From<Failed> for Failure {
    fn from(failed: Failed) -> Self {
        Self(failed.to_string())
    }
}

/// The driver, with a context for every thread.
pub(crate) struct Driver {
    table: Table,
    context: CUcontext,
}

impl Api for Driver {
    type Error = Failure;

    #[inline]
    fn call<S: Symbol>(&self, call: impl FnOnce(S::Function) -> CUresult) -> CUresult {
        self.table.call::<S>(call)
    }
}

/// The streams of the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// One a thread, apart from the default stream
    NonBlocking,
    /// One a thread, which waits for the default stream
    Blocking,
    /// The default stream, where no blocking stream is
    Legacy,
    /// The default stream, beside a blocking one
    Mixed,
}

/// Bytes of a small copy.
const SMALL: usize = 4096;

/// A measuring thread's stream.
pub(crate) struct Thread<'a> {
    driver: &'a Driver,
    stream: CUstream,
    /// Both ends of a small copy.
    host: *mut c_void,
    device: CUdeviceptr,
}

impl Driver {
    /// Opens the driver, and lets its default pool keep its memory, as frameworks do.
    pub(crate) fn open() -> Result<Self, Failure> {
        let table = Table::of_process().map_err(|error| Failure(error.to_string()))?;
        let mut driver = Self { table, context: CUcontext::NULL };
        driver.init()?;
        driver.context = driver.primary_ctx_retain(0)?;
        let pool = driver.device_default_mem_pool(0)?;
        driver.mem_pool_set_attribute(pool, PoolAttribute::RELEASE_THRESHOLD, u64::MAX)?;
        Ok(driver)
    }

    /// Makes the context current in the calling thread.
    pub(crate) fn enter(&self) -> Result<(), Failure> {
        self.ctx_set_current(self.context)
    }

    /// The calling thread's stream.
    pub(crate) fn thread(&self, kind: Kind) -> Result<Thread<'_>, Failure> {
        self.enter()?;
        let stream = match kind {
            Kind::NonBlocking => self.stream_create(CU_STREAM_NON_BLOCKING)?,
            Kind::Blocking => self.stream_create(CU_STREAM_DEFAULT)?,
            Kind::Legacy => CUstream::NULL,
            Kind::Mixed => {
                self.stream_create(CU_STREAM_DEFAULT)?;
                CUstream::NULL
            }
        };
        let (host, device) = (self.mem_host_alloc(SMALL, 0)?, self.mem_alloc_async(SMALL, stream)?);
        Ok(Thread { driver: self, stream, host, device })
    }
}

impl Thread<'_> {
    /// A call with almost no work in the driver.
    pub(crate) fn nothing(&self) -> Result<(), Failure> {
        self.driver.ctx_device().map(drop)
    }

    pub(crate) fn allocate(&self, bytes: usize) -> Result<CUdeviceptr, Failure> {
        self.driver.mem_alloc_async(bytes, self.stream)
    }

    pub(crate) fn free(&self, address: CUdeviceptr) -> Result<(), Failure> {
        self.driver.mem_free_async(address, self.stream)
    }

    /// A small copy to the device, from pinned memory.
    pub(crate) fn copy(&self) -> Result<(), Failure> {
        // SAFETY: both ends are this thread's own, have this length, and are never freed.
        unsafe { self.driver.memcpy_htod_async(self.device, self.host, SMALL, self.stream) }
    }

    /// Waits for the enqueued work: a driver's queue is finite.
    pub(crate) fn wait(&self) -> Result<(), Failure> {
        self.driver.stream_synchronize(self.stream)
    }
}
