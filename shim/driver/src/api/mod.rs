//! The driver's functions with Rust signatures: results instead of codes, values instead of
//! out-pointers.
//!
//! [`Api`] has one method a function, named as CUDA names it. Each is a row of [`functions`](self):
//! to call one more function, add a row. A row compiles only if its arguments have the symbol's
//! types. The implementor of the trait decides how a call is made: a [`Table`] only makes it,
//! [`Device`](crate::Device) measures it, [`Named`] adds the name of the failed function to its
//! error.
//!
//! Safety: a handle and a device address are names that the driver looks up, so a function that
//! takes nothing else is safe to call. Handles must come from the driver. A context's handle must
//! not outlive the context: the driver does not check that one, and `wm-abi` cannot. A function
//! that reads or writes memory at an address is `unsafe`.
//!
//! [`owned`] has handles that are released on drop, [`scope`] states of the calling thread that are
//! restored on drop.

mod attribute;
mod failed;
pub mod owned;
pub mod scope;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use wm_abi::symbol::{self, Symbol};
use wm_abi::*;

use crate::departure;
use crate::table::Table;
pub use attribute::{PointerAttribute, PoolAttribute};
pub use failed::Failed;

/// Declares methods, one a row: `name(arguments) -> (values that the driver writes) =
/// function(arguments in the driver's order);`. After `unsafe:` the functions read or write memory
/// at one of their addresses.
macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) $(-> ($($out:ident: $of:ty),+))?
        = $function:ident($($given:expr),*);)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// The driver's.
        #[inline]
        fn $name(&self, $($argument: $type),*) -> Result<($($($of),+)?), Self::Error> {
            $($(let mut $out = <$of>::default();)+)?
            // SAFETY: the function's type comes with its name. Pointers are to live locals, and to
            // slices that go with their lengths.
            self.checked::<symbol::$function>(|function| unsafe { function($($given),*) })?;
            Ok(($($($out),+)?))
        }
    )*};
    (unsafe: $($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) = $function:ident($($given:expr),*);)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// Each address has memory of the stated size, which is not released before the work that
        /// uses it ends. There is no concurrent access to memory that the call writes, no
        /// concurrent write to memory that it reads, and no use of a handle after its release.
        ///
        /// # Errors
        /// The driver's.
        #[inline]
        unsafe fn $name(&self, $($argument: $type),*) -> Result<(), Self::Error> {
            // SAFETY: the function's type comes with its name; the caller guarantees the addresses.
            self.checked::<symbol::$function>(|function| unsafe { function($($given),*) })
        }
    )*};
}

/// The driver's functions.
#[allow(unused_parens, reason = "a function that writes one value has a list of one")]
pub trait Api {
    /// The error of a call.
    type Error: From<Failed>;

    /// Makes a call of one function.
    fn call<S: Symbol>(&self, call: impl FnOnce(S::Function) -> CUresult) -> CUresult;

    /// The same, for a function whose every other code is an error.
    ///
    /// # Errors
    /// The driver's.
    #[inline]
    fn checked<S: Symbol>(&self, call: impl FnOnce(S::Function) -> CUresult) -> Result<(), Self::Error> {
        Ok(Failed::check::<S>(self.call::<S>(call))?)
    }

