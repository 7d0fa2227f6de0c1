//! Plain allocations that another process opens.
//!
//! A handle names the process and the descriptor of the bytes; the other process opens that
//! descriptor through `/proc`, which the kernel allows to the same user.

use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use wm_abi::{CUdeviceptr, CUipcMemHandle, CUresult};

use crate::context::{Context, synchronize_device};
use crate::entry::{Outcome, exports, put, require};
use crate::memory::{Area, Block, Owner, Physical, Place};
use crate::state::driver;

const MAGIC: [u8; 8] = *b"simcuda1";

/// The content of a handle.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Ticket {
    magic: [u8; 8],
    process: u32,
    descriptor: i32,
    offset: u64,
    mapped: u64,
    size: u64,
    /// Unique in the process: a block that is freed and allocated again has another handle.
    block: u64,
    device: u32,
    unused: [u32; 3],
}

const _: () = assert!(size_of::<Ticket>() == size_of::<CUipcMemHandle>());

impl Ticket {
    fn of(address: CUdeviceptr) -> Outcome<Self> {
        let memory = driver().memory();
        let area = memory.find(address).ok_or(CUresult::INVALID_VALUE)?;
        let Owner::Linear { physical, .. } = &area.owner else { return Err(CUresult::INVALID_VALUE) };
        let Place::Device(device) = physical.place else { return Err(CUresult::INVALID_VALUE) };
        let (file, offset) = physical.file();
        Ok(Self {
            magic: MAGIC,
            process: std::process::id(),
            descriptor: file.as_raw_fd(),
            offset,
            mapped: physical.size,
            size: area.size,
            block: area.id,
            device: device as u32,
            unused: [0; 3],
        })
    }

    fn pack(self) -> CUipcMemHandle {
        // SAFETY: equal sizes, and every pattern is valid on both sides.
        unsafe { std::mem::transmute(self) }
    }

    fn unpack(handle: CUipcMemHandle) -> Outcome<Self> {
        // SAFETY: as above.
        let ticket: Self = unsafe { std::mem::transmute(handle) };
        require(ticket.magic == MAGIC && ticket.size <= ticket.mapped, CUresult::INVALID_VALUE)?;
        Ok(ticket)
    }

    fn origin(&self) -> (u32, u64) {
        (self.process, self.block)
    }

    /// The bytes.
    fn physical(&self) -> Outcome<Arc<Physical>> {
        driver().device(self.device as i32)?;
        let path = format!("/proc/{}/fd/{}", self.process, self.descriptor);
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(|_| CUresult::MAP_FAILED)?;
        Ok(Physical::foreign(
            OwnedFd::from(file),
            self.offset,
            self.mapped,
            Place::Device(self.device as usize),
            0,
        ))
    }
}

fn open(context: &Context, ticket: &Ticket) -> Outcome<CUdeviceptr> {
    // A process cannot open its own memory.
    require(ticket.process != std::process::id(), CUresult::INVALID_CONTEXT)?;
    if let Some(address) = open_again(context, ticket.origin()) {
        return Ok(address);
    }
    let block = Block::place(ticket.physical()?)?;
    let (context, origin) = (context.owner_handle(), ticket.origin());
    Ok(block.enter(ticket.size, |physical| Owner::Imported { physical, context, opened: 1, origin }))
}

/// The address of a block that this context has opened already.
fn open_again(wanted: &Context, ticket: (u32, u64)) -> Option<CUdeviceptr> {
    let mut memory = driver().memory_mut();
    let is_it = |area: &&Area| matches!(&area.owner, Owner::Imported { context, origin, .. } if *context == wanted.handle && *origin == ticket);
    let start = memory.areas().find(is_it)?.start;
    if let Owner::Imported { opened, .. } = &mut memory.find_mut(start)?.owner {
        *opened += 1;
    }
    Some(start)
}

fn close(context: &Context, address: CUdeviceptr) -> Outcome {
    let mut memory = driver().memory_mut();
    let area =
        memory.find_mut(address).filter(|area| area.start == address).ok_or(CUresult::INVALID_VALUE)?;
    let Owner::Imported { opened, .. } = &mut area.owner else { return Err(CUresult::INVALID_VALUE) };
    *opened -= 1;
    let last = *opened == 0;
    drop(memory);
    if last {
        synchronize_device(context.device);
        let area =
            driver().memory_mut().remove_if(address, |area| matches!(area.owner, Owner::Imported { .. }));
        area.into_iter().for_each(Area::discard);
    }
    Ok(())
}

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the only flag, and not optional.
const LAZY_PEER_ACCESS: u32 = 1;

exports! {
    fn cuIpcGetMemHandle(pHandle: *mut CUipcMemHandle, dptr: CUdeviceptr) |call| {
        call.context()?;
        put(pHandle, Ticket::of(dptr)?.pack())
    }

    fn cuIpcOpenMemHandle(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, Flags: std::ffi::c_uint) |call| {
        let context = call.context()?;
        require(!pdptr.is_null() && Flags == LAZY_PEER_ACCESS, CUresult::INVALID_VALUE)?;
        put(pdptr, open(&context, &Ticket::unpack(handle)?)?)
    }

    fn cuIpcOpenMemHandle_v2(pdptr: *mut CUdeviceptr, handle: CUipcMemHandle, Flags: std::ffi::c_uint) |call| {
        let context = call.context()?;
        require(!pdptr.is_null() && Flags == LAZY_PEER_ACCESS, CUresult::INVALID_VALUE)?;
        put(pdptr, open(&context, &Ticket::unpack(handle)?)?)
    }

    fn cuIpcCloseMemHandle(dptr: CUdeviceptr) |call| {
        close(&*call.context()?, dptr)
    }
}
