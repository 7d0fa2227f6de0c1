//! Where a broker listens, and how there is one of it.
//!
//! A lock on a file decides who is the broker of a folder. The file stays: to remove it would let two processes hold locks on two files
//! of one name. The socket is bound under a name drawn at random, listens, and is then renamed, so that its path always answers or
//! belongs to a dead broker. A socket and a lock are known by their inodes, for anybody of the user may remove either.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

use crate::protocol::SOCKET;

/// File name of the lock.
const LOCK: &str = "dedup.lock";

/// Clients that may wait to be accepted.
const BACKLOG: i32 = 256;

/// For the process that has the lock to listen, or to end.
const CONTEST: Duration = Duration::from_secs(2);

/// Between looks at it: a lock and a socket have no common event.
const TURN: Duration = Duration::from_millis(10);

/// Device and inode of a file.
type FileIdentity = (u64, u64);

/// Who is the broker of a folder.
#[derive(Debug)]
pub enum Claimed {
    /// This process.
    Won(BrokerPlace),
    /// Another one, which listens.
    Taken,
}

/// What became of the place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceState {
    /// Clients find this broker.
    Listening,
    /// The socket's file is gone.
    Vanished,
    /// The lock's file is gone, or another's: so is the right to listen.
    Lost,
}

/// The right to be the broker of a folder.
#[derive(Debug)]
pub struct BrokerPlace {
    folder: PathBuf,
    lock: OwnedFd,
    socket: Option<FileIdentity>,
}

/// The folder where brokers of this user meet: created if it is missing, and checked either way.
///
/// One that the user has named is made in any folder, the others only in the user's own, or root's.
///
/// # Errors
/// What is wrong with it.
pub fn folder(path: &Path, user: u32, is_named: bool) -> io::Result<PathBuf> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !is_named => wm_trust::folder::make(path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => make_named(path)?,
        _ => {}
    }
    let status = fs::symlink_metadata(path)?;
    if !status.is_dir() || status.uid() != user || status.mode() & 0o022 != 0 {
        let why = "it must be a folder of this user that others cannot write";
        return Err(io::Error::other(format!("{}: {why}", path.display())));
    }
    std::path::absolute(path)
}

fn make_named(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Becomes the broker of a folder, or finds that there is one.
///
/// # Errors
/// The system's, and where another process holds the lock but does not listen.
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
        if is_alive(&folder.join(SOCKET)) {
            return Ok(Claimed::Taken);
        }
        if Instant::now() > end {
            return Err(io::Error::other("another broker holds the lock, and does not listen"));
        }
        std::thread::sleep(TURN);
    }
}

impl BrokerPlace {
    /// Listens, in place of a dead broker's socket if there is one.
    ///
    /// # Errors
    /// The system's, and where a file that is no socket is in the way.
    pub fn listen(&mut self) -> io::Result<OwnedFd> {
        let path = self.folder.join(SOCKET);
        if fs::symlink_metadata(&path).is_ok_and(|status| !status.file_type().is_socket()) {
            return Err(io::Error::other(format!(
                "{}: a file that is no socket is in the way",
                path.display()
            )));
        }
        // The final path must be an address too.
        SocketAddrUnix::new(&path)?;
        let temporary = self.folder.join(random_name()?);
        let listener = seqpacket()?;
        bind(&listener, &SocketAddrUnix::new(&temporary)?)?;
        let named = listen(&listener, BACKLOG)
            .map_err(io::Error::from)
            .and_then(|()| fs::set_permissions(&temporary, Permissions::from_mode(0o600)))
            .and_then(|()| fs::rename(&temporary, &path));
        if let Err(error) = named {
            let _ = fs::remove_file(&temporary);
            return Err(error);
        }
        self.socket = identity(&path);
        Ok(listener)
    }

    /// Looks whether clients still find this broker.
    pub fn standing(&self) -> PlaceState {
        if !holds(&self.folder, &self.lock) {
            PlaceState::Lost
        } else if self.socket.is_some() && identity(&self.folder.join(SOCKET)) == self.socket {
            PlaceState::Listening
        } else {
            PlaceState::Vanished
        }
    }

    /// Removes the socket's file, if it is this broker's.
    pub fn leave(&self) {
        if self.standing() == PlaceState::Listening {
            // Whoever finds the file that is left sees that nobody listens.
            let _ = fs::remove_file(self.folder.join(SOCKET));
        }
    }
}

/// Is the locked file still the one of that name?
fn holds(folder: &Path, lock: &OwnedFd) -> bool {
    let locked = rustix::fs::fstat(lock).map(|status| (status.st_dev, status.st_ino)).ok();
    locked.is_some() && locked == identity(&folder.join(LOCK))
}

fn identity(path: &Path) -> Option<FileIdentity> {
    fs::symlink_metadata(path).ok().map(|status| (status.dev(), status.ino()))
}

/// A short name that nobody has: `bind` refuses one that is there.
fn random_name() -> io::Result<String> {
    let mut random = [0; 4];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::NONBLOCK)?;
    Ok(format!(".{:08x}", u32::from_ne_bytes(random)))
}

fn seqpacket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Does a process listen there? Never waits: a full backlog is an answer too.
fn is_alive(path: &Path) -> bool {
    let Ok(address) = SocketAddrUnix::new(path) else { return false };
    let Ok(socket) = seqpacket() else { return false };
    matches!(connect(&socket, &address), Ok(()) | Err(Errno::AGAIN))
}
