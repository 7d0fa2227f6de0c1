//! Sockets that listen at a path.
//!
//! A socket is bound under a temporary name, starts to listen, and is then renamed. So a path of ours always answers or
//! belongs to a dead process, and replacing the stale file of a dead process is one atomic step. The temporary name is drawn
//! at random and must be free: nothing is removed for it, whatever it is.

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

use super::descriptor::Descriptor;

/// Peers that may wait to be accepted.
const BACKLOG: i32 = 128;

/// A listening socket and its file.
pub(crate) struct Bound {
    pub(crate) listener: Descriptor,
    pub(crate) file: SocketFile,
}

/// The file of a socket, known by path and inode so that nobody else's file is ever removed, and by nobody else.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    c_path: CString,
    device: u64,
    inode: u64,
    owner: u32,
}

impl SocketFile {
    fn new(path: PathBuf) -> io::Result<Self> {
        let status = fs::symlink_metadata(&path)?;
        let c_path = CString::new(path.as_os_str().as_bytes())?;
        Ok(Self { path, c_path, device: status.dev(), inode: status.ino(), owner: std::process::id() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Unlinks the file if it still is this socket. Allocates nothing and locks nothing: exit handlers call it.
    pub(crate) fn remove(&self) {
        if std::process::id() != self.owner {
            return;
        }
        let found = rustix::fs::lstat(self.c_path.as_c_str());
        if found.is_ok_and(|status| (status.st_dev, status.st_ino) == (self.device, self.inode)) {
            // Whoever finds the file that is left sees that nobody listens.
            let _ = rustix::fs::unlink(self.c_path.as_c_str());
        }
    }
}

/// A socket's file that exit handlers can find. Leaked once a process: one of them may read it at any time.
pub(crate) struct Published(AtomicPtr<SocketFile>);

impl Published {
    pub(crate) const fn none() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    pub(crate) fn publish(&self, file: SocketFile) {
        self.0.store(Box::into_raw(Box::new(file)), Ordering::Release);
    }

    /// Removes the file, if there is one. Allocates nothing and locks nothing.
    pub(crate) fn withdraw(&self) {
        let file = self.0.swap(std::ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: null, or a `SocketFile` that `publish` leaked; never freed.
        if let Some(file) = unsafe { file.as_ref() } {
            file.remove();
        }
    }

    /// Leaves the file to whoever it belongs to. Async-signal-safe.
    pub(crate) fn forget(&self) {
        self.0.store(std::ptr::null_mut(), Ordering::Relaxed);
    }
}

/// A socket of this kind that does not block.
///
/// # Errors
/// The system's.
pub(crate) fn socket(kind: SocketType) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, kind, flags, None)?)
}

/// Listens at an address that is not a path's, or at a path that nobody else knows yet.
///
/// # Errors
/// The system's.
pub(crate) fn listen_at(address: &SocketAddrUnix, kind: SocketType) -> io::Result<Descriptor> {
    let listener = socket(kind)?;
    bind(&listener, address)?;
    rustix::net::listen(&listener, BACKLOG)?;
    Descriptor::adopt(listener)
}

/// Listens at a path, where the socket of a dead process may be.
///
/// # Errors
/// The system's, and one where a file that is no socket is in the way.
pub(crate) fn listen(path: &Path, kind: SocketType) -> io::Result<Bound> {
    let temporary = temporary(path)?;
    if is_file(path) {
        return Err(in_the_way(path));
    }
    // The final path must be an address too.
    SocketAddrUnix::new(path)?;
    let listener = listen_at(&SocketAddrUnix::new(&temporary)?, kind)?;
    let made = SocketFile::new(temporary)?;
    let named = fs::set_permissions(&made.path, Permissions::from_mode(0o600))
        .and_then(|()| fs::rename(&made.path, path))
        .and_then(|()| SocketFile::new(path.to_owned()));
    let file = named.inspect_err(|_| made.remove())?;
    Ok(Bound { listener, file })
}

/// A short name beside the path that nobody has, `.` and 8 digits.
fn temporary(path: &Path) -> io::Result<PathBuf> {
    let mut random = [0; 4];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::NONBLOCK)?;
    let name = path.with_file_name(format!(".{:08x}", u32::from_ne_bytes(random)));
    match fs::symlink_metadata(&name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(name),
        _ => Err(in_the_way(&name)),
    }
}

/// Is something there that is no socket?
fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|status| !status.file_type().is_socket())
}

fn in_the_way(path: &Path) -> io::Error {
    io::Error::other(format!("{}: a file that is no socket is in the way", path.display()))
}

/// Does a process listen at this path? One that is dead refuses. Never waits: a full backlog is an answer too.
pub(crate) fn is_alive(path: &Path, kind: SocketType) -> bool {
    let Ok(address) = SocketAddrUnix::new(path) else { return false };
    let Ok(socket) = socket(kind) else { return false };
    !matches!(connect(&socket, &address), Err(Errno::CONNREFUSED | Errno::NOENT | Errno::NOTDIR))
}
