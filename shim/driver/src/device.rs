//! One GPU of a real driver, as the memory manager sees it. `recording.rs` has its events.
//!
//! Invariants: no lock is held across a driver call; when a method returns, the calling thread's
//! current context is the same as before; a method never disturbs a stream capture (the thread's
//! capture mode is relaxed around our calls, and a stream under capture gets no work of ours).

mod contexts;

use std::ops::Range;
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use wm_abi::*;

use crate::api::Api;
use crate::api::scope::{Current, Relaxed};
use crate::callbacks::{Fingerprinting, ListContexts};
use crate::copy_streams::CopyStreams;
use crate::events::Events;
use crate::gpu::{
    Event, Gpu, Handle, KeyedFingerprint, LinkWay, OomAnswer, Result, Shortfall, StreamId, Tier,
};
use crate::host::MachineMemory;
use crate::lock::lock;
use crate::probe::{Measured, Probes};
use crate::spares::Spares;
use crate::streams::Streams;
use crate::table::Table;
use crate::thread::Uncancelled;
use crate::windows::Windows;

/// One GPU behind an opened driver.
#[derive(Debug)]
pub struct Device {
    driver: &'static Table,
    streams: &'static Streams,
    ordinal: CUdevice,
    /// Every living context of this device that has allocated, the eldest first.
    contexts: RwLock<Vec<CUcontext>>,
    /// NUMA node of host memory near this GPU.
    node: i32,
    /// Physical memory of this device can be registered with RDMA adapters.
    rdma: bool,
    /// Physical memory can be exported as a file descriptor.
    descriptors: bool,
    granularity: usize,
    /// Other devices that may read and write this device's blocks.
    peers: RwLock<Vec<CUdevice>>,
    events: Mutex<Events>,
    spares: Spares,
    copy_streams: CopyStreams,
    external_usage: fn(CUdevice) -> u64,
    oom_answer: fn(CUdevice, Shortfall) -> OomAnswer,
    idle_host_memory: fn(CUdevice, u64) -> Option<Handle>,
    overflowed: fn(),
    may_be_held: fn() -> bool,
    changed: fn(),
    pub(crate) fingerprints: Fingerprinting,
    /// `None`: the process has no contexts but those that have allocated.
    pub(crate) living_contexts: Option<ListContexts>,
    windows: Windows,
    host: MachineMemory,
    /// The cost of our driver calls.
    pub probes: Box<Probes>,
}

/// Why a device cannot be managed: its blocks then come from the driver as before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// The device cannot map physical memory at addresses of ours.
    #[error("device {0} has no virtual memory management")]
    NoVirtualMemory(CUdevice),
    /// The driver does not tell the unit in which it gives memory.
    #[error("granularity: {0}")]
    Granularity(CUresult),
}

impl Device {
    /// The GPU `ordinal`, to be used through `context`; null means the first adopted context.
    ///
    /// # Errors
    /// [`Unsupported`]: the capability that the device lacks.
    pub fn new(
        driver: &'static Table,
        streams: &'static Streams,
        ordinal: CUdevice,
        context: CUcontext,
    ) -> std::result::Result<Self, Unsupported> {
        let attribute = |attribute| driver.device_attribute(attribute, ordinal).ok();
        if attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != Some(1) {
            return Err(Unsupported::NoVirtualMemory(ordinal));
        }
        let supports = |name| attribute(name) == Some(1);
        let mut device = Self {
            driver,
            streams,
            ordinal,
            contexts: RwLock::new(Vec::from_iter((!context.is_null()).then_some(context))),
            node: attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID).unwrap_or(0).max(0),
            rdma: supports(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED),
            descriptors: supports(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED),
            granularity: 0,
            peers: RwLock::default(),
            events: Mutex::default(),
            spares: Spares::default(),
            copy_streams: CopyStreams::default(),
            external_usage: |_| 0,
            oom_answer: |_, _| OomAnswer::Spill,
            idle_host_memory: |_, _| None,
            overflowed: || (),
            may_be_held: || false,
            changed: || (),
            fingerprints: Fingerprinting { prepare: |_| (), take: |_, _| Err(CUresult::NOT_SUPPORTED) },
            living_contexts: None,
            windows: Windows::default(),
            host: MachineMemory::default(),
            probes: Box::new(Probes::new()),
        };
        let property = device.property(Tier::Device);
        device.granularity = driver
            .mem_granularity(&property, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
            .map_err(Unsupported::Granularity)?;
        Ok(device)
    }

