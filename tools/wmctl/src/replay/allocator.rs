//! The allocators that serve a replay: this project's manager, or the driver's own pool for
//! comparison.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::{Result, anyhow};
use wm_abi::{CUmemoryPool, CUresult};
use wm_driver::api::PoolAttribute;
use wm_driver::{Api, Device, Tier};
use wm_memory::{AllocateError, Charge, Manager, ManagerSettings, Order, OverflowVerdict, Usage};

use super::driver::{ReplayGpu, Stream};

/// Gives memory out and takes it back, for any thread.
pub(crate) trait Allocator: Sync {
    /// Memory that the program made itself, as this allocator counts it.
    type Piece<'a>
    where
        Self: 'a;

    /// Makes physical memory, as the program did with `cuMemCreate`.
    fn make_piece(&self, bytes: u64) -> Result<Self::Piece<'_>>;

    /// Such memory is gone.
    ///
    /// # Errors
    /// The driver's.
    fn end_piece(&self, piece: Self::Piece<'_>) -> Result<()>;

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
pub(crate) struct Managed<'g>(Manager<Device>, &'g ReplayGpu);

/// The program's own memory beside a manager's: it counts against the same limits.
#[derive(Debug)]
pub(crate) struct CountedPiece<'a> {
    handle: u64,
    charge: Charge<'a, Device>,
}

impl<'g> Managed<'g> {
    /// A fresh manager that holds nothing.
    ///
    /// # Errors
    /// Which capability the device lacks.
    pub(crate) fn new(gpu: &'g ReplayGpu, settings: ManagerSettings) -> Result<Self> {
        Ok(Self(Manager::new(gpu.device()?, settings), gpu))
    }

    /// A piece on a tier, or the refusal that the program would have had.
    fn piece_on(&self, tier: Tier, bytes: u64) -> Result<CountedPiece<'_>, AllocateError> {
        let Self(manager, gpu) = self;
        let overflow = match manager.settings().overflow.is_empty() {
            true => OverflowVerdict::Off,
            false => OverflowVerdict::Allowed,
        };
        let full = || AllocateError::OutOfMemory(Box::new(manager.shortage_of_piece(bytes, overflow)));
        let charge = manager.charge(tier, bytes, true).ok_or_else(full)?;
        match gpu.make_piece(tier, manager.gpu().node(), bytes) {
            Ok(handle) => {
                charge.made(false);
                Ok(CountedPiece { handle, charge })
            }
            Err(CUresult::OUT_OF_MEMORY) => {
                drop(charge);
                Err(full())
            }
            Err(code) => Err(code.into()),
        }
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

impl Allocator for Managed<'_> {
    type Piece<'a>
        = CountedPiece<'a>
    where
        Self: 'a;

    /// In the library's order: the device, the device without idle memory, the host.
    fn make_piece(&self, bytes: u64) -> Result<CountedPiece<'_>> {
        let on_device = self.piece_on(Tier::Device, bytes).or_else(|refusal| match refusal {
            AllocateError::OutOfMemory(_) if self.0.relieve(bytes) > 0 => self.piece_on(Tier::Device, bytes),
            refusal => Err(refusal),
        });
        Ok(on_device.or_else(|refusal| match refusal {
            AllocateError::OutOfMemory(_) if self.0.settings().overflow.contains(&Tier::Host) => {
                self.piece_on(Tier::Host, bytes)
            }
            refusal => Err(refusal),
        })?)
    }

    fn end_piece(&self, piece: CountedPiece<'_>) -> Result<()> {
        let CountedPiece { handle, charge } = piece;
        let released = self.1.end_piece(handle);
        drop(charge);
        released
    }

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
    pieces: AtomicU64,
    pieces_peak: AtomicU64,
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
        Ok(Self { gpu, pool, pieces: AtomicU64::new(0), pieces_peak: AtomicU64::new(0) })
    }

    /// Most memory that the pool held, in bytes, and that pieces held beside it. The two may be of
    /// different times: the driver tells nothing of when.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn peak_reserved(&self) -> Result<u64> {
        let pool: u64 = self.gpu.driver.mem_pool_attribute(self.pool, PoolAttribute::RESERVED_MEM_HIGH)?;
        Ok(pool + self.pieces_peak.load(Relaxed))
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
    type Piece<'a>
        = (u64, u64)
    where
        Self: 'a;

    fn make_piece(&self, bytes: u64) -> Result<(u64, u64)> {
        let handle = self.gpu.make_piece(Tier::Device, 0, bytes).map_err(|code: CUresult| anyhow!(code))?;
        let now = self.pieces.fetch_add(bytes, Relaxed) + bytes;
        self.pieces_peak.fetch_max(now, Relaxed);
        Ok((handle, bytes))
    }

    fn end_piece(&self, (handle, bytes): (u64, u64)) -> Result<()> {
        self.pieces.fetch_sub(bytes, Relaxed);
        self.gpu.end_piece(handle)
    }

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
