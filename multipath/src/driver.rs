//! [`Links`] over a real driver: the only file of this crate with `unsafe` code.
//!
//! Calls go through a [`Table`], never through the process's exports. The calling thread's context is put back after
//! each method. While any stream of the process is captured no copy is looked at (see the hooks); for a capture that begins
//! meanwhile there is [`Links::quietly`].

use std::time::{Duration, Instant};

use wm_abi::symbol;
use wm_abi::*;
use wm_driver::{Api, Table};

use crate::links::{Hop, Links, Result, Survey, Transfer, Wake};
use crate::topology::{Identity, Key};

/// Granularity of physical memory: 2 MiB on every GPU so far, and sizes here are multiples of it.
const GRANULARITY: usize = 2 << 20;

/// A driver's copies.
#[derive(Debug)]
pub struct Driver {
    table: &'static Table,
    epoch: Instant,
}

/// Calls a driver function and turns its code into a `Result`.
macro_rules! call {
    ($driver:expr, $name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the function's type comes with its name; pointers among the arguments are to live locals, handles
        // are checked by the driver, and ranges are the caller's by the contract of `Links`.
        unsafe { $driver.table.get::<symbol::$name>()($($argument),*) }.ok()
    };
}

impl Driver {
    /// Over an opened driver.
    pub fn new(table: &'static Table) -> Self {
        Self { table, epoch: Instant::now() }
    }

    /// Starts the driver, where the program has not done so.
    ///
    /// # Errors
    /// Those of the driver: no device, or a library that does not fit the kernel's module.
    pub fn start(&self) -> Result<()> {
        call!(self, cuInit(0))
    }

    /// Pinned host memory as a program allocates it. Giving it back waits for the device.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`, and those of the driver.
    pub fn pin(&self, context: CUcontext, bytes: usize) -> Result<u64> {
        let mut address = std::ptr::null_mut();
        self.within(context, || call!(self, cuMemHostAlloc(&mut address, bytes, CU_MEMHOSTALLOC_PORTABLE)))?;
        Ok(address as u64)
    }

    fn allow(&self, address: u64, bytes: usize, rights: &[CUmemAccessDesc]) -> Result<()> {
        call!(self, cuMemSetAccess(address, bytes, rights.as_ptr(), rights.len()))
    }

    fn within<T>(&self, context: CUcontext, body: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.table.ctx_current() == Ok(context) {
            return body();
        }
        call!(self, cuCtxPushCurrent_v2(context))?;
        let outcome = body();
        let mut popped = CUcontext::NULL;
        let _ = call!(self, cuCtxPopCurrent_v2(&mut popped));
        outcome
    }

