//! Where the socket lives, and whether that place can be trusted.
//!
//! The directory is `WMSHIM_STATS_DIR`, or `$XDG_RUNTIME_DIR/wmshim`, or `${TMPDIR:-/tmp}/wmshim-$UID`. One that the
//! user named is used or refused; of the others the first usable one is taken. We create it with mode 0700. One that
//! exists must be a directory, not a link, ours, and closed to other writers: in `/tmp` anybody can put something in
//! our way first.
//!
//! The socket is bound under a temporary name, starts to listen, and is then renamed. So a name that ends in `.sock`
//! always answers or belongs to a dead process, and replacing the stale file of a dead process is one atomic step.

use std::ffi::CString;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use super::descriptor::Descriptor;

/// A listening socket and its file.
pub(super) struct Bound {
    pub(super) listener: Descriptor,
    pub(super) file: SocketFile,
}

/// The file of a socket, known by path and inode so that nobody else's file is ever removed.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    c_path: CString,
    device: u64,
    inode: u64,
}

impl SocketFile {
    fn new(path: PathBuf) -> io::Result<Self> {
        let status = fs::symlink_metadata(&path)?;
        let c_path = CString::new(path.as_os_str().as_bytes())?;
        Ok(Self { path, c_path, device: status.dev(), inode: status.ino() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Unlinks the file if it still is this socket. Allocates nothing and locks nothing: exit handlers call it.
    pub(super) fn remove(&self) {
        // SAFETY: an all-zero `stat` is a valid value to overwrite.
        let mut status: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: a valid C string and a valid place for the answer.
        let found = unsafe { libc::lstat(self.c_path.as_ptr(), &raw mut status) } == 0;
        if found && (status.st_dev, status.st_ino) == (self.device, self.inode) {
            // SAFETY: a valid C string.
            unsafe { libc::unlink(self.c_path.as_ptr()) };
        }
    }
}

/// The directory to use, created if need be.
///
/// # Errors
/// A sentence for the log that names the directory and the remedy.
pub(super) fn directory(explicit: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(path) = explicit {
        return prepare(path).map(|()| path.to_owned()).map_err(|why| unusable(path, &why));
    }
    let mut problem = String::new();
    for path in candidates() {
        match prepare(&path) {
            Ok(()) => return Ok(path),
            Err(why) => problem = unusable(&path, &why),
        }
    }
    Err(problem)
}

/// Binds the explicit path, unless a living process listens there; else `<pid>.sock` in the directory.
///
/// # Errors
/// A sentence for the log.
pub(super) fn bind(explicit: Option<&Path>, directory: &Path) -> Result<Bound, String> {
    let path = match explicit {
        Some(path) if !is_alive(path) => path.to_owned(),
        _ => directory.join(format!("{}.sock", std::process::id())),
    };
    if is_alive(&path) {
        return Err(format!("{} belongs to another process; set WMSHIM_STATS_DIR", path.display()));
    }
    listen(&path).map_err(|error| {
        format!("no socket at {}: {error}; set WMSHIM_STATS_DIR to a short path of yours", path.display())
    })
}

fn candidates() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty());
    let temporary = std::env::var_os("TMPDIR").filter(|value| !value.is_empty());
    let temporary = temporary.map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    let shared = temporary.join(format!("wmshim-{}", user()));
    runtime.map(|path| PathBuf::from(path).join("wmshim")).into_iter().chain([shared]).collect()
}

fn unusable(path: &Path, why: &str) -> String {
    format!("no endpoint: {} {why}; set WMSHIM_STATS_DIR to a directory of yours", path.display())
}

/// Creates the directory if it is missing, and checks it either way.
fn prepare(path: &Path) -> Result<(), String> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(format!("cannot be created: {error}"))
        }
        _ => check(path),
    }
}

fn check(path: &Path) -> Result<(), String> {
    let status = fs::symlink_metadata(path).map_err(|error| format!("cannot be examined: {error}"))?;
    if status.is_symlink() {
        return Err("is a symbolic link".into());
    }
    if !status.is_dir() {
        return Err("is not a directory".into());
    }
    if status.uid() != user() {
        return Err(format!("belongs to user {}", status.uid()));
    }
    if status.mode() & 0o022 != 0 {
        return Err(format!("can be written by others (mode {:o})", status.mode() & 0o7777));
    }
    Ok(())
}

/// Does a process listen at this path? One that is dead refuses. Never waits: a full backlog is an answer too.
fn is_alive(path: &Path) -> bool {
    let Some((address, bytes)) = socket_address(path) else { return false };
    // SAFETY: makes a descriptor, or fails.
    let raw = unsafe {
        libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0)
    };
    if raw < 0 {
        return false;
    }
    // SAFETY: `socket` just returned it, and nobody else knows it.
    let socket = unsafe { OwnedFd::from_raw_fd(raw) };
    // SAFETY: a whole `sockaddr_un` of the given size.
    let outcome = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), bytes) };
    let refused = [Some(libc::ECONNREFUSED), Some(libc::ENOENT), Some(libc::ENOTDIR)];
    outcome == 0 || !refused.contains(&io::Error::last_os_error().raw_os_error())
}

/// The address of a path; `None` for one that is too long to be one.
fn socket_address(path: &Path) -> Option<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: an all-zero address is valid, and its path is then terminated wherever we stop.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let path = path.as_os_str().as_bytes();
    let room = address.sun_path.len() - 1;
    address.sun_path.iter_mut().zip(path).for_each(|(to, &from)| *to = from as libc::c_char);
    (path.len() <= room).then_some((address, size_of::<libc::sockaddr_un>() as libc::socklen_t))
}

fn listen(path: &Path) -> io::Result<Bound> {
    if fs::symlink_metadata(path).is_ok_and(|status| !status.file_type().is_socket()) {
        return Err(io::Error::other("a file that is no socket is in the way"));
    }
    let temporary = path.with_extension(std::process::id().to_string());
    let _ = fs::remove_file(&temporary);
    let bound = listen_at(&temporary, path);
    if bound.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    bound
}

fn listen_at(temporary: &Path, path: &Path) -> io::Result<Bound> {
    let listener = UnixListener::bind(temporary)?;
    listener.set_nonblocking(true)?;
    fs::set_permissions(temporary, Permissions::from_mode(0o600))?;
    fs::rename(temporary, path)?;
    let listener = Descriptor::adopt(OwnedFd::from(listener))?;
    Ok(Bound { listener, file: SocketFile::new(path.to_owned())? })
}

/// The effective user.
pub(super) fn user() -> u32 {
    // SAFETY: always succeeds.
    unsafe { libc::geteuid() }
}
