//! Files that one process writes and another reads.
//!
//! The reader opens no link, no device and no pipe that would wait, and believes the owner that the
//! kernel names. It reads and does not map: a file that is cut short meanwhile ends the reading,
//! and no signal comes.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::{Mode, OFlags};

/// Opens a plain file of a folder that belongs to a user and that no other user can write.
///
/// # Errors
/// The system's, and one for another kind of file or another owner.
pub fn open(folder: impl AsFd, name: &str, user: u32) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(folder, name, flags, Mode::empty())?);
    let status = file.metadata()?;
    if status.is_file() && status.uid() == user && status.mode() & 0o022 == 0 {
        return Ok(file);
    }
    Err(io::Error::new(ErrorKind::PermissionDenied, "not a plain file of its user's alone"))
}

/// The first bytes of a file: fewer than `most` where it is shorter.
///
/// # Errors
/// The system's.
pub fn beginning(file: &File, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; most];
    let mut length = 0;
    while length < most {
        match file.read_at(&mut bytes[length..], length as u64) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(length);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    //! Hazard (privilege boundary): another user's file is read as this user's. Hazard: a reader
    //! hangs on a pipe.
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    use super::*;
    use crate::user;

    fn folder(name: &str) -> (PathBuf, File) {
        let path = std::env::temp_dir().join(format!("wm-trust-file-{name}-{}", std::process::id()));
        let _left_by_an_earlier_run = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("a folder");
        (path.clone(), File::open(path).expect("opened"))
    }

    #[test]
    fn a_plain_file_of_the_user_is_read_as_far_as_it_goes() {
        let (path, handle) = folder("plain");
        fs::write(path.join("a"), "12345").expect("written");
        let file = open(&handle, "a", user::effective()).expect("its own");
        assert_eq!(beginning(&file, 3).expect("read"), b"123");
        assert_eq!(beginning(&file, 9).expect("read"), b"12345");
        assert!(open(&handle, "a", user::effective() ^ 1).is_err(), "another user's");
        fs::set_permissions(path.join("a"), fs::Permissions::from_mode(0o602)).expect("its own");
        assert!(open(&handle, "a", user::effective()).is_err(), "others write it");
        fs::remove_dir_all(path).expect("removed");
    }

    #[test]
    fn links_pipes_and_folders_are_left_alone() {
        let (path, handle) = folder("others");
        fs::write(path.join("a"), "12345").expect("written");
        symlink("a", path.join("link")).expect("a link");
        fs::create_dir(path.join("folder")).expect("a folder");
        rustix::fs::mknodat(rustix::fs::CWD, path.join("pipe"), rustix::fs::FileType::Fifo, Mode::RUSR, 0)
            .expect("a pipe");
        for name in ["link", "folder", "pipe", "nothing"] {
            assert!(open(&handle, name, user::effective()).is_err(), "{name}");
        }
        fs::remove_dir_all(path).expect("removed");
    }
}
