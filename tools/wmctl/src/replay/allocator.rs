//! The allocators that serve a replay: this project's manager, or the driver's own pool for
//! comparison.

use anyhow::{Result, anyhow};
use wm_abi::{CUmemoryPool, CUresult};
use wm_driver::api::PoolAttribute;
use wm_driver::{Api, Device};
use wm_memory::{Manager, ManagerSettings, Order, Usage};

use super::driver::{ReplayGpu, Stream};

/// Gives memory out and takes it back, for any thread.
pub(crate) trait Allocator: Sync {
    /// `None` for a stream is `cuMemAlloc`.
    fn allocate(&self, bytes: usize, stream: Option<&Stream>) -> Result<u64>;

    /// `None` for a stream is `cuMemFree`.
    fn free(&self, address: u64, stream: Option<&Stream>) -> Result<()>;

    /// The stream is about to be destroyed.
    fn retire(&self, stream: &Stream);

    /// The host waits for a stream, `None` for the device, as the shim lets it.
    ///
    /// # Errors
    /// The driver's.
    fn wait(&self, gpu: &ReplayGpu, stream: Option<&Stream>) -> Result<()> {
        gpu.wait(stream)
    }

    /// Calls of the driver's virtual memory management so far.
    fn vmm_calls(&self) -> u64;
}

/// The manager that the shim serves programs with.
#[derive(Debug)]
pub(crate) struct Managed(Manager<Device>);

impl Managed {
    /// A fresh manager that holds nothing.
    ///
    /// # Errors
    /// Which capability the device lacks.
    pub(crate) fn new(gpu: &ReplayGpu, settings: ManagerSettings) -> Result<Self> {
        Ok(Self(Manager::new(gpu.device()?, settings)))
    }

    pub(crate) fn usage(&self) -> Usage {
        self.0.usage()
    }

    /// Driver calls that failed, by name: why an allocation failed for another reason than want of
    /// memory. An event that is not done yet is no failure.
    pub(crate) fn failures(&self) -> String {
        let readings = self.0.gpu().probes.read().into_iter();
        let failed = readings.filter(|reading| reading.errors > 0 && reading.name != "cuEventQuery");
        let words: Vec<_> = failed.map(|reading| format!("{} {}", reading.errors, reading.name)).collect();
        words.join(", ")
    }

    /// Gives everything back to the driver.
    pub(crate) fn end(self) {
        self.0.trim(0);
        self.0.discard();
    }
}

fn order(stream: Option<&Stream>) -> Order {
    stream.map_or(Order::Device, |stream| Order::Stream(stream.id))
}

impl Allocator for Managed {
    fn allocate(&self, bytes: usize, stream: Option<&Stream>) -> Result<u64> {
        Ok(self.0.allocate(bytes, order(stream))?)
    }

    fn free(&self, address: u64, stream: Option<&Stream>) -> Result<()> {
        if stream.is_none() {
            // As `cuMemFree` does, under the library too.
            self.0.gpu().wait_as_free(self.0.gpu().context())?;
        }
        Ok(self.0.free(address, order(stream))?)
    }

    fn retire(&self, stream: &Stream) {
        self.0.retire_stream(stream.id);
    }

    fn wait(&self, gpu: &ReplayGpu, stream: Option<&Stream>) -> Result<()> {
        let mark = match stream {
            Some(stream) => self.0.mark(stream.id),
            None => {
                self.0.flush();
                self.0.mark_all(|_| true)
            }
        };
        gpu.wait(stream)?;
        self.0.reached(&mark);
        Ok(())
    }

    fn vmm_calls(&self) -> u64 {
        let readings = self.0.gpu().probes.read();
        let vmm = readings.iter().filter(|reading| is_vmm(&reading.name));
        vmm.map(|reading| reading.count).sum()
    }
}

/// Of the calls that the manager makes, those that make, map and give back memory. The rest are
/// questions and events.
fn is_vmm(name: &str) -> bool {
    name.starts_with("cuMem") && !name.starts_with("cuMemGetInfo")
}

/// The driver's stream-ordered pool, kept from giving memory back as PyTorch keeps it.
#[derive(Debug)]
pub(crate) struct DriverPool<'a> {
    gpu: &'a ReplayGpu,
    pool: CUmemoryPool,
}

impl<'a> DriverPool<'a> {
    /// The device's default pool, emptied.
    ///
    /// # Errors
    /// The driver's: it may have no pools.
    pub(crate) fn new(gpu: &'a ReplayGpu) -> Result<Self> {
        let pool = gpu.default_pool()?;
        gpu.driver.mem_pool_trim_to(pool, 0)?;
        gpu.driver.mem_pool_set_attribute(pool, PoolAttribute::RELEASE_THRESHOLD, u64::MAX)?;
        gpu.driver.mem_pool_set_attribute(pool, PoolAttribute::RESERVED_MEM_HIGH, 0)?;
        Ok(Self { gpu, pool })
    }

    /// Most memory that the pool held, in bytes.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn peak_reserved(&self) -> Result<u64> {
        Ok(self.gpu.driver.mem_pool_attribute(self.pool, PoolAttribute::RESERVED_MEM_HIGH)?)
    }

    /// Gives the pool's memory back.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn end(self) -> Result<()> {
        Ok(self.gpu.driver.mem_pool_trim_to(self.pool, 0)?)
    }
}

impl Allocator for DriverPool<'_> {
    fn allocate(&self, bytes: usize, stream: Option<&Stream>) -> Result<u64> {
        self.gpu.allocate(bytes, stream).map_err(|code: CUresult| anyhow!(code))
    }

    fn free(&self, address: u64, stream: Option<&Stream>) -> Result<()> {
        self.gpu.free(address, stream).map_err(|code| anyhow!(code))
    }

    /// The driver knows its streams.
    fn retire(&self, _stream: &Stream) {}

    /// The driver does not report the calls inside its pool.
    fn vmm_calls(&self) -> u64 {
        0
    }
}