    /// The same device, with the callbacks that a manager needs of its process: the host
    /// memory of other devices, the answer to an out-of-memory by calling code, and a note of each
    /// block given.
    #[must_use]
    pub fn beside(
        self,
        external_usage: fn(CUdevice) -> u64,
        oom_answer: fn(CUdevice, Shortfall) -> OomAnswer,
        overflowed: fn(),
    ) -> Self {
        Self { external_usage, oom_answer, overflowed, ..self }
    }

    /// The same device, with the process's other owner of idle memory of the host.
    #[must_use]
    pub fn with_idle_host_memory(self, idle_host_memory: fn(CUdevice, u64) -> Option<Handle>) -> Self {
        Self { idle_host_memory, ..self }
    }

    /// The same device in a process that knows whether the host may hold a stream back.
    #[must_use]
    pub fn with_holds(self, may_be_held: fn() -> bool) -> Self {
        Self { may_be_held, ..self }
    }

    /// The same device, which tells of changes of its memory.
    #[must_use]
    pub fn telling(self, changed: fn()) -> Self {
        Self { changed, ..self }
    }

    /// The same device, which takes fingerprints so.
    #[must_use]
    pub fn with_fingerprints(self, fingerprints: Fingerprinting) -> Self {
        Self { fingerprints, ..self }
    }

    /// The same device in a process with other contexts, whose work may touch its memory.
    #[must_use]
    pub fn with_contexts(self, living_contexts: ListContexts) -> Self {
        Self { living_contexts: Some(living_contexts), ..self }
    }

    /// The same device, which leaves `reserve` bytes of the host available for all processes.
    #[must_use]
    pub fn leaving(self, reserve: u64) -> Self {
        Self { host: MachineMemory::leaving(reserve), ..self }
    }

    /// `bytes` were created on the host. Returns `false` if less of the host is left than the
    /// reserve, because other processes have created some too: the caller then releases its memory.
    pub fn host_holds(&self, bytes: u64) -> bool {
        let _whole = Uncancelled::new();
        self.host.holds(bytes)
    }

    /// The same device with memory that cannot be exported: a handle then needs no file descriptor,
    /// of which a process has few.
    #[must_use]
    pub fn unshared(self) -> Self {
        Self { descriptors: false, ..self }
    }

    /// The opened driver.
    pub(crate) fn driver(&self) -> &'static Table {
        self.driver
    }

    /// The same driver, with each call measured.
    pub(crate) fn measured(&self) -> Measured<'_> {
        Measured { driver: self.driver, probes: &self.probes }
    }

    pub(crate) fn streams(&self) -> &'static Streams {
        self.streams
    }

    pub(crate) fn spares(&self) -> &Spares {
        &self.spares
    }

    pub(crate) fn copy_streams(&self) -> &CopyStreams {
        &self.copy_streams
    }

    /// May any other device access blocks?
    pub(crate) fn has_peers(&self) -> bool {
        !self.peers.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// The device's ordinal.
    pub fn ordinal(&self) -> CUdevice {
        self.ordinal
    }

    /// May this other device access blocks already?
    pub fn admits(&self, peer: CUdevice) -> bool {
        self.peers.read().unwrap_or_else(PoisonError::into_inner).contains(&peer)
    }

    /// Released addresses are reused as late as possible, so that a late access faults.
    pub fn avoid_old_addresses(&self) {
        self.windows.roam();
    }

    /// NUMA node of the host memory near this device.
    pub fn node(&self) -> i32 {
        self.node
    }

    /// Lets another device access blocks mapped from now on; the caller refreshes the mapped ones.
    /// `false` if it could already.
    pub fn admit_peer(&self, peer: CUdevice) -> bool {
        let mut peers = self.peers.write().unwrap_or_else(PoisonError::into_inner);
        let new = peer != self.ordinal && !peers.contains(&peer);
        if new {
            peers.push(peer);
        }
        new
    }

    /// Blocks until all work of the device's contexts is done.
    ///
    /// # Errors
    /// A sticky error of a context; `STREAM_CAPTURE_UNSUPPORTED` while a stream is being captured.
    pub fn synchronize(&self) -> Result<()> {
        self.refuse_capture()?;
        self.known_contexts().into_iter().try_for_each(|context| self.drain(context))
    }

    /// Is the address in this device's address space here? Wait-free. There need not be a block at
    /// the address.
    pub fn contains(&self, address: u64) -> bool {
        self.windows.contain(address)
    }

    /// Can physical memory of this device be passed to other processes?
    pub fn is_exportable(&self) -> bool {
        self.descriptors
    }

    /// The properties with which memory of a tier is made.
    pub fn property(&self, tier: Tier) -> CUmemAllocationProp {
        let (type_, id) = match tier {
            Tier::Device => (CU_MEM_LOCATION_TYPE_DEVICE, self.ordinal),
            Tier::Peer(ordinal) => (CU_MEM_LOCATION_TYPE_DEVICE, ordinal),
            Tier::Host => (CU_MEM_LOCATION_TYPE_HOST_NUMA, self.node),
        };
        let on_a_gpu = tier != Tier::Host;
        CUmemAllocationProp {
            type_: CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: if self.descriptors { CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR } else { 0 },
            location: CUmemLocation { type_, id },
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: CUmemAllocationFlags {
                gpuDirectRDMACapable: u8::from(self.rdma && on_a_gpu),
                ..CUmemAllocationFlags::default()
            },
        }
    }

    /// This device first, then every peer.
    fn access(&self, flags: std::ffi::c_uint) -> Vec<CUmemAccessDesc> {
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        let devices = [self.ordinal].into_iter().chain(peers.iter().copied());
        devices
            .map(|id| CUmemAccessDesc {
                location: CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id },
                flags,
            })
            .collect()
    }

    pub(crate) fn lock_events(&self) -> std::sync::MutexGuard<'_, Events> {
        lock(&self.events)
    }
}

