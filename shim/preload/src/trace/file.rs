//! The file of a recording: where it is, that it is nobody else's, and how chunks get into it.
//!
//! The name comes from a variable, and what it names may be anything. So a file is emptied only if it is a recording, and
//! nothing is written through a link. A disk that fills up leaves the chunks that fitted, each of them whole.

use std::fs::{self, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use wm_abi::CUdevice;
use wm_trust::user;

use crate::settings::{replace, with_process};

/// What every recording begins with, once it is unpacked.
const BEGINNING: &[u8] = b"# wmshim-trace ";

/// A file that only this process writes.
#[derive(Debug)]
pub(super) struct File {
    file: fs::File,
    /// Length up to the last whole chunk.
    whole: u64,
}

impl File {
    /// Makes the file, or empties an earlier recording. `Err` is a sentence with a remedy.
    pub(super) fn create(path: &Path) -> Result<Self, String> {
        let name = path.display();
        let explain = |error: io::Error| format!("{name} cannot be written ({error})");
        // Opening a device may do something already.
        let plain = |found: &fs::Metadata| found.is_file();
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_symlink() => return Err(format!("{name} is a link: name the file itself")),
            Ok(found) if !plain(&found) => return Err(format!("{name} is no plain file: name one")),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).map_err(explain)?;
        let found = file.metadata().map_err(explain)?;
        if !plain(&found) || found.uid() != user::effective() {
            return Err(format!("{name} is no plain file of yours: name another"));
        }
        claim(&file, path)?;
        if found.len() > 0 && !is_recording(&file) {
            return Err(format!(
                "{name} has something else in it, which is left as it is: name another file"
            ));
        }
        file.set_len(0).and_then(|()| (&file).rewind()).map_err(explain)?;
        Ok(Self { file, whole: 0 })
    }

    /// A file that every write to fails.
    #[cfg(test)]
    pub(super) fn unwritable() -> Self {
        Self { file: fs::File::open("/dev/null").expect("on every system"), whole: 0 }
    }

    /// Appends text as one gzip member. A member that does not fit is taken back.
    pub(super) fn append(&mut self, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 4), Compression::fast());
        encoder.write_all(text.as_bytes())?;
        let member = encoder.finish()?;
        let written = self.file.write_all(&member);
        match &written {
            Ok(()) => self.whole += member.len() as u64,
            // Where even that fails, `wmctl replay` reads up to the piece.
            Err(_) => drop(self.file.set_len(self.whole)),
        }
        written
    }
}

/// Makes sure that no other process records there.
fn claim(file: &fs::File, path: &Path) -> Result<(), String> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(format!(
            "another process is recording to {}: put %p into the name for a file a process",
            path.display()
        )),
        // A file system without locks: two processes under one name are then the user's to avoid.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}

/// Does it begin as a recording does? One that was cut short in its first chunk is none any more.
fn is_recording(file: &fs::File) -> bool {
    let mut beginning = [0; BEGINNING.len()];
    GzDecoder::new(file).read_exact(&mut beginning).is_ok() && beginning == *BEGINNING
}

/// Does the name tell devices apart?
pub(super) fn names_device(template: &Path) -> bool {
    template.to_string_lossy().contains("%d")
}

/// The file's name with the process and the device in it.
pub(super) fn expand(template: &Path, process: u32, device: CUdevice) -> PathBuf {
    replace(&with_process(template, process), "%d", &device.to_string())
}

#[cfg(test)]
mod tests {
    //! Hazard: a recording that overwrites another, or that waits for ever for a reader.
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use flate2::read::MultiGzDecoder;

    use super::*;

