//! One device: its context, its streams, the kernels that mark and check, and the ledger of
//! the checks' findings.
//!
//! The ledger is pinned host memory, which the device writes and the host may read at any time:
//! memory under test does not hold the verdict. A stream sits in a *slot*. Threads use a
//! slot's stream under a shared lock, and a thread that replaces the stream holds the lock
//! exclusively. The new stream comes behind the old one's work, so "behind the work in slot 3"
//! keeps its meaning. Slot 0 is the legacy default stream and is never replaced. No thread ever
//! holds two slots.

use std::ffi::{c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, RwLock, RwLockReadGuard};

use wm_abi::*;
use wm_driver::Api;
use wm_driver::api::PoolAttribute;
use wm_kernels::Arguments;
use wm_kernels::ownership::{CheckBlock, IMAGE, OwnBlock};

use crate::block::Block;
use crate::budget::Budget;
use crate::driver::{Driver, Failure, Result};
use crate::random::{Choices, Random};

/// Words of a ledger, as `wm_check_block` wants it.
const LEDGER: usize = 6;

/// Work in a stream without a wait behind it, in calls. A GPU's queue has an end of its own, the
/// simulator's has none.
const AHEAD: u64 = 512;

/// A device as all threads share it.
pub(crate) struct Place {
    pub(crate) ordinal: CUdevice,
    pub(crate) context: CUcontext,
    /// A pool of the program's own.
    pub(crate) pool: CUmemoryPool,
    /// The device's own.
    pub(crate) default_pool: CUmemoryPool,
    pub(crate) budget: Budget,
    /// Blocks on their way from one thread to another.
    pub(crate) exchange: Mutex<Vec<Block>>,
    /// Bytes that checks were launched for.
    looked: AtomicU64,
    slots: Vec<Slot>,
    own: CUfunction,
    check: CUfunction,
    ledger: *mut u64,
}

// SAFETY: the ledger is memory that only the device writes and that lives as long as the process;
// everything else is handles and atomics.
unsafe impl Sync for Place {}
// SAFETY: as above.
unsafe impl Send for Place {}

struct Slot {
    stream: RwLock<CUstream>,
    /// Calls since the last wait.
    ahead: AtomicU64,
}

/// The contents of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Findings {
    pub(crate) bytes: u64,
    pub(crate) wrong: u64,
    /// Address, block, owner, content of the first wrong word.
    first: [u64; 4],
}

impl Findings {
    /// The first wrong word, for people.
    pub(crate) fn describe(&self) -> String {
        let [at, block, owner, found] = self.first;
        format!(
            "{} words are not their owner's; the first: {at:#x}, byte {} of a block of {owner:#x}, holds {found:#x}",
            self.wrong,
            at.wrapping_sub(block)
        )
    }
}

impl Place {
    /// Makes a device ready: context, kernels, streams.
    pub(crate) fn new(
        driver: &Driver,
        ordinal: CUdevice,
        streams: usize,
        memory: Option<u64>,
    ) -> Result<Self> {
        let context = driver.primary_ctx_retain(ordinal)?;
        driver.ctx_set_current(context)?;
        let default_pool = driver.device_default_mem_pool(ordinal)?;
        let ([own, check], ledger) = (kernels(driver, ordinal)?, pinned(driver, LEDGER * 8)?.cast::<u64>());
        let mut slots = vec![Slot { stream: CUstream::NULL.into(), ahead: AtomicU64::new(0) }];
        for number in 1..streams.max(2) {
            let flags = if number % 4 == 1 { CU_STREAM_DEFAULT } else { CU_STREAM_NON_BLOCKING };
            slots.push(Slot {
                stream: driver.stream_create_with_priority(flags, 0)?.into(),
                ahead: AtomicU64::new(0),
            });
        }
        let (budget, pool) = (
            Budget::new(memory.map_or_else(|| driver.mem_info().map(|(free, _)| free as u64), Ok)?),
            pool(driver, ordinal)?,
        );
        let (exchange, looked) = (Mutex::default(), AtomicU64::new(0));
        Ok(Self { ordinal, context, pool, default_pool, budget, exchange, looked, slots, own, check, ledger })
    }

    pub(crate) fn streams(&self) -> usize {
        self.slots.len()
    }

