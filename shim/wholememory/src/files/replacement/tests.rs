//! Hazard (error handling): a store that fails, or is killed, and the old file is gone.
use std::io::Write;
use std::os::unix::fs::{chown, symlink};

use rustix::fs::XattrFlags;
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::thread::{UnshareFlags, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

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

/// Stores `new` and says whether the file was replaced.
fn is_replaced(path: &Path) -> bool {
    let new = Replacement::begin(path).expect("begun");
    let is_replaced = new.form != Form::InPlace;
    new.file().expect("open").write_all(b"new").expect("written");
    new.finish().expect("stored");
    assert_eq!(fs::read(path).expect("there"), b"new");
    is_replaced
}

#[test]
fn both_names_of_a_file_lead_to_the_new_bytes() {
    let folder = folder("names-of-one");
    let [path, other] = ["rows", "other"].map(|name| folder.join(name));
    fs::write(&path, "old and long").expect("written");
    fs::hard_link(&path, &other).expect("a second name");
    assert!(!is_replaced(&path));
    assert_eq!(fs::read(&other).expect("there"), b"new");
    fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn users_of_an_access_list_keep_their_rights() {
    let folder = folder("list");
    let path = folder.join("rows");
    fs::write(&path, "old and long").expect("written");
    // Version 2; owner, user 71, group, mask and others, as kind, rights and number.
    let rows: [(u16, u16, u32); 5] = [(1, 6, !0), (2, 4, 71), (4, 0, !0), (16, 4, !0), (32, 0, !0)];
    let rows = rows.map(|(kind, rights, number)| {
        [&kind.to_le_bytes()[..], &rights.to_le_bytes(), &number.to_le_bytes()].concat()
    });
    let list = [&2u32.to_le_bytes()[..], &rows.concat()].concat();
    if rustix::fs::setxattr(&path, "system.posix_acl_access", &list, XattrFlags::empty()).is_err() {
        return eprintln!("skipped: the file system has no access lists");
    }
    assert!(!is_replaced(&path));
    let file = File::open(&path).expect("there");
    assert!(has_access_list(&file));
    fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn owner_and_group_stay_and_rights_of_execution_as_another_do_not() {
    let folder = folder("owner");
    let path = folder.join("rows");
    fs::write(&path, "old").expect("written");
    if chown(&path, Some(71), Some(72)).is_err() {
        return eprintln!("skipped: needs root");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6754)).expect("set");
    assert!(is_replaced(&path));
    let file = fs::metadata(&path).expect("there");
    assert_eq!((file.uid(), file.gid(), file.mode() & 0o7777), (71, 72, 0o754));
    fs::remove_dir_all(folder).expect("removed");
}

/// Another user's file in a sticky folder may be written, and neither replaced nor given away.
#[test]
fn a_file_keeps_an_owner_that_this_user_cannot_give() {
    let folder = folder("sticky");
    let path = folder.join("rows");
    fs::write(&path, "old and long").expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("set");
    let (user, group) = (Uid::from_raw(65_431), Gid::from_raw(65_431));
    for mode in [0o1777, 0o777] {
        fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).expect("set");
        let is_replaced = std::thread::scope(|scope| {
            let run = || {
                set_thread_groups(&[]).ok()?;
                set_thread_res_gid(group, group, group).ok()?;
                set_thread_res_uid(user, user, user).ok()?;
                Some(is_replaced(&path))
            };
            scope.spawn(run).join().expect("no panic")
        });
        match is_replaced {
            Some(is_replaced) => assert!(!is_replaced, "{mode:o}"),
            None => eprintln!("skipped: needs root"),
        }
    }
    fs::remove_dir_all(folder).expect("removed");
}

/// As containers have it: the file may be written and not renamed over.
#[test]
#[allow(deprecated, reason = "it divides no table of descriptors, and needs no unsafe code")]
fn a_file_that_is_a_mount_is_written() {
    let folder = folder("mount");
    let [path, outer] = ["rows", "outer"].map(|name| folder.join(name));
    for file in [&path, &outer] {
        fs::write(file, "old and long").expect("written");
    }
    let is_tested = std::thread::scope(|scope| {
        let run = || {
            rustix::thread::unshare(UnshareFlags::NEWNS).ok()?;
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
