//! The endpoint's socket: the path that the user named, or one by the process's number.

use std::io;
use std::path::{Path, PathBuf};

use rustix::net::SocketType;

use wm_sockets::file::{Bound, is_alive, listen};

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub(super) enum BindError {
    #[error("{} belongs to another process; set WMSHIM_STATS_DIR", .0.display())]
    Taken(PathBuf),
    #[error("no socket at {}: {error}; {}", .path.display(), remedy(.error))]
    Refused { path: PathBuf, error: io::Error },
}

/// Binds the explicit path, unless a living process listens there; else `<pid>.sock` in the
/// directory.
pub(super) fn bind(explicit: Option<&Path>, directory: &Path) -> Result<Bound, BindError> {
    let is_taken = |path: &Path| is_alive(path, SocketType::STREAM);
    let path = match explicit {
        Some(path) if !is_taken(path) => path.to_owned(),
        _ => directory.join(format!("{}.sock", std::process::id())),
    };
    if is_taken(&path) {
        return Err(BindError::Taken(path));
    }
    listen(&path, SocketType::STREAM).map_err(|error| BindError::Refused { path, error })
}

/// The remedy for a path that is too long for an address, a call that is forbidden, or a folder
/// that is full.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        // For a path that is no address the system has no number, or this one.
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => {
            "set WMSHIM_STATS_DIR to a short path of yours"
        }
        io::ErrorKind::PermissionDenied => {
            "this process may not make sockets there, by its folder or by a filter of system calls; set \
             WMSHIM_STATS_DIR to a folder of yours, or WMSHIM_STATS_SOCKET=off"
        }
        _ => "set WMSHIM_STATS_DIR to a folder of yours, or WMSHIM_STATS_SOCKET=off",
    }
}
