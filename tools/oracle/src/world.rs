//! The state that all programs of a process share: contexts, kernels, pools, and pinned memory of
//! the test.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use conformance::cu;
use conformance::driver::{Driver, Lookup};
use conformance::fixture::Green;
use wm_abi::*;
use wm_kernels::{Arguments, diagnostics, ownership};

use crate::model::BUFFER;
use crate::program::{Context, HOSTS, Host, Kind, Pool, Program, STEPS};
use crate::relays::Statistics;
use crate::used::UsedStreams;

/// Words of a ledger of `wm_check_block`.
pub(crate) const LEDGER: usize = 6;
/// Bytes between two gates.
const GATE: usize = 64;
/// Bytes that checks of one program can copy out.
pub(crate) const STAGE: u64 = 8 << 20;
/// The time until copies must go through other devices: links may have to be measured first.
const PATIENCE: Duration = Duration::from_secs(30);

/// Like `cu!`, for a call that has to succeed.
macro_rules! ready {
    ($driver:expr, $name:ident($($argument:expr),* $(,)?)) => {
        conformance::cu!($driver, $name($($argument),*)).ok().context(stringify!($name))
    };
}
pub(crate) use ready;

type Places = [Option<Place>; 5];

/// A context and its kernels.
#[derive(Debug, Clone, Copy)]
struct Place {
    context: CUcontext,
    own: CUfunction,
    check: CUfunction,
    spin: CUfunction,
}

/// Handles and memory.
pub(crate) struct World {
    pub(crate) driver: &'static Driver,
    pub(crate) devices: usize,
    /// By [`Context`]. Contexts that are not primary are made for a program that uses them, and end
    /// after `lives` programs.
    places: Mutex<Places>,
    /// Green contexts, with the same lifetime.
    greens: Mutex<Vec<Green>>,
    /// Streams that no program uses, with the same lifetime.
    used: UsedStreams,
    lives: u32,
    /// Programs that have run.
    ran: AtomicU32,
    /// By device: the default one, and the test's own.
    pools: Vec<[CUmemoryPool; 2]>,
    ledgers: *mut u64,
    gates: *mut u8,
    stage: *mut u8,
    /// Made for the first program that uses it.
    hosts: OnceLock<Hosts>,
    /// The library's statistics, and the path of copies to count.
    statistics: Option<(Statistics, &'static str)>,
    /// The last count.
    carried: AtomicU64,
}

/// Memory that programs copy from and to.
#[derive(Debug, Clone, Copy)]
struct Hosts {
    pinned: *mut u8,
    pageable: *mut u8,
}

// SAFETY: pinned memory stays until the process ends and is written by devices and through atomics;
// the other fields are handles.
unsafe impl Sync for World {}

impl World {
    /// Opens a driver and makes everything that programs need.
    ///
    /// Contexts that are not primary and streams serve `lives` programs: on a GPU it takes longer
    /// to make and end them than to run a program.
    pub(crate) fn open(driver: &str, devices: usize, lives: u32) -> Result<Self> {
        let driver = Driver::open(driver, Lookup::Exported)?;
        ready!(driver, cuInit(0))?;
        let mut count = 0;
        ready!(driver, cuDeviceGetCount(&mut count))?;
        if devices > count as usize {
            bail!("{devices} devices are asked for, {count} are there");
        }
        let (places, greens, used, pools) =
            (Mutex::default(), Mutex::default(), UsedStreams::default(), Vec::new());
        let none = (null_mut(), null_mut(), null_mut());
        let (lives, ran) = (lives.max(1), AtomicU32::new(0));
        let (ledgers, gates, stage) = none;
        let (hosts, statistics, carried) = (OnceLock::new(), None, AtomicU64::new(0));
        let mut world = Self {
            driver,
            devices,
            places,
            greens,
            used,
            lives,
            ran,
            pools,
            ledgers,
            gates,
            stage,
            hosts,
            statistics,
            carried,
        };
        world.fill()?;
        Ok(world)
    }

