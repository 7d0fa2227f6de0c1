//! [`CopyDriver`] over a real driver: the only file of this crate with `unsafe` code.
//!
//! Calls go through a [`Table`], never through the process's exports. Each method restores the
//! calling thread's context. While the program captures a stream, no copy comes here (see the
//! hooks); for a capture that begins meanwhile there is [`CopyDriver::quietly`].

use std::time::{Duration, Instant};

use wm_abi::*;
use wm_driver::api::owned::Reservation;
use wm_driver::api::scope::{Current, Relaxed};
use wm_driver::{Api, Table};

use crate::driver::{CopyDriver, DriverResult, Hop, Transfer, WaitMode};
use crate::vocabulary::machine::{Identity, MachineKey, Survey};

/// Granularity of physical memory: 2 MiB on every GPU so far, and sizes here are multiples of it.
const GRANULARITY: usize = 2 << 20;

/// A driver's copies.
#[derive(Debug)]
pub struct TableDriver {
    table: &'static Table,
    epoch: Instant,
}

impl TableDriver {
    /// Over an opened driver.
    pub fn new(table: &'static Table) -> Self {
        Self { table, epoch: Instant::now() }
    }

    /// Starts the driver if the program has not done so.
    ///
    /// # Errors
    /// Those of the driver: no device, or a library that does not fit the kernel's module.
    pub fn start(&self) -> DriverResult<()> {
        self.table.init()
    }

    /// Pinned host memory as a program allocates it. Its release waits for the device.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`, and those of the driver.
    pub fn pin(&self, context: CUcontext, bytes: usize) -> DriverResult<u64> {
        let _current = self.enter(context)?;
        Ok(self.table.mem_host_alloc(bytes, CU_MEMHOSTALLOC_PORTABLE)? as u64)
    }

    fn identity(&self, device: CUdevice) -> Identity {
        let node = self.table.device_attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device).ok();
        let uuid = self.table.device_uuid(device).unwrap_or_default();
        let uuid = uuid.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Identity { uuid, pci: self.table.device_pci(device), numa: node.filter(|node| *node >= 0) }
    }

    /// Do threads that wait for the current context sleep, because the program asked for it?
    fn sleeps(&self) -> bool {
        self.table.ctx_flags().is_ok_and(|flags| flags & CU_CTX_SCHED_MASK == CU_CTX_SCHED_BLOCKING_SYNC)
    }

    fn reaches(&self, device: CUdevice, other: CUdevice) -> bool {
        device == other || self.table.device_can_access_peer(device, other) == Ok(1)
    }

    /// Addresses with new physical memory, with the access rights given.
    fn mapped(&self, bytes: usize, location: CUmemLocation, rights: &[CUmemAccessDesc]) -> DriverResult<u64> {
        debug_assert!(bytes.is_multiple_of(GRANULARITY));
        let property = CUmemAllocationProp {
            type_: CU_MEM_ALLOCATION_TYPE_PINNED,
            location,
            requestedHandleTypes: CU_MEM_HANDLE_TYPE_NONE,
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: CUmemAllocationFlags::default(),
        };
        let range = Reservation::filled(self.table, bytes, &property)?;
        range.allow(rights)?;
        Ok(range.into_raw())
    }

    fn enter(&self, context: CUcontext) -> DriverResult<Current<'static>> {
        Current::make(self.table, context)
    }
}

/// Full rights of a place.
fn right(location: CUmemLocation) -> CUmemAccessDesc {
    CUmemAccessDesc { location, flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE }
}

fn on(device: CUdevice) -> CUmemAccessDesc {
    right(CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: device })
}

impl CopyDriver for TableDriver {
    fn survey(&self) -> DriverResult<Survey> {
        let (version, count) = (self.table.driver_version()?, self.table.device_count()?);
        let devices = (0..count).map(|device| self.identity(device)).collect();
        let row = |device| (0..count).map(|other| self.reaches(device, other)).collect();
        Ok(Survey { key: MachineKey { driver: version, devices }, reach: (0..count).map(row).collect() })
    }

    fn open(&self, device: CUdevice) -> DriverResult<CUcontext> {
        let context = self.table.ctx_create(0, device)?;
        // The driver makes a new context current.
        let _ = self.table.ctx_pop_current();
        Ok(context)
    }

    fn room(&self, context: CUcontext) -> DriverResult<(u64, u64)> {
        let _current = self.enter(context)?;
        let (free, total) = self.table.mem_info()?;
        Ok((free as u64, total as u64))
    }

