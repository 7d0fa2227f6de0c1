//! The *door*: the TCP listener for ranks of other machines, from the process that makes a unique
//! id to the leader of that machine's ranks.
//!
//! The port stands in the id, so it is open before any rank has come, and connections wait in it.
//! The process that makes the id may be no rank at all. So it keeps the door, on a thread, until a
//! leader of the same network namespace asks for it under a Unix name that the key gives. The
//! leader is then the root of the ranks, and the thread ends.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::Shutdown;
use wm_sockets::descriptor::Descriptor;

use super::forked::closed_in_child;
use super::greeting::{Caller, talk};
use super::guests::Guests;
use super::key::{GREETING, Key};
use super::link::{RankLink, left};
use super::terms::Terms;
use super::wire::RankFrame;
use crate::error::Result;

const ROLE: &str = "door";
const CALL: &str = "door";
/// Doors that a process keeps at most: with one more, the oldest is closed.
const MOST: usize = 16;
/// Bytes of the thread's stack.
const STACK: usize = 256 << 10;

/// A door that waits for a leader.
#[derive(Debug)]
struct Door {
    /// Of the Unix name.
    asked_at: Descriptor,
    listener: Descriptor,
}

/// All of this process.
static KEPT: Mutex<VecDeque<Arc<Door>>> = Mutex::new(VecDeque::new());

/// Keeps a door until a leader takes it.
///
/// # Errors
/// The system's.
pub fn keep(key: Key, listener: OwnedFd) -> io::Result<()> {
    let asked_at = UnixListener::bind_addr(&key.name(ROLE, 0)?)?;
    asked_at.set_nonblocking(true)?;
    let door = Door { asked_at: closed_in_child(asked_at)?, listener: closed_in_child(listener)? };
    let door = Arc::new(door);
    enter(&door)?;
    let served = Arc::clone(&door);
    let thread = wm_driver::thread::spawn(c"wm-wholememory", STACK, move || {
        if let Err(error) = serve(key, &served) {
            log::debug!("wholememory: the door for other machines is closed: {error}");
        }
        forget(&served);
    });
    thread.inspect_err(|_| forget(&door))
}

/// Keeps a door, and closes the oldest one if there are too many.
fn enter(door: &Arc<Door>) -> io::Result<()> {
    let mut kept = lock().ok_or(ErrorKind::ResourceBusy)?;
    kept.push_back(Arc::clone(door));
    if kept.len() > MOST
        && let Some(oldest) = kept.pop_front()
        && let Ok(asked_at) = oldest.asked_at.get()
    {
        log::warn!(
            "wholememory: {MOST} unique ids wait for ranks of other machines; the oldest one no longer does"
        );
        // Its thread wakes up, and ends.
        rustix::net::shutdown(asked_at, Shutdown::Both)?;
    }
    Ok(())
}

fn forget(door: &Arc<Door>) {
    if let Some(mut kept) = lock() {
        kept.retain(|other| !Arc::ptr_eq(other, door));
    }
}

/// Other threads hold it for a moment; a child of a fork may find it held for ever.
fn lock() -> Option<MutexGuard<'static, VecDeque<Arc<Door>>>> {
    (0..100).find_map(|attempt| match KEPT.try_lock() {
        Ok(kept) => Some(kept),
        Err(TryLockError::Poisoned(kept)) => Some(kept.into_inner()),
        Err(TryLockError::WouldBlock) => {
            std::thread::sleep(Duration::from_micros(attempt * 10));
            None
        }
    })
}

/// Waits for a leader that has the key, and hands the door out.
fn serve(key: Key, door: &Door) -> Result<()> {
    // The number of ranks is not known here, and not compared.
    let (mut guests, own) = (Guests::default(), Terms::new(0));
    loop {
        let mut polled = vec![PollFd::from_borrowed_fd(door.asked_at.get()?, PollFlags::IN)];
        polled.extend(guests.polled());
        let timeout = guests.until().map(left);
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        drop(polled);
        guests.admit(door.asked_at.get()?, false)?;
        for guest in guests.known(key, own) {
            let handed = RankFrame::contribution(0, CALL, &[], &[door.listener.get()?])?;
            // If the leader has ended, another one may ask.
            if RankLink::to_peer(guest.socket, GREETING).and_then(|link| handed.send(&link)).is_ok() {
                return Ok(());
            }
        }
    }
}

/// The door, if the process that made the id keeps it in this network namespace.
pub(super) fn take(key: Key, rank: usize, own: Terms) -> Option<Descriptor> {
    let ask = || -> io::Result<RankFrame> {
        let socket = UnixStream::connect_addr(&key.name(ROLE, 0)?)?;
        if !wm_trust::peer::may_be_own(socket.as_fd()) {
            return Err(ErrorKind::PermissionDenied.into());
        }
        let mut caller = Caller::new(socket.into(), rank, own)?;
        talk(&mut caller, key, Instant::now() + GREETING)?;
        RankFrame::receive(&RankLink::to_peer(caller.into_socket(), GREETING)?)
    };
    let listener = ask().ok()?.into_part(0, CALL).ok()?.descriptors.pop()?;
    closed_in_child(listener).ok()
}
