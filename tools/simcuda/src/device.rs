//! Devices: their number, their properties and their memory.
//!
//! The figures are those of one real model if programs size their work by them. Names are false, so
//! that no program takes a simulated device for a real one.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use wm_abi::{CUdevice, CUmemoryPool, CUresult, CUuuid};

use crate::attributes::attribute;
use crate::context::Primary;
use crate::entry::{Outcome, early_exports, exports, put, require};
use crate::lane::Fault;
use crate::link::Link;
use crate::memory::store::Store;
use crate::memory::{Budget, Place};
use crate::settings::settings;
use crate::state::{self, driver};
use crate::visible;

/// Version that `cuDriverGetVersion` answers: CUDA 13.0.
pub(crate) const DRIVER_VERSION: c_int = 13000;

const NAME: &str = "Simulated GPU";

/// One device.
#[derive(Debug)]
pub(crate) struct Device {
    /// Position among the devices.
    pub(crate) ordinal: usize,
    /// Its memory, as a number.
    pub(crate) budget: Arc<Budget>,
    /// Its memory, as bytes.
    pub(crate) store: Arc<Store>,
    /// Its primary context.
    pub(crate) primary: Mutex<Primary>,
    /// The error that a context ended with. The device is lost to the process: every later context
    /// has this error.
    pub(crate) lost: Fault,
    /// Host to device.
    pub(crate) inbound: Link,
    /// Device to host.
    pub(crate) outbound: Link,
    /// Device to any other device.
    pub(crate) peer: Link,
    default_pool: AtomicUsize,
    pool: AtomicUsize,
}

impl Device {
    /// A device without allocations.
    ///
    /// # Errors
    /// As [`Store::new`].
    pub(crate) fn new(ordinal: usize, memory: u64) -> Outcome<Self> {
        Ok(Self {
            ordinal,
            budget: Budget::new(Place::Device(ordinal), memory),
            store: Store::new(&format!("simcuda-store:device={ordinal}"))?,
            primary: Mutex::default(),
            lost: Fault::default(),
            inbound: Link::new(settings().pcie),
            outbound: Link::new(settings().pcie),
            peer: Link::new(settings().nvlink),
            default_pool: AtomicUsize::new(0),
            pool: AtomicUsize::new(0),
        })
    }

    /// Makes a pool the default one, and the current one.
    pub(crate) fn set_default_pool(&self, pool: usize) {
        self.default_pool.store(pool, Ordering::Relaxed);
        self.set_pool(pool);
    }

    /// Makes a pool the one that `cuMemAllocAsync` takes from.
    pub(crate) fn set_pool(&self, pool: usize) {
        self.pool.store(pool, Ordering::Relaxed);
    }

    /// The default pool of the device.
    pub(crate) fn default_pool(&self) -> usize {
        self.default_pool.load(Ordering::Relaxed)
    }

    /// The pool that `cuMemAllocAsync` takes from.
    pub(crate) fn pool(&self) -> usize {
        self.pool.load(Ordering::Relaxed)
    }

    fn uuid(&self) -> CUuuid {
        visible::uuid(settings().unit(self.ordinal), settings().machine)
    }

    fn bus_id(&self) -> String {
        format!("0000:{:02X}:00.0", settings().unit(self.ordinal) + 1)
    }
}

/// Writes a text and its end, cut to the caller's buffer.
///
/// # Safety
/// `place` is null or valid for writes of `length` bytes.
unsafe fn put_text(place: *mut c_char, length: c_int, text: &str) -> Outcome {
    require(!place.is_null() && length > 0, CUresult::INVALID_VALUE)?;
    let count = text.len().min(length as usize - 1);
    // SAFETY: at most `length` bytes are written.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), place, count);
        *place.add(count) = 0;
    }
    Ok(())
}

early_exports! {
    fn cuInit(Flags: c_uint) |call| {
        require(Flags == 0, CUresult::INVALID_VALUE)?;
        state::start()
    }

    fn cuDriverGetVersion(driverVersion: *mut c_int) |call| {
        put(driverVersion, DRIVER_VERSION)
    }
}

