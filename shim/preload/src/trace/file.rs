//! The file of a recording: where it is, that it is nobody else's, and how chunks get into it.

use std::fs::{self, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use wm_abi::CUdevice;

/// A file that only this process writes.
#[derive(Debug)]
pub(super) struct File(fs::File);

impl File {
    /// Makes the file, or empties it. `Err` is a sentence with a remedy.
    pub(super) fn create(path: &Path) -> Result<Self, String> {
        let explain = |error: io::Error| format!("{} cannot be written ({error})", path.display());
        // Opening a pipe would wait for a reader.
        if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(format!("{} is no plain file: name one", path.display()));
        }
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(explain)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(format!(
                    "another process is recording to {}: put %p into the name for a file a process",
                    path.display()
                ));
            }
            // A file system without locks: two processes under one name are then the user's to avoid.
            Err(TryLockError::Error(_)) => {}
        }
        file.set_len(0).map_err(explain)?;
        Ok(Self(file))
    }

    /// A file that every write to fails.
    #[cfg(test)]
    pub(super) fn unwritable() -> Self {
        Self(fs::File::open("/dev/null").expect("on every system"))
    }

    /// Appends text as one gzip member.
    pub(super) fn append(&mut self, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 4), Compression::fast());
        encoder.write_all(text.as_bytes())?;
        self.0.write_all(&encoder.finish()?)
    }
}

/// Does the name tell devices apart?
pub(super) fn names_device(template: &Path) -> bool {
    template.to_string_lossy().contains("%d")
}

/// The file's name with the process and the device in it.
pub(super) fn expand(template: &Path, process: u32, device: CUdevice) -> PathBuf {
    let Some(text) = template.to_str() else { return template.to_owned() };
    PathBuf::from(text.replace("%p", &process.to_string()).replace("%d", &device.to_string()))
}

#[cfg(test)]
mod tests {
    //! Hazard: a recording that overwrites another, or that waits for ever for a reader.
    use std::io::Read;

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
    fn names_are_expanded() {
        assert_eq!(expand(Path::new("/a/%p.%d.gz"), 7, 3), Path::new("/a/7.3.gz"));
        assert!(names_device(Path::new("x%d")) && !names_device(Path::new("x%p")));
    }
}
