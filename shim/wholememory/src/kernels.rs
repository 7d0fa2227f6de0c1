//! The kernels of operations, loaded once for each context.

use std::ffi::CString;
use std::sync::{Arc, LazyLock};

use dashmap::DashMap;
use wm_abi::*;
use wm_driver::Api;
use wm_driver::api::Named;
use wm_driver::api::owned::LoadedModule;
use wm_driver::api::scope::{Current, Relaxed};
use wm_kernels::{Arguments, wholememory};

use crate::error::{Error, Result};

/// Threads of a warp.
pub const WARP: u64 = 32;
/// Numbers that a block scans, or sorts by a digit, at once.
pub const TILE: u64 = 4096;
/// Threads of a block.
pub const THREADS: u32 = 256;
/// Blocks that a multiprocessor has at once, at most.
const BLOCKS: u32 = 8;

/// The kernels of each context, by its number, which no other context ever has.
static LOADED: LazyLock<DashMap<u64, Arc<Kernels>>> = LazyLock::new(DashMap::new);

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
    /// Those of a context, loaded when they are first asked for.
    ///
    /// # Errors
    /// The driver's.
    pub fn of(driver: Named<'static>, context: CUcontext) -> Result<Arc<Self>> {
        let number = driver.ctx_id(context)?;
        if let Some(loaded) = LOADED.get(&number) {
            return Ok(Arc::clone(&loaded));
        }
        // Two threads may both load them: no lock is held meanwhile, and one of the two is kept.
        let loaded = Arc::new(Self::load(driver, context)?);
        Ok(Arc::clone(&LOADED.entry(number).or_insert(loaded)))
    }

    fn load(driver: Named<'static>, context: CUcontext) -> Result<Self> {
        let _current = Current::make(driver.0, context).map_err(|code| Error::Cuda(code.to_string()))?;
        let _relaxed = Relaxed::always(driver.0);
        let device = driver.ctx_device()?;
        let multiprocessors = driver.device_attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device)?;
        let module = LoadedModule::load(&driver, |major| wholememory::IMAGE.code_for(major))?.into_raw();
        let multiprocessors = multiprocessors.max(1).unsigned_abs();
        Ok(Self { driver, context, module, multiprocessors, functions: DashMap::new() })
    }

    /// Launches a kernel over so many threads' work; on `multiprocessors` at most, if that is more
    /// than 0.
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
        let most =
            u32::try_from(multiprocessors).ok().filter(|count| *count > 0).unwrap_or(self.multiprocessors);
        let blocks = work.div_ceil(THREADS.into()).clamp(1, u64::from(most.saturating_mul(BLOCKS)));
        self.launch_grid(arguments, blocks as u32, THREADS, stream)
    }

    /// Launches a kernel whose blocks each have a piece of work, of `threads` threads.
    ///
    /// # Errors
    /// The driver's.
    pub fn launch_blocks<A: Arguments>(
        &self,
        arguments: &A,
        pieces: u64,
        threads: u32,
        stream: CUstream,
    ) -> Result {
        // As many threads at once as in other launches.
        let most = u64::from(self.multiprocessors.saturating_mul(BLOCKS)) * u64::from(THREADS / threads);
        self.launch_grid(arguments, pieces.clamp(1, most) as u32, threads, stream)
    }

    /// Makes the context current for a scope.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn enter(&self) -> Result<(Named<'static>, Current<'static>)> {
        let current =
            Current::make(self.driver.0, self.context).map_err(|code| Error::Cuda(code.to_string()))?;
        Ok((self.driver, current))
    }

    #[allow(unsafe_code, reason = "a kernel reads what its arguments point to")]
    fn launch_grid<A: Arguments>(
        &self,
        arguments: &A,
        blocks: u32,
        threads: u32,
        stream: CUstream,
    ) -> Result {
        let (_driver, _current) = self.enter()?;
        let function = self.function(A::KERNEL.name)?;
        let pointers = arguments.pointers();
        let pointers = pointers.as_ref().as_ptr().cast_mut().cast();
        // SAFETY: the arguments are those of this kernel, and the driver copies them during the
        // call. The memory that they point to is the caller's, as in any launch.
        Ok(unsafe { self.driver.launch_kernel(function, blocks, threads, stream, pointers) }?)
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
