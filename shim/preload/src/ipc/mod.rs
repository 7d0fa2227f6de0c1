//! Legacy IPC for our blocks: `cuIpcGetMemHandle`, `cuIpcOpenMemHandle`, `cuIpcCloseMemHandle`.
//!
//! The driver refuses these calls for mapped memory. So the 64 bytes of our handle name a block of
//! a process. The process that opens the handle asks that one, over a local socket, for the block's
//! physical memory as file descriptors, and maps it. The driver's own handles go to the driver.
//!
//! The same for pieces of `cuMemCreate`, where the library has made PyTorch use them: then a handle
//! names the pieces that follow each other from an address on.
//!
//! Invariants: a process is known by a random key in its handles, not by its number; only processes
//! of the same user and root's are served, and only those that prove to have a handle; memory is
//! taken only from a process that proves to have made the handle; a handle names one allocation, so
//! a handle whose block was freed is refused instead of naming the block that lies there now; a
//! dead, stopped or unreachable exporter is a clear error, never a hang; a forked child has nothing
//! of this.
//!
//! Parts: [`handle`] is the 64 bytes, [`key`] the proofs, [`names`] the exporter's addresses,
//! [`wire`] the packets; [`server`] and [`peer`] export, [`exchange`] and [`import`] import,
//! [`opened`] counts the holders of each mapping.

mod exchange;
mod handle;
mod import;
mod key;
mod names;
mod opened;
mod peer;
mod server;
mod wire;

pub(crate) use handle::Ticket;
pub(crate) use import::OpenedBlock;

use wm_abi::{CUdevice, CUdeviceptr, CUipcMemHandle, CUresult};
use wm_driver::Device;
use wm_memory::{Manager, Order};

use crate::physical::PieceRun;
use crate::process::Site;
use import::ImportedBlock;
use opened::OpenedBlocks;
use server::Exporter;

/// The memory that this process shares with others: its handles, and the blocks of other processes
/// that are open here.
pub(crate) struct SharedMemory {
    exporter: Exporter,
    opened: OpenedBlocks<ImportedBlock>,
}

impl SharedMemory {
    pub(crate) const fn new() -> Self {
        Self { exporter: Exporter::new(), opened: OpenedBlocks::new() }
    }

    /// A handle for the block that contains `address`; `None` if the block is none of ours, or
    /// belongs to a stream-ordered pool, whose memory the driver does not share this way either.
    pub(crate) fn issue(
        &'static self,
        manager: &Manager<Device>,
        address: u64,
    ) -> Option<Result<CUipcMemHandle, CUresult>> {
        let block = manager.block(address).filter(|block| block.order == Order::Device)?;
        if !manager.gpu().is_exportable() {
            return Some(Err(CUresult::NOT_SUPPORTED));
        }
        Some(self.name(block.id, block.address, 0))
    }

    /// A handle for pieces that the program made itself.
    pub(crate) fn issue_pieces(&'static self, run: &PieceRun) -> Result<CUipcMemHandle, CUresult> {
        let number = run.pieces.first().map_or(0, |(number, _)| *number);
        self.name(number, run.base, run.bytes())
    }

    fn name(&'static self, id: u64, address: u64, bytes: u64) -> Result<CUipcMemHandle, CUresult> {
        let issued = self.exporter.start().map(|key| Ticket::new(id, address, bytes, key).encode());
        issued.map_err(|problem| {
            log::warn!("sharing of memory between processes: {problem}");
            CUresult::OPERATING_SYSTEM
        })
    }

    /// The address here of another process's block.
    ///
    /// # Errors
    /// `INVALID_CONTEXT` in the exporting process itself, as the driver has it; `INVALID_HANDLE` if
    /// the exporter is gone, `INVALID_VALUE` if it has freed the block; the driver's own otherwise.
    pub(crate) fn open(&self, ticket: Ticket, site: &Site) -> Result<CUdeviceptr, CUresult> {
        if self.exporter.is_own(&ticket.key) {
            return Err(CUresult::INVALID_CONTEXT);
        }
        let gpu = site.manager.gpu();
        let opened = self.opened.open((ticket, gpu.ordinal()), || ImportedBlock::new(&ticket, gpu));
        opened.map_err(|failure| import::explain(&ticket, failure))
    }

    /// Closes an opened block once; `None` if the address is none of ours.
    pub(crate) fn close(&self, address: CUdeviceptr) -> Option<CUresult> {
        self.opened.close(address)
    }

    /// The opened block that contains `address`.
    pub(crate) fn view(&self, address: u64) -> Option<OpenedBlock> {
        self.opened.find(address, |mapping| mapping.block)
    }

    /// The device's contexts are gone, and the blocks that were opened there with them.
    pub(crate) fn end_device(&self, device: CUdevice) {
        self.opened.end_device(device);
    }

    /// Another device may access this device's memory from now on, so it may access the blocks that
    /// are open there.
    ///
    /// # Errors
    /// The driver's first; the other blocks are tried all the same.
    pub(crate) fn refresh_access(&self, device: CUdevice) -> Result<(), CUresult> {
        self.opened.refresh_access(device)
    }

    /// Removes the socket's file at exit. Takes no lock.
    pub(crate) fn stop(&self) {
        self.exporter.stop();
    }

    /// Forgets the socket's file in a forked child, which has closed the socket already.
    /// Async-signal-safe.
    pub(crate) fn forked(&self) {
        self.exporter.forked();
    }
}
