//! The exporting side: one thread that hands out the physical memory of blocks, started at the first handle issued.

use std::io::{Error, Result};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use once_cell::sync::OnceCell;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SocketFlags, accept_with, bind, listen};
use wm_abi::CUresult;
use wm_driver::thread;

use super::wire;
use crate::managers;

/// Stack of the thread, bytes: it exchanges short packets and looks blocks up.
const STACK: usize = 256 << 10;

/// Known once the thread runs. A start that failed (no descriptor left, say) is tried again at the next handle.
static SECRET: OnceCell<u64> = OnceCell::new();

/// Requests refused, for nothing but a debugger's eye and tests.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Starts the thread if it has not been; the secret that goes into handles.
pub(super) fn start() -> std::result::Result<u64, String> {
    SECRET.get_or_try_init(launch).copied().map_err(|error| error.to_string())
}

fn launch() -> Result<u64> {
    let secret = random()?;
    let listener = wire::socket()?;
    bind(&listener, &wire::address(std::process::id())?)?;
    listen(&listener, 64)?;
    thread::spawn(c"wmshim-ipc", STACK, move || serve(&listener, secret))?;
    Ok(secret)
}

fn random() -> Result<u64> {
    let mut bytes = [0u8; 8];
    // SAFETY: the kernel writes at most the length we name.
    let written = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if written == bytes.len() as isize { Ok(u64::from_le_bytes(bytes)) } else { Err(Error::last_os_error()) }
}

fn serve(listener: &OwnedFd, secret: u64) {
    loop {
        match accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(peer) => {
                if let Err(error) = answer(&peer, secret) {
                    REFUSED.fetch_add(1, Ordering::Relaxed);
                    log::debug!("a process that wanted to share memory was refused: {error}");
                }
            }
            // The listening socket's patience, or a peer that was gone before it was accepted.
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => {}
            Err(error) => {
                log::warn!("sharing of memory between processes has ended: {error}");
                return;
            }
        }
    }
}

/// One importer. Status 0 is followed by pieces, any other is the driver's error code for the importer's program.
fn answer(peer: &OwnedFd, secret: u64) -> Result<()> {
    wire::be_patient(peer)?;
    let own = rustix::process::getuid();
    if socket_peercred(peer)?.uid != own && !own.is_root() {
        return Err(Error::other("it belongs to another user"));
    }
    let [id, address, proof, _] = wire::receive_words(peer)?;
    match pieces(id, address).filter(|_| proof == secret) {
        Some(Ok(shared)) => {
            wire::send_words(peer, [0, shared.pieces.len() as u64, shared.offset, shared.bytes])?;
            wire::send_pieces(peer, &shared.pieces)
        }
        Some(Err(code)) => refuse(peer, code),
        None => refuse(peer, CUresult::INVALID_VALUE),
    }
}

fn refuse(peer: &OwnedFd, code: CUresult) -> Result<()> {
    wire::send_words(peer, [u64::from(code.0), 0, 0, 0])
}

/// A block as it is passed on.
struct Shared {
    offset: u64,
    bytes: u64,
    pieces: Vec<wire::Piece>,
}

/// The block's physical memory; `None` if that allocation is no more.
fn pieces(id: u64, address: u64) -> Option<std::result::Result<Shared, CUresult>> {
    let manager = managers::owner(address)?;
    let block = manager.block(address).filter(|block| block.id == id)?;
    let backing = manager.backing(address)?;
    let export = |(handle, bytes): &(wm_driver::Handle, usize)| Ok((manager.gpu().export(*handle)?, *bytes));
    let pieces: std::result::Result<Vec<_>, CUresult> = backing.handles.iter().map(export).collect();
    Some(pieces.map(|pieces| Shared { offset: backing.offset, bytes: block.bytes as u64, pieces }))
}