impl Gpu for Device {
    fn granularity(&self) -> usize {
        self.granularity
    }

    fn create(&self, tier: Tier, bytes: usize) -> Result<Handle> {
        let relaxed = Relaxed::beside_captures(self.driver, self.streams);
        let made = self.measured().mem_create(bytes, &self.property(tier)).map(Handle)?;
        drop(relaxed);
        if tier == Tier::Host && !self.host_holds(bytes as u64) && self.release(made).is_ok() {
            return Err(CUresult::OUT_OF_MEMORY);
        }
        Ok(made)
    }

    fn release(&self, handle: Handle) -> Result<()> {
        let _relaxed = Relaxed::beside_captures(self.driver, self.streams);
        self.measured().mem_release(handle.0)
    }

    fn reserve(&self, bytes: usize) -> Result<u64> {
        let _relaxed = Relaxed::beside_captures(self.driver, self.streams);
        let reserve = |window: u64, wish| self.measured().mem_address_reserve_at(window as usize, wish);
        self.windows.take(bytes as u64, reserve)
    }

    fn unreserve(&self, address: u64, bytes: usize) -> Result<()> {
        let _relaxed = Relaxed::beside_captures(self.driver, self.streams);
        match self.windows.put_back(address, bytes as u64)? {
            Some((window, bytes)) => self.measured().mem_address_free(window, bytes as usize),
            None => Ok(()),
        }
    }

    fn map(&self, address: u64, bytes: usize, handle: Handle) -> Result<()> {
        let _relaxed = Relaxed::beside_captures(self.driver, self.streams);
        self.measured().mem_map(address, bytes, handle.0)?;
        // The program unmaps its own addresses itself.
        if self.windows.contain(address) {
            self.windows.note_mapped(address);
        }
        Ok(())
    }

    fn unmap(&self, address: u64, bytes: usize) -> Result<()> {
        let _relaxed = Relaxed::beside_captures(self.driver, self.streams);
        self.measured().mem_unmap(address, bytes)?;
        self.windows.note_unmapped(address, bytes as u64);
        Ok(())
    }

    fn allow(&self, address: u64, bytes: usize) -> Result<()> {
        let _relaxed = Relaxed::beside_captures(self.driver, self.streams);
        self.measured().mem_set_access(address, bytes, &self.access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
    }

    fn allow_alone(&self, address: u64, bytes: usize) -> Result<()> {
        let _relaxed = Relaxed::beside_captures(self.driver, self.streams);
        let location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: self.ordinal };
        let access = CUmemAccessDesc { location, flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        self.measured().mem_set_access(address, bytes, &[access])
    }

    fn allow_reading(&self, address: u64, bytes: usize) -> Result<()> {
        let _relaxed = Relaxed::beside_captures(self.driver, self.streams);
        self.measured().mem_set_access(address, bytes, &self.access(CU_MEM_ACCESS_FLAGS_PROT_READ))
    }

    fn allow_cpu(&self, address: u64, bytes: usize) -> Result<()> {
        let _relaxed = Relaxed::beside_captures(self.driver, self.streams);
        let flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let mut access = self.access(flags);
        let location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_HOST_NUMA, id: self.node };
        access.push(CUmemAccessDesc { location, flags });
        let allowed = self.measured().mem_set_access(address, bytes, &access);
        // A driver before CUDA 12.2 does not know the location.
        let is_unknown = |code| matches!(code, CUresult::INVALID_VALUE | CUresult::INVALID_DEVICE);
        allowed.map_err(|code| if is_unknown(code) { CUresult::NOT_SUPPORTED } else { code })
    }