    functions! {
        /// Starts the driver.
        init() = cuInit(0);
        /// The CUDA version of the driver: 13000 is 13.0.
        driver_version() -> (version: c_int) = cuDriverGetVersion(&mut version);

        /// How many devices there are.
        device_count() -> (count: c_int) = cuDeviceGetCount(&mut count);
        /// The device with a number.
        device_get(ordinal: c_int) -> (device: CUdevice) = cuDeviceGet(&mut device, ordinal);
        /// An attribute of a device.
        device_attribute(attribute: c_uint, device: CUdevice) -> (value: c_int) = cuDeviceGetAttribute(&mut value, attribute, device);
        /// Memory of a device, bytes.
        device_total_mem(device: CUdevice) -> (bytes: usize) = cuDeviceTotalMem_v2(&mut bytes, device);
        /// A device's identity; for a part of a GPU (MIG) the whole GPU's.
        gpu_uuid(device: CUdevice) -> (uuid: CUuuid) = cuDeviceGetUuid(&mut uuid, device);
        /// A device's identity; for a part of a GPU the part's.
        device_uuid(device: CUdevice) -> (uuid: CUuuid) = cuDeviceGetUuid_v2(&mut uuid, device);
        /// Not 0: `device` can use memory of `peer`.
        device_can_access_peer(device: CUdevice, peer: CUdevice) -> (able: c_int) = cuDeviceCanAccessPeer(&mut able, device, peer);
        /// What `device` can do with memory of another one, `peer`.
        device_p2p_attribute(attribute: c_uint, device: CUdevice, peer: CUdevice) -> (value: c_int) = cuDeviceGetP2PAttribute(&mut value, attribute, device, peer);
        /// The pool that a device begins with.
        device_default_mem_pool(device: CUdevice) -> (pool: CUmemoryPool) = cuDeviceGetDefaultMemPool(&mut pool, device);
        /// The pool that a device allocates from.
        device_mem_pool(device: CUdevice) -> (pool: CUmemoryPool) = cuDeviceGetMemPool(&mut pool, device);
        /// Makes a pool the one that a device allocates from.
        device_set_mem_pool(device: CUdevice, pool: CUmemoryPool) = cuDeviceSetMemPool(device, pool);

        /// Retains a device's primary context, and creates it if there is none.
        primary_ctx_retain(device: CUdevice) -> (context: CUcontext) = cuDevicePrimaryCtxRetain(&mut context, device);
        /// Releases a primary context. The last release ends it.
        primary_ctx_release(device: CUdevice) = cuDevicePrimaryCtxRelease_v2(device);
        /// Flags of a device's primary context, and whether (not 0) there is one.
        primary_ctx_state(device: CUdevice) -> (flags: c_uint, active: c_int) = cuDevicePrimaryCtxGetState(device, &mut flags, &mut active);

        /// A new context, which is current afterwards.
        ctx_create(flags: c_uint, device: CUdevice) -> (context: CUcontext) = cuCtxCreate_v2(&mut context, flags, device);
        /// Ends a context.
        ctx_destroy(context: CUcontext) = cuCtxDestroy_v2(context);
        /// The calling thread's context; null without one.
        ctx_current() -> (context: CUcontext) = cuCtxGetCurrent(&mut context);
        /// Replaces the calling thread's context.
        ctx_set_current(context: CUcontext) = cuCtxSetCurrent(context);
        /// Pushes a context on the calling thread's stack. [`Api::ctx_pop_current`] restores the
        /// one before.
        ctx_push_current(context: CUcontext) = cuCtxPushCurrent_v2(context);
        /// Pops the calling thread's context.
        ctx_pop_current() -> (context: CUcontext) = cuCtxPopCurrent_v2(&mut context);
        /// The device of the current context.
        ctx_device() -> (device: CUdevice) = cuCtxGetDevice(&mut device);
        /// Flags of the current context.
        ctx_flags() -> (flags: c_uint) = cuCtxGetFlags(&mut flags);
        /// Sets the flags of the current context.
        ctx_set_flags(flags: c_uint) = cuCtxSetFlags(flags);
        /// A number that no other context of the process ever has.
        ctx_id(context: CUcontext) -> (id: u64) = cuCtxGetId(context, &mut id);
        /// Lets the current context use memory of another one's device.
        ctx_enable_peer_access(peer: CUcontext, flags: c_uint) = cuCtxEnablePeerAccess(peer, flags);
        /// Blocks until all work of the current context is over.
        ctx_synchronize() = cuCtxSynchronize();
        /// The same of a context that need not be current.
        ctx_synchronize_named(context: CUcontext) = cuCtxSynchronize_v2(context);
        /// Records an event behind all work of a context.
        ctx_record_event(context: CUcontext, event: CUevent) = cuCtxRecordEvent(context, event);

        /// A stream of the current context.
        stream_create(flags: c_uint) -> (stream: CUstream) = cuStreamCreate(&mut stream, flags);
        /// The same, with a priority.
        stream_create_with_priority(flags: c_uint, priority: c_int) -> (stream: CUstream)
            = cuStreamCreateWithPriority(&mut stream, flags, priority);
        /// Ends a stream; its work goes on.
        stream_destroy(stream: CUstream) = cuStreamDestroy_v2(stream);
        /// Blocks until all work of a stream is over.
        stream_synchronize(stream: CUstream) = cuStreamSynchronize(stream);
        /// Makes later work of a stream wait for the last record of an event.
        stream_wait_event(stream: CUstream, event: CUevent) = cuStreamWaitEvent(stream, event, 0);
        /// A stream's context.
        stream_ctx(stream: CUstream) -> (context: CUcontext) = cuStreamGetCtx(stream, &mut context);
        /// The flags that a stream was created with.
        stream_flags(stream: CUstream) -> (flags: c_uint) = cuStreamGetFlags(stream, &mut flags);
        /// `CU_STREAM_CAPTURE_STATUS_*`.
        stream_is_capturing(stream: CUstream) -> (status: c_uint) = cuStreamIsCapturing(stream, &mut status);

        /// An event of the current context.
        event_create(flags: c_uint) -> (event: CUevent) = cuEventCreate(&mut event, flags);
        /// Ends an event.
        event_destroy(event: CUevent) = cuEventDestroy_v2(event);
        /// Records an event behind all work now in a stream.
        event_record(event: CUevent, stream: CUstream) = cuEventRecord(event, stream);
        /// Blocks until the device has reached the last record of an event.
        event_synchronize(event: CUevent) = cuEventSynchronize(event);
        /// Milliseconds between the last records of two events.
        event_elapsed_time(start: CUevent, end: CUevent) -> (milliseconds: f32) = cuEventElapsedTime(&mut milliseconds, start, end);

        /// Free and total bytes of the current context's device.
        mem_info() -> (free: usize, total: usize) = cuMemGetInfo_v2(&mut free, &mut total);
        /// Memory of the current context's device.
        mem_alloc(bytes: usize) -> (address: CUdeviceptr) = cuMemAlloc_v2(&mut address, bytes);
        /// Releases memory of [`Api::mem_alloc`], after the work of its context.
        mem_free(address: CUdeviceptr) = cuMemFree_v2(address);
        /// Memory of the stream's device, for work that comes later in the stream.
        mem_alloc_async(bytes: usize, stream: CUstream) -> (address: CUdeviceptr) = cuMemAllocAsync(&mut address, bytes, stream);
        /// The same, from a pool.
        mem_alloc_from_pool_async(bytes: usize, pool: CUmemoryPool, stream: CUstream) -> (address: CUdeviceptr)
            = cuMemAllocFromPoolAsync(&mut address, bytes, pool, stream);
        /// Frees memory behind the present work of the stream.
        mem_free_async(address: CUdeviceptr, stream: CUstream) = cuMemFreeAsync(address, stream);

        /// A pool.
        mem_pool_create(properties: &CUmemPoolProps) -> (pool: CUmemoryPool) = cuMemPoolCreate(&mut pool, properties);
        /// Ends a pool.
        mem_pool_destroy(pool: CUmemoryPool) = cuMemPoolDestroy(pool);
        /// Releases a pool's unused memory to the device, except `keep` bytes.
        mem_pool_trim_to(pool: CUmemoryPool, keep: usize) = cuMemPoolTrimTo(pool, keep);

        /// Smallest unit of memory of a kind, bytes.
        mem_granularity(property: &CUmemAllocationProp, option: c_uint) -> (bytes: usize)
            = cuMemGetAllocationGranularity(&mut bytes, property, option);
        /// Physical memory.
        mem_create(bytes: usize, property: &CUmemAllocationProp) -> (handle: u64) = cuMemCreate(&mut handle, bytes, property, 0);
        /// Releases physical memory. It lives on while it is mapped.
        mem_release(handle: u64) = cuMemRelease(handle);
        /// A range of addresses without mappings.
        mem_address_reserve(bytes: usize) -> (address: CUdeviceptr) = cuMemAddressReserve(&mut address, bytes, 0, 0, 0);
        /// At an address, if the range there is free.
        mem_address_reserve_at(bytes: usize, wish: CUdeviceptr) -> (address: CUdeviceptr)
            = cuMemAddressReserve(&mut address, bytes, 0, wish, 0);
        /// The same, beginning at a multiple of `alignment`.
        mem_address_reserve_aligned(bytes: usize, alignment: usize) -> (address: CUdeviceptr)
            = cuMemAddressReserve(&mut address, bytes, alignment, 0, 0);
        /// Releases a whole range.
        mem_address_free(address: CUdeviceptr, bytes: usize) = cuMemAddressFree(address, bytes);
        /// Maps the start of a handle's memory.
        mem_map(address: CUdeviceptr, bytes: usize, handle: u64) = cuMemMap(address, bytes, 0, handle, 0);
        /// Removes whole mappings.
        mem_unmap(address: CUdeviceptr, bytes: usize) = cuMemUnmap(address, bytes);
        /// Sets the access rights of mapped memory.
        mem_set_access(address: CUdeviceptr, bytes: usize, access: &[CUmemAccessDesc])
            = cuMemSetAccess(address, bytes, access.as_ptr(), access.len());
        /// The access right of one place to mapped memory.
        mem_access(address: CUdeviceptr, place: &CUmemLocation) -> (flags: u64) = cuMemGetAccess(&mut flags, place, address);

        /// Pinned host memory.
        mem_host_alloc(bytes: usize, flags: c_uint) -> (address: *mut c_void) = cuMemHostAlloc(&mut address, bytes, flags);

        /// A function of a module.
        module_function(module: CUmodule, name: &CStr) -> (function: CUfunction)
            = cuModuleGetFunction(&mut function, module, name.as_ptr());
        /// Ends a module. No work may use it any more.
        module_unload(module: CUmodule) = cuModuleUnload(module);

        /// A graph without nodes.
        graph_create() -> (graph: CUgraph) = cuGraphCreate(&mut graph, 0);
        /// Ends a graph.
        graph_destroy(graph: CUgraph) = cuGraphDestroy(graph);
    }