    fn fill(&mut self) -> Result<()> {
        self.make(Context::First)?;
        if self.devices > 1 {
            self.make(Context::Other)?;
            self.befriend(Context::First, Context::Other)?;
            self.befriend(Context::Other, Context::First)?;
        }
        ready!(self.driver, cuCtxSetCurrent(self.handle(Context::First)))?;
        for device in 0..self.devices {
            let pools = self.pools_of(device as CUdevice)?;
            self.pools.push(pools);
        }
        self.ledgers = self.pinned(STEPS * LEDGER * 8)?.cast();
        self.gates = self.pinned(STEPS * GATE)?;
        self.stage = self.pinned(STAGE as usize)?;
        self.warm_up(Context::First)?;
        if self.devices > 1 { self.warm_up(Context::Other) } else { Ok(()) }
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a context, with its kernels.
    fn make(&self, context: Context) -> Result<()> {
        let handle = self.context(context)?;
        let place = self.load(handle, context.device())?;
        self.places()[context as usize] = Some(place);
        Ok(())
    }

    fn context(&self, context: Context) -> Result<CUcontext> {
        let (mut handle, device) = (CUcontext::NULL, context.device() as CUdevice);
        match context {
            Context::Second => ready!(self.driver, cuCtxCreate_v2(&mut handle, 0, device))?,
            _ => ready!(self.driver, cuDevicePrimaryCtxRetain(&mut handle, device))?,
        }
        ready!(self.driver, cuCtxSetCurrent(handle))?;
        Ok(handle)
    }

    fn load(&self, context: CUcontext, device: usize) -> Result<Place> {
        let mut major = 0;
        let attribute = CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
        ready!(self.driver, cuDeviceGetAttribute(&mut major, attribute, device as CUdevice))?;
        let image = |code: &'static [u8]| {
            let mut module = CUmodule::NULL;
            ready!(self.driver, cuModuleLoadData(&mut module, code.as_ptr().cast()))?;
            anyhow::Ok(module)
        };
        let function = |module: CUmodule, name: &CStr| {
            let mut function = CUfunction::NULL;
            ready!(self.driver, cuModuleGetFunction(&mut function, module, name.as_ptr()))?;
            anyhow::Ok(function)
        };
        let owners = image(ownership::IMAGE.code_for(major))?;
        let others = image(diagnostics::IMAGE.code_for(major))?;
        let own = function(owners, c"wm_own_block")?;
        Ok(Place {
            context,
            own,
            check: function(owners, c"wm_check_block")?,
            spin: function(others, c"wm_spin")?,
        })
    }

    /// Runs each kernel once in a new context: a driver may load modules at first use by waiting
    /// for streams, and then for those that a program holds.
    fn warm_up(&self, context: Context) -> Result<()> {
        let (d, none, staged) = (self.driver, CUstream::NULL, self.stage as CUdeviceptr);
        ready!(d, cuCtxSetCurrent(self.handle(context)))?;
        // Pinned memory is used, which the allocator under test does not manage. A refused call
        // does not warm up.
        let _codes = [
            self.own(context, none, staged, 64, 0),
            self.check(context, none, staged, 64, 0, self.ledger(0)),
            self.spin(context, none, 1),
            cu!(d, cuMemsetD32Async(staged, 0, 16, none)),
            cu!(d, cuMemcpyAsync(staged + 64, staged, 64, none)),
        ];
        ready!(d, cuCtxSynchronize())
    }

    /// Copies to each device until other devices take part: the library opens its contexts there
    /// beside the first copies.
    pub(crate) fn warm_relays(&mut self) -> Result<()> {
        self.make_hosts(1)?;
        let (d, bytes, mut block) = (self.driver, BUFFER as usize, 0);
        for context in [Context::First, Context::Other].into_iter().take(self.devices) {
            ready!(d, cuCtxSetCurrent(self.handle(context)))?;
            ready!(d, cuMemAlloc_v2(&mut block, bytes))?;
            let begin = Instant::now();
            while !self.has_carried() {
                if begin.elapsed() > PATIENCE {
                    bail!("no copy to device {} goes through another one", context.device());
                }
                ready!(d, cuMemcpyHtoD_v2(block, self.host(0, Host::Pinned).cast(), bytes))?;
            }
            ready!(d, cuMemFree_v2(block))?;
        }
        Ok(())
    }

    /// From now on copies over this path are counted.
    pub(crate) fn tell_of(&mut self, path: &'static str) -> Result<()> {
        let statistics = Statistics::find().context("the library does not tell what becomes of copies")?;
        self.statistics = Some((statistics, path));
        self.has_carried();
        Ok(())
    }

    /// Has the library carried a part of a copy over that path since the last call?
    pub(crate) fn has_carried(&self) -> bool {
        let carried = self.statistics.map_or(0, |(statistics, path)| statistics.carried(path));
        self.carried.swap(carried, Ordering::Relaxed) < carried
    }

    fn befriend(&self, one: Context, other: Context) -> Result<()> {
        let (one, other) = (self.handle(one), self.handle(other));
        ready!(self.driver, cuCtxSetCurrent(one))?;
        ready!(self.driver, cuCtxEnablePeerAccess(other, 0))
    }

