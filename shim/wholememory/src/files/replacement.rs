//! A file that replaces another one when it is complete.
//!
//! The bytes go to a file without a name, in the same folder, so a process that is killed leaves
//! nothing. When all of them are on the disk, the file gets a temporary name and is renamed: at
//! each time the path leads to the old bytes or to the new ones. Where the file system has no files
//! without a name, the temporary name is there from the beginning.
//!
//! Some files are written in place, since a rename would destroy or lack something: a path that
//! leads to something else than a file, such as a device; a link that leads to no file; a file in a
//! folder where this user may not make another one; a file that is a mount; a file with several
//! names, or with an owner, a group or a list of access that a new file would not have.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid, fchown, fgetxattr_query, linkat};
use rustix::io::Errno;
use siphasher::sip::SipHasher13;

use crate::files::place::close;

/// The open files of this process, by number.
const OPEN: &str = "/proc/self/fd";

/// The state of the bytes that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Unnamed,
    Temporary,
    InPlace,
}

/// The new file.
#[derive(Debug)]
pub(super) struct Replacement {
    /// Empty when the old file is replaced.
    file: Option<File>,
    form: Form,
    /// Where it goes, with links followed. This and the next one are empty for a file in place.
    target: PathBuf,
    temporary: PathBuf,
}

impl Replacement {
    /// # Errors
    /// Those of a program that opens the file for writing, and those of a new file in its folder.
    pub(super) fn begin(path: &Path) -> Result<Self> {
        // A file that may not be written is not replaced.
        match OpenOptions::new().write(true).open(path) {
            Ok(old) => Self::begin_over(path, old),
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            // A link to a file that is not there: the link stays, and the file is made.
            Err(_) if fs::symlink_metadata(path).is_ok() => Ok(Self::in_place(File::create(path)?)),
            Err(_) => Self::begin_new(path.to_owned(), Mode::from_raw_mode(0o666)),
        }
    }

