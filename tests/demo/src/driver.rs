//! The few driver calls that the program makes, each with its outcome checked.
//!
//! The library is opened the way CUDA's own runtime does it: `dlopen("libcuda.so.1")`, then one look-up a function.

use std::ffi::{CStr, c_void};
use std::fmt;

use wm_abi::symbol::{self, Symbol};
use wm_abi::{CUcontext, CUdevice, CUdeviceptr, CUresult, CUstream};

use crate::account;

/// The call that ended the program, in words.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
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
    library: *mut c_void,
    stream: std::cell::Cell<CUstream>,
}

/// `call!(driver, cuInit(0))`: looks the function up and turns any code but success into a [`Failure`].
macro_rules! call {
    ($driver:expr, $name:ident($($argument:expr),*)) => {{
        let function = $driver.function::<symbol::$name>()?;
        // SAFETY: the driver's own signature; pointers are to locals or buffers that outlive the synchronous part.
        check(stringify!($name), unsafe { function($($argument),*) })
    }};
}

fn check(call: &str, code: CUresult) -> Result<(), Failure> {
    code.ok().map_err(|code| Failure(format!("{call}: {code}")))
}

impl Driver {
    /// Loads `libcuda.so.1` from wherever the loader finds it.
    pub(crate) fn open() -> Result<Self, Failure> {
        // SAFETY: a library's constructors run, as in any program that loads one.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Err(Failure("libcuda.so.1 cannot be loaded: is a CUDA driver installed?".into()));
        }
        Ok(Self { library, stream: CUstream::NULL.into() })
    }

    fn function<S: Symbol>(&self) -> Result<S::Function, Failure> {
        // SAFETY: `library` is an open handle, the name is a C string.
        let address = unsafe { libc::dlsym(self.library, S::NAME.as_ptr()) };
        if address.is_null() {
            return Err(Failure(format!("the driver has no {}", S::NAME.to_string_lossy())));
        }
        // SAFETY: `Symbol` promises that `Function` is the type of the function of that name: one address wide.
        Ok(unsafe { std::mem::transmute_copy(&address) })
    }

    /// Initialises the driver, makes `ordinal`'s primary context current and creates a stream.
    pub(crate) fn start(&self, ordinal: CUdevice) -> Result<Device, Failure> {
        let (mut device, mut context, mut stream) = (0, CUcontext::NULL, CUstream::NULL);
        call!(self, cuInit(0))?;
        call!(self, cuDeviceGet(&mut device, ordinal))?;
        call!(self, cuDevicePrimaryCtxRetain(&mut context, device))?;
        call!(self, cuCtxSetCurrent(context))?;
        call!(self, cuStreamCreate(&mut stream, 0))?;
        self.stream.set(stream);
        let (free, total) = self.memory()?;
        Ok(Device { name: self.name(device)?, free, total })
    }

    fn name(&self, device: CUdevice) -> Result<String, Failure> {
        let mut name = [0u8; 256];
        call!(self, cuDeviceGetName(name.as_mut_ptr().cast(), 255, device))?;
        let name = CStr::from_bytes_until_nul(&name).unwrap_or(c"?");
        Ok(name.to_string_lossy().into_owned())
    }

    /// Free and total bytes of the device.
    pub(crate) fn memory(&self) -> Result<(u64, u64), Failure> {
        let (mut free, mut total) = (0, 0);
        call!(self, cuMemGetInfo_v2(&mut free, &mut total))?;
        Ok((free as u64, total as u64))
    }

    /// `cuMemAllocAsync` if `ordered`, else `cuMemAlloc`: programs mix them.
    pub(crate) fn allocate(&self, bytes: u64, ordered: bool) -> Result<CUdeviceptr, Failure> {
        let mut address = 0;
        let made = if ordered {
            call!(self, cuMemAllocAsync(&mut address, bytes as usize, self.stream.get()))
        } else {
            call!(self, cuMemAlloc_v2(&mut address, bytes as usize))
        };
        made.map_err(|failure| Failure(format!("{failure}, asked for {}", account::size(bytes))))?;
        Ok(address)
    }

    /// Gives a block back the way it was got.
    pub(crate) fn free(&self, address: CUdeviceptr, ordered: bool) -> Result<(), Failure> {
        if ordered {
            call!(self, cuMemFreeAsync(address, self.stream.get()))
        } else {
            call!(self, cuMemFree_v2(address))
        }
    }

    /// Writes `words` times the 32-bit `value`, in stream order.
    pub(crate) fn fill(&self, address: CUdeviceptr, value: u32, words: usize) -> Result<(), Failure> {
        call!(self, cuMemsetD32Async(address, value, words, self.stream.get()))
    }

    /// Copies to the host, and returns when the words are there.
    pub(crate) fn read(&self, words: &mut [u32], address: CUdeviceptr) -> Result<(), Failure> {
        let bytes = size_of_val(words);
        call!(self, cuMemcpyDtoHAsync_v2(words.as_mut_ptr().cast(), address, bytes, self.stream.get()))?;
        self.wait()
    }

    /// Waits for everything in the stream.
    pub(crate) fn wait(&self) -> Result<(), Failure> {
        call!(self, cuStreamSynchronize(self.stream.get()))
    }
}
