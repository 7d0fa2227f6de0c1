//! Folders that sockets lie in, and whether the sockets there are to be trusted.
//!
//! The shim makes its folder for its user alone. In `/tmp` another user can make it first, so the
//! reader looks at it as the shim does: a folder and no link, of the right user, closed to other
//! writers. The reader keeps the folder that it has checked open and reaches sockets
//! through that handle: the length of the path is no limit, and a later folder of that name is not
//! used.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};

const OPEN: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// File systems that machines share: NFS, SMB (two numbers), Lustre, GPFS, BeeGFS, Ceph, FUSE, 9p.
const REMOTE: [u32; 9] = [
    0x6969,
    0xff53_4d42,
    0xfe53_4d42,
    0x0bd0_0bd0,
    0x4750_4653,
    0x1983_0326,
    0x00c3_6400,
    0x6573_5546,
    0x0102_1997,
];

/// A folder that has been looked at.
#[derive(Debug)]
pub(super) struct Folder {
    /// As people name it.
    pub(super) path: PathBuf,
    /// Its user: a socket in it must be this user's.
    pub(super) user: u32,
    handle: OwnedFd,
}

/// A plain file of such a folder, as it was when it was looked at.
#[derive(Debug, Clone)]
pub(crate) struct FolderFile {
    folder: Arc<Folder>,
    name: String,
    identity: (u64, u64),
}

/// Why a folder is not used.
#[derive(Debug)]
pub(super) enum Unusable {
    /// It is not there.
    Missing,
    /// A sentence with the remedy.
    Refused(String),
}

impl Folder {
    /// Opens a user's private folder. `root`: another process's root, in which the path counts;
    /// links do not leave it.
    pub(super) fn private(root: Option<&Path>, path: &Path, user: Option<u32>) -> Result<Self, Unusable> {
        let handle = open(root, path).map_err(|error| unusable(path, error))?;
        let status = rustix::fs::fstat(&handle).map_err(|error| unusable(path, error.into()))?;
        if let Some(why) = reason(&status, user) {
            return Err(Unusable::Refused(format!("{} {why}: not looked into", path.display())));
        }
        let shown =
            root.map_or_else(|| path.to_owned(), |root| root.join(path.strip_prefix("/").unwrap_or(path)));
        Ok(Self { path: shown, user: status.st_uid, handle })
    }

    /// Opens the folder of a socket that the user named: the user vouches for the folder, the
    /// kernel for the listener's user.
    pub(super) fn named(path: &Path, user: u32) -> io::Result<Self> {
        let handle = rustix::fs::open(path, OPEN, Mode::empty())?;
        Ok(Self { path: path.to_owned(), user, handle })
    }

    /// May processes of other machines see it?
    pub(super) fn is_remote(&self) -> bool {
        rustix::fs::fstatfs(&self.handle).is_ok_and(|status| REMOTE.contains(&(status.f_type as u32)))
    }

    /// Names of everything in it; nothing where it cannot be read.
    pub(super) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.inside("")).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// Where a file of the folder is, through the open folder.
    pub(super) fn inside(&self, name: &str) -> PathBuf {
        Path::new("/proc/self/fd").join(self.handle.as_raw_fd().to_string()).join(name)
    }

    /// Device and inode of a socket of the folder's user. `None`: there is none of that name.
    pub(super) fn socket(&self, name: &str) -> Option<(u64, u64)> {
        let status = rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let is_socket = FileType::from_raw_mode(status.st_mode) == FileType::Socket;
        (is_socket && status.st_uid == self.user).then_some((status.st_dev, status.st_ino))
    }

    /// Device and inode of a plain file of the folder's user.
    pub(super) fn file(&self, name: &str) -> Option<(u64, u64)> {
        let status = rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let is_file = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
        (is_file && status.st_uid == self.user).then_some((status.st_dev, status.st_ino))
    }

    /// Opens a plain file of the folder's user, to read it.
    pub(super) fn open(&self, name: &str) -> io::Result<fs::File> {
        wm_trust::file::open(&self.handle, name, self.user)
    }

    /// Removes a plain file that still is the one that was looked at.
    pub(super) fn remove_file(&self, name: &str, identity: (u64, u64)) -> io::Result<()> {
        if self.file(name) != Some(identity) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(rustix::fs::unlinkat(&self.handle, name, AtFlags::empty())?)
    }

    /// Removes a socket that still is the one that was looked at; never anything else.
    pub(super) fn remove(&self, name: &str, identity: (u64, u64)) -> io::Result<()> {
        if self.socket(name) != Some(identity) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(rustix::fs::unlinkat(&self.handle, name, AtFlags::empty())?)
    }
}

impl FolderFile {
    /// `None`: the folder has no plain file of its user with that name.
    pub(super) fn find(folder: &Arc<Folder>, name: &str) -> Option<Self> {
        let identity = folder.file(name)?;
        Some(Self { folder: Arc::clone(folder), name: name.to_owned(), identity })
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path.join(&self.name)
    }

    /// Opens the file, to read it.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn open(&self) -> io::Result<fs::File> {
        self.folder.open(&self.name)
    }

    /// Removes the file, if it still is the one that was looked at.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn remove(&self) -> io::Result<()> {
        self.folder.remove_file(&self.name, self.identity)
    }
}

/// The folder and the name of a file, of the link's target for a symbolic link. The folder's own
/// path stays as it is: `/proc/PID/root` leads into another file system as long as it is not
/// resolved to text.
pub(super) fn without_link(path: &Path) -> (PathBuf, String) {
    const LINKS: usize = 8;
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        let Ok(target) = fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("/")).join(target);
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    (parent.to_owned(), name)
}

fn open(root: Option<&Path>, path: &Path) -> io::Result<OwnedFd> {
    let flags = OPEN | OFlags::NOFOLLOW;
    let Some(root) = root else { return Ok(rustix::fs::open(path, flags, Mode::empty())?) };
    let root = rustix::fs::open(root, OPEN, Mode::empty())?;
    Ok(rustix::fs::openat2(&root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT)?)
}

fn unusable(path: &Path, error: io::Error) -> Unusable {
    let link =
        rustix::fs::lstat(path).is_ok_and(|it| FileType::from_raw_mode(it.st_mode) == FileType::Symlink);
    match error.kind() {
        io::ErrorKind::NotFound => Unusable::Missing,
        _ if link => Unusable::Refused(format!("{} is a symbolic link: not looked into", path.display())),
        io::ErrorKind::NotADirectory => Unusable::Refused(format!("{} is no folder", path.display())),
        _ => Unusable::Refused(format!("{} cannot be looked into: {error}", path.display())),
    }
}

/// Why a folder cannot be believed.
fn reason(status: &Stat, user: Option<u32>) -> Option<String> {
    if user.is_some_and(|user| user != status.st_uid) {
        return Some(format!("belongs to user {}", status.st_uid));
    }
    (status.st_mode & 0o022 != 0)
        .then(|| format!("can be written by others (mode {:o})", status.st_mode & 0o7777))
}
