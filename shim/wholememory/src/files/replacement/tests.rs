//! Hazard (error handling): a store that fails, or is killed, and the old file is gone.
use std::io::Write;
use std::os::unix::fs::symlink;

use super::*;

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("wm-replacement-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn names(folder: &Path) -> usize {
    fs::read_dir(folder).expect("readable").count()
}

#[test]
fn the_old_file_stays_until_the_new_one_is_complete() {
    let folder = folder("stays");
    let path = folder.join("rows");
    fs::write(&path, "old").expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("set");
    let new = Replacement::begin(&path).expect("begun");
    new.file().expect("open").write_all(b"new bytes").expect("written");
    assert_eq!(fs::read(&path).expect("there"), b"old");
    drop(new);
    assert_eq!((fs::read(&path).expect("there"), names(&folder)), (b"old".to_vec(), 1));
    // What a killed process has left is no obstacle.
    fs::write(folder.join(".rows.wmshim-store"), "left").expect("written");
    let new = Replacement::begin(&path).expect("begun");
    new.file().expect("open").write_all(b"new bytes").expect("written");
    new.settling().and_then(|settle| settle()).and_then(|()| new.finish()).expect("replaced");
    assert_eq!((fs::read(&path).expect("there"), names(&folder)), (b"new bytes".to_vec(), 1));
    let mode = fs::metadata(&path).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn links_stay_and_devices_are_written() {
    let folder = folder("links");
    let (path, link) = (folder.join("rows"), folder.join("link"));
    fs::write(&path, "old").expect("written");
    symlink(&path, &link).expect("a link");
    let new = Replacement::begin(&link).expect("begun");
    new.file().expect("open").write_all(b"new").expect("written");
    new.finish().expect("replaced");
    assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
    assert_eq!(fs::read(&path).expect("there"), b"new");
    let device = Replacement::begin(Path::new("/dev/null")).expect("begun");
    assert_eq!(device.form, Form::InPlace);
    device.settling().and_then(|settle| settle()).and_then(|()| device.finish()).expect("no disk");
    assert!(Replacement::begin(&folder).is_err(), "a folder");
    assert!(Replacement::begin(&folder.join("none/rows")).is_err(), "no folder");
    fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn a_link_that_leads_to_no_file_stays_and_the_file_is_made() {
    let folder = folder("dangling");
    let (path, link) = (folder.join("rows"), folder.join("link"));
    symlink(&path, &link).expect("a link");
    let new = Replacement::begin(&link).expect("begun");
    new.file().expect("open").write_all(b"new").expect("written");
    new.finish().expect("written");
    assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
    assert_eq!((fs::read(&path).expect("there"), names(&folder)), (b"new".to_vec(), 2));
    fs::remove_dir_all(folder).expect("removed");
}

/// A disk that fails says so when bytes are put on it, however the file is written.
#[test]
fn bytes_that_are_not_on_the_disk_are_an_error_but_where_there_is_no_disk() {
    let errors = [Errno::INVAL, Errno::NOTSUP, Errno::ROFS, Errno::IO, Errno::NOSPC, Errno::DQUOT];
    let lacks = |is_file: bool| errors.map(|error| lacks_a_disk(is_file, &error.into()));
    assert_eq!(lacks(true), [false; 6]);
    assert_eq!(lacks(false), [true, true, true, false, false, false]);
    // A file that cannot be put on a disk.
    let file = OpenOptions::new().write(true).open("/proc/self/comm").expect("open");
    let file = Replacement::in_place(file);
    assert!(file.settling().and_then(|settle| settle()).is_err());
}