    fn close(&self, context: CUcontext) {
        let _ = self.table.ctx_destroy(context);
    }

    fn stream(&self, context: CUcontext) -> DriverResult<CUstream> {
        let _current = self.enter(context)?;
        self.table.stream_create(CU_STREAM_NON_BLOCKING)
    }

    fn event(&self, context: CUcontext, wake: WaitMode) -> DriverResult<CUevent> {
        let _current = self.enter(context)?;
        self.table.event_create(match wake {
            WaitMode::Timed => 0,
            WaitMode::Prompt if !self.sleeps() => CU_EVENT_DISABLE_TIMING,
            _ => CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC,
        })
    }

    fn retire(&self, context: CUcontext, stream: CUstream, events: &[CUevent]) {
        let Ok(_current) = self.enter(context) else { return };
        for event in events {
            let _ = self.table.event_destroy(*event);
        }
        if !stream.is_null() {
            let _ = self.table.stream_destroy(stream);
        }
    }

    fn staging(&self, device: CUdevice, context: CUcontext, bytes: usize) -> DriverResult<u64> {
        let _current = self.enter(context)?;
        self.mapped(bytes, CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: device }, &[on(device)])
    }

    fn admit(&self, staging: u64, bytes: usize, device: CUdevice) -> DriverResult<()> {
        self.table.mem_set_access(staging, bytes, &[on(device)])
    }

    fn buffer(&self, device: CUdevice, bytes: usize) -> DriverResult<u64> {
        let count = self.table.device_count()?;
        let node = self.table.device_attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device).unwrap_or(0).max(0);
        let host = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_HOST_NUMA, id: node };
        let rights: Vec<_> = (0..count).map(on).chain([right(host)]).collect();
        self.mapped(bytes, host, &rights)
    }

    fn discard(&self, address: u64, bytes: usize) {
        let _ = self.table.mem_unmap(address, bytes);
        let _ = self.table.mem_address_free(address, bytes);
    }

    fn copy(&self, context: CUcontext, stream: CUstream, transfer: Transfer) -> DriverResult<()> {
        let Transfer { hop, to, from, bytes } = transfer;
        let _current = self.enter(context)?;
        // SAFETY: the ranges are the caller's, by the contract of `CopyDriver`.
        unsafe {
            match hop {
                Hop::HostToDevice => self.table.memcpy_htod_async(to, from as *const _, bytes, stream),
                Hop::DeviceToHost => self.table.memcpy_dtoh_async(to as *mut _, from, bytes, stream),
                Hop::DeviceToDevice => self.table.memcpy_dtod_async(to, from, bytes, stream),
            }
        }
    }

    fn record(&self, context: CUcontext, event: CUevent, stream: CUstream) -> DriverResult<()> {
        let _current = self.enter(context)?;
        self.table.event_record(event, stream)
    }

    fn order(&self, context: CUcontext, stream: CUstream, event: CUevent) -> DriverResult<()> {
        let _current = self.enter(context)?;
        self.table.stream_wait_event(stream, event)
    }

    fn passed(&self, context: CUcontext, event: CUevent) -> DriverResult<bool> {
        let _current = self.enter(context)?;
        self.table.event_query(event)
    }

    fn is_empty(&self, context: CUcontext, stream: CUstream) -> DriverResult<bool> {
        let _current = self.enter(context)?;
        self.table.stream_query(stream)
    }

    fn elapsed(&self, context: CUcontext, from: CUevent, to: CUevent) -> DriverResult<Duration> {
        let _current = self.enter(context)?;
        let milliseconds = self.table.event_elapsed_time(from, to)?;
        // A driver may return a value that is no time.
        Duration::try_from_secs_f32(milliseconds / 1e3).map_err(|_| CUresult::INVALID_VALUE)
    }

    fn wait(&self, context: CUcontext, event: CUevent) -> DriverResult<()> {
        let _current = self.enter(context)?;
        self.table.event_synchronize(event)
    }

    fn drain(&self, context: CUcontext, stream: CUstream) -> DriverResult<()> {
        let _current = self.enter(context)?;
        self.table.stream_synchronize(stream)
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
        let _relaxed = Relaxed::always(self.table);
        body()
    }

    fn move_bytes(&self, to: u64, from: u64, bytes: usize) {
        // SAFETY: one range is a pinned buffer of ours, the other is the program's, which it gave
        // to a copy. They are distinct, and the program may not use them until the copy ends.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
    }

    fn clock(&self) -> Duration {
        self.epoch.elapsed()
    }
}
