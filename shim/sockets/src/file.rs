//! Sockets that listen at a path.
//!
//! A socket is bound under a temporary name, starts to listen, and is then renamed. So a path of
//! ours either answers or belongs to a dead process, and the stale file of a dead process is
//! replaced in one atomic step. The temporary name is random and must be free: no existing file is
//! removed for it.

use std::ffi::CString;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicPtr, Ordering};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with};

use crate::descriptor::Descriptor;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// A listening socket and its file.
pub struct Bound {
    /// Accepts connections; does not block.
    pub listener: Descriptor,
    /// The file at the path.
    pub file: OwnFile,
}

/// A file that a process has made, such as that of a socket. It is known by path and inode, so that
/// another process's file is never removed, and by the process that made it, so that a forked child
/// does not remove its parent's.
#[derive(Debug)]
pub struct OwnFile {
    path: PathBuf,
    c_path: CString,
    device: u64,
    inode: u64,
    owner: u32,
}

impl OwnFile {
    /// The file that is at a path now.
    ///
    /// # Errors
    /// The system's.
    pub fn new(path: PathBuf) -> io::Result<Self> {
        let status = fs::symlink_metadata(&path)?;
        let c_path = CString::new(path.as_os_str().as_bytes())?;
        Ok(Self { path, c_path, device: status.dev(), inode: status.ino(), owner: std::process::id() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Is the file at the path still this one? Allocates nothing.
    pub fn is_in_place(&self) -> bool {
        let found = rustix::fs::lstat(self.c_path.as_c_str());
        found.is_ok_and(|status| (status.st_dev, status.st_ino) == (self.device, self.inode))
    }

    /// Unlinks the file if it still is this one. Allocates nothing and locks nothing, because
    /// exit handlers call it.
    pub fn remove(&self) {
        if std::process::id() == self.owner && self.is_in_place() {
            // A file that stays is harmless: a connection to a socket is refused, and a black box
            // says that its process has ended.
            let _ = rustix::fs::unlink(self.c_path.as_c_str());
        }
    }
}

/// A file that exit handlers can find. It is leaked, because a handler may read it at any
/// time.
pub struct Published(AtomicPtr<OwnFile>);

impl Published {
    /// No file.
    pub const fn none() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Makes a file known to [`withdraw`](Self::withdraw).
    pub fn publish(&self, file: OwnFile) {
        self.0.store(Box::into_raw(Box::new(file)), Ordering::Release);
    }

    /// Removes the file, if there is one. Allocates nothing and locks nothing.
    pub fn withdraw(&self) {
        let file = self.0.swap(std::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: null, or a `OwnFile` that `publish` leaked; never freed.
        if let Some(file) = unsafe { file.as_ref() } {
            file.remove();
        }
    }

    /// Forgets the file without removing it, in a forked child. Async-signal-safe.
    pub fn forget(&self) {
        self.0.store(std::ptr::null_mut(), Ordering::Relaxed);
    }
}

/// A Unix socket of this kind that does not block.
///
/// # Errors
/// The system's.
pub fn socket(kind: SocketType) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, kind, flags, None)?)
}

fn listening(address: &SocketAddrUnix, kind: SocketType, backlog: i32) -> io::Result<OwnedFd> {
    let listener = socket(kind)?;
    bind(&listener, address)?;
    rustix::net::listen(&listener, backlog)?;
    Ok(listener)
}

/// Listens at an abstract address, or at a path that no other process knows yet.
///
/// # Errors
/// The system's.
pub fn listen_at(address: &SocketAddrUnix, kind: SocketType) -> io::Result<Descriptor> {
    Descriptor::adopt(listening(address, kind, BACKLOG)?)
}

/// Listens at a path. A socket of a dead process there is replaced.
///
/// # Errors
/// The system's, and one if a file that is no socket is in the way.
pub fn listen(path: &Path, kind: SocketType) -> io::Result<Bound> {
    let (listener, file) = bind_path(path, kind, BACKLOG)?;
    match Descriptor::adopt(listener) {
        Ok(listener) => Ok(Bound { listener, file }),
        Err(error) => {
            file.remove();
            Err(error)
        }
    }
}

/// [`listen`] in a process that is ours: the descriptor keeps its number and stands in no table.
/// `backlog`: connections that may wait to be accepted.
///
/// # Errors
/// As those of [`listen`].
pub fn bind_path(path: &Path, kind: SocketType, backlog: i32) -> io::Result<(OwnedFd, OwnFile)> {
    let temporary = temporary(path)?;
    if is_file(path) {
        return Err(in_the_way(path));
    }
    // The final path must be an address too.
    SocketAddrUnix::new(path)?;
    let listener = listening(&SocketAddrUnix::new(&temporary)?, kind, backlog)?;
    let made = OwnFile::new(temporary)?;
    let named = fs::set_permissions(&made.path, Permissions::from_mode(0o600))
        .and_then(|()| fs::rename(&made.path, path))
        .and_then(|()| OwnFile::new(path.to_owned()));
    let file = named.inspect_err(|_| made.remove())?;
    Ok((listener, file))
}

/// A short name beside the path that no file has: `.` and 8 hexadecimal digits.
fn temporary(path: &Path) -> io::Result<PathBuf> {
    let mut random = [0; 4];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::NONBLOCK)?;
    let name = path.with_file_name(format!(".{:08x}", u32::from_ne_bytes(random)));
    match fs::symlink_metadata(&name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(name),
        _ => Err(in_the_way(&name)),
    }
}

/// Is there a file that is no socket?
fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|status| !status.file_type().is_socket())
}

fn in_the_way(path: &Path) -> io::Error {
    io::Error::other(format!("{}: a file that is no socket is in the way", path.display()))
}

/// Does a process listen at this path? A dead one's socket refuses. Never blocks: a full backlog
/// means that a process listens.
pub fn is_alive(path: &Path, kind: SocketType) -> bool {
    let Ok(address) = SocketAddrUnix::new(path) else { return false };
    let Ok(socket) = socket(kind) else { return false };
    !matches!(connect(&socket, &address), Err(Errno::CONNREFUSED | Errno::NOENT | Errno::NOTDIR))
}
