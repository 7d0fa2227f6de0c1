//! The CUDA driver of the process: the functions that this library calls, found once.
//!
//! The process's own driver is used, whether it is linked, preloaded or opened; only if there is
//! none, `libcuda.so.1` is opened.

use std::ffi::{CStr, c_int, c_uint, c_void};

use wm_abi::symbol::{self, Symbol};
use wm_abi::{CUcontext, CUdeviceptr, CUevent, CUresult, CUstream, CUuuid};

use crate::abi::{Code, Outcome};
use crate::report::error;

macro_rules! functions {
    ($($field:ident: $name:ident,)*) => {
        /// The driver's functions, at their own types.
        #[derive(Debug)]
        pub(crate) struct Driver {
            $($field: <symbol::$name as Symbol>::Function,)*
        }

        impl Driver {
            fn find() -> Result<Self, &'static CStr> {
                let library = Library::of_the_process();
                Ok(Self { $($field: library.function::<symbol::$name>()?,)* })
            }
        }
    };
}

functions! {
    context: cuCtxGetCurrent,
    device: cuCtxGetDevice,
    push: cuCtxPushCurrent_v2,
    pop: cuCtxPopCurrent_v2,
    retain: cuDevicePrimaryCtxRetain,
    uuid: cuDeviceGetUuid_v2,
    allocate: cuMemAlloc_v2,
    free: cuMemFree_v2,
    pin: cuMemHostAlloc,
    download: cuMemcpyDtoHAsync_v2,
    upload: cuMemcpyHtoDAsync_v2,
    call: cuLaunchHostFunc,
    capturing: cuStreamIsCapturing,
    event: cuEventCreate,
    record: cuEventRecord,
    wait: cuStreamWaitEvent,
    drop_event: cuEventDestroy_v2,
}

/// A library that is searched for names.
struct Library(*mut c_void);

impl Library {
    fn of_the_process() -> Self {
        let known = <symbol::cuLaunchHostFunc as Symbol>::NAME;
        // SAFETY: strings with an end; a null handle is `RTLD_DEFAULT`, whose search is valid.
        unsafe {
            if !libc::dlsym(libc::RTLD_DEFAULT, known.as_ptr()).is_null() {
                return Self(libc::RTLD_DEFAULT);
            }
            Self(libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL))
        }
    }

    fn function<S: Symbol>(&self) -> Result<S::Function, &'static CStr> {
        // SAFETY: a handle of the loader, which is never closed, and a string with an end.
        let address = unsafe { libc::dlsym(self.0, S::NAME.as_ptr()) };
        if address.is_null() || size_of::<S::Function>() != size_of_val(&address) {
            return Err(S::NAME);
        }
        // SAFETY: the driver's function of this name has this type, by the contract of `Symbol`.
        Ok(unsafe { std::mem::transmute_copy(&address) })
    }
}

/// A result of the driver as one of NCCL's.
fn checked(result: CUresult, name: &str) -> Outcome {
    result.ok().map_err(|reason| error(Code::CUDA, &format!("{name}: {reason}")))
}

/// Pinned host memory that every context may use (`CU_MEMHOSTALLOC_PORTABLE`).
const PORTABLE: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: c_uint = 2;

impl Driver {
    /// The process's driver.
    pub(crate) fn open() -> Outcome<Self> {
        Self::find().map_err(|name| {
            error(
                Code::CUDA,
                &format!("no CUDA driver in this process: {} is not there", name.to_string_lossy()),
            )
        })
    }

    /// The calling thread's context; device 0's primary one if it has none.
    pub(crate) fn context(&self) -> Outcome<CUcontext> {
        let mut context = CUcontext::NULL;
        // SAFETY: out-pointers to a live local.
        unsafe {
            checked((self.context)(&raw mut context), "cuCtxGetCurrent")?;
            if context.is_null() {
                checked((self.retain)(&raw mut context, 0), "cuDevicePrimaryCtxRetain")?;
            }
        }
        Ok(context)
    }