    fn pools_of(&self, device: CUdevice) -> Result<[CUmemoryPool; 2]> {
        let (mut default, mut own) = (CUmemoryPool::NULL, CUmemoryPool::NULL);
        ready!(self.driver, cuDeviceGetDefaultMemPool(&mut default, device))?;
        // SAFETY: all zero is a valid value of every field.
        let mut properties: CUmemPoolProps = unsafe { std::mem::zeroed() };
        properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: device };
        ready!(self.driver, cuMemPoolCreate(&mut own, &properties))?;
        for pool in [default, own] {
            for peer in (0..self.devices as CUdevice).filter(|peer| *peer != device) {
                let location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: peer };
                let access = CUmemAccessDesc { location, flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
                ready!(self.driver, cuMemPoolSetAccess(pool, &access, 1))?;
            }
        }
        Ok([default, own])
    }

    fn pinned(&self, bytes: usize) -> Result<*mut u8> {
        let mut address: *mut c_void = null_mut();
        ready!(self.driver, cuMemHostAlloc(&mut address, bytes, CU_MEMHOSTALLOC_PORTABLE))?;
        Ok(address.cast())
    }

    /// Prepares a program: its contexts and pools, gates closed, ledgers empty.
    pub(crate) fn reset(&self, program: &Program) -> Result<()> {
        let shape = &program.shape;
        let is_there = |context: &Context| self.handle(*context) != CUcontext::NULL;
        let others = [Context::Second, Context::GreenOne, Context::GreenTwo];
        let absent: Vec<Context> = others.into_iter().filter(|context| !is_there(context)).collect();
        if program.is_in(Context::Second) && !is_there(&Context::Second) {
            self.make(Context::Second)?;
        }
        if (program.is_in(Context::GreenOne) || program.is_in(Context::GreenTwo))
            && !is_there(&Context::GreenOne)
        {
            self.make_greens()?;
        }
        // Programs without gates test the library in a context without earlier work.
        if program.holds_streams() {
            absent.into_iter().filter(is_there).try_for_each(|context| self.warm_up(context))?;
        }
        let (mut keep, mut internal) = (if shape.keep { u64::MAX } else { 0 }, i32::from(shape.internal));
        ready!(self.driver, cuCtxSetCurrent(self.handle(Context::First)))?;
        for pool in self.pools.iter().flatten() {
            let threshold = CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
            ready!(self.driver, cuMemPoolSetAttribute(*pool, threshold, (&raw mut keep).cast()))?;
            let dependencies = CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
            ready!(self.driver, cuMemPoolSetAttribute(*pool, dependencies, (&raw mut internal).cast()))?;
        }
        // SAFETY: memory of ours, which no work uses between two programs.
        unsafe {
            self.ledgers.cast::<u8>().write_bytes(0, STEPS * LEDGER * 8);
            self.gates.write_bytes(0, STEPS * GATE);
        }
        self.make_hosts(shape.hosts.len())
    }

    /// A context's handle.
    pub(crate) fn handle(&self, context: Context) -> CUcontext {
        self.places()[context as usize].map_or(CUcontext::NULL, |place| place.context)
    }

    fn make_greens(&self) -> Result<()> {
        let (one, two) = Green::pair(self.driver)?;
        for (context, green) in [(Context::GreenOne, &one), (Context::GreenTwo, &two)] {
            green.enter()?;
            let place = self.load(green.context, 0)?;
            self.places()[context as usize] = Some(place);
        }
        self.greens().extend([one, two]);
        Ok(())
    }

    fn greens(&self) -> MutexGuard<'_, Vec<Green>> {
        self.greens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After a program: if it is the last one for its contexts, ends them and the remaining
    /// streams.
    pub(crate) fn leave(&self) -> CUresult {
        let ran = self.ran.fetch_add(1, Ordering::Relaxed) + 1;
        if !ran.is_multiple_of(self.lives) {
            return CUresult::SUCCESS;
        }
        let streams = self.used.take_all().into_iter();
        let mut codes: Vec<CUresult> =
            streams.map(|stream| cu!(self.driver, cuStreamDestroy_v2(stream))).collect();
        let second = self.places()[Context::Second as usize].take();
        codes.extend(second.iter().map(|place| cu!(self.driver, cuCtxDestroy_v2(place.context))));
        self.places()[Context::GreenOne as usize..].fill(None);
        let greens = std::mem::take(&mut *self.greens());
        codes.extend(greens.into_iter().map(Green::destroy));
        codes.into_iter().find(|code| *code != CUresult::SUCCESS).unwrap_or(CUresult::SUCCESS)
    }

    /// A stream of an earlier program.
    pub(crate) fn used_stream(&self, context: Context, kind: Kind) -> Option<CUstream> {
        self.used.pop(context, kind)
    }

    /// Stores an idle stream for later programs, or destroys it if each has streams of its own.
    pub(crate) fn leave_stream(&self, context: Context, kind: Kind, stream: CUstream) -> CUresult {
        if self.lives == 1 {
            return cu!(self.driver, cuStreamDestroy_v2(stream));
        }
        self.used.put(context, kind, stream);
        CUresult::SUCCESS
    }

