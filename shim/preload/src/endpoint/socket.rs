//! The endpoint's socket: the path that the user named, or one by the process's number.

use std::io;
use std::path::Path;

use rustix::net::SocketType;

use wm_sockets::file::{Bound, is_alive, listen};

/// Binds the explicit path, unless a living process listens there; else `<pid>.sock` in the directory.
///
/// # Errors
/// A sentence for the log.
pub(super) fn bind(explicit: Option<&Path>, directory: &Path) -> Result<Bound, String> {
    let is_taken = |path: &Path| is_alive(path, SocketType::STREAM);
    let path = match explicit {
        Some(path) if !is_taken(path) => path.to_owned(),
        _ => directory.join(format!("{}.sock", std::process::id())),
    };
    if is_taken(&path) {
        return Err(format!("{} belongs to another process; set WMSHIM_STATS_DIR", path.display()));
    }
    listen(&path, SocketType::STREAM)
        .map_err(|error| format!("no socket at {}: {error}; {}", path.display(), remedy(&error)))
}

/// What helps depends on what failed: a path that is too long for an address, a call that is forbidden, a folder that is full.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        // A path that is no address has no number of the system's, or this one.
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