    /// Runs a body with a context current.
    pub(crate) fn within<T>(&self, context: CUcontext, body: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
        let mut popped = CUcontext::NULL;
        // SAFETY: the driver checks the context.
        checked(unsafe { (self.push)(context) }, "cuCtxPushCurrent")?;
        let result = body();
        // SAFETY: an out-pointer to a live local; the context was pushed above.
        checked(unsafe { (self.pop)(&raw mut popped) }, "cuCtxPopCurrent")?;
        result
    }

    /// The current context's device, and its identity.
    pub(crate) fn device(&self) -> Outcome<(c_int, CUuuid)> {
        let (mut device, mut uuid) = (0, CUuuid { bytes: [0; 16] });
        // SAFETY: out-pointers to live locals.
        unsafe {
            checked((self.device)(&raw mut device), "cuCtxGetDevice")?;
            checked((self.uuid)(&raw mut uuid, device), "cuDeviceGetUuid")?;
        }
        Ok((device, uuid))
    }

    pub(crate) fn allocate(&self, bytes: usize) -> Outcome<CUdeviceptr> {
        let mut address = 0;
        // SAFETY: an out-pointer to a live local.
        checked(unsafe { (self.allocate)(&raw mut address, bytes) }, "cuMemAlloc")?;
        Ok(address)
    }

    pub(crate) fn free(&self, address: CUdeviceptr) -> Outcome {
        // SAFETY: the driver checks the address, and waits for the work that uses the memory.
        checked(unsafe { (self.free)(address) }, "cuMemFree")
    }

    /// Pinned memory of the host.
    pub(crate) fn pin(&self, bytes: usize) -> Outcome<*mut u8> {
        let mut place: *mut c_void = std::ptr::null_mut();
        // SAFETY: an out-pointer to a live local.
        checked(unsafe { (self.pin)(&raw mut place, bytes, PORTABLE) }, "cuMemHostAlloc")?;
        Ok(place.cast())
    }

    /// Queues a copy to pinned memory.
    ///
    /// # Safety
    /// `to` is pinned, and stays valid and unused until the stream has passed the copy.
    pub(crate) unsafe fn download(
        &self,
        to: *mut u8,
        from: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) -> Outcome {
        // SAFETY: by contract; the driver checks the device's side.
        checked(unsafe { (self.download)(to.cast(), from, bytes, stream) }, "cuMemcpyDtoHAsync")
    }

    /// Queues a copy from pinned memory.
    ///
    /// # Safety
    /// As for [`Self::download`].
    pub(crate) unsafe fn upload(
        &self,
        to: CUdeviceptr,
        from: *const u8,
        bytes: usize,
        stream: CUstream,
    ) -> Outcome {
        // SAFETY: by contract; the driver checks the device's side.
        checked(unsafe { (self.upload)(to, from.cast(), bytes, stream) }, "cuMemcpyHtoDAsync")
    }

    /// Queues a host function.
    ///
    /// # Safety
    /// The function may be called once with the argument, from another thread.
    pub(crate) unsafe fn call(
        &self,
        stream: CUstream,
        function: extern "C" fn(*mut c_void),
        argument: *mut c_void,
    ) -> Outcome {
        // SAFETY: by contract.
        checked(unsafe { (self.call)(stream, function as *mut c_void, argument) }, "cuLaunchHostFunc")
    }

    /// Is a stream being captured into a graph?
    pub(crate) fn is_capturing(&self, stream: CUstream) -> Outcome<bool> {
        let mut status = 0;
        // SAFETY: an out-pointer to a live local; the driver checks the stream.
        checked(unsafe { (self.capturing)(stream, &raw mut status) }, "cuStreamIsCapturing")?;
        Ok(status != 0)
    }

    /// Makes one stream wait for the work that is in another one.
    pub(crate) fn order(&self, behind: CUstream, stream: CUstream) -> Outcome {
        let mut event = CUevent::NULL;
        // SAFETY: an out-pointer to a live local; the driver checks the streams. An event may be
        // destroyed at once: the wait keeps what it needs.
        unsafe {
            checked((self.event)(&raw mut event, NO_TIMING), "cuEventCreate")?;
            let ordered = checked((self.record)(event, behind), "cuEventRecord")
                .and_then(|()| checked((self.wait)(stream, event, 0), "cuStreamWaitEvent"));
            checked((self.drop_event)(event), "cuEventDestroy")?;
            ordered
        }
    }
}
