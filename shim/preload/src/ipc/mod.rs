//! Legacy IPC for our blocks: `cuIpcGetMemHandle`, `cuIpcOpenMemHandle`, `cuIpcCloseMemHandle`.
//!
//! The driver refuses these calls for mapped memory. So the 64 bytes of a handle name a block of a process; whoever
//! opens it asks that process, over a local socket, for the block's physical memory as file descriptors, and maps it.
//! Handles that are not ours go to the driver.
//!
//! Invariants: only processes of the same user are served; a handle says which allocation it means, so that one whose block
//! was freed is refused instead of naming what lives there now; a dead exporter is a clear error, never a hang.

mod client;
mod handle;
mod server;
mod wire;

pub(crate) use client::{View, close, open, view};
pub(crate) use handle::Ticket;

use wm_abi::{CUipcMemHandle, CUresult};
use wm_driver::Device;
use wm_memory::{Manager, Order};

/// A handle for the block that contains `address`; `None` if it is none of ours, or belongs to a stream-ordered pool,
/// whose memory the driver does not share this way either.
pub(crate) fn issue(manager: &Manager<Device>, address: u64) -> Option<Result<CUipcMemHandle, CUresult>> {
    let block = manager.block(address).filter(|block| block.order == Order::Device)?;
    if !manager.gpu().is_exportable() {
        return Some(Err(CUresult::NOT_SUPPORTED));
    }
    let issued = server::start().map(|secret| Ticket::new(block.id, block.address, secret).encode());
    Some(issued.map_err(|problem| {
        log::warn!("sharing of memory between processes: {problem}");
        CUresult::OPERATING_SYSTEM
    }))
}