    fn record(&self, stream: StreamId) -> Result<Event> {
        self.record_in(stream)
    }

    fn probe(&self, stream: StreamId) -> Result<Event> {
        let key = self.streams.key(stream).ok_or(CUresult::INVALID_HANDLE)?;
        if key.stream == CUstream::LEGACY && self.streams.mixes() {
            return Err(CUresult::NOT_PERMITTED);
        }
        self.record(stream)
    }

    fn record_all(&self) -> Result<Vec<Event>> {
        self.record_contexts()
    }

    fn is_done(&self, event: &Event) -> Result<bool> {
        self.is_passed(event)
    }

    fn wait_any(&self, sets: &[&[Event]], limit: Duration) -> Option<usize> {
        // The driver has no wait for any of several events, and none with a limit: so they are
        // queried in turn.
        const PAUSE: Duration = Duration::from_micros(50);
        let begun = Instant::now();
        loop {
            let is_done = |event: &Event| self.is_done(event).unwrap_or(false);
            if let Some(done) = sets.iter().position(|set| set.iter().all(is_done)) {
                return Some(done);
            }
            if begun.elapsed() >= limit {
                return None;
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn order(&self, stream: StreamId, event: &Event) -> Result<()> {
        self.hold_back(stream, event)
    }

    fn is_settled(&self, limit: Duration) -> Result<bool> {
        self.has_settled(limit)
    }

    fn copy(&self, way: LinkWay, to: u64, from: u64, bytes: usize) -> Result<Event> {
        self.start_copy(way, to, from, bytes)
    }

    fn fingerprints(&self, chunks: &[u64]) -> Result<Vec<KeyedFingerprint>> {
        let context = self.context();
        let _relaxed = Relaxed::enter(self.driver, self.streams);
        let _current = Current::make(self.driver, context)?;
        (self.fingerprints.take)(context, chunks)
    }

    fn are_equal(&self, one: u64, other: u64, bytes: usize) -> Result<bool> {
        Ok(self.read(one, bytes)? == self.read(other, bytes)?)
    }

    fn found_unequal(&self, block: u64, bytes: Range<u64>) {
        log::error!(
            "WMSHIM_VERIFY: the block at {block:#x} was written at {:#x} to {:#x}, but the fingerprints there are the \
             same. The bytes are copied; please report this.",
            bytes.start,
            bytes.end
        );
    }

    fn recycle(&self, event: Event) {
        self.lock_events().put_back(&event);
    }

    fn memory_info(&self) -> Result<(u64, u64)> {
        // Any context of the device tells, and the thread's own does not end under it.
        let is_here = self.driver.ctx_device() == Ok(self.ordinal);
        let held = (!is_here).then(|| self.hold_context());
        let _current = held.as_ref().map(|held| Current::make(self.driver, held.context)).transpose()?;
        let (free, total) = self.measured().mem_info()?;
        Ok((free as u64, total as u64))
    }

    fn host_available(&self) -> u64 {
        let _whole = Uncancelled::new();
        self.host.available()
    }

    fn host_estimate(&self) -> u64 {
        let _whole = Uncancelled::new();
        self.host.estimate()
    }

    fn external_usage(&self) -> u64 {
        (self.external_usage)(self.ordinal)
    }

    fn oom_answer(&self, short: Shortfall) -> OomAnswer {
        (self.oom_answer)(self.ordinal, short)
    }

    fn idle_host_memory(&self, bytes: u64) -> Option<Handle> {
        (self.idle_host_memory)(self.ordinal, bytes)
    }

    fn overflowed(&self) {
        (self.overflowed)();
    }

    fn may_be_held(&self) -> bool {
        (self.may_be_held)()
    }

    fn changed(&self) {
        (self.changed)();
    }
}
