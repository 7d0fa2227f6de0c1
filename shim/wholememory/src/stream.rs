//! A stream of the caller's: launches, copies and waits of operations in it.

use std::sync::Arc;

use wm_abi::{CU_STREAM_CAPTURE_STATUS_NONE, CUdeviceptr, CUstream};
use wm_driver::Api;
use wm_driver::api::Named;
use wm_kernels::Arguments;

use crate::error::{Error, Result};
use crate::kernels::Kernels;

/// A stream with the kernels of its context.
#[derive(Debug)]
pub struct CallerStream {
    kernels: Arc<Kernels>,
    stream: CUstream,
}

impl CallerStream {
    /// A stream in its own context: the current one, for a default stream.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(driver: Named<'static>, stream: CUstream) -> Result<Self> {
        let context = driver.stream_ctx(stream)?;
        Ok(Self { kernels: Kernels::of(driver, context)?, stream })
    }

    /// A stream of the context that some kernels are in.
    pub fn with(kernels: &Arc<Kernels>, stream: CUstream) -> Self {
        Self { kernels: Arc::clone(kernels), stream }
    }

    /// The stream.
    pub(crate) fn handle(&self) -> CUstream {
        self.stream
    }

    /// Launches a kernel over so many threads' work.
    ///
    /// # Errors
    /// The driver's.
    pub fn launch<A: Arguments>(&self, arguments: &A, work: u64) -> Result {
        self.kernels.launch(arguments, work, 0, self.stream)
    }

    /// Launches a kernel whose blocks each have a piece of work, of `threads` threads.
    ///
    /// # Errors
    /// The driver's.
    pub fn launch_blocks<A: Arguments>(&self, arguments: &A, pieces: u64, threads: u32) -> Result {
        self.kernels.launch_blocks(arguments, pieces, threads, self.stream)
    }

    /// Is the stream being captured?
    ///
    /// # Errors
    /// The driver's.
    pub fn is_captured(&self) -> Result<bool> {
        let (driver, _current) = self.kernels.enter()?;
        Ok(driver.stream_is_capturing(self.stream)? != CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// Refuses a stream that is being captured, before anything is done that would end the capture:
    /// a wait would.
    ///
    /// # Errors
    /// [`Error::NotSupported`]; the driver's.
    pub fn can_wait(&self) -> Result {
        if self.is_captured()? {
            return Err(Error::NotSupported(
                "an operation that waits for the GPU cannot be captured".to_owned(),
            ));
        }
        Ok(())
    }

    /// Copies within the memory that the GPU reaches.
    ///
    /// # Errors
    /// The driver's.
    #[allow(unsafe_code, reason = "a copy, as a launch has it")]
    pub fn copy(&self, to: CUdeviceptr, from: CUdeviceptr, bytes: u64) -> Result {
        let (driver, _current) = self.kernels.enter()?;
        // SAFETY: the addresses are the caller's, as in any launch.
        Ok(unsafe { driver.memcpy_dtod_async(to, from, bytes as usize, self.stream) }?)
    }

    /// Copies to memory of the host, which is to be read after [`CallerStream::wait`].
    ///
    /// # Errors
    /// The driver's.
    #[allow(unsafe_code, reason = "a copy, as a launch has it")]
    pub fn copy_to_host(&self, to: u64, from: CUdeviceptr, bytes: u64) -> Result {
        let (driver, _current) = self.kernels.enter()?;
        // SAFETY: the addresses are the caller's, as in any launch.
        Ok(unsafe { driver.memcpy_dtoh_async(to as *mut _, from, bytes as usize, self.stream) }?)
    }

    /// Waits for all work that is in the stream.
    ///
    /// # Errors
    /// The driver's.
    pub fn wait(&self) -> Result {
        let (driver, _current) = self.kernels.enter()?;
        Ok(driver.stream_synchronize(self.stream)?)
    }

    /// The number at an address, when the work before is done: waits.
    ///
    /// # Errors
    /// The driver's.
    pub fn number_at(&self, address: CUdeviceptr) -> Result<i64> {
        let mut number = 0i64;
        let copied = self.copy_to_host(&raw mut number as u64, address, size_of::<i64>() as u64);
        // The place is on this thread's stack: no copy may be on its way to it when this returns.
        let waited = self.wait();
        copied.and(waited).map(|()| number)
    }
}
