//! The endpoint's socket: the path that the user named, or one by the process's number.

use std::path::Path;

use rustix::net::SocketType;

use crate::sockets::file::{Bound, is_alive, listen};

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
    listen(&path, SocketType::STREAM).map_err(|error| {
        format!("no socket at {}: {error}; set WMSHIM_STATS_DIR to a short path of yours", path.display())
    })
}
