//! The driver calls of the program: the library is opened as CUDA's runtime opens it.

use std::ffi::c_void;

use wm_abi::symbol::{self, Symbol};
use wm_abi::{CUcontext, CUdevice, CUstream};

/// The call that ended the program, in words.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

/// The opened driver.
#[derive(Debug)]
pub(crate) struct Driver(*mut c_void);

// SAFETY: a handle of the dynamic loader, which any thread may use.
unsafe impl Sync for Driver {}

macro_rules! call {
    ($driver:expr, $name:ident($($argument:expr),*)) => {{
        let function = $driver.function::<symbol::$name>()?;
        // SAFETY: the driver's own signature; pointers are to live locals.
        unsafe { function($($argument),*) }.ok().map_err(|code| Failure(format!("{}: {code}", stringify!($name))))
    }};
}

impl Driver {
    /// Loads and initialises `libcuda.so.1`.
    pub(crate) fn open() -> Result<Self, Failure> {
        // SAFETY: a library's constructors run, as in any program that loads one.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Err(Failure("libcuda.so.1 cannot be loaded".into()));
        }
        let driver = Self(library);
        call!(driver, cuInit(0))?;
        Ok(driver)
    }

    fn function<S: Symbol>(&self) -> Result<S::Function, Failure> {
        // SAFETY: a live handle and a NUL-terminated name.
        let address = unsafe { libc::dlsym(self.0, S::NAME.as_ptr()) };
        if address.is_null() {
            return Err(Failure(format!("{}: not exported", S::NAME.to_string_lossy())));
        }
        // SAFETY: `Symbol` says that this is the type of what is exported under the name.
        Ok(unsafe { std::mem::transmute_copy(&address) })
    }

    /// Makes a device's primary context the thread's.
    pub(crate) fn enter(&self, device: CUdevice) -> Result<(), Failure> {
        let mut context = CUcontext::NULL;
        call!(self, cuDevicePrimaryCtxRetain(&mut context, device))?;
        call!(self, cuCtxSetCurrent(context))
    }

    pub(crate) fn stream(&self) -> Result<CUstream, Failure> {
        let mut stream = CUstream::NULL;
        call!(self, cuStreamCreate(&mut stream, 0))?;
        Ok(stream)
    }

    /// In stream order, or (`None`) plain.
    pub(crate) fn allocate(&self, bytes: usize, stream: Option<CUstream>) -> Result<u64, Failure> {
        let mut address = 0;
        match stream {
            Some(stream) => call!(self, cuMemAllocAsync(&mut address, bytes, stream))?,
            None => call!(self, cuMemAlloc_v2(&mut address, bytes))?,
        }
        Ok(address)
    }

    pub(crate) fn free(&self, address: u64, stream: Option<CUstream>) -> Result<(), Failure> {
        match stream {
            Some(stream) => call!(self, cuMemFreeAsync(address, stream)),
            None => call!(self, cuMemFree_v2(address)),
        }
    }

    /// Waits for a stream, or for the context.
    pub(crate) fn wait(&self, stream: Option<CUstream>) -> Result<(), Failure> {
        match stream {
            Some(stream) => call!(self, cuStreamSynchronize(stream)),
            None => call!(self, cuCtxSynchronize()),
        }
    }
}
