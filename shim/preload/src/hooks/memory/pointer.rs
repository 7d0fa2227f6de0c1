//! Queries about addresses: our blocks answer like memory of `cuMemAlloc`.
//!
//! The driver would describe the mapping: no context, host memory if a block overflowed, the whole
//! reservation as the range. Programs derive devices, sharing and copies from these answers, so
//! they get the answers for plain device memory.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Mutex, MutexGuard};

use wm_abi::*;
use wm_driver::{Api, Device, lock};
use wm_memory::{Block, Order};

use super::attribute_set::AttributeSet;
use super::mem_info::{DeviceAccount, mem_info};
use crate::addresses::{self, AddressedMemory};
use crate::hooks::call::boundary::Outcome;
use crate::hooks::memory::{physical as pieces, pool};
use crate::ipc::OpenedBlock;
use crate::physical::{self, MappedPiece};
use crate::process::{self, driver};
use crate::registry::{self, REGISTRY};

/// Buffer ids of ours are above any the driver counts to.
const OUR_BUFFERS: u64 = 1 << 62;

/// An address that no driver knows: the driver answers several attributes at once with defaults.
const UNKNOWN: CUdeviceptr = 8;

/// Among them, those of opened blocks.
const FOREIGN_BUFFERS: u64 = 1 << 61;

/// Memory that we answer for: a block of ours, or one that another process shares with us.
struct Found {
    address: u64,
    base: u64,
    bytes: usize,
    device: &'static Device,
    /// Null for memory of a pool, which belongs to no context.
    context: CUcontext,
    buffer: u64,
    pool: CUmemoryPool,
    /// Could other processes open it through `cuIpcGetMemHandle`?
    shareable: bool,
}

/// Our knowledge of an address.
enum Meaning {
    /// Inside memory that we answer for.
    Live(Found),
    /// The program's own physical memory, which is not as it was asked for, or may move.
    Displaced(MappedPiece),
    /// In a reservation of ours where no block lives. The answers are those for freed memory, which
    /// the driver does not give for a mapping.
    Vacant,
    /// Only the driver knows: it answers.
    Foreign,
}

fn meaning(address: u64) -> Meaning {
    match addresses::memory_at(address) {
        AddressedMemory::Block(manager, block) => Meaning::Live(own(manager.gpu(), &block, address)),
        AddressedMemory::Opened(_, opened) => Meaning::Live(foreign(&opened, address)),
        AddressedMemory::Vacant(_) => Meaning::Vacant,
        AddressedMemory::Displaced(piece) => Meaning::Displaced(piece),
        AddressedMemory::Foreign => physical::answering(address).map_or(Meaning::Foreign, Meaning::Displaced),
    }
}

impl Meaning {
    /// Our answer to one attribute, or `None` where the driver's own is right.
    ///
    /// # Safety
    /// `data` is valid for a write of the attribute's type.
    unsafe fn answer(&self, address: u64, attribute: c_uint, data: *mut c_void) -> Option<CUresult> {
        // SAFETY: by this function's contract.
        unsafe {
            match self {
                Self::Live(found) => answer(found, attribute, data),
                Self::Displaced(view) => answer_displaced(view, address, attribute, data),
                Self::Vacant | Self::Foreign => None,
            }
        }
    }
}

fn own(device: &'static Device, block: &Block, address: u64) -> Found {
    let ordered = matches!(block.order, Order::Stream(_));
    let pool = if ordered { pool::default_of(device.ordinal()) } else { None };
    Found {
        address,
        base: block.address,
        bytes: block.bytes,
        device,
        context: if ordered { CUcontext::NULL } else { maker(device, block) },
        buffer: OUR_BUFFERS | block.id,
        pool: pool.unwrap_or_default(),
        shareable: !ordered && device.is_exportable(),
    }
}

/// The context that a block of `cuMemAlloc` was allocated in.
fn maker(device: &Device, block: &Block) -> CUcontext {
    REGISTRY.context_blocks.context_of(block.address, block.id).unwrap_or_else(|| device.context())
}

/// Buffer id of an opened block.
fn foreign_buffer(view: &OpenedBlock) -> u64 {
    OUR_BUFFERS | FOREIGN_BUFFERS | (view.address >> 12)
}

/// Buffer id of the memory at an address of ours.
fn buffer_at(address: u64) -> Option<u64> {
    match addresses::memory_at(address) {
        AddressedMemory::Block(_, block) => Some(OUR_BUFFERS | block.id),
        AddressedMemory::Opened(_, opened) => Some(foreign_buffer(&opened)),
        _ => None,
    }
}

fn foreign(view: &OpenedBlock, address: u64) -> Found {
    let buffer = foreign_buffer(view);
    let (base, bytes, device, context) = (view.address, view.bytes, view.device, view.device.context());
    Found { address, base, bytes, device, context, buffer, pool: CUmemoryPool::NULL, shareable: false }
}

