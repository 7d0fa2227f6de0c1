//! Memory of other processes that is open here: its mappings, and how often each was opened.
//!
//! Opening one handle twice gives the same address, as the driver does. Closing waits for the device before the
//! mappings go, since nothing else would stop a kernel that still reads them. Opened memory is reached by the same devices as the
//! blocks of the device on which it was opened; access that is granted later is granted to what is open too.
//!
//! The lock covers the table only. Code that works on a mapping without the lock counts as one more opener meanwhile.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use wm_abi::{CUdevice, CUdeviceptr, CUresult};
use wm_driver::share::Import;
use wm_driver::{Device, Gpu};

use super::exchange::Exchange;
use super::handle::Ticket;
use super::wire::Failure;
use super::{names, server};
use crate::process::Site;

/// An allocation of another process, opened on one device.
type OpenKey = (Ticket, i32);

/// What is open.
static OPEN: Mutex<Option<HashMap<OpenKey, Opened>>> = Mutex::new(None);

/// Mappings that were closed during a capture, when the device could not be waited for.
static LEFT: Mutex<Vec<Opened>> = Mutex::new(Vec::new());

/// How often access has been granted: tells a mapping that was made meanwhile.
static GRANTS: AtomicU64 = AtomicU64::new(0);

struct Opened {
    import: Import,
    view: OpenedBlock,
    holders: usize,
}

/// An opened block, as queries see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenedBlock {
    pub(crate) address: CUdeviceptr,
    pub(crate) bytes: usize,
    pub(crate) device: &'static Device,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with_open<T>(body: impl FnOnce(&mut HashMap<OpenKey, Opened>) -> T) -> T {
    body(lock(&OPEN).get_or_insert_default())
}

/// The address here of another process's block.
///
/// # Errors
/// `INVALID_CONTEXT` in the exporting process itself, as the driver has it; `INVALID_HANDLE` if the exporter is gone,
/// `INVALID_VALUE` if it has freed the block; the driver's own otherwise.
pub(crate) fn open(ticket: Ticket, site: &Site) -> Result<CUdeviceptr, CUresult> {
    if server::is_own(&ticket.key) {
        return Err(CUresult::INVALID_CONTEXT);
    }
    let key = (ticket, site.manager.gpu().ordinal());
    if let Some(address) = with_open(|open| hold(open, &key)) {
        return Ok(address);
    }
    end_left();
    let granted = GRANTS.load(Ordering::SeqCst);
    let fresh = import(&ticket, site.manager.gpu()).map_err(|failure| explain(&ticket, failure))?;
    let address = insert(key, fresh);
    // Our caller has opened it and does not know the address yet, so it cannot be closed meanwhile.
    if GRANTS.load(Ordering::SeqCst) != granted
        && let Err(code) = allow(&key)
    {
        log::warn!("a device cannot reach memory of process {}: {code}", ticket.pid);
    }
    Ok(address)
}

/// Another thread may have opened the same meanwhile: then its mapping stays, and ours is given back outside the lock.
fn insert(key: OpenKey, fresh: Opened) -> CUdeviceptr {
    let (address, _surplus) = with_open(|open| match hold(open, &key) {
        Some(address) => (address, Some(fresh)),
        None => {
            let address = fresh.view.address;
            open.insert(key, fresh);
            (address, None)
        }
    });
    address
}

fn hold(open: &mut HashMap<OpenKey, Opened>, key: &OpenKey) -> Option<CUdeviceptr> {
    let opened = open.get_mut(key)?;
    opened.holders += 1;
    Some(opened.view.address)
}

/// Asks the exporter and maps what it sends. Each batch of descriptors is closed before the next is asked for.
fn import(ticket: &Ticket, device: &'static Device) -> Result<Opened, Failure> {
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
    let view = OpenedBlock { address: import.base() + offer.offset, bytes: offer.bytes, device };
    Ok(Opened { import, view, holders: 1 })
}

/// The program's code for a failure, and a line for what no code says.
fn explain(ticket: &Ticket, failure: Failure) -> CUresult {
    let error = match failure {
        Failure::Answer(code) => return code,
        Failure::Lost(error) => error,
    };
    let advice = match error.kind() {
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
    };
    log::warn!("memory of process {} cannot be opened: {advice}", ticket.pid);
    CUresult::INVALID_HANDLE
}

/// Lets an opened block go; `None` if the address is none of ours.
pub(crate) fn close(address: CUdeviceptr) -> Option<CUresult> {
    let is_it = |(_, opened): &(&OpenKey, &Opened)| opened.view.address == address;
    let key = with_open(|open| Some(*open.iter().find(is_it)?.0))?;
    end_left();
    release(&key)
}

/// One holder less; the last one ends the mapping. `None`: it is not open.
fn release(key: &OpenKey) -> Option<CUresult> {
    let last = with_open(|open| {
        let opened = open.get_mut(key)?;
        opened.holders -= 1;
        Some(if opened.holders == 0 { open.remove(key) } else { None })
    })?;
    Some(last.map_or(CUresult::SUCCESS, end))
}

/// Waits for the device, and unmaps.
fn end(opened: Opened) -> CUresult {
    match opened.view.device.synchronize() {
        // During a capture no thread may wait. The mapping stays until one can.
        Err(CUresult::STREAM_CAPTURE_UNSUPPORTED) => {
            lock(&LEFT).push(opened);
            CUresult::SUCCESS
        }
        drained => {
            drop(opened.import);
            drained.into()
        }
    }
}

/// Ends what was closed during a capture.
fn end_left() {
    let left = std::mem::take(&mut *lock(&LEFT));
    for opened in left {
        // Its program was told that it is closed.
        let _ = end(opened);
    }
}

/// The opened block that contains `address`.
pub(crate) fn view(address: u64) -> Option<OpenedBlock> {
    let contains = |view: &OpenedBlock| (view.address..view.address + view.bytes as u64).contains(&address);
    with_open(|open| open.values().map(|opened| opened.view).find(contains))
}

/// The device's contexts are gone, and with them what was opened there. Their work is over, so there is nothing to wait for.
pub(crate) fn end_device(device: CUdevice) {
    let is_there = |view: &OpenedBlock| view.device.ordinal() == device;
    let ended: Vec<Opened> = with_open(|open| {
        open.extract_if(|_, opened| is_there(&opened.view)).map(|(_, opened)| opened).collect()
    });
    let left: Vec<Opened> = lock(&LEFT).extract_if(.., |opened| is_there(&opened.view)).collect();
    drop((ended, left));
}

/// Another device may access this device's memory from now on: so it may what is opened there.
///
/// # Errors
/// The driver's first; the other blocks are tried all the same.
pub(crate) fn refresh_access(device: &Device) -> Result<(), CUresult> {
    GRANTS.fetch_add(1, Ordering::SeqCst);
    let held: Vec<OpenKey> = with_open(|open| {
        let there = open.iter_mut().filter(|((_, ordinal), _)| *ordinal == device.ordinal());
        there.map(|(key, opened)| (opened.holders += 1, *key).1).collect()
    });
    let outcomes = held.iter().map(|key| {
        let outcome = allow(key);
        release(key);
        outcome
    });
    outcomes.fold(Ok(()), Result::and)
}

/// Grants access anew to a mapping that the caller holds.
fn allow(key: &OpenKey) -> Result<(), CUresult> {
    let range = with_open(|open| {
        let opened = open.get(key)?;
        Some((opened.view.device, opened.import.base(), opened.import.bytes()))
    });
    range.map_or(Ok(()), |(device, base, bytes)| device.allow(base, bytes))
}
