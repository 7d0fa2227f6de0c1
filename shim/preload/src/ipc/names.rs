//! The addresses at which an exporting process listens.
//!
//! It has two addresses of one random name, which only a handle tells: a file in the user's private
//! folder, and an abstract name. Processes that share the folder meet at the file, in any network
//! namespace; processes of one network namespace meet at the abstract name, with any folder or
//! none. Other users see both names and can connect to the abstract one; the exporter refuses them
//! by their user, and because they cannot prove to know the key.
//!
//! The file is removed at exit. A file that a killed process left is removed by the next process
//! that exports: a socket without a listener refuses. Other machines may share the folder, and
//! their sockets refuse us too, so the name begins with this boot.

use std::fs::{self, DirEntry};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::net::{SocketAddrUnix, SocketType};

use super::handle::Ticket;
use super::key::ExporterKey;
use crate::settings;
use wm_sockets::descriptor::Descriptor;
use wm_sockets::file::{self, Published};
use wm_sockets::private_folder::{self, FolderError};

pub(super) const KIND: SocketType = SocketType::SEQPACKET;

/// Why a process listens at neither address.
#[derive(Debug, thiserror::Error)]
#[error("{path}; nor under an abstract name: {name}")]
pub(super) struct Unreachable {
    path: PathError,
    name: io::Error,
}

/// Why there is no socket in the folder.
#[derive(Debug, thiserror::Error)]
pub(super) enum PathError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("{}: {error}", .path.display())]
    Refused { path: PathBuf, error: io::Error },
}

/// Listens for processes that have a handle with this key, and publishes the socket's file.
pub(super) fn listen(key: &ExporterKey, published: &Published) -> Result<Vec<Descriptor>, Unreachable> {
    let by_name = abstract_address(key).and_then(|address| file::listen_at(&address, KIND));
    match (listen_in_folder(key, published), by_name) {
        (Err(path), Err(name)) => Err(Unreachable { path, name }),
        (path, name) => {
            path.as_ref().err().into_iter().for_each(|error| log::info!("sharing of memory: {error}"));
            name.as_ref().err().into_iter().for_each(|error| log::info!("sharing of memory: {error}"));
            Ok(path.into_iter().chain(name).collect())
        }
    }
}

fn listen_in_folder(key: &ExporterKey, published: &Published) -> Result<Descriptor, PathError> {
    let folder = private_folder::directory(settings::load().stats_dir.as_deref())?;
    sweep(&folder);
    let path = folder.join(file_name(key));
    match file::listen(&path, KIND) {
        Ok(bound) => {
            published.publish(bound.file);
            Ok(bound.listener)
        }
        Err(error) => Err(PathError::Refused { path, error }),
    }
}

/// Addresses at which the process that made the handle may listen, the folders first.
pub(super) fn addresses(ticket: &Ticket) -> Vec<SocketAddrUnix> {
    let paths = folders(ticket).into_iter().map(|folder| folder.join(file_name(&ticket.key)));
    let by_path = paths.filter_map(|path| SocketAddrUnix::new(path).ok());
    by_path.chain(abstract_address(&ticket.key)).collect()
}

/// The folders in which that process may listen.
fn folders(ticket: &Ticket) -> Vec<PathBuf> {
    private_folder::candidates(settings::load().stats_dir.as_deref(), ticket.user)
}

/// These folders as text.
pub(super) fn folders_in_words(ticket: &Ticket) -> String {
    let words: Vec<String> = folders(ticket).iter().map(|folder| folder.display().to_string()).collect();
    words.join(" or ")
}

fn abstract_address(key: &ExporterKey) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(format!("wmshim-ipc-{}", key.name()).as_bytes())?)
}

fn file_name(key: &ExporterKey) -> String {
    format!("{}-{}.ipc", boot(), key.name())
}

/// The beginning of this boot's id: other machines and earlier boots have another.
fn boot() -> String {
    let identity = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    identity.chars().take_while(char::is_ascii_hexdigit).collect()
}

/// Removes the sockets of killed processes.
fn sweep(folder: &Path) {
    let prefix = format!("{}-", boot());
    let is_ours = |entry: &DirEntry| {
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
        is_socket && name.starts_with(&prefix) && name.ends_with(".ipc")
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().filter(is_ours);
    for path in entries.map(|entry| entry.path()).filter(|path| !file::is_alive(path, KIND)) {
        // Another process may be sweeping too.
        let _ = fs::remove_file(path);
    }
}