/// `cuMemGetInfo`.
pub(in crate::hooks) unsafe fn mem_get_info(free: *mut usize, total: *mut usize) -> Outcome {
    if process::detached() {
        return Outcome::Forward;
    }
    let Some(site) = registry::current_site() else { return Outcome::Forward };
    let (free_now, total_now) = match driver().mem_info() {
        Ok(answer) => answer,
        Err(code) => return Outcome::Return(code),
    };
    let usage = site.manager.usage();
    let holdings = DeviceAccount {
        live: usage.live,
        unused: usage.reserved.device.saturating_sub(usage.live.device) + usage.pieces.idle.device,
        pieces: usage.pieces.held,
        limit: site.manager.device_limit(),
    };
    // The headroom is kept for the driver: a program that asks for all memory that is free would
    // be refused.
    let available = (free_now as u64).saturating_sub(site.manager.settings().headroom);
    let (usable, all) = mem_info(available, total_now as u64, &holdings);
    // SAFETY: the program's out-pointers; null is allowed and means that the answer is not wanted.
    unsafe { (store(free, usable as usize), store(total, all as usize)) };
    Outcome::Return(CUresult::SUCCESS)
}

/// `cuMemGetAddressRange`.
pub(in crate::hooks) unsafe fn mem_get_address_range(
    base: *mut CUdeviceptr,
    size: *mut usize,
    address: CUdeviceptr,
) -> Outcome {
    let (first, bytes) = match meaning(address) {
        Meaning::Live(found) => (found.base, found.bytes),
        Meaning::Displaced(view) => (view.base, view.bytes as usize),
        Meaning::Vacant => return Outcome::Return(CUresult::NOT_FOUND),
        Meaning::Foreign => return Outcome::Forward,
    };
    // SAFETY: the program's out-pointers; null is allowed.
    unsafe { (store(base, first), store(size, bytes)) };
    Outcome::Return(CUresult::SUCCESS)
}

/// # Safety
/// `place` is null or valid for a write.
unsafe fn store<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: not null, and valid by this function's contract.
        unsafe { *place = value };
    }
}

/// `cuPointerGetAttribute`.
pub(in crate::hooks) unsafe fn pointer_get_attribute(
    data: *mut c_void,
    attribute: c_uint,
    address: CUdeviceptr,
) -> Outcome {
    if data.is_null() {
        return Outcome::Forward;
    }
    match meaning(address) {
        Meaning::Vacant => Outcome::Return(CUresult::INVALID_VALUE),
        meaning => {
            // SAFETY: the program's out-pointer, not null, of the attribute's type.
            unsafe { meaning.answer(address, attribute, data) }.map_or(Outcome::Forward, Outcome::Return)
        }
    }
}

/// `cuPointerGetAttributes`. The driver answers all attributes first. Then our answers overwrite
/// the driver's.
pub(in crate::hooks) unsafe fn pointer_get_attributes(
    count: c_uint,
    attributes: *mut c_uint,
    data: *mut *mut c_void,
    address: CUdeviceptr,
) -> Outcome {
    if attributes.is_null() || data.is_null() {
        return Outcome::Forward;
    }
    let ask = |address| {
        // SAFETY: the program's arguments, except the address.
        unsafe { driver().get::<symbol::cuPointerGetAttributes>()(count, attributes, data, address) }
    };
    let meaning = match meaning(address) {
        Meaning::Vacant => return Outcome::Return(ask(UNKNOWN)),
        Meaning::Foreign => return Outcome::Forward,
        meaning => meaning,
    };
    let result = ask(address);
    if result == CUresult::SUCCESS {
        for position in 0..count as usize {
            // SAFETY: the driver has just read `count` attributes and written through as many
            // pointers.
            unsafe {
                let (attribute, place) = (*attributes.add(position), *data.add(position));
                if !place.is_null()
                    && meaning.answer(address, attribute, place) == Some(CUresult::INVALID_VALUE)
                {
                    place.cast::<*mut c_void>().write(std::ptr::null_mut());
                }
            }
        }
    }
    Outcome::Return(result)
}

