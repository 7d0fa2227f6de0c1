//! The kernels of operations, loaded once for each communicator's context.

use std::ffi::CString;

use dashmap::DashMap;
use wm_abi::*;
use wm_driver::Api;
use wm_driver::api::Named;
use wm_driver::api::scope::{Current, Relaxed};
use wm_kernels::{Arguments, wholememory};

use crate::error::{Error, Result};

/// Threads of a block.
const THREADS: u32 = 256;
/// Blocks that a multiprocessor has at once, at most.
const BLOCKS: u32 = 8;

/// Kernels in a context.
#[derive(Debug)]
pub struct Kernels {
    driver: Named<'static>,
    context: CUcontext,
    module: CUmodule,
    multiprocessors: u32,
    functions: DashMap<&'static str, CUfunction>,
}

impl Kernels {
    /// Loads them.
    ///
    /// # Errors
    /// The driver's.
    pub fn load(driver: Named<'static>, context: CUcontext, device: CUdevice) -> Result<Self> {
        let _current = Current::make(driver.0, context).map_err(|code| Error::Cuda(code.to_string()))?;
        let _relaxed = Relaxed::always(driver.0);
        let major = driver.device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)?;
        let multiprocessors = driver.device_attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device)?;
        let module = driver.module_load_data(wholememory::IMAGE.code_for(major))?;
        let multiprocessors = multiprocessors.max(1).unsigned_abs();
        Ok(Self { driver, context, module, multiprocessors, functions: DashMap::new() })
    }

    /// Launches a kernel over so many threads' work; on `multiprocessors` at most, if that is more than 0.
    ///
    /// # Errors
    /// The driver's.
    pub fn launch<A: Arguments>(
        &self,
        arguments: &A,
        work: u64,
        multiprocessors: i32,
        stream: CUstream,
    ) -> Result {
        let _current =
            Current::make(self.driver.0, self.context).map_err(|code| Error::Cuda(code.to_string()))?;
        let function = self.function(A::KERNEL.name)?;
        let most =
            u32::try_from(multiprocessors).ok().filter(|count| *count > 0).unwrap_or(self.multiprocessors);
        let blocks = work.div_ceil(THREADS.into()).clamp(1, u64::from(most.saturating_mul(BLOCKS)));
        let pointers = arguments.pointers();
        let pointers = pointers.as_ref().as_ptr().cast_mut().cast();
        // SAFETY: the arguments are those of this kernel, and the driver copies them during the call. What they point to is the
        // caller's, as in any launch.
        Ok(unsafe { self.driver.launch_kernel(function, blocks as u32, THREADS, stream, pointers) }?)
    }

    fn function(&self, name: &'static str) -> Result<CUfunction> {
        if let Some(function) = self.functions.get(name) {
            return Ok(*function);
        }
        let text = CString::new(name).map_err(|error| Error::System(error.to_string()))?;
        let function = self.driver.module_function(self.module, &text)?;
        self.functions.insert(name, function);
        Ok(function)
    }
}