    fn identity(&self, device: CUdevice) -> Identity {
        let number = |which| self.table.device_attribute(which, device).unwrap_or(0);
        let pci = format!(
            "{:04x}:{:02x}:{:02x}.0",
            number(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
            number(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
            number(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)
        );
        let node = self.table.device_attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device).ok();
        Identity { uuid: self.uuid(device), pci, numa: node.filter(|node| *node >= 0) }
    }

    fn uuid(&self, device: CUdevice) -> String {
        let mut uuid = CUuuid::default();
        let _ = call!(self, cuDeviceGetUuid_v2(&mut uuid, device));
        uuid.bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Do threads that wait for the current context sleep, because the program asked for it?
    fn sleeps(&self) -> bool {
        let mut flags = 0;
        call!(self, cuCtxGetFlags(&mut flags)).is_ok()
            && flags & CU_CTX_SCHED_MASK == CU_CTX_SCHED_BLOCKING_SYNC
    }

    fn reaches(&self, device: CUdevice, other: CUdevice) -> bool {
        let mut able = 0;
        device == other || call!(self, cuDeviceCanAccessPeer(&mut able, device, other)).is_ok() && able == 1
    }

    /// Reserves addresses and maps new physical memory there.
    fn mapped(&self, bytes: usize, location: CUmemLocation) -> Result<u64> {
        debug_assert!(bytes.is_multiple_of(GRANULARITY));
        let mut address = 0;
        call!(self, cuMemAddressReserve(&mut address, bytes, 0, 0, 0))?;
        self.map(address, bytes, location).inspect_err(|_| {
            let _ = call!(self, cuMemAddressFree(address, bytes));
        })?;
        Ok(address)
    }

    fn map(&self, address: u64, bytes: usize, location: CUmemLocation) -> Result<()> {
        let property = CUmemAllocationProp {
            type_: CU_MEM_ALLOCATION_TYPE_PINNED,
            location,
            requestedHandleTypes: CU_MEM_HANDLE_TYPE_NONE,
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: CUmemAllocationFlags::default(),
        };
        let mut handle = 0;
        call!(self, cuMemCreate(&mut handle, bytes, &property, 0))?;
        let mapped = call!(self, cuMemMap(address, bytes, 0, handle, 0));
        // The mapping keeps the memory alive, and its end frees it.
        let _ = call!(self, cuMemRelease(handle));
        mapped
    }
}

/// Full rights of a place.
fn right(location: CUmemLocation) -> CUmemAccessDesc {
    CUmemAccessDesc { location, flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE }
}

fn on(device: CUdevice) -> CUmemAccessDesc {
    right(CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: device })
}

/// The thread's capture mode is relaxed while this lives: in the default mode, most of what is called here would end a capture
/// that another thread has begun.
struct Relaxed {
    table: &'static Table,
    before: Option<u32>,
}

impl Relaxed {
    fn enter(table: &'static Table) -> Self {
        Self { table, before: exchange(table, CU_STREAM_CAPTURE_MODE_RELAXED) }
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            exchange(self.table, before);
        }
    }
}

fn exchange(table: &Table, mut mode: u32) -> Option<u32> {
    // SAFETY: the driver swaps the value behind the pointer, a live local.
    let result = unsafe { table.get::<symbol::cuThreadExchangeStreamCaptureMode>()(&mut mode) };
    (result == CUresult::SUCCESS).then_some(mode)
}

impl Links for Driver {
    fn survey(&self) -> Result<Survey> {
        let (mut version, mut count) = (0, 0);
        call!(self, cuDriverGetVersion(&mut version))?;
        call!(self, cuDeviceGetCount(&mut count))?;
        let devices = (0..count).map(|device| self.identity(device)).collect();
        let row = |device| (0..count).map(|other| self.reaches(device, other)).collect();
        Ok(Survey { key: Key { driver: version, devices }, reach: (0..count).map(row).collect() })
    }

    fn open(&self, device: CUdevice) -> Result<CUcontext> {
        let (mut context, mut popped) = (CUcontext::NULL, CUcontext::NULL);
        call!(self, cuCtxCreate_v2(&mut context, 0, device))?;
        // The driver makes a new context current.
        let _ = call!(self, cuCtxPopCurrent_v2(&mut popped));
        Ok(context)
    }

    fn room(&self, context: CUcontext) -> Result<(u64, u64)> {
        let (mut free, mut total) = (0, 0);
        self.within(context, || call!(self, cuMemGetInfo_v2(&mut free, &mut total)))?;
        Ok((free as u64, total as u64))
    }

    fn close(&self, context: CUcontext) {
        let _ = call!(self, cuCtxDestroy_v2(context));
    }

    fn stream(&self, context: CUcontext) -> Result<CUstream> {
        let mut stream = CUstream::NULL;
        self.within(context, || call!(self, cuStreamCreate(&mut stream, CU_STREAM_NON_BLOCKING)))?;
        Ok(stream)
    }

    fn event(&self, context: CUcontext, wake: Wake) -> Result<CUevent> {
        let mut event = CUevent::NULL;
        self.within(context, || {
            let flags = match wake {
                Wake::Timed => 0,
                Wake::Prompt if !self.sleeps() => CU_EVENT_DISABLE_TIMING,
                _ => CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC,
            };
            call!(self, cuEventCreate(&mut event, flags))
        })?;
        Ok(event)
    }

    fn retire(&self, context: CUcontext, stream: CUstream, events: &[CUevent]) {
        let _ = self.within(context, || {
            for event in events {
                let _ = call!(self, cuEventDestroy_v2(*event));
            }
            if stream.is_null() { Ok(()) } else { call!(self, cuStreamDestroy_v2(stream)) }
        });
    }

