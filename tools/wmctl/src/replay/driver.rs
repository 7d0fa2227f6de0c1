//! The driver that a trace is replayed on: opened by path, with one context and as many streams as
//! the trace needs.
//!
//! The simulated driver's memory is sparse, so a simulated device of a tebibyte costs nothing until
//! a byte is written, and a replay writes none.

use std::sync::OnceLock;

use anyhow::{Context as _, Result, anyhow};
use wm_abi::*;
use wm_driver::api::Named;
use wm_driver::streams::Streams;
use wm_driver::{Api, Device, Loader, StreamId, Table, Tier, search};

/// Which driver to replay on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DriverKind {
    /// The simulated driver that comes with wmctl; needs no GPU
    Sim,
    /// The machine's driver and GPU
    Real,
}

/// One device of an opened driver, with its primary context.
#[derive(Debug)]
pub(crate) struct ReplayGpu {
    pub(crate) driver: Named<'static>,
    ordinal: CUdevice,
    context: CUcontext,
    pub(crate) name: String,
}

/// A stream of the driver, and its name for a manager.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    pub(crate) handle: CUstream,
    pub(crate) id: StreamId,
}

impl ReplayGpu {
    /// Opens the driver and makes the device's primary context current.
    ///
    /// # Errors
    /// No driver, no such device, or the driver's error, with the remedy.
    pub(crate) fn open(kind: DriverKind, ordinal: CUdevice) -> Result<Self> {
        let table = open(kind)?;
        let driver = Named(table);
        driver.init().with_context(|| unusable(kind, table))?;
        let context = driver
            .primary_ctx_retain(ordinal)
            .with_context(|| format!("device {ordinal} cannot be used; `wmctl doctor` lists the devices"))?;
        driver.ctx_set_current(context)?;
        Ok(Self { driver, ordinal, context, name: driver.device_name(ordinal)? })
    }

    /// Makes the context the calling thread's.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn enter(&self) -> Result<()> {
        Ok(self.driver.ctx_set_current(self.context)?)
    }

    /// The device as a manager wants it: its driver calls are counted from 0.
    ///
    /// # Errors
    /// Which capability it lacks.
    pub(crate) fn device(&self) -> Result<Device> {
        let device = Device::new(self.driver.0, streams(), self.ordinal, self.context);
        Ok(device?.unshared())
    }

    /// Makes streams that do not wait for the default stream.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn streams(&self, count: usize) -> Result<Vec<Stream>> {
        let stream = |_| {
            let handle = self.driver.stream_create(CU_STREAM_NON_BLOCKING)?;
            Ok(Stream { handle, id: streams().identify(self.context, handle) })
        };
        (0..count).map(stream).collect()
    }

    /// Gives streams back. The frees in them are known to be complete.
    ///
    /// # Errors
    /// The driver's first; the others are tried all the same.
    pub(crate) fn destroy(&self, list: Vec<Stream>) -> Result<()> {
        streams().forget(&list.iter().map(|stream| stream.id).collect::<Vec<_>>());
        let destroyed = list.into_iter().map(|stream| self.driver.stream_destroy(stream.handle));
        Ok(destroyed.fold(Ok(()), std::result::Result::and)?)
    }

    /// The host waits for a stream, or for the whole device.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn wait(&self, stream: Option<&Stream>) -> Result<()> {
        Ok(match stream {
            Some(stream) => self.driver.stream_synchronize(stream.handle),
            None => self.driver.ctx_synchronize(),
        }?)
    }

    /// The driver's own allocation: in stream order, or plain.
    pub(crate) fn allocate(&self, bytes: usize, stream: Option<&Stream>) -> CUresultOf<u64> {
        match stream {
            Some(stream) => self.driver.0.mem_alloc_async(bytes, stream.handle),
            None => self.driver.0.mem_alloc(bytes),
        }
    }

    /// Gives memory from [`ReplayGpu::allocate`] back.
    pub(crate) fn free(&self, address: u64, stream: Option<&Stream>) -> CUresultOf<()> {
        match stream {
            Some(stream) => self.driver.0.mem_free_async(address, stream.handle),
            None => self.driver.0.mem_free(address),
        }
    }

    /// Physical memory of the device, or of a node of the host, as a program makes it itself.
    pub(crate) fn make_piece(&self, tier: Tier, node: i32, bytes: u64) -> CUresultOf<u64> {
        let location = match tier {
            Tier::Host => CUmemLocation { type_: CU_MEM_LOCATION_TYPE_HOST_NUMA, id: node },
            _ => CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: self.ordinal },
        };
        let property = CUmemAllocationProp {
            type_: CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: 0,
            location,
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: CUmemAllocationFlags::default(),
        };
        self.driver.0.mem_create(bytes as usize, &property)
    }

    /// Gives memory from [`ReplayGpu::make_piece`] back.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn end_piece(&self, handle: u64) -> Result<()> {
        Ok(self.driver.mem_release(handle)?)
    }

    /// The device's default pool.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn default_pool(&self) -> Result<CUmemoryPool> {
        Ok(self.driver.device_default_mem_pool(self.ordinal)?)
    }
}

/// The result of a call of the driver.
pub(crate) type CUresultOf<T> = std::result::Result<T, CUresult>;

/// Names of all streams; they live as long as the process, as a manager's GPU demands.
fn streams() -> &'static Streams {
    static STREAMS: OnceLock<Streams> = OnceLock::new();
    STREAMS.get_or_init(Streams::default)
}

fn open(kind: DriverKind) -> Result<&'static Table> {
    let path = match kind {
        DriverKind::Sim => Some(crate::shim::simulated()?),
        DriverKind::Real => crate::shim::driver(),
    };
    if kind == DriverKind::Sim {
        enlarge();
    }
    let table = search::open(&Loader::system(), path.as_deref())
        .map_err(|missing| anyhow!("{missing}; or replay with --driver sim, which needs no GPU"))?;
    Ok(Box::leak(Box::new(table)))
}

/// Gives the simulated device more memory than any trace needs. The shell's setting is for the
/// devices of other programs; `--device-memory` sets this device's size.
fn enlarge() {
    // SAFETY: wmctl has one thread at this point, so no other thread reads the environment.
    unsafe { std::env::set_var("SIMCUDA_MEMORY", "8TiB") };
}

fn unusable(kind: DriverKind, table: &Table) -> String {
    let remedy = match kind {
        DriverKind::Sim => "build wmctl and the simulated driver from the same source",
        DriverKind::Real => "run `wmctl doctor`, or replay with --driver sim, which needs no GPU",
    };
    format!("{} cannot be used: {remedy}", table.path().display())
}
