//! Legacy IPC for our blocks: `cuIpcGetMemHandle`, `cuIpcOpenMemHandle`, `cuIpcCloseMemHandle`.
//!
//! The driver refuses these calls for mapped memory. So the 64 bytes of our handle name a block of a process. The process that opens
//! the handle asks that one, over a local socket, for the block's physical memory as file descriptors, and maps it. Handles that are
//! not ours go to the driver.
//!
//! Invariants: a process is known by a random key in its handles, not by its number; only processes of the same user and root's
//! are served, and only those that prove to have a handle; memory is taken only from who proves to have made it; a handle says
//! which allocation it means, so that one whose block was freed is refused instead of naming what lives there now; a dead,
//! stopped or unreachable exporter is a clear error, never a hang; a forked child has nothing of this.
//!
//! Parts: [`handle`] is the 64 bytes, [`key`] what is proved, [`names`] where an exporter listens, [`wire`] what is said;
//! [`server`] and [`peer`] export, [`exchange`] and [`opened`] import.

mod exchange;
mod handle;
mod key;
mod names;
mod opened;
mod peer;
mod server;
mod wire;

pub(crate) use handle::Ticket;
pub(crate) use opened::{OpenedBlock, close, end_device, open, refresh_access, view};

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
    let issued = server::start().map(|key| Ticket::new(block.id, block.address, key).encode());
    Some(issued.map_err(|problem| {
        log::warn!("sharing of memory between processes: {problem}");
        CUresult::OPERATING_SYSTEM
    }))
}

/// Removes the socket's file at exit. Takes no lock.
pub(crate) fn stop() {
    names::withdraw();
}

/// Forgets the socket's file in a forked child, which has closed the socket already. Async-signal-safe.
pub(crate) fn forked() {
    names::forget();
}
