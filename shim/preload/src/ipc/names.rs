//! Where an exporting process listens.
//!
//! At two addresses of one random name, which only a handle tells: a file in the user's private folder, and an abstract
//! name. Processes that share the folder meet at the first, whatever their network namespaces; processes of one network namespace
//! meet at the second, whatever their folders, and where there is none. Strangers see both names and reach the second one;
//! what keeps them out is who they are, and that they cannot prove to know the key.
//!
//! The file goes at exit. One that a killed process left is removed by the next process that exports: a socket that nobody
//! listens at refuses. Other machines may share the folder, and their sockets refuse us too, so the name begins with this boot.

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
use wm_sockets::private_folder;

pub(super) const KIND: SocketType = SocketType::SEQPACKET;

/// This process's file, while there is one.
static FILE: Published = Published::none();

/// Listens for processes that have a handle with this key.
///
/// # Errors
/// A sentence for the log, where neither address can be had.
pub(super) fn listen(key: &ExporterKey) -> Result<Vec<Descriptor>, String> {
    let address = abstract_address(key).map_err(|error| error.to_string());
    let by_name =
        address.and_then(|address| file::listen_at(&address, KIND).map_err(|error| error.to_string()));
    let by_path = listen_in_folder(key);
    match (by_path, by_name) {
        (Err(path), Err(name)) => Err(format!("{path}; nor under an abstract name: {name}")),
        (path, name) => {
            let problems = [path.as_ref().err(), name.as_ref().err()];
            problems.into_iter().flatten().for_each(|problem| log::info!("sharing of memory: {problem}"));
            Ok(path.into_iter().chain(name).collect())
        }
    }
}

fn listen_in_folder(key: &ExporterKey) -> Result<Descriptor, String> {
    let folder = private_folder::directory(settings::load().stats_dir.as_deref())
        .map_err(|error| error.to_string())?;
    sweep(&folder);
    let path = folder.join(file_name(key));
    let bound = file::listen(&path, KIND).map_err(|error| format!("{}: {error}", path.display()))?;
    FILE.publish(bound.file);
    Ok(bound.listener)
}

/// Removes the file. Allocates nothing and locks nothing: exit handlers call it.
pub(super) fn withdraw() {
    FILE.withdraw();
}

/// In a forked child: the file is the parent's. Async-signal-safe.
pub(super) fn forget() {
    FILE.forget();
}

/// Where the process that made the handle may listen, the folders first.
pub(super) fn addresses(ticket: &Ticket) -> Vec<SocketAddrUnix> {
    let paths = folders(ticket).into_iter().map(|folder| folder.join(file_name(&ticket.key)));
    let by_path = paths.filter_map(|path| SocketAddrUnix::new(path).ok());
    by_path.chain(abstract_address(&ticket.key)).collect()
}

/// The folders in which that process may listen.
fn folders(ticket: &Ticket) -> Vec<PathBuf> {
    private_folder::candidates(settings::load().stats_dir.as_deref(), ticket.user)
}

/// The same, for people.
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

/// What tells this boot of this machine from others.
fn boot() -> String {
    let identity = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    identity.chars().take_while(char::is_ascii_hexdigit).collect()
}

/// Removes what killed processes left.
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