    fn staging(&self, device: CUdevice, context: CUcontext, bytes: usize) -> Result<u64> {
        let location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: device };
        let address = self.within(context, || self.mapped(bytes, location))?;
        self.admit(address, bytes, device).inspect_err(|_| self.discard(address, bytes))?;
        Ok(address)
    }

    fn admit(&self, staging: u64, bytes: usize, device: CUdevice) -> Result<()> {
        self.allow(staging, bytes, &[on(device)])
    }

    fn buffer(&self, device: CUdevice, bytes: usize) -> Result<u64> {
        let mut count = 0;
        call!(self, cuDeviceGetCount(&mut count))?;
        let node = self.table.device_attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device).unwrap_or(0).max(0);
        let host = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_HOST_NUMA, id: node };
        let address = self.mapped(bytes, host)?;
        let rights: Vec<_> = (0..count).map(on).chain([right(host)]).collect();
        self.allow(address, bytes, &rights).inspect_err(|_| self.discard(address, bytes))?;
        Ok(address)
    }

    fn discard(&self, address: u64, bytes: usize) {
        let _ = call!(self, cuMemUnmap(address, bytes));
        let _ = call!(self, cuMemAddressFree(address, bytes));
    }

    fn copy(&self, context: CUcontext, stream: CUstream, transfer: Transfer) -> Result<()> {
        let Transfer { hop, to, from, bytes } = transfer;
        self.within(context, || match hop {
            Hop::HostToDevice => call!(self, cuMemcpyHtoDAsync_v2(to, from as *const _, bytes, stream)),
            Hop::DeviceToHost => call!(self, cuMemcpyDtoHAsync_v2(to as *mut _, from, bytes, stream)),
            Hop::DeviceToDevice => call!(self, cuMemcpyDtoDAsync_v2(to, from, bytes, stream)),
        })
    }

    fn record(&self, context: CUcontext, event: CUevent, stream: CUstream) -> Result<()> {
        self.within(context, || call!(self, cuEventRecord(event, stream)))
    }

    fn order(&self, context: CUcontext, stream: CUstream, event: CUevent) -> Result<()> {
        self.within(context, || call!(self, cuStreamWaitEvent(stream, event, 0)))
    }

    fn passed(&self, context: CUcontext, event: CUevent) -> Result<bool> {
        match self.within(context, || call!(self, cuEventQuery(event))) {
            Ok(()) => Ok(true),
            Err(CUresult::NOT_READY) => Ok(false),
            Err(code) => Err(code),
        }
    }

    fn elapsed(&self, context: CUcontext, from: CUevent, to: CUevent) -> Result<Duration> {
        let mut milliseconds = 0.0_f32;
        self.within(context, || call!(self, cuEventElapsedTime(&mut milliseconds, from, to)))?;
        // Not a time, where a driver answers one.
        Duration::try_from_secs_f32(milliseconds / 1e3).map_err(|_| CUresult::INVALID_VALUE)
    }

    fn wait(&self, context: CUcontext, event: CUevent) -> Result<()> {
        self.within(context, || call!(self, cuEventSynchronize(event)))
    }

    fn drain(&self, context: CUcontext, stream: CUstream) -> Result<()> {
        self.within(context, || call!(self, cuStreamSynchronize(stream)))
    }

    fn cores(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    fn ran_and_waited(&self) -> Option<(Duration, Duration)> {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        let mut times = text.split_ascii_whitespace().map(|word| word.parse().map(Duration::from_nanos));
        Some((times.next()?.ok()?, times.next()?.ok()?))
    }

    fn quietly<T>(&self, body: impl FnOnce() -> T) -> T {
        let _relaxed = Relaxed::enter(self.table);
        body()
    }

    fn move_bytes(&self, to: u64, from: u64, bytes: usize) {
        // SAFETY: one range is a pinned buffer of ours, the other the program's, which it gave to a copy; they are
        // distinct, and as long as the copy runs nobody else may use them.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
    }

    fn clock(&self) -> Duration {
        self.epoch.elapsed()
    }
}
