//! The driver that a trace is replayed on: opened by path, with one context and as many streams as the trace needs.
//!
//! The simulated driver's memory is sparse, so a simulated device of a tebibyte costs nothing until somebody writes to
//! it, and nobody does: a replay moves no data.

use std::ffi::CStr;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, anyhow};
use wm_abi::*;
use wm_driver::streams::Streams;
use wm_driver::{Device, Loader, StreamId, Table, search};

/// Which driver to replay on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// The simulated driver that comes with wmctl; needs no GPU
    Sim,
    /// The machine's driver and GPU
    Real,
}

/// Calls a driver function; a failure says which function failed how.
macro_rules! call {
    ($table:expr, $name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the function's type comes with its name; pointers among the arguments are to live locals.
        unsafe { $table.get::<symbol::$name>()($($argument),*) }
            .ok()
            .map_err(|code| anyhow!("{}: {code}", stringify!($name)))
    };
}

/// One device of an opened driver, with its primary context.
#[derive(Debug)]
pub(crate) struct Gpu {
    table: &'static Table,
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

impl Gpu {
    /// Opens the driver and makes the device's primary context current.
    ///
    /// # Errors
    /// No driver, no such device, or what the driver says, with the remedy.
    pub(crate) fn open(kind: Kind, ordinal: CUdevice) -> Result<Self> {
        let table = open(kind)?;
        call!(table, cuInit(0)).with_context(|| unusable(kind, table))?;
        let mut context = CUcontext::NULL;
        call!(table, cuDevicePrimaryCtxRetain(&mut context, ordinal))
            .with_context(|| format!("device {ordinal} cannot be used; `wmctl doctor` lists the devices"))?;
        let mut gpu = Self { table, ordinal, context, name: String::new() };
        gpu.enter()?;
        gpu.name = gpu.ask_name()?;
        Ok(gpu)
    }

    /// Makes the context the calling thread's.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn enter(&self) -> Result<()> {
        call!(self.table, cuCtxSetCurrent(self.context))
    }

    /// The device as a manager wants it: its driver calls are counted from 0.
    ///
    /// # Errors
    /// Which capability it lacks.
    pub(crate) fn device(&self) -> Result<Device> {
        Device::new(self.table, streams(), self.ordinal, self.context).map_err(|reason| anyhow!(reason))
    }

    /// Makes streams that do not wait for the default stream.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn streams(&self, count: usize) -> Result<Vec<Stream>> {
        (0..count).map(|_| self.stream()).collect()
    }

    fn stream(&self) -> Result<Stream> {
        let mut handle = CUstream::default();
        call!(self.table, cuStreamCreate(&mut handle, CU_STREAM_NON_BLOCKING))?;
        Ok(Stream { handle, id: streams().identify(self.context, handle) })
    }

    /// Gives streams back. What was freed in them is known to be past.
    ///
    /// # Errors
    /// The driver's first; the others are tried all the same.
    pub(crate) fn destroy(&self, list: Vec<Stream>) -> Result<()> {
        streams().forget(&list.iter().map(|stream| stream.id).collect::<Vec<_>>());
        let destroy = |stream: Stream| call!(self.table, cuStreamDestroy_v2(stream.handle));
        list.into_iter().map(destroy).fold(Ok(()), Result::and)
    }

    /// The host waits for a stream, or for the whole device.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn wait(&self, stream: Option<&Stream>) -> Result<()> {
        match stream {
            Some(stream) => call!(self.table, cuStreamSynchronize(stream.handle)),
            None => call!(self.table, cuCtxSynchronize()),
        }
    }

    /// The driver's own allocation: in stream order, or plain.
    pub(crate) fn allocate(&self, bytes: usize, stream: Option<&Stream>) -> CUresultOf<u64> {
        let mut address = 0;
        // SAFETY: the out-pointer is to a live local, the stream is one that `stream` made.
        let result = unsafe {
            match stream {
                Some(stream) => {
                    self.table.get::<symbol::cuMemAllocAsync>()(&mut address, bytes, stream.handle)
                }
                None => self.table.get::<symbol::cuMemAlloc_v2>()(&mut address, bytes),
            }
        };
        result.ok().map(|()| address)
    }

    /// Gives memory from [`Gpu::allocate`] back.
    pub(crate) fn free(&self, address: u64, stream: Option<&Stream>) -> CUresultOf<()> {
        // SAFETY: no pointers of ours; the driver checks the address.
        let result = unsafe {
            match stream {
                Some(stream) => self.table.get::<symbol::cuMemFreeAsync>()(address, stream.handle),
                None => self.table.get::<symbol::cuMemFree_v2>()(address),
            }
        };
        result.ok()
    }

    /// The device's default pool.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn default_pool(&self) -> Result<CUmemoryPool> {
        let mut pool = CUmemoryPool::default();
        call!(self.table, cuDeviceGetDefaultMemPool(&mut pool, self.ordinal))?;
        Ok(pool)
    }

    /// Reads a pool's attribute.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn pool_figure(&self, pool: CUmemoryPool, attribute: u32) -> Result<u64> {
        let mut value = 0u64;
        call!(self.table, cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast()))?;
        Ok(value)
    }

    /// Sets a pool's attribute.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn set_pool_figure(&self, pool: CUmemoryPool, attribute: u32, mut value: u64) -> Result<()> {
        call!(self.table, cuMemPoolSetAttribute(pool, attribute, (&raw mut value).cast()))
    }

    /// Gives a pool's unused memory back to the device.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn trim_pool(&self, pool: CUmemoryPool) -> Result<()> {
        call!(self.table, cuMemPoolTrimTo(pool, 0))
    }

    fn ask_name(&self) -> Result<String> {
        let mut name = [0u8; 256];
        call!(self.table, cuDeviceGetName(name.as_mut_ptr().cast(), 255, self.ordinal))?;
        Ok(CStr::from_bytes_until_nul(&name).unwrap_or(c"?").to_string_lossy().into_owned())
    }
}

/// What a call of the driver gives.
pub(crate) type CUresultOf<T> = std::result::Result<T, CUresult>;

/// Names of all streams; they live as long as the process, as a manager's GPU demands.
fn streams() -> &'static Streams {
    static STREAMS: OnceLock<Streams> = OnceLock::new();
    STREAMS.get_or_init(Streams::default)
}

fn open(kind: Kind) -> Result<&'static Table> {
    let path = match kind {
        Kind::Sim => Some(crate::shim::simulated()?),
        Kind::Real => crate::shim::driver(),
    };
    if kind == Kind::Sim {
        enlarge();
    }
    let table = search::open(&Loader::system(), path.as_deref())
        .map_err(|missing| anyhow!("{missing}; or replay with --driver sim, which needs no GPU"))?;
    Ok(Box::leak(Box::new(table)))
}

/// Gives the simulated device more memory than any trace needs. What the shell has for other programs' devices is no wish
/// for this one: how much there is to be says `--device-memory`.
fn enlarge() {
    // SAFETY: wmctl has one thread at this point, so nobody reads the environment meanwhile.
    unsafe { std::env::set_var("SIMCUDA_MEMORY", "8TiB") };
}

fn unusable(kind: Kind, table: &Table) -> String {
    let remedy = match kind {
        Kind::Sim => "build wmctl and the simulated driver from the same source",
        Kind::Real => "run `wmctl doctor`, or replay with --driver sim, which needs no GPU",
    };
    format!("{} cannot be used: {remedy}", table.path().display())
}
