//! The mapping of another process's block on a device of this one, and the answer to a failed
//! import.

use std::io::{Error, ErrorKind};
use std::ops::Range;

use wm_abi::{CUdeviceptr, CUresult};
use wm_driver::share::Import;
use wm_driver::{Device, Gpu};

use super::exchange::Exchange;
use super::handle::Ticket;
use super::names;
use super::opened::ForeignMapping;
use super::wire::Failure;

/// An opened block, as queries see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenedBlock {
    pub(crate) address: CUdeviceptr,
    pub(crate) bytes: usize,
    pub(crate) device: &'static Device,
}

/// Physical memory of another process, mapped here.
pub(super) struct ImportedBlock {
    import: Import,
    pub(super) block: OpenedBlock,
}

impl ImportedBlock {
    /// Asks the exporter and maps the pieces that it sends. Each batch of descriptors is closed
    /// before the next is asked for.
    pub(super) fn new(ticket: &Ticket, device: &'static Device) -> Result<Self, Failure> {
        let (mut exchange, offer) = Exchange::begin(ticket)?;
        let mut import = device.import(offer.span)?;
        let mut mapped = 0;
        while mapped < offer.pieces {
            let pieces = exchange.pieces(mapped)?;
            mapped += pieces.len() as u64;
            for (descriptor, bytes) in pieces {
                import.add(descriptor.get()?, bytes)?;
            }
        }
        import.allow()?;
        let block = OpenedBlock { address: import.base() + offer.offset, bytes: offer.bytes, device };
        Ok(Self { import, block })
    }
}

impl ForeignMapping for ImportedBlock {
    fn range(&self) -> Range<u64> {
        self.block.address..self.block.address + self.block.bytes as u64
    }

    fn allow(&self) -> Result<(), CUresult> {
        self.block.device.allow(self.import.base(), self.import.bytes())
    }

    fn synchronize(&self) -> Result<(), CUresult> {
        self.block.device.synchronize()
    }
}

/// The program's code for a failure. A lost exporter has no code that says more, so a line in the
/// log does.
pub(super) fn explain(ticket: &Ticket, failure: Failure) -> CUresult {
    match failure {
        Failure::Answer(code) => code,
        Failure::Lost(error) => {
            log::warn!("memory of process {} cannot be opened: {}", ticket.pid, advice(ticket, &error));
            CUresult::INVALID_HANDLE
        }
    }
}

fn advice(ticket: &Ticket, error: &Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => format!(
            "it has ended, or shares neither the folder {} nor the network namespace with this process: \
             set WMSHIM_STATS_DIR to a folder that both see",
            names::folders_in_words(ticket)
        ),
        ErrorKind::TimedOut => "it does not answer; is it stopped?".to_owned(),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => format!(
            "it has ended, or refuses: memory is shared with processes of the same user and of root, it runs as user {}",
            ticket.user
        ),
        _ => error.to_string(),
    }
}
