//! A GPU with the shim's own manager on it, opened as the library opens it, for instruments that
//! check the blocks' contents.

use std::sync::OnceLock;

use anyhow::{Context as _, Result, anyhow, ensure};
use wm_abi::*;
use wm_driver::api::Named;
use wm_driver::streams::Streams;
use wm_driver::{Api, Device};
use wm_memory::{Manager, ManagerSettings, Order};
use wmctl::bench::machine;

/// A GPU, its manager, and one stream.
pub(crate) struct ManagedDevice {
    pub(crate) driver: Named<'static>,
    pub(crate) manager: Manager<Device>,
    pub(crate) stream: CUstream,
    /// The order of work in `stream`.
    order: Order,
}

impl ManagedDevice {
    /// Opens the driver and makes a manager for the GPU with this number.
    ///
    /// # Errors
    /// No driver, no such GPU, or a driver that refuses the manager's first calls.
    pub(crate) fn open(device: CUdevice, settings: ManagerSettings) -> Result<Self> {
        static STREAMS: OnceLock<Streams> = OnceLock::new();
        let (table, streams) = (machine::driver()?, STREAMS.get_or_init(Streams::default));
        let driver = Named(table);
        driver.init()?;
        let context = driver.primary_ctx_retain(device)?;
        driver.ctx_set_current(context)?;
        let device = Device::new(table, streams, device, context).map_err(|reason| anyhow!("{reason}"))?;
        let manager = Manager::new(device, settings);
        let stream = driver.stream_create(CU_STREAM_NON_BLOCKING)?;
        let order = Order::Stream(streams.identify(context, stream));
        Ok(Self { driver, manager, stream, order })
    }

    /// A block of so many bytes for work in the stream, all of it on the GPU.
    ///
    /// # Errors
    /// The GPU is full.
    pub(crate) fn allocate(&self, bytes: u64) -> Result<u64> {
        let room = || format!("{} MiB do not fit the GPU; use --mib to ask for less", bytes >> 20);
        let address = self.manager.allocate(bytes as usize, self.order).with_context(room)?;
        ensure!(self.manager.usage().live.elsewhere() == 0, room());
        Ok(address)
    }

    /// Starts to set every 32-bit word of a block to `word`, in the stream.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn fill(&self, address: u64, bytes: u64, word: u32) -> Result<()> {
        // SAFETY: `address` is a live block of `bytes` bytes, and callers wait for the stream
        // before they free or move it.
        unsafe { self.driver.memset_d32_async(address, word, (bytes / 4) as usize, self.stream) }?;
        Ok(())
    }

    /// Waits for the stream.
    ///
    /// # Errors
    /// The driver's, and those of earlier work.
    pub(crate) fn drain(&self) -> Result<()> {
        Ok(self.driver.stream_synchronize(self.stream)?)
    }

    /// Waits for the stream, reads a block in one copy, and compares every word with `word`.
    ///
    /// # Errors
    /// The driver's, or the index of the first word that differs.
    pub(crate) fn check(&self, address: u64, bytes: u64, word: u32) -> Result<()> {
        let mut words = vec![0_u32; (bytes / 4) as usize];
        self.drain()?;
        // SAFETY: `words` has `bytes` bytes, and the block at `address` too.
        unsafe { self.driver.memcpy_dtoh(words.as_mut_ptr().cast(), address, bytes as usize) }?;
        let wrong = words.iter().position(|found| *found != word);
        ensure!(wrong.is_none(), "block at {address:#x}: the word at index {wrong:?} is not {word}");
        Ok(())
    }
}
