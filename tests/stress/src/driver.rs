//! The driver calls of the program, looked up once by name as CUDA's runtime does, each with its outcome checked.
//!
//! Handles are the driver's to check. Pointers are to live locals, or to memory that the caller keeps until the work
//! that uses it is over.

use std::ffi::c_void;
use std::fmt;

use wm_abi::CUresult;
use wm_abi::symbol::{self, Symbol};

/// A call that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    what: String,
    code: CUresult,
}

impl Failure {
    /// Something that is wrong although every call succeeded.
    pub(crate) fn of(what: String) -> Self {
        Self { what, code: CUresult::SUCCESS }
    }

    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.code == CUresult::OUT_OF_MEMORY
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            CUresult::SUCCESS => f.write_str(&self.what),
            code => write!(f, "{}: {code}", self.what),
        }
    }
}

/// Outcome of a call.
pub(crate) type Result<T = ()> = std::result::Result<T, Failure>;

/// Names a call and turns its code into a result.
pub(crate) fn check(call: &str, code: CUresult) -> Result {
    code.ok().map_err(|code| Failure { what: call.to_owned(), code })
}

/// `call!(driver, cuInit(0))`.
macro_rules! call {
    ($driver:expr, $name:ident($($argument:expr),* $(,)?)) => {
        $crate::driver::check(
            stringify!($name),
            // SAFETY: the driver's own signature; see the module.
            unsafe { ($driver.$name)($($argument),*) },
        )
    };
}
pub(crate) use call;

macro_rules! functions {
    ($($name:ident)*) => {
        /// The functions that are called.
        #[allow(non_snake_case, reason = "the driver's names")]
        pub(crate) struct Driver {
            $(pub(crate) $name: <symbol::$name as Symbol>::Function,)*
        }

        impl Driver {
            fn find(library: *mut c_void) -> Result<Self> {
                Ok(Self { $($name: function::<symbol::$name>(library)?,)* })
            }
        }
    };
}

functions! {
    cuInit cuDeviceGetCount cuDeviceGetName cuDeviceGetAttribute
    cuDevicePrimaryCtxRetain cuCtxSetCurrent cuCtxSynchronize
    cuModuleLoadData cuModuleGetFunction cuLaunchKernel
    cuStreamCreateWithPriority cuStreamDestroy_v2 cuStreamSynchronize cuStreamWaitEvent
    cuEventCreate cuEventDestroy_v2 cuEventRecord cuEventSynchronize
    cuMemGetInfo_v2 cuMemAlloc_v2 cuMemFree_v2 cuMemAllocAsync cuMemAllocFromPoolAsync cuMemFreeAsync
    cuMemHostAlloc cuMemFreeHost
    cuMemPoolCreate cuMemPoolDestroy cuMemPoolGetAttribute cuDeviceGetDefaultMemPool
    cuMemcpyHtoDAsync_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoDAsync_v2 cuMemcpyPeerAsync
    cuMemsetD8Async cuMemsetD32Async
}

fn function<S: Symbol>(library: *mut c_void) -> Result<S::Function> {
    // SAFETY: an open library and a C string.
    let address = unsafe { libc::dlsym(library, S::NAME.as_ptr()) };
    if address.is_null() {
        return Err(Failure::of(format!("the driver has no {}", S::NAME.to_string_lossy())));
    }
    // SAFETY: `Symbol` promises that `Function` is the pointer type of the function of that name.
    Ok(unsafe { std::mem::transmute_copy(&address) })
}

impl Driver {
    /// Loads `libcuda.so.1` from wherever the loader finds it, and starts it.
    pub(crate) fn open() -> Result<Self> {
        // SAFETY: a library's constructors run, as in any program that loads one.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Err(Failure::of("libcuda.so.1 cannot be loaded: is a CUDA driver installed?".into()));
        }
        let driver = Self::find(library)?;
        call!(driver, cuInit(0))?;
        Ok(driver)
    }

    /// How many devices there are.
    pub(crate) fn devices(&self) -> Result<usize> {
        let mut count = 0;
        call!(self, cuDeviceGetCount(&mut count))?;
        Ok(count as usize)
    }
}
