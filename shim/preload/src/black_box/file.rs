//! The file of a black box, and its mapping.
//!
//! Invariants: the file's blocks are there before it is mapped, so a disk that fills up later
//! raises no signal in the program. The file's mode lets no process open it for writing by
//! accident: one that cut it short would end this one. Nothing but a black box is replaced.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::FallocateFlags;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};
use wm_schema::black_box::BlackBox;
use wm_sockets::file::OwnFile;

/// Makes a file of zeros and maps it.
pub(super) fn make(path: &Path) -> io::Result<(&'static BlackBox, OwnFile)> {
    remove_old(path)?;
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o400).open(path)?;
    let made = OwnFile::new(path.to_owned())?;
    match fill(&file).and_then(|()| map(&file)) {
        Ok(mapped) => Ok((mapped, made)),
        Err(error) => {
            made.remove();
            Err(error)
        }
    }
}

/// Removes the box of an earlier process with this number, or of the program that this process
/// executed before.
fn remove_old(path: &Path) -> io::Result<()> {
    let status = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        status => status?,
    };
    let mut magic = [0; 8];
    let is_box = status.is_file()
        && (status.len() == 0 || File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok())
        && [0, BlackBox::MAGIC].contains(&u64::from_ne_bytes(magic));
    if !is_box {
        return Err(io::Error::other(format!(
            "{}: a file that is no black box is in the way",
            path.display()
        )));
    }
    fs::remove_file(path)
}

/// Gives the file all its blocks.
fn fill(file: &File) -> io::Result<()> {
    let bytes = BlackBox::BYTES as u64;
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        // A file system, or a filter of system calls, without it.
        Err(_) => {
            let mut file = file;
            file.write_all(&vec![0; BlackBox::BYTES])?;
            file.sync_data()
        }
    }
}

fn map(file: &File) -> io::Result<&'static BlackBox> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // A hit is not to wait for a page.
    let flags = MapFlags::SHARED | MapFlags::POPULATE;
    // SAFETY: a new mapping of a file that is as long; it is never unmapped.
    let start = unsafe { mmap(std::ptr::null_mut(), BlackBox::BYTES, protection, flags, file, 0) }?;
    // SAFETY: a mapping begins at a page, and any content is a valid box of atomic words.
    Ok(unsafe { &*start.cast::<BlackBox>() })
}

/// Puts private memory in the place of a mapping. Async-signal-safe.
pub(super) fn replace(mapping: *mut BlackBox) {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    // SAFETY: exactly the mapping that `map` made, with content that is a box too. Where the kernel
    // refuses, it stays, and no call of the child writes there: it makes real calls only.
    let _stays_mapped = unsafe { mmap_anonymous(mapping.cast(), BlackBox::BYTES, protection, flags) };
}

/// The namespace in which this process has its number.
pub(super) fn namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}

#[cfg(test)]
mod tests {
    //! Hazard (process lifecycle): a file of the user's is replaced, or a full disk ends the
    //! program.
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    fn scratch(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("wmshim-box-{name}-{}", std::process::id()));
        let _left_by_an_earlier_run = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("a folder");
        folder
    }

    #[test]
    fn a_file_has_all_its_blocks_and_what_is_stored_is_in_it() {
        let folder = scratch("made");
        let path = folder.join("1-2.box");
        let (made, _file) = make(&path).expect("made");
        made.process.magic.store(BlackBox::MAGIC, Relaxed);
        let status = fs::metadata(&path).expect("there");
        assert_eq!((status.permissions().mode() & 0o777, status.len()), (0o400, BlackBox::BYTES as u64));
        assert!(status.blocks() * 512 >= status.len(), "{} blocks", status.blocks());
        assert_eq!(fs::read(&path).expect("read")[..8], *b"wmshimbb");
        let (again, file) = make(&path).expect("a box is replaced");
        assert_eq!(again.process.magic.load(Relaxed), 0);
        file.remove();
        fs::remove_dir(folder).expect("empty");
    }

    #[test]
    fn a_file_that_is_no_box_stays() {
        let folder = scratch("foreign");
        let path = folder.join("1-2.box");
        fs::write(&path, "a letter to a friend").expect("written");
        let error = make(&path).map(drop).expect_err("it is in the way");
        assert!(error.to_string().contains("no black box"), "{error}");
        assert_eq!(fs::read_to_string(&path).expect("there"), "a letter to a friend");
        fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn what_is_stored_after_a_fork_is_not_in_the_file() {
        let folder = scratch("forked");
        let path = folder.join("1-2.box");
        let (made, _file) = make(&path).expect("made");
        replace(std::ptr::from_ref(made).cast_mut());
        made.process.pid.store(7, Relaxed);
        assert!(fs::read(&path).expect("read").iter().all(|byte| *byte == 0));
        fs::remove_dir_all(folder).expect("removed");
    }
}