/// Our answer to one attribute, or `None` where the driver's own is right.
///
/// # Safety
/// `data` is valid for a write of the attribute's type.
unsafe fn answer(found: &Found, attribute: c_uint, data: *mut c_void) -> Option<CUresult> {
    // SAFETY: by this function's contract; each attribute has the type that is written.
    unsafe {
        match attribute {
            CU_POINTER_ATTRIBUTE_CONTEXT => data.cast::<CUcontext>().write(found.context),
            CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => {
                data.cast::<c_uint>().write(u32::from(is_synchronous(found.buffer)));
            }
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE => data.cast::<c_uint>().write(CU_MEMORYTYPE_DEVICE),
            CU_POINTER_ATTRIBUTE_DEVICE_POINTER => data.cast::<u64>().write(found.address),
            CU_POINTER_ATTRIBUTE_HOST_POINTER => return Some(CUresult::INVALID_VALUE),
            CU_POINTER_ATTRIBUTE_BUFFER_ID => data.cast::<u64>().write(found.buffer),
            CU_POINTER_ATTRIBUTE_IS_MANAGED => data.cast::<c_uint>().write(0),
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => data.cast::<c_int>().write(found.device.ordinal()),
            CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => {
                data.cast::<c_uint>().write(u32::from(found.shareable))
            }
            CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => data.cast::<u64>().write(found.base),
            CU_POINTER_ATTRIBUTE_RANGE_SIZE => data.cast::<usize>().write(found.bytes),
            CU_POINTER_ATTRIBUTE_MAPPED => data.cast::<c_uint>().write(1),
            CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => data.cast::<u64>().write(0),
            // The driver says so of all memory that belongs to a context, whether peer access is
            // enabled or not.
            CU_POINTER_ATTRIBUTE_ACCESS_FLAGS if found.pool.is_null() => {
                data.cast::<c_uint>().write(CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            }
            // Pool memory cannot be registered with network cards, and says so.
            CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE if !found.pool.is_null() => {
                data.cast::<c_uint>().write(0)
            }
            CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => data.cast::<CUmemoryPool>().write(found.pool),
            _ => return None,
        }
    }
    Some(CUresult::SUCCESS)
}

/// As [`answer`], for physical memory that is not as the program asked for it, or may move. Only
/// the attributes that would show the difference have answers of ours.
///
/// # Safety
/// `data` is valid for a write of the attribute's type.
unsafe fn answer_displaced(
    view: &MappedPiece,
    address: u64,
    attribute: c_uint,
    data: *mut c_void,
) -> Option<CUresult> {
    // SAFETY: by this function's contract; each attribute has the type that is written.
    unsafe {
        match attribute {
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE => data.cast::<c_uint>().write(CU_MEMORYTYPE_DEVICE),
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => data.cast::<c_int>().write(view.asked.device),
            CU_POINTER_ATTRIBUTE_DEVICE_POINTER => data.cast::<u64>().write(address),
            CU_POINTER_ATTRIBUTE_HOST_POINTER => return Some(CUresult::INVALID_VALUE),
            CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => {
                data.cast::<u64>().write(u64::from(view.asked.handle_types));
            }
            _ => return None,
        }
    }
    Some(CUresult::SUCCESS)
}

/// Buffers whose copies are synchronous.
static SYNCHRONOUS: Mutex<AttributeSet> = Mutex::new(AttributeSet::new());

fn synchronous() -> MutexGuard<'static, AttributeSet> {
    lock(&SYNCHRONOUS)
}

fn is_synchronous(buffer: u64) -> bool {
    synchronous().contains(buffer)
}

/// `cuPointerSetAttribute`. The driver refuses `SYNC_MEMOPS` for mapped memory, so the current
/// context gets that flag instead. No other attribute can be set.
pub(in crate::hooks) unsafe fn pointer_set_attribute(
    value: *const c_void,
    attribute: c_uint,
    address: CUdeviceptr,
) -> Outcome {
    let Meaning::Live(found) = meaning(address) else { return Outcome::Forward };
    if attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || value.is_null() {
        return Outcome::Return(CUresult::INVALID_VALUE);
    }
    // SAFETY: the program's pointer to an unsigned flag, not null.
    if unsafe { *value.cast::<c_uint>() } == 0 {
        synchronous().remove(found.buffer);
        return Outcome::Return(CUresult::SUCCESS);
    }
    let told = tell_context();
    if told.is_ok() {
        synchronous().insert(found.buffer, found.base, buffer_at);
    }
    told.into()
}

/// Makes copies and sets in the current context wait for their end.
fn tell_context() -> Result<(), CUresult> {
    driver().ctx_set_flags(driver().ctx_flags()? | CU_CTX_SYNC_MEMOPS)
}

/// `cuMemRetainAllocationHandle`. Memory of `cuMemAlloc` has no handle that a program could retain.
pub(in crate::hooks) unsafe fn mem_retain_allocation_handle(
    handle: *mut u64,
    address: *mut c_void,
) -> Outcome {
    match meaning(address as u64) {
        // SAFETY: the program's arguments.
        Meaning::Foreign | Meaning::Displaced(_) => unsafe { pieces::retain(handle, address) }.into(),
        Meaning::Live(_) | Meaning::Vacant => Outcome::Return(CUresult::INVALID_VALUE),
    }
}
