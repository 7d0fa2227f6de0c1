//! The folder in which a broker listens, and the lock that makes it the only one there.
//!
//! The broker of a folder is the process that holds the lock on a file. The file is never removed:
//! two processes could then hold locks on two files of one name. The lock and the socket are
//! compared by their inodes, because any process of the user may remove either.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use rustix::net::SocketType;
use wm_sockets::file::{OwnFile, bind_path, is_alive};

use crate::protocol::SOCKET;

/// File name of the lock.
const LOCK: &str = "dedup.lock";

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 256;

/// Time for the process that holds the lock to listen, or to end.
const CONTEST: Duration = Duration::from_secs(2);

/// Interval between two looks at it, because a lock and a socket have no common event.
const RETRY: Duration = Duration::from_millis(10);

/// The outcome of [`claim`].
#[derive(Debug)]
pub enum Claimed {
    /// This process is the broker of the folder.
    Won(BrokerPlace),
    /// Another process is, and it listens.
    Taken,
}

/// Whether clients find the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceState {
    /// They do.
    Listening,
    /// The socket's file was removed.
    Vanished,
    /// The lock's file was removed or replaced: another process may be the broker.
    Lost,
}

/// The right to be the broker of a folder.
#[derive(Debug)]
pub struct BrokerPlace {
    folder: PathBuf,
    lock: OwnedFd,
    socket: Option<OwnFile>,
}

/// Becomes the broker of a folder, or finds that there is one.
///
/// # Errors
/// The system's, and one if another process holds the lock but does not listen.
pub fn claim(folder: &Path) -> io::Result<Claimed> {
    let end = Instant::now() + CONTEST;
    loop {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let lock = rustix::fs::open(folder.join(LOCK), flags, Mode::RUSR | Mode::WUSR)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if holds(folder, &lock) => {
                let folder = folder.to_owned();
                return Ok(Claimed::Won(BrokerPlace { folder, lock, socket: None }));
            }
            Ok(()) | Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if is_alive(&folder.join(SOCKET), SocketType::SEQPACKET) {
            return Ok(Claimed::Taken);
        }
        if Instant::now() > end {
            return Err(io::Error::other("another broker holds the lock, and does not listen"));
        }
        std::thread::sleep(RETRY);
    }
}

impl BrokerPlace {
    /// Listens. The socket of a dead broker is replaced.
    ///
    /// # Errors
    /// The system's, and one if a file that is no socket is in the way.
    pub fn listen(&mut self) -> io::Result<OwnedFd> {
        let (listener, file) = bind_path(&self.folder.join(SOCKET), SocketType::SEQPACKET, BACKLOG)?;
        self.socket = Some(file);
        Ok(listener)
    }

    /// Whether clients still find this broker.
    pub fn state(&self) -> PlaceState {
        if !holds(&self.folder, &self.lock) {
            PlaceState::Lost
        } else if self.socket.as_ref().is_some_and(OwnFile::is_in_place) {
            PlaceState::Listening
        } else {
            PlaceState::Vanished
        }
    }

    /// Removes the socket's file, if it is this broker's.
    pub fn leave(&self) {
        if let (PlaceState::Listening, Some(socket)) = (self.state(), &self.socket) {
            socket.remove();
        }
    }
}

/// Does the folder still have the locked file?
fn holds(folder: &Path, lock: &OwnedFd) -> bool {
    let named = fs::symlink_metadata(folder.join(LOCK)).map(|status| (status.dev(), status.ino()));
    let locked = rustix::fs::fstat(lock).map(|status| (status.st_dev, status.st_ino));
    locked.is_ok_and(|locked| named.is_ok_and(|named| named == locked))
}