    functions! { unsafe:
        /// Releases pinned memory of [`Api::mem_host_alloc`].
        mem_free_host(address: *mut c_void) = cuMemFreeHost(address);
        /// Pins host memory where it is.
        mem_host_register(start: *mut c_void, bytes: usize, flags: c_uint) = cuMemHostRegister_v2(start, bytes, flags);
        /// Launches a kernel. `arguments` has one pointer for each parameter.
        launch_kernel(function: CUfunction, blocks: c_uint, threads: c_uint, stream: CUstream, arguments: *mut *mut c_void)
            = cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, std::ptr::null_mut());
        /// Unpins memory that [`Api::mem_host_register`] pinned.
        mem_host_unregister(start: *mut c_void) = cuMemHostUnregister(start);
        /// Copies to the device; returns when the bytes have been read.
        memcpy_htod(to: CUdeviceptr, from: *const c_void, bytes: usize) = cuMemcpyHtoD_v2(to, from, bytes);
        /// Copies to the host; returns when the bytes have arrived.
        memcpy_dtoh(to: *mut c_void, from: CUdeviceptr, bytes: usize) = cuMemcpyDtoH_v2(to, from, bytes);
        /// Copies to the device, in stream order.
        memcpy_htod_async(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream)
            = cuMemcpyHtoDAsync_v2(to, from, bytes, stream);
        /// Copies to the host, in stream order.
        memcpy_dtoh_async(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream)
            = cuMemcpyDtoHAsync_v2(to, from, bytes, stream);
        /// Copies rows at any distance from each other; returns as the linear copies do.
        memcpy_2d(copy: &CUDA_MEMCPY2D) = cuMemcpy2DUnaligned_v2(copy);
        /// Copies within the unified address space, in stream order, by the engine of the stream's
        /// device.
        memcpy_dtod_async(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream)
            = cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
        /// Holds a stream up until a word has a value (`CU_STREAM_WAIT_VALUE_*`).
        stream_wait_value32(stream: CUstream, word: CUdeviceptr, value: u32, flags: c_uint)
            = cuStreamWaitValue32_v2(stream, word, value, flags);
        /// Copies from one context's device to another one's, in stream order.
        memcpy_peer_async(to: CUdeviceptr, there: CUcontext, from: CUdeviceptr, here: CUcontext, bytes: usize, stream: CUstream)
            = cuMemcpyPeerAsync(to, there, from, here, bytes, stream);
        /// Fills memory with one byte, in stream order.
        memset_d8_async(to: CUdeviceptr, byte: u8, count: usize, stream: CUstream) = cuMemsetD8Async(to, byte, count, stream);
        /// Fills memory with one word, in stream order.
        memset_d32_async(to: CUdeviceptr, word: u32, count: usize, stream: CUstream) = cuMemsetD32Async(to, word, count, stream);
    }

    /// A device's name.
    ///
    /// # Errors
    /// The driver's.
    fn device_name(&self, device: CUdevice) -> Result<String, Self::Error> {
        let mut name = [0u8; 256];
        let (place, size) = (name.as_mut_ptr().cast::<c_char>(), name.len() as c_int);
        // SAFETY: the driver writes at most as many bytes as the place has, the terminating zero
        // included.
        self.checked::<symbol::cuDeviceGetName>(|function| unsafe { function(place, size, device) })?;
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        Ok(name.to_string_lossy().into_owned())
    }

    /// A device's address on the PCI bus, as `0000:1b:00.0`; a part that the driver does not tell
    /// is 0.
    fn device_pci(&self, device: CUdevice) -> String {
        let number = |which| self.device_attribute(which, device).unwrap_or(0);
        format!(
            "{:04x}:{:02x}:{:02x}.0",
            number(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
            number(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
            number(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)
        )
    }

    /// A module of the current context, from code in memory: machine code, or PTX that ends in a
    /// zero byte.
    ///
    /// # Errors
    /// The driver's.
    fn module_load_data(&self, code: &[u8]) -> Result<CUmodule, Self::Error> {
        let (mut module, code) = (CUmodule::NULL, code.as_ptr().cast());
        // SAFETY: the driver reads the code during the call.
        self.checked::<symbol::cuModuleLoadData>(|function| unsafe { function(&mut module, code) })?;
        Ok(module)
    }

    /// Has the device reached the last record of an event?
    ///
    /// # Errors
    /// A sticky error of the context.
    #[inline]
    fn event_query(&self, event: CUevent) -> Result<bool, Self::Error> {
        // SAFETY: a function without pointers.
        match self.call::<symbol::cuEventQuery>(|function| unsafe { function(event) }) {
            CUresult::NOT_READY => Ok(false),
            code => Ok(Failed::check::<symbol::cuEventQuery>(code).map(|()| true)?),
        }
    }

    /// Is all work of a stream over?
    ///
    /// # Errors
    /// A sticky error of the context.
    #[inline]
    fn stream_query(&self, stream: CUstream) -> Result<bool, Self::Error> {
        // SAFETY: a function without pointers.
        match self.call::<symbol::cuStreamQuery>(|function| unsafe { function(stream) }) {
            CUresult::NOT_READY => Ok(false),
            code => Ok(Failed::check::<symbol::cuStreamQuery>(code).map(|()| true)?),
        }
    }

    /// Exchanges the calling thread's capture mode. Returns the old one.
    ///
    /// # Errors
    /// The driver's.
    #[inline]
    fn exchange_capture_mode(&self, mut mode: c_uint) -> Result<c_uint, Self::Error> {
        let place = &mut mode;
        // SAFETY: the driver swaps the value behind the pointer, a live local.
        self.checked::<symbol::cuThreadExchangeStreamCaptureMode>(|function| unsafe { function(place) })?;
        Ok(mode)
    }

    /// An attribute of the memory at an address.
    ///
    /// # Errors
    /// `INVALID_VALUE` if the driver does not know the address.
    fn pointer_attribute<T: Default>(
        &self,
        attribute: PointerAttribute<T>,
        address: CUdeviceptr,
    ) -> Result<T, Self::Error> {
        let mut value = T::default();
        let place = std::ptr::from_mut(&mut value).cast();
        self.checked::<symbol::cuPointerGetAttribute>(|function| {
            // SAFETY: the place is a live local of the attribute's type.
            unsafe { function(place, attribute.code(), address) }
        })?;
        Ok(value)
    }

    /// Several attributes of the memory at an address, in one call. If the driver does not know the
    /// address, they are 0.
    ///
    /// # Errors
    /// The driver's.
    fn pointer_attributes<T: Default + Copy, const N: usize>(
        &self,
        attributes: [PointerAttribute<T>; N],
        address: CUdeviceptr,
    ) -> Result<[T; N], Self::Error> {
        let (mut codes, mut values) = (attributes.map(PointerAttribute::code), [T::default(); N]);
        let mut places = values.each_mut().map(|value| std::ptr::from_mut(value).cast());
        let (codes, places) = (codes.as_mut_ptr(), places.as_mut_ptr());
        self.checked::<symbol::cuPointerGetAttributes>(|function| {
            // SAFETY: as many places as attributes, each a live local of its attribute's type.
            unsafe { function(N as c_uint, codes, places, address) }
        })?;
        Ok(values)
    }

    /// A pool's attribute.
    ///
    /// # Errors
    /// The driver's.
    fn mem_pool_attribute<T: Default>(
        &self,
        pool: CUmemoryPool,
        attribute: PoolAttribute<T>,
    ) -> Result<T, Self::Error> {
        let mut value = T::default();
        let place = std::ptr::from_mut(&mut value).cast();
        self.checked::<symbol::cuMemPoolGetAttribute>(|function| {
            // SAFETY: the place is a live local of the attribute's type.
            unsafe { function(pool, attribute.code(), place) }
        })?;
        Ok(value)
    }

    /// Sets a pool's attribute.
    ///
    /// # Errors
    /// The driver's.
    fn mem_pool_set_attribute<T>(
        &self,
        pool: CUmemoryPool,
        attribute: PoolAttribute<T>,
        mut value: T,
    ) -> Result<(), Self::Error> {
        let place = std::ptr::from_mut(&mut value).cast();
        self.checked::<symbol::cuMemPoolSetAttribute>(|function| {
            // SAFETY: the driver reads a live local of the attribute's type.
            unsafe { function(pool, attribute.code(), place) }
        })
    }

    /// A file descriptor for physical memory; closed on exec.
    ///
    /// # Errors
    /// The driver's, for memory that was not made to be shared.
    fn mem_export(&self, handle: u64) -> Result<OwnedFd, Self::Error> {
        let (mut descriptor, kind): (c_int, _) = (-1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        let place = (&raw mut descriptor).cast();
        // SAFETY: for this handle type the driver writes one file descriptor.
        self.checked::<symbol::cuMemExportToShareableHandle>(|function| unsafe {
            function(place, handle, kind, 0)
        })?;
        // SAFETY: a new descriptor without another owner.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    /// One more reference to the physical memory that is mapped at an address. The handle equals
    /// the one that it was mapped with.
    ///
    /// # Errors
    /// The driver's, for an address where nothing is mapped.
    fn mem_retain(&self, address: u64) -> Result<u64, Self::Error> {
        let mut handle = 0;
        self.checked::<symbol::cuMemRetainAllocationHandle>(|function| {
            // SAFETY: the driver writes a handle, and reads nothing behind the address.
            unsafe { function(&mut handle, address as usize as *mut c_void) }
        })?;
        Ok(handle)
    }

    /// The physical memory behind a file descriptor.
    ///
    /// # Errors
    /// The driver's.
    fn mem_import(&self, descriptor: BorrowedFd<'_>) -> Result<u64, Self::Error> {
        let (mut handle, number) = (0, descriptor.as_raw_fd() as usize as *mut c_void);
        self.checked::<symbol::cuMemImportFromShareableHandle>(|function| {
            // SAFETY: for this handle type the driver takes the descriptor's number in the
            // pointer's place.
            unsafe { function(&mut handle, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) }
        })?;
        Ok(handle)
    }
}

impl Api for Table {
    type Error = CUresult;

    #[inline]
    fn call<S: Symbol>(&self, call: impl FnOnce(S::Function) -> CUresult) -> CUresult {
        departure::visit(|| call(self.get::<S>()))
    }
}

/// A driver whose errors name the failed function.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a>(pub &'a Table);

impl Api for Named<'_> {
    type Error = Failed;

    #[inline]
    fn call<S: Symbol>(&self, call: impl FnOnce(S::Function) -> CUresult) -> CUresult {
        self.0.call::<S>(call)
    }
}