    fn begin_over(path: &Path, old: File) -> Result<Self> {
        let standing = old.metadata()?;
        if !standing.is_file() {
            return Ok(Self::in_place(old));
        }
        if standing.nlink() == 1 {
            // A link stays, and the file that it names is replaced.
            match Self::begin_new(fs::canonicalize(path)?, Mode::RUSR | Mode::WUSR) {
                Ok(new) if takes_the_place(new.file()?, &old).is_ok_and(|takes| takes) => return Ok(new),
                Err(error) if !is_no_folder_of_ours(&error) => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        old.set_len(0)?;
        Ok(Self::in_place(old))
    }

    fn in_place(file: File) -> Self {
        let (target, temporary) = (PathBuf::new(), PathBuf::new());
        Self { file: Some(file), form: Form::InPlace, target, temporary }
    }

    /// A new file, which gets the name of `target` at the end.
    fn begin_new(target: PathBuf, mode: Mode) -> Result<Self> {
        let name = target.file_name().ok_or(ErrorKind::IsADirectory)?.as_bytes();
        if !target.as_os_str().as_bytes().ends_with(name) {
            // `rows/` and `rows/.` name folders.
            return Err(ErrorKind::IsADirectory.into());
        }
        // Of one length, so that it fits where the name fits, and the same in each process.
        let temporary = format!(".wmshim-store-{:016x}", SipHasher13::new().hash(name));
        let temporary = folder_of(&target).join(temporary);
        let (file, form) = create(folder_of(&target), &temporary, mode)?;
        Ok(Self { file: Some(file), form, target, temporary })
    }

    /// The file to write.
    pub(super) fn file(&self) -> Result<&File> {
        self.file.as_ref().ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// Puts all bytes on the disk, from any thread. A device may have no disk.
    pub(super) fn settling(&self) -> Result<impl FnOnce() -> Result<()> + Send + 'static> {
        let file = self.file()?.try_clone()?;
        let is_file = file.metadata()?.is_file();
        Ok(move || {
            let settled = file.sync_all();
            settled.or_else(|error| if lacks_a_disk(is_file, &error) { Ok(()) } else { Err(error) })
        })
    }

    /// By this another rank finds the temporary file, if this process is killed while the file gets
    /// its name.
    pub(super) fn trace(&self) -> Result<Vec<u8>> {
        if self.form == Form::InPlace {
            return Ok(Vec::new());
        }
        let (file, path) = (self.file()?.metadata()?, std::path::absolute(&self.temporary)?);
        let [device, number] = [file.dev(), file.ino()].map(u64::to_le_bytes);
        Ok([&device, &number, path.as_os_str().as_bytes()].concat())
    }

    /// Gives the file its name.
    pub(super) fn finish(mut self) -> Result<()> {
        let Some(file) = self.file.take() else { return Ok(()) };
        if self.form == Form::InPlace {
            return close(file);
        }
        if self.form == Form::Unnamed {
            self.link(&file)?;
            self.form = Form::Temporary;
        }
        // A failed write that only this tells leaves the old file.
        close(file)?;
        fs::rename(&self.temporary, &self.target)?;
        self.form = Form::InPlace;
        // The name itself.
        let _not_on_all_file_systems =
            File::open(folder_of(&self.target)).and_then(|folder| folder.sync_all());
        Ok(())
    }

    fn link(&self, file: &File) -> Result<()> {
        let open = format!("{OPEN}/{}", file.as_raw_fd());
        let link = || linkat(CWD, &open, CWD, &self.temporary, AtFlags::SYMLINK_FOLLOW);
        match link() {
            // Left by a process that was killed between the two steps.
            Err(Errno::EXIST) => {
                fs::remove_file(&self.temporary)?;
                Ok(link()?)
            }
            outcome => Ok(outcome?),
        }
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if self.form == Form::Temporary {
            let _absent = fs::remove_file(&self.temporary);
        }
    }
}

/// Removes the temporary file of a rank that was killed, and no other file of that name.
pub(super) fn remove(trace: &[u8]) {
    let Some((numbers, path)) = trace.split_first_chunk::<16>() else { return };
    let (numbers, _) = numbers.as_chunks::<8>();
    let [device, number] = [0, 1].map(|at| u64::from_le_bytes(numbers[at]));
    let path = Path::new(OsStr::from_bytes(path));
    if fs::symlink_metadata(path).is_ok_and(|file| (file.dev(), file.ino()) == (device, number)) {
        let _absent = fs::remove_file(path);
    }
}

fn folder_of(target: &Path) -> &Path {
    target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn create(folder: &Path, temporary: &Path, mode: Mode) -> Result<(File, Form)> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    // An unnamed file gets its name by a path in `/proc`.
    let unnamed = fs::exists(OPEN).is_ok_and(|exists| exists).then(|| rustix::fs::open(folder, flags, mode));
    match unnamed {
        Some(Ok(file)) => return Ok((file.into(), Form::Unnamed)),
        None | Some(Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS)) => {}
        Some(Err(error)) => return Err(error.into()),
    }
    let _absent = fs::remove_file(temporary);
    let file =
        OpenOptions::new().read(true).write(true).create_new(true).mode(mode.bits()).open(temporary)?;
    Ok((file, Form::Temporary))
}

/// Can the new file replace the old one, so that it has the same owner, group and permissions?
/// Gives them to it.
fn takes_the_place(new: &File, old: &File) -> Result<bool> {
    let (of_new, of_old) = (new.metadata()?, old.metadata()?);
    if mount(new) != mount(old) || has_access_list(new) || has_access_list(old) {
        return Ok(false);
    }
    if (of_new.uid(), of_new.gid()) != (of_old.uid(), of_old.gid()) {
        fchown(new, Some(Uid::from_raw(of_old.uid())), Some(Gid::from_raw(of_old.gid())))?;
    }
    // The owner first: with another one the system changes permissions.
    new.set_permissions(fs::Permissions::from_mode(of_old.mode() & 0o777))?;
    Ok(true)
}

/// Does it grant rights by more than its permissions?
fn has_access_list(file: &File) -> bool {
    fgetxattr_query(file, "system.posix_acl_access").is_ok()
}

/// The number of the mount that an open file is reached by, as the kernel writes it. A file that is
/// a mount itself, as in containers, has another one than its folder, and cannot be replaced.
fn mount(file: &File) -> Option<String> {
    let state = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    state.lines().find(|line| line.starts_with("mnt_id:")).map(str::to_owned)
}

fn is_no_folder_of_ours(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

/// Is this the answer of a device, or a pipe, whose bytes go to no disk?
fn lacks_a_disk(is_file: bool, error: &Error) -> bool {
    let answers = [Errno::INVAL, Errno::NOTSUP, Errno::ROFS];
    !is_file && answers.into_iter().any(|answer| error.raw_os_error() == Some(answer.raw_os_error()))
}

#[cfg(test)]
mod tests;