    fn place(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("wmshim-trace-test-{}-{name}", std::process::id()))
    }

    #[test]
    fn every_chunk_can_be_read_as_soon_as_it_is_written() {
        let path = place("chunks");
        let mut file = File::create(&path).expect("a file");
        for text in ["one\n", "", "two\n"] {
            file.append(text).expect("room");
        }
        let mut read = String::new();
        let compressed = fs::File::open(&path).expect("there");
        MultiGzDecoder::new(compressed).read_to_string(&mut read).expect("whole members");
        fs::remove_file(&path).expect("there");
        assert_eq!(read, "one\ntwo\n");
    }

    #[test]
    fn a_file_that_is_being_written_is_left_alone() {
        let path = place("taken");
        let mut first = File::create(&path).expect("a file");
        first.append("first").expect("room");
        let sentence = File::create(&path).expect_err("taken");
        let length = fs::metadata(&path).expect("there").len();
        fs::remove_file(&path).expect("there");
        assert!(sentence.contains("%p") && length > 0, "{sentence}");
    }

    #[test]
    fn what_is_no_plain_file_is_refused() {
        assert!(File::create(Path::new("/dev/null")).expect_err("a device").contains("no plain file"));
        assert!(
            File::create(Path::new("/no/such/folder/x"))
                .expect_err("no folder")
                .contains("cannot be written")
        );
    }

    #[test]
    fn a_file_of_the_users_is_left_as_it_is() {
        let path = place("thesis");
        for content in [&b"my thesis"[..], &compressed("my thesis"), b"\x1f\x8b"] {
            fs::write(&path, content).expect("a file");
            let sentence = File::create(&path).expect_err("no recording");
            assert_eq!(fs::read(&path).expect("there"), content, "{sentence}");
        }
        let link = place("link");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        let sentence = File::create(&link).expect_err("a link");
        fs::remove_file(&link).expect("there");
        fs::remove_file(&path).expect("there");
        assert!(sentence.contains("is a link"), "{sentence}");
    }

    #[test]
    fn an_earlier_recording_is_replaced_and_nobody_else_may_read_it() {
        let path = place("again");
        fs::write(&path, compressed("# wmshim-trace 1; and much more than is written below\n"))
            .expect("a file");
        let mut file = File::create(&path).expect("a recording");
        file.append("one\n").expect("room");
        assert_eq!(fs::read(&path).expect("there"), compressed_fast("one\n"));
        fs::remove_file(&path).expect("there");
        drop(File::create(&path).expect("a file"));
        let mode = fs::metadata(&path).expect("there").mode();
        fs::remove_file(&path).expect("there");
        assert_eq!(mode & 0o777, 0o600);
    }

    /// The limit on a file's size stands for a full disk: a write of part of a chunk, then a failure.
    #[test]
    fn a_disk_that_is_full_leaves_whole_chunks() {
        let path = place("full");
        let mut file = File::create(&path).expect("a file");
        file.append("one\n").expect("room");
        let whole = fs::metadata(&path).expect("there").len();
        // SAFETY: one process a test; the signal that tells of the limit is ignored, as the limit's users do.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let limit = libc::rlimit { rlim_cur: whole + 5, rlim_max: libc::RLIM_INFINITY };
            libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
        }
        let written = file.append("two\n");
        let left = fs::metadata(&path).expect("there").len();
        fs::remove_file(&path).expect("there");
        assert!(written.is_err() && left == whole, "{written:?}, {left} bytes and not {whole}");
    }

    fn compressed(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(text.as_bytes()).expect("memory");
        encoder.finish().expect("memory")
    }

    fn compressed_fast(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).expect("memory");
        encoder.finish().expect("memory")
    }

    #[test]
    fn names_are_expanded() {
        let odd = OsStr::from_bytes(b"/a\xff/%p-%p.gz");
        assert_eq!(expand(Path::new(odd), 7, 3), Path::new(OsStr::from_bytes(b"/a\xff/7-7.gz")));
        assert_eq!(expand(Path::new("/a/%p.%d.gz"), 7, 3), Path::new("/a/7.3.gz"));
        assert!(names_device(Path::new("x%d")) && !names_device(Path::new("x%p")));
    }
}
