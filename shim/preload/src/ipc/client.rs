//! The importing side: asks the exporter, maps what it sends, and counts who holds it.
//!
//! Opening one handle twice gives the same address, as the driver does. Closing waits for the device before the
//! mappings go, since nothing else would stop a kernel that still reads them.

use std::collections::HashMap;
use std::io::{Error, Result};
use std::sync::{Mutex, PoisonError};

use rustix::net::connect;
use wm_abi::{CUdeviceptr, CUresult};
use wm_driver::Device;
use wm_driver::share::Import;

use super::handle::Ticket;
use super::wire;
use crate::managers::Site;

/// What is open: by ticket and device.
static OPEN: Mutex<Option<HashMap<(Ticket, i32), Opened>>> = Mutex::new(None);

struct Opened {
    device: &'static Device,
    import: Import,
    view: View,
    holders: usize,
}

/// An opened block, as queries see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    pub(crate) address: CUdeviceptr,
    pub(crate) bytes: usize,
    pub(crate) device: &'static Device,
}

fn with_open<T>(body: impl FnOnce(&mut HashMap<(Ticket, i32), Opened>) -> T) -> T {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    body(open.get_or_insert_default())
}

/// The address here of another process's block.
///
/// # Errors
/// `INVALID_CONTEXT` in the exporting process itself, as the driver has it; `INVALID_HANDLE` if the exporter is gone,
/// `INVALID_VALUE` if it has freed the block; the driver's own otherwise.
pub(crate) fn open(ticket: Ticket, site: &Site) -> std::result::Result<CUdeviceptr, CUresult> {
    if ticket.pid == std::process::id() {
        return Err(CUresult::INVALID_CONTEXT);
    }
    let device = site.manager.gpu();
    let key = (ticket, device.ordinal());
    if let Some(address) = with_open(|open| hold(open, &key)) {
        return Ok(address);
    }
    let (offset, bytes, pieces) = ask(&ticket).map_err(|error| {
        log::warn!(
            "memory of process {} cannot be opened: {error}; does that process still run?",
            ticket.pid
        );
        CUresult::INVALID_HANDLE
    })??;
    let import = device.import(&pieces)?;
    let address = import.base() + offset;
    let fresh = Opened { device, import, view: View { address, bytes, device }, holders: 1 };
    // Another thread may have opened it meanwhile: then its mapping stays, and ours is given back outside the lock.
    let (address, _surplus) = with_open(|open| match hold(open, &key) {
        Some(address) => (address, Some(fresh)),
        None => {
            open.insert(key, fresh);
            (address, None)
        }
    });
    Ok(address)
}

fn hold(open: &mut HashMap<(Ticket, i32), Opened>, key: &(Ticket, i32)) -> Option<CUdeviceptr> {
    let opened = open.get_mut(key)?;
    opened.holders += 1;
    Some(opened.view.address)
}

/// The block's offset in its pieces, its size and the pieces, or the error code that the exporter answers.
type Reply = std::result::Result<(u64, usize, Vec<wire::Piece>), CUresult>;

fn ask(ticket: &Ticket) -> Result<Reply> {
    let socket = wire::socket()?;
    connect(&socket, &wire::address(ticket.pid)?)?;
    wire::send_words(&socket, [ticket.id, ticket.address, ticket.secret, 0])?;
    let [status, count, offset, bytes] = wire::receive_words(&socket)?;
    if status != 0 {
        return Ok(Err(CUresult(u32::try_from(status).map_err(Error::other)?)));
    }
    Ok(Ok((offset, bytes as usize, wire::receive_pieces(&socket, count)?)))
}

/// Lets an opened block go; `None` if the address is none of ours.
pub(crate) fn close(address: CUdeviceptr) -> Option<CUresult> {
    let last = with_open(|open| {
        let key = *open.iter().find(|(_, opened)| opened.view.address == address)?.0;
        let opened = open.get_mut(&key)?;
        opened.holders -= 1;
        Some(if opened.holders == 0 { open.remove(&key) } else { None })
    })?;
    Some(last.map_or(CUresult::SUCCESS, |opened| {
        let drained = opened.device.synchronize().into();
        drop(opened.import);
        drained
    }))
}

/// The opened block that contains `address`.
pub(crate) fn view(address: u64) -> Option<View> {
    let contains = |view: &View| (view.address..view.address + view.bytes as u64).contains(&address);
    with_open(|open| open.values().map(|opened| opened.view).find(contains))
}
