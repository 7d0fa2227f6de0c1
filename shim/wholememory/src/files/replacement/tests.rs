//! Hazard (error handling): a store that fails, or is killed, and the old file is gone.
use std::io::Write;
use std::os::unix::fs::symlink;

use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

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
    let new = Replacement::begin(&path).expect("begun");
    fs::write(&new.temporary, "left").expect("written");
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

#[test]
fn every_name_that_a_file_may_have_is_replaced() {
    let folder = folder("names");
    for length in [1, 242, 255] {
        let path = folder.join("n".repeat(length));
        for bytes in ["old", "new"] {
            let new = Replacement::begin(&path).expect("begun");
            new.file().expect("open").write_all(bytes.as_bytes()).expect("written");
            assert_ne!(new.form, Form::InPlace);
            new.finish().expect("replaced");
            assert_eq!(fs::read(&path).expect("there"), bytes.as_bytes());
        }
    }
    let two = ["a", "b"].map(|name| Replacement::begin(&folder.join(name)).expect("begun"));
    assert_ne!(two[0].temporary, two[1].temporary, "ranks store side by side");
    for no_name in ["rows/", "rows/.", "rows/.."] {
        assert!(Replacement::begin(&folder.join(no_name)).is_err(), "{no_name}");
    }
    assert!(Replacement::begin(&folder.join("n".repeat(256))).is_err());
    fs::remove_dir_all(folder).expect("removed");
}

/// As containers have it: the file may be written and not renamed over.
#[test]
#[allow(unsafe_code, reason = "a thread with a view of the file system of its own")]
fn a_file_that_is_a_mount_is_written() {
    let folder = folder("mount");
    let [path, outer] = ["rows", "outer"].map(|name| folder.join(name));
    for file in [&path, &outer] {
        fs::write(file, "old and long").expect("written");
    }
    let is_tested = std::thread::scope(|scope| {
        let run = || {
            // SAFETY: the thread shares no table of descriptors that the call would divide.
            unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.ok()?;
            mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).ok()?;
            mount_bind(&outer, &path).ok()?;
            let new = Replacement::begin(&path).expect("begun");
            assert_eq!(new.form, Form::InPlace);
            new.file().expect("open").write_all(b"new").expect("written");
            new.finish().expect("written");
            fs::read(&path).ok()
        };
        scope.spawn(run).join().expect("no panic")
    });
    if is_tested.is_none() {
        return eprintln!("skipped: needs root");
    }
    assert_eq!(is_tested.expect("tested"), b"new");
    assert_eq!(fs::read(&outer).expect("there"), b"new");
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
