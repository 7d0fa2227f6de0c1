//! The driver as a whole: the state that `cuInit` makes, and whether this process may use it.
//!
//! Invariant: after a `fork` that followed `cuInit`, the child has no driver and never gets one, as
//! with NVIDIA's: worker threads do not survive a fork. A fork before `cuInit` has no effect.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use wm_abi::CUresult;

use crate::array::{Array, Mipmapped};
use crate::context::Context;
use crate::device::Device;
use crate::ending;
use crate::entry::{Outcome, require};
use crate::event::Event;
use crate::graph::{Exec, Graph, Node};
use crate::memory::store::{Physical, Place, Store};
use crate::memory::{AddressMap, Budget};
use crate::module::{Function, Kernel, Library, Module};
use crate::pool::Pool;
use crate::registry::Registry;
use crate::settings::settings;
use crate::stream::Stream;
use crate::texture::{Surface, Texture};

/// The state that lives from `cuInit` to the end of the process.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) devices: Vec<Device>,
    /// Memory of the host that may be pinned.
    pub(crate) host_budget: std::sync::Arc<Budget>,
    /// Storage for memory of the host.
    pub(crate) host: std::sync::Arc<Store>,
    pub(crate) contexts: Registry<Context>,
    pub(crate) streams: Registry<Stream>,
    pub(crate) events: Registry<Event>,
    pub(crate) modules: Registry<Module>,
    pub(crate) functions: Registry<Function>,
    pub(crate) libraries: Registry<Library>,
    pub(crate) kernels: Registry<Kernel>,
    pub(crate) pools: Registry<Pool>,
    pub(crate) graphs: Registry<Graph>,
    pub(crate) nodes: Registry<Node>,
    pub(crate) execs: Registry<Exec>,
    pub(crate) arrays: Registry<Array>,
    pub(crate) mipmapped: Registry<Mipmapped>,
    pub(crate) surfaces: Registry<Surface>,
    /// Texture objects, by address: kernels read through them.
    pub(crate) textures: Mutex<std::collections::HashMap<u64, Texture>>,
    /// Memory of `cuMemCreate`, with the number of references of each handle.
    pub(crate) handles: Mutex<std::collections::HashMap<u64, (std::sync::Arc<Physical>, usize)>>,
    memory: RwLock<AddressMap>,
}

const FRESH: u8 = 0;
const READY: u8 = 1;
const FORKED: u8 = 2;
const ENDED: u8 = 3;
static STATE: AtomicU8 = AtomicU8::new(FRESH);
static DRIVER: OnceLock<Driver> = OnceLock::new();
static STARTING: Mutex<()> = Mutex::new(());

/// May the driver be used in this process?
///
/// # Errors
/// `NOT_INITIALIZED` before `cuInit` and after a fork, `DEINITIALIZED` after the exit handler.
pub(crate) fn ready() -> Outcome {
    match STATE.load(Ordering::Acquire) {
        READY => Ok(()),
        ENDED => Err(CUresult::DEINITIALIZED),
        _ => Err(CUresult::NOT_INITIALIZED),
    }
}

/// Is this a child of a process that had a driver?
pub(crate) fn is_forked() -> bool {
    STATE.load(Ordering::Acquire) == FORKED
}

/// The process ends. Returns `false` if there is no driver here to end.
pub(crate) fn end() -> bool {
    STATE.compare_exchange(READY, ENDED, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// The driver. Only for bodies of exports, which run when it is ready.
pub(crate) fn driver() -> &'static Driver {
    DRIVER.get().expect("exports check for cuInit before their body runs")
}

/// The work of `cuInit`.
///
/// # Errors
/// `NOT_INITIALIZED` in a child of a process that had a driver; `NO_DEVICE` if none is visible;
/// `OPERATING_SYSTEM` if there is no `memfd`.
pub(crate) fn start() -> Outcome {
    match STATE.load(Ordering::Acquire) {
        FORKED => return Err(CUresult::NOT_INITIALIZED),
        ENDED => return Err(CUresult::DEINITIALIZED),
        _ => {}
    }
    let _one_at_a_time = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if STATE.load(Ordering::Acquire) == READY {
        return Ok(());
    }
    require(!settings().visible.is_empty(), CUresult::NO_DEVICE)?;
    let driver = Driver::new()?;
    // SAFETY: handlers without arguments that stay valid: the library is never unloaded. The first
    // only stores to an atomic.
    unsafe {
        libc::pthread_atfork(None, None, Some(forked));
        libc::atexit(ending::take_down);
    }
    raise_descriptor_limit();
    if DRIVER.set(driver).is_err() {
        return Err(CUresult::UNKNOWN);
    }
    STATE.store(READY, Ordering::Release);
    Ok(())
}

extern "C" fn forked() {
    STATE.store(FORKED, Ordering::Release);
}

/// Each shareable handle is a descriptor, and the usual limit of a thousand is low.
fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a valid structure.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0 {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: a valid structure.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    }
}

/// Bytes of memory of this machine.
fn machine_memory() -> u64 {
    // SAFETY: plain queries.
    let (pages, page) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0) * u64::try_from(page).unwrap_or(0)
}

impl Driver {
    fn new() -> Outcome<Self> {
        let devices: Vec<Device> = (0..settings().visible.len())
            .map(|i| Device::new(i, settings().memory))
            .collect::<Outcome<_>>()?;
        let pools = Registry::new(0x5105);
        for device in &devices {
            let (handle, _) = pools.insert(|handle| Pool::default_of(handle, device.ordinal));
            device.set_default_pool(handle);
        }
        Ok(Self {
            devices,
            host_budget: Budget::new(Place::Host, settings().host.unwrap_or_else(machine_memory)),
            host: Store::new("simcuda-store:host")?,
            contexts: Registry::new(0x5101),
            streams: Registry::new(0x5102),
            events: Registry::new(0x5103),
            modules: Registry::new(0x5104),
            pools,
            functions: Registry::new(0x5106),
            libraries: Registry::new(0x5107),
            kernels: Registry::new(0x5108),
            graphs: Registry::new(0x5109),
            nodes: Registry::new(0x510a),
            execs: Registry::new(0x510b),
            arrays: Registry::new(0x510c),
            mipmapped: Registry::new(0x510d),
            surfaces: Registry::new(0x510e),
            textures: Mutex::default(),
            handles: Mutex::default(),
            memory: RwLock::default(),
        })
    }

    /// A device by ordinal.
    ///
    /// # Errors
    /// `INVALID_DEVICE` if there is none.
    pub(crate) fn device(&self, ordinal: i32) -> Outcome<&Device> {
        usize::try_from(ordinal).ok().and_then(|i| self.devices.get(i)).ok_or(CUresult::INVALID_DEVICE)
    }

    /// The address map, to read.
    pub(crate) fn memory(&self) -> RwLockReadGuard<'_, AddressMap> {
        self.memory.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address map, to change.
    pub(crate) fn memory_mut(&self) -> RwLockWriteGuard<'_, AddressMap> {
        self.memory.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts memory of a place from its store.
    ///
    /// # Errors
    /// As [`Physical::cut`].
    pub(crate) fn cut(&self, place: Place, bytes: u64) -> Outcome<std::sync::Arc<Physical>> {
        match place {
            Place::Device(i) => {
                Physical::cut(&self.devices[i].store, place, bytes, Some(&self.devices[i].budget))
            }
            Place::Host => Physical::cut(&self.host, place, bytes, Some(&self.host_budget)),
        }
    }
}
