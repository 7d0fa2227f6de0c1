//! Folders of this user's.
//!
//! Root may have another user's variables, as `sudo -E` leaves them. If root made a folder inside
//! that user's folders, the user could neither use nor replace it. A folder that others may write
//! in is not trusted.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::user;

/// Makes a folder for this user alone, and the missing ones above it. It may exist already:
/// [`check`] decides whether it is this user's.
///
/// # Errors
/// The system's, and one if it would have to be made in another user's folder.
pub fn make(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make(above)?;
    let owner = fs::metadata(above)?.uid();
    if owner != 0 && !user::is_own(owner) {
        return Err(refused(above, &format!("belongs to user {owner}: nothing is made there")));
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// A user's folder in memory that all users share. Its name may be taken by another user, as one in
/// `/tmp` may.
pub fn in_memory(user: u32) -> PathBuf {
    PathBuf::from(format!("/dev/shm/wmshim-{user}"))
}

/// Is a folder this user's alone?
///
/// # Errors
/// The system's, and one if it is not.
pub fn check(path: &Path) -> io::Result<()> {
    let status = fs::metadata(path)?;
    if status.is_dir() && user::is_own(status.uid()) && status.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(refused(path, "is not a folder that is yours alone"))
}

fn refused(path: &Path, why: &str) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, format!("{} {why}", path.display()))
}

#[cfg(test)]
mod tests {
    //! Hazard: root leaves folders in a user's home that the user cannot use, or a folder that
    //! others write in is trusted.
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown};

    #[test]
    fn a_folder_is_made_below_what_is_ones_own() {
        let folder = std::env::temp_dir().join(format!("wm-trust-own-{}", std::process::id()));
        let below = folder.join("a/b");
        make(&below).and_then(|()| make(&below)).and_then(|()| check(&below)).expect("it is one's own");
        fs::set_permissions(&below, fs::Permissions::from_mode(0o777)).expect("open to all");
        assert!(check(&below).is_err());
        fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn nothing_is_made_in_another_users_folder() {
        let folder = std::env::temp_dir().join(format!("wm-trust-other-{}", std::process::id()));
        make(&folder).expect("a folder");
        if chown(&folder, Some(65_431), None).is_ok() {
            let error = make(&folder.join("a/b")).expect_err("another user's");
            assert!(error.to_string().contains("belongs to user 65431"), "{error}");
            assert!(check(&folder).is_err() && fs::read_dir(&folder).expect("a folder").next().is_none());
        } else {
            eprintln!("skipped: needs root");
        }
        fs::remove_dir_all(folder).expect("removed");
    }
}