    /// The stream in a slot, to be used while the guard lives. Waits where the queue has become
    /// long.
    pub(crate) fn stream(&self, driver: &Driver, slot: usize) -> Result<RwLockReadGuard<'_, CUstream>> {
        let Slot { stream, ahead } = &self.slots[slot];
        let stream = stream.read().map_err(|_| Failure::of("a thread has panicked".into()))?;
        if ahead.fetch_add(1, Ordering::Relaxed) >= AHEAD {
            ahead.store(0, Ordering::Relaxed);
            driver.stream_synchronize(*stream)?;
        }
        Ok(stream)
    }

    /// Destroys a slot's stream with its work under way, and puts a new one there that comes behind
    /// that work.
    pub(crate) fn renew(&self, driver: &Driver, slot: usize, event: CUevent, random: &mut Random) -> Result {
        let flags = if random.one_in(4) { CU_STREAM_DEFAULT } else { CU_STREAM_NON_BLOCKING };
        let poisoned = |_| Failure::of("a thread has panicked".into());
        let mut place = self.slots[slot].stream.write().map_err(poisoned)?;
        driver.event_record(event, *place)?;
        driver.stream_destroy(*place)?;
        *place = driver.stream_create_with_priority(flags, 0)?;
        driver.stream_wait_event(*place, event)
    }

    /// Marks a block as its owner's, by a kernel.
    pub(crate) fn mark(&self, driver: &Driver, stream: CUstream, block: &Block, owner: u64) -> Result {
        let arguments = OwnBlock { block: block.address, bytes: block.bytes, owner };
        launch(driver, self.own, stream, block.bytes, &arguments)
    }

    /// Checks a block for its owner's mark; the kernel writes its findings into the ledger.
    pub(crate) fn check(&self, driver: &Driver, stream: CUstream, block: &Block) -> Result {
        let (owner, ledger) = (block.owner(), self.ledger as u64);
        let arguments = CheckBlock { block: block.address, bytes: block.bytes, owner, ledger };
        launch(driver, self.check, stream, block.bytes, &arguments)?;
        self.looked.fetch_add(block.bytes, Ordering::Relaxed);
        Ok(())
    }

    /// The findings of all checks so far.
    pub(crate) fn findings(&self) -> Findings {
        // SAFETY: six words that live as long as the process, written by the device: hence
        // volatile.
        let word = |index| unsafe { self.ledger.add(index).read_volatile() };
        Findings { bytes: word(0), wrong: word(1), first: [2, 3, 4, 5].map(word) }
    }

    /// When all work is done: has every check that was launched been made, and is everything given
    /// back?
    pub(crate) fn settle(&self, driver: &Driver) -> Result {
        driver.ctx_set_current(self.context)?;
        driver.ctx_synchronize()?;
        let (launched, made) = (self.looked.load(Ordering::Relaxed), self.findings().bytes);
        if launched != made {
            return Err(Failure::of(format!("{launched} bytes were to be checked, {made} were")));
        }
        let used = driver.mem_pool_attribute(self.default_pool, PoolAttribute::USED_MEM_CURRENT)?;
        if used != 0 || self.budget.held() != 0 {
            let held = self.budget.held();
            return Err(Failure::of(format!(
                "all is freed, but the pool uses {used} bytes, the program {held}"
            )));
        }
        self.close(driver)
    }

    fn close(&self, driver: &Driver) -> Result {
        for slot in &self.slots[1..] {
            let stream = slot.stream.read().map_err(|_| Failure::of("a thread has panicked".into()))?;
            driver.stream_destroy(*stream)?;
        }
        driver.mem_pool_destroy(self.pool)
    }

    /// The device's name.
    pub(crate) fn name(&self, driver: &Driver) -> Result<String> {
        driver.device_name(self.ordinal)
    }
}

fn kernels(driver: &Driver, ordinal: CUdevice) -> Result<[CUfunction; 2]> {
    let major = driver.device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, ordinal)?;
    let image = IMAGE.code_for(major).as_ptr().cast();
    let mut module = CUmodule::NULL;
    // SAFETY: a whole image, which says itself how long it is.
    driver.checked::<symbol::cuModuleLoadData>(|load| unsafe { load(&mut module, image) })?;
    Ok([driver.module_function(module, c"wm_own_block")?, driver.module_function(module, c"wm_check_block")?])
}

/// A grid for `bytes` of memory: 64 words a thread, and not more threads than a large GPU runs at
/// once.
fn launch<A: Arguments>(
    driver: &Driver,
    function: CUfunction,
    stream: CUstream,
    bytes: u64,
    arguments: &A,
) -> Result {
    const BYTES_A_THREAD: u64 = 512;
    let threads = bytes.div_ceil(BYTES_A_THREAD).next_multiple_of(32).min(256) as c_uint;
    let blocks = bytes.div_ceil(BYTES_A_THREAD * u64::from(threads)).clamp(1, 2048) as c_uint;
    let pointers = arguments.pointers();
    let pointers = pointers.as_ref().as_ptr().cast_mut().cast::<*mut c_void>();
    // SAFETY: the arguments are the kernel's, and live; the memory that they name passes
    // from thread to thread in this run.
    driver.checked::<symbol::cuLaunchKernel>(|launch| unsafe {
        launch(function, blocks, 1, 1, threads, 1, 1, 0, stream, pointers, null_mut())
    })
}

fn pool(driver: &Driver, ordinal: CUdevice) -> Result<CUmemoryPool> {
    // SAFETY: all zero is a valid value of every field.
    let mut properties: CUmemPoolProps = unsafe { std::mem::zeroed() };
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: ordinal };
    driver.mem_pool_create(&properties)
}

/// Pinned host memory, all zero, that every device may use.
pub(crate) fn pinned(driver: &Driver, bytes: usize) -> Result<*mut u8> {
    let address = driver.mem_host_alloc(bytes, CU_MEMHOSTALLOC_PORTABLE)?;
    // SAFETY: the allocation has `bytes` bytes, and no other owner.
    unsafe { address.cast::<u8>().write_bytes(0, bytes) };
    Ok(address.cast())
}
