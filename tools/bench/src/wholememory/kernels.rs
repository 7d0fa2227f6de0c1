//! Launches of the image `measure`: a table's contents, the check of rows, and the plainest gather
//! and scatter.

use std::ffi::CString;

use anyhow::{Result, ensure};
use wm_abi::{
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, CUmodule,
    CUstream,
};
use wm_driver::Api;
use wm_driver::api::Named;
use wm_kernels::{Arguments, measure};

/// Threads of a block, and blocks of a multiprocessor: all run at once, with any number of
/// registers.
const THREADS: u32 = 256;
const BLOCKS: u32 = 4;

/// The image in the current context.
#[derive(Debug)]
pub(super) struct MeasureKernels {
    driver: Named<'static>,
    module: CUmodule,
    stream: CUstream,
    most: u32,
}

impl MeasureKernels {
    pub(super) fn load(driver: Named<'static>, stream: CUstream) -> Result<Self> {
        let device = driver.ctx_device()?;
        let major = driver.device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)?;
        ensure!(
            major >= 8,
            "a GPU of compute capability 8.0 or later is needed: device {device} has {major}.x"
        );
        let multiprocessors = driver.device_attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device)?;
        let module = driver.module_load_data(measure::IMAGE.code_for(major))?;
        Ok(Self { driver, module, stream, most: multiprocessors.max(1).unsigned_abs() * BLOCKS })
    }

    /// Enqueues a kernel over so many threads' work.
    pub(super) fn launch<A: Arguments>(&self, arguments: &A, work: u64) -> Result<()> {
        let function = self.driver.module_function(self.module, &CString::new(A::KERNEL.name)?)?;
        let blocks = work.div_ceil(THREADS.into()).clamp(1, self.most.into()) as u32;
        let pointers = arguments.pointers();
        let pointers = pointers.as_ref().as_ptr().cast_mut().cast();
        // SAFETY: the arguments are those of this kernel, and the driver copies them during the
        // call. The caller holds the memory that they point to until the stream is done.
        Ok(unsafe { self.driver.launch_kernel(function, blocks, THREADS, self.stream, pointers) }?)
    }
}