    /// A stream of a green context.
    pub(crate) fn green_stream(&self, context: Context) -> Result<CUstream> {
        let greens = self.greens();
        let green = greens.get(usize::from(context == Context::GreenTwo));
        Ok(green.context("no green context")?.stream()?)
    }

    /// A pool's handle.
    pub(crate) fn pool(&self, pool: Pool) -> CUmemoryPool {
        self.pools[pool.device][usize::from(pool.own)]
    }

    /// The existing contexts.
    pub(crate) fn contexts(&self) -> Vec<CUcontext> {
        self.places().iter().flatten().map(|place| place.context).collect()
    }

    fn kernel(&self, context: Context, choose: impl Fn(&Place) -> CUfunction) -> CUfunction {
        self.places()[context as usize].as_ref().map_or(CUfunction::NULL, choose)
    }

    /// The word that a gate's stream waits for.
    pub(crate) fn gate(&self, gate: usize) -> CUdeviceptr {
        self.gates.wrapping_add(gate * GATE) as CUdeviceptr
    }

    /// Opens a gate.
    pub(crate) fn open_gate(&self, gate: usize) {
        // SAFETY: pinned memory of ours, aligned, and written as an atomic.
        unsafe { AtomicU32::from_ptr(self.gate(gate) as *mut u32) }.store(1, Ordering::SeqCst);
    }

    /// Pinned and pageable memory, if programs copy from or to host memory.
    fn make_hosts(&self, count: usize) -> Result<()> {
        if count > HOSTS {
            bail!("{count} pieces of host memory, of {HOSTS} at most");
        }
        if count == 0 || self.hosts.get().is_some() {
            return Ok(());
        }
        let bytes = HOSTS * BUFFER as usize;
        let pinned = self.pinned(bytes)?;
        // It stays until the process ends: threads of a driver may use it late.
        let pageable = Vec::leak(vec![0_u32; bytes / 4]).as_mut_ptr().cast();
        let _other = self.hosts.set(Hosts { pinned, pageable });
        Ok(())
    }

    /// Some host memory.
    pub(crate) fn host(&self, host: usize, kind: Host) -> *mut u8 {
        let start = self.hosts.get().map_or(null_mut(), |hosts| match kind {
            Host::Pinned => hosts.pinned,
            Host::Pageable => hosts.pageable,
        });
        start.wrapping_add(host * BUFFER as usize)
    }

    /// The ledger of a step's checks.
    pub(crate) fn ledger(&self, step: usize) -> CUdeviceptr {
        self.ledgers.wrapping_add(step * LEDGER) as CUdeviceptr
    }

    /// The words of a ledger. All work is over.
    pub(crate) fn entries(&self, step: usize) -> [u64; LEDGER] {
        // SAFETY: words of ours, written by a device: hence volatile.
        std::array::from_fn(|index| unsafe { self.ledgers.add(step * LEDGER + index).read_volatile() })
    }

    /// The place of bytes that were copied out.
    pub(crate) fn stage(&self, offset: u64) -> *mut u8 {
        self.stage.wrapping_add(offset as usize)
    }

    /// Writes a mark into a block.
    pub(crate) fn own(
        &self,
        context: Context,
        stream: CUstream,
        block: CUdeviceptr,
        bytes: u64,
        owner: u64,
    ) -> CUresult {
        self.launch(
            self.kernel(context, |place| place.own),
            stream,
            bytes,
            &ownership::OwnBlock { block, bytes, owner },
        )
    }

    /// Checks a block for a mark.
    pub(crate) fn check(
        &self,
        context: Context,
        stream: CUstream,
        block: CUdeviceptr,
        bytes: u64,
        owner: u64,
        ledger: CUdeviceptr,
    ) -> CUresult {
        let arguments = ownership::CheckBlock { block, bytes, owner, ledger };
        self.launch(self.kernel(context, |place| place.check), stream, bytes, &arguments)
    }

    /// Keeps a stream busy.
    pub(crate) fn spin(&self, context: Context, stream: CUstream, microseconds: u64) -> CUresult {
        let arguments = diagnostics::Spin { duration: microseconds * 1000 };
        self.launch(self.kernel(context, |place| place.spin), stream, 1, &arguments)
    }

    /// A grid for `bytes` of memory, small enough that many kernels run at once.
    fn launch<A: Arguments>(
        &self,
        function: CUfunction,
        stream: CUstream,
        bytes: u64,
        arguments: &A,
    ) -> CUresult {
        let blocks = bytes.div_ceil(64 << 10).clamp(1, 64) as u32;
        let pointers = arguments.pointers();
        let pointers = pointers.as_ref().as_ptr().cast_mut().cast::<*mut c_void>();
        let threads = if bytes <= 1 { 1 } else { 128 };
        cu!(
            self.driver,
            cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, pointers, null_mut())
        )
    }
}
