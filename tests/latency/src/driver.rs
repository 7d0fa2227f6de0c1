//! The driver calls that are measured, looked up once by name as CUDA's runtime does.

use std::ffi::c_void;
use std::fmt;

use wm_abi::symbol::{self, Symbol};
use wm_abi::{CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING, CUcontext, CUdeviceptr, CUresult, CUstream};

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

pub(crate) fn check(name: &str, code: CUresult) -> Result<(), Failure> {
    code.ok().map_err(|code| Failure(format!("{name}: {code}")))
}

/// The functions that are called.
pub(crate) struct Driver {
    context: CUcontext,
    set_current: <symbol::cuCtxSetCurrent as Symbol>::Function,
    pub(crate) create_stream: <symbol::cuStreamCreate as Symbol>::Function,
    get_device: <symbol::cuCtxGetDevice as Symbol>::Function,
    pub(crate) allocate: <symbol::cuMemAllocAsync as Symbol>::Function,
    pub(crate) free: <symbol::cuMemFreeAsync as Symbol>::Function,
    pub(crate) pin: <symbol::cuMemHostAlloc as Symbol>::Function,
    copy: <symbol::cuMemcpyHtoDAsync_v2 as Symbol>::Function,
    pub(crate) wait: <symbol::cuStreamSynchronize as Symbol>::Function,
    pub(crate) wait_value: <symbol::cuStreamWaitValue32_v2 as Symbol>::Function,
}

/// In which streams calls are made.
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

fn function<S: Symbol>(library: *mut c_void) -> Result<S::Function, Failure> {
    // SAFETY: an open library and a C string.
    let address = unsafe { libc::dlsym(library, S::NAME.as_ptr()) };
    if address.is_null() {
        return Err(Failure(format!("the driver has no {}", S::NAME.to_string_lossy())));
    }
    // SAFETY: `Symbol` promises that `Function` is the pointer type of the function of that name.
    Ok(unsafe { std::mem::transmute_copy(&address) })
}

impl Driver {
    /// Opens the driver, and keeps the memory that its default pool once had, as frameworks do.
    pub(crate) fn open() -> Result<Self, Failure> {
        // SAFETY: loading a library runs its constructors, as in any program.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Err(Failure("libcuda.so.1 cannot be loaded: is a CUDA driver installed?".into()));
        }
        let (mut context, mut pool) = (CUcontext::NULL, wm_abi::CUmemoryPool::NULL);
        let mut threshold = u64::MAX;
        // SAFETY: the driver's own signatures; out-pointers are to live locals.
        unsafe {
            check("cuInit", function::<symbol::cuInit>(library)?(0))?;
            check(
                "cuDevicePrimaryCtxRetain",
                function::<symbol::cuDevicePrimaryCtxRetain>(library)?(&mut context, 0),
            )?;
            check(
                "cuDeviceGetDefaultMemPool",
                function::<symbol::cuDeviceGetDefaultMemPool>(library)?(&mut pool, 0),
            )?;
            let set = function::<symbol::cuMemPoolSetAttribute>(library)?;
            let keep = wm_abi::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
            check("cuMemPoolSetAttribute", set(pool, keep, (&raw mut threshold).cast()))?;
        }
        Ok(Self {
            context,
            set_current: function::<symbol::cuCtxSetCurrent>(library)?,
            create_stream: function::<symbol::cuStreamCreate>(library)?,
            get_device: function::<symbol::cuCtxGetDevice>(library)?,
            allocate: function::<symbol::cuMemAllocAsync>(library)?,
            free: function::<symbol::cuMemFreeAsync>(library)?,
            pin: function::<symbol::cuMemHostAlloc>(library)?,
            copy: function::<symbol::cuMemcpyHtoDAsync_v2>(library)?,
            wait: function::<symbol::cuStreamSynchronize>(library)?,
            wait_value: function::<symbol::cuStreamWaitValue32_v2>(library)?,
        })
    }

    /// Makes the context the calling thread's.
    pub(crate) fn enter(&self) -> Result<(), Failure> {
        // SAFETY: a context that is never released.
        check("cuCtxSetCurrent", unsafe { (self.set_current)(self.context) })
    }

    /// The calling thread's stream.
    pub(crate) fn thread(&self, kind: Kind) -> Result<Thread<'_>, Failure> {
        let (mut stream, mut host) = (CUstream::NULL, std::ptr::null_mut());
        let flags = if kind == Kind::NonBlocking { CU_STREAM_NON_BLOCKING } else { CU_STREAM_DEFAULT };
        self.enter()?;
        // SAFETY: the driver's own signatures; the out-pointers are to live locals.
        unsafe {
            if matches!(kind, Kind::NonBlocking | Kind::Blocking) {
                check("cuStreamCreate", (self.create_stream)(&mut stream, flags))?;
            }
            check("cuMemHostAlloc", (self.pin)(&mut host, SMALL, 0))?;
        }
        let thread = Thread { driver: self, stream, host, device: 0 };
        if kind == Kind::Mixed {
            thread.add_blocking()?;
        }
        Ok(Thread { device: thread.allocate(SMALL)?, ..thread })
    }
}

impl Thread<'_> {
    /// A call that does next to nothing in the driver.
    pub(crate) fn nothing(&self) -> Result<(), Failure> {
        let mut device = 0;
        // SAFETY: the out-pointer is to a live local.
        check("cuCtxGetDevice", unsafe { (self.driver.get_device)(&mut device) })
    }

    pub(crate) fn allocate(&self, bytes: usize) -> Result<CUdeviceptr, Failure> {
        let mut address = 0;
        // SAFETY: the out-pointer is to a live local.
        check("cuMemAllocAsync", unsafe { (self.driver.allocate)(&mut address, bytes, self.stream) })?;
        Ok(address)
    }

    pub(crate) fn free(&self, address: CUdeviceptr) -> Result<(), Failure> {
        // SAFETY: a function without pointers of ours.
        check("cuMemFreeAsync", unsafe { (self.driver.free)(address, self.stream) })
    }

    /// A small copy to the device, from pinned memory.
    pub(crate) fn copy(&self) -> Result<(), Failure> {
        // SAFETY: both ends are this thread's own, as long as it says, and never freed.
        let code = unsafe { (self.driver.copy)(self.device, self.host, SMALL, self.stream) };
        check("cuMemcpyHtoDAsync", code)
    }

    /// Makes a stream that waits for the legacy default stream, and that for it.
    fn add_blocking(&self) -> Result<(), Failure> {
        let (driver, mut stream) = (self.driver, CUstream::NULL);
        // SAFETY: the out-pointer is to a live local.
        check("cuStreamCreate", unsafe { (driver.create_stream)(&mut stream, CU_STREAM_DEFAULT) })
    }

    /// Waits for what has been enqueued: a driver's queue is finite.
    pub(crate) fn wait(&self) -> Result<(), Failure> {
        // SAFETY: a function without pointers of ours.
        check("cuStreamSynchronize", unsafe { (self.driver.wait)(self.stream) })
    }
}