exports! {
    fn cuDeviceGetCount(count: *mut c_int) |call| {
        put(count, driver().devices.len() as c_int)
    }

    fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) |call| {
        driver().device(ordinal)?;
        put(device, ordinal)
    }

    fn cuDeviceGetName(name: *mut c_char, len: c_int, dev: CUdevice) |call| {
        driver().device(dev)?;
        put_text(name, len, NAME)
    }

    fn cuDeviceGetUuid(uuid: *mut CUuuid, dev: CUdevice) |call| {
        put(uuid, driver().device(dev)?.uuid())
    }

    fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, dev: CUdevice) |call| {
        put(uuid, driver().device(dev)?.uuid())
    }

    fn cuDeviceTotalMem_v2(bytes: *mut usize, dev: CUdevice) |call| {
        put(bytes, driver().device(dev)?.budget.total as usize)
    }

    fn cuDeviceGetAttribute(pi: *mut c_int, attrib: c_uint, dev: CUdevice) |call| {
        put(pi, attribute(attrib, driver().device(dev)?.ordinal)?)
    }

    fn cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, dev: CUdevice) |call| {
        driver().device(dev)?;
        put(major, 9)?;
        put(minor, 0)
    }

    fn cuDeviceGetPCIBusId(pciBusId: *mut c_char, len: c_int, dev: CUdevice) |call| {
        put_text(pciBusId, len, &driver().device(dev)?.bus_id())
    }

    fn cuDeviceGetByPCIBusId(dev: *mut CUdevice, pciBusId: *const c_char) |call| {
        require(!pciBusId.is_null(), CUresult::INVALID_VALUE)?;
        let wanted = CStr::from_ptr(pciBusId).to_string_lossy();
        let same = |bus_id: String| bus_id.eq_ignore_ascii_case(&wanted) || bus_id["0000:".len()..].eq_ignore_ascii_case(&wanted);
        let found = driver().devices.iter().find(|device| same(device.bus_id())).ok_or(CUresult::INVALID_DEVICE)?;
        put(dev, found.ordinal as CUdevice)
    }

    fn cuDeviceCanAccessPeer(canAccessPeer: *mut c_int, dev: CUdevice, peerDev: CUdevice) |call| {
        let (one, other) = (driver().device(dev)?, driver().device(peerDev)?);
        put(canAccessPeer, c_int::from(settings().peers && one.ordinal != other.ordinal))
    }

    fn cuDeviceGetP2PAttribute(value: *mut c_int, attrib: c_uint, srcDevice: CUdevice, dstDevice: CUdevice) |call| {
        driver().device(srcDevice)?;
        driver().device(dstDevice)?;
        require(srcDevice != dstDevice, CUresult::INVALID_DEVICE)?;
        match attrib {
            // PERFORMANCE_RANK: equal for all pairs.
            1 => put(value, 0),
            // ACCESS_SUPPORTED, NATIVE_ATOMIC_SUPPORTED, CUDA_ARRAY_ACCESS_SUPPORTED,
            // ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED.
            2 | 3 => put(value, 1),
            4 | 5 => put(value, 0),
            _ => Err(CUresult::INVALID_VALUE),
        }
    }

    fn cuDeviceGetDefaultMemPool(pool_out: *mut CUmemoryPool, dev: CUdevice) |call| {
        put(pool_out, CUmemoryPool(driver().device(dev)?.default_pool()))
    }

    fn cuDeviceGetMemPool(pool: *mut CUmemoryPool, dev: CUdevice) |call| {
        put(pool, CUmemoryPool(driver().device(dev)?.pool()))
    }

    fn cuDeviceSetMemPool(dev: CUdevice, pool: CUmemoryPool) |call| {
        let device = driver().device(dev)?;
        let known = driver().pools.get(pool.0).filter(|pool| !pool.is_over()).ok_or(CUresult::INVALID_VALUE)?;
        require(known.place == crate::memory::Place::Device(device.ordinal), CUresult::INVALID_VALUE)?;
        device.set_pool(pool.0);
        Ok(())
    }
}
