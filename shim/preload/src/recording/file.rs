//! The file of a recording: its one writer, and how chunks get into it.
//!
//! The name comes from a variable, and the file under it may be any file. So a file is emptied only
//! if it is a recording, and nothing is written through a link. A disk that fills up leaves the
//! chunks that fitted, each of them whole.

use std::fs::{self, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use flate2::{Compression, Crc};
use wm_trust::user;

/// Why a file cannot take a recording.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordingError {
    #[error("{} cannot be written ({error})", .path.display())]
    Unwritable { path: PathBuf, error: io::Error },
    #[error("{} is a link: name the file itself", .0.display())]
    Link(PathBuf),
    #[error("{} is no plain file: name one", .0.display())]
    NotPlain(PathBuf),
    #[error("{} is no plain file of yours: name another", .0.display())]
    NotYours(PathBuf),
    #[error("{} has something else in it, which is left as it is: name another file", .0.display())]
    NoRecording(PathBuf),
    #[error("another process is recording to {}: put %p into the name for a file a process", .0.display())]
    InUse(PathBuf),
}

/// A file that only this process writes.
#[derive(Debug)]
pub(crate) struct RecordingFile {
    file: fs::File,
    /// Length up to the last whole chunk.
    whole: u64,
}

impl RecordingFile {
    /// Makes the file, or empties an earlier recording. `beginning` is how each recording of the
    /// kind begins, once it is unpacked.
    pub(crate) fn create(path: &Path, beginning: &[u8]) -> Result<Self, RecordingError> {
        let name = || path.to_owned();
        let explain = |error| RecordingError::Unwritable { path: name(), error };
        // Looked at before it is opened: opening a device may do something already.
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_symlink() => return Err(RecordingError::Link(name())),
            Ok(found) if !found.is_file() => return Err(RecordingError::NotPlain(name())),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).map_err(explain)?;
        let found = file.metadata().map_err(explain)?;
        if !found.is_file() || found.uid() != user::effective() {
            return Err(RecordingError::NotYours(name()));
        }
        claim(&file, path)?;
        if found.len() > 0 && !is_recording(&file, beginning) {
            return Err(RecordingError::NoRecording(name()));
        }
        file.set_len(0).and_then(|()| (&file).rewind()).map_err(explain)?;
        Ok(Self { file, whole: 0 })
    }

    /// A file that every write to fails.
    #[cfg(test)]
    pub(crate) fn unwritable() -> Self {
        Self { file: fs::File::open("/dev/null").expect("on every system"), whole: 0 }
    }

    /// Appends text as one gzip member. A member that does not fit is taken back.
    pub(crate) fn append(&mut self, text: &[u8]) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 4), Compression::fast());
        encoder.write_all(text)?;
        let member = encoder.finish()?;
        self.write_member(member.len(), |mut file| file.write_all(&member))
    }

    /// The same, without compression and without memory of the allocator.
    pub(crate) fn append_plain(&mut self, text: &[u8]) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let mut sum = Crc::new();
        sum.update(text);
        let trailer = [sum.sum(), text.len() as u32].map(u32::to_le_bytes);
        let blocks = text.chunks(STORED_MOST);
        let bytes = GZIP_HEADER.len() + blocks.len() * 5 + text.len() + 8;
        self.write_member(bytes, |mut file| {
            file.write_all(&GZIP_HEADER)?;
            let last = blocks.len() - 1;
            for (number, block) in blocks.enumerate() {
                file.write_all(&stored_header(number == last, block.len() as u16))?;
                file.write_all(block)?;
            }
            file.write_all(trailer.as_flattened())
        })
    }

    /// Writes a member of so many bytes. One that does not fit is taken back.
    fn write_member(
        &mut self,
        bytes: usize,
        write: impl FnOnce(&fs::File) -> io::Result<()>,
    ) -> io::Result<()> {
        let written = write(&self.file);
        match &written {
            Ok(()) => self.whole += bytes as u64,
            // Where even that fails, `wmctl replay` reads up to the piece.
            Err(_) => drop(self.file.set_len(self.whole)),
        }
        written
    }
}

/// The header of a gzip member (RFC 1952): deflate, no name, no time, an unknown system.
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// The most bytes of a block that is stored as it is.
const STORED_MOST: usize = u16::MAX as usize;

/// The header of such a block (RFC 1951, 3.2.4), at a byte's border.
fn stored_header(is_last: bool, bytes: u16) -> [u8; 5] {
    let ([low, high], [not_low, not_high]) = (bytes.to_le_bytes(), (!bytes).to_le_bytes());
    [u8::from(is_last), low, high, not_low, not_high]
}

/// Makes sure that no other process records there.
fn claim(file: &fs::File, path: &Path) -> Result<(), RecordingError> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(RecordingError::InUse(path.to_owned())),
        // On a file system without locks the user has to give two processes two names.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}

/// Does it begin as a recording does? One that was cut short in its first chunk is none any more.
fn is_recording(file: &fs::File, beginning: &[u8]) -> bool {
    let mut found = vec![0; beginning.len()];
    GzDecoder::new(file).read_exact(&mut found).is_ok() && found == beginning
}

#[cfg(test)]
mod tests {
    //! Hazard: a recording that overwrites another, or that waits for ever for a reader.
    use flate2::read::MultiGzDecoder;

    use super::*;

    const BEGINNING: &[u8] = b"# wmshim-trace ";

    fn place(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("wmshim-recording-test-{}-{name}", std::process::id()))
    }

    #[test]
    fn every_chunk_can_be_read_as_soon_as_it_is_written() {
        let path = place("chunks");
        let mut file = RecordingFile::create(&path, BEGINNING).expect("a file");
        for text in [&b"one\n"[..], b"", b"two\n"] {
            file.append(text).expect("room");
        }
        let mut read = String::new();
        let compressed = fs::File::open(&path).expect("there");
        MultiGzDecoder::new(compressed).read_to_string(&mut read).expect("whole members");
        fs::remove_file(&path).expect("there");
        assert_eq!(read, "one\ntwo\n");
    }

    #[test]
    fn a_chunk_without_compression_is_read_as_any_other() {
        let path = place("plain");
        for length in [0, 1, 65_535, 65_536, 200_000] {
            let text: String = ('a'..='z').cycle().take(length).collect();
            let mut file = RecordingFile::create(&path, BEGINNING).expect("a file");
            for part in ["# wmshim-trace 3\n", &text] {
                file.append_plain(part.as_bytes()).expect("room");
            }
            file.append(b"end").expect("room");
            let mut read = String::new();
            let compressed = fs::File::open(&path).expect("there");
            assert_eq!(compressed.metadata().expect("open").len(), file.whole);
            MultiGzDecoder::new(compressed).read_to_string(&mut read).expect("whole members");
            assert!(read == format!("# wmshim-trace 3\n{text}end"), "{length} bytes");
        }
        fs::remove_file(&path).expect("there");
    }

    #[test]
    fn a_file_that_is_being_written_is_left_alone() {
        let path = place("taken");
        let mut first = RecordingFile::create(&path, BEGINNING).expect("a file");
        first.append(b"first").expect("room");
        let error = RecordingFile::create(&path, BEGINNING).expect_err("in use");
        let length = fs::metadata(&path).expect("there").len();
        fs::remove_file(&path).expect("there");
        assert!(matches!(error, RecordingError::InUse(_)) && length > 0, "{error}");
    }

    #[test]
    fn what_is_no_plain_file_is_refused() {
        let refusal = |path| RecordingFile::create(Path::new(path), BEGINNING).expect_err("refused");
        assert!(matches!(refusal("/dev/null"), RecordingError::NotPlain(_)));
        assert!(matches!(refusal("/no/such/folder/x"), RecordingError::Unwritable { .. }));
    }

    #[test]
    fn a_file_of_the_users_is_left_as_it_is() {
        let path = place("thesis");
        for content in [&b"my thesis"[..], &compressed("my thesis"), b"\x1f\x8b"] {
            fs::write(&path, content).expect("a file");
            let error = RecordingFile::create(&path, BEGINNING).expect_err("no recording");
            assert_eq!(fs::read(&path).expect("there"), content, "{error}");
        }
        let link = place("link");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        let error = RecordingFile::create(&link, BEGINNING).expect_err("a link");
        fs::remove_file(&link).expect("there");
        fs::remove_file(&path).expect("there");
        assert!(matches!(error, RecordingError::Link(_)), "{error}");
    }

    #[test]
    fn an_earlier_recording_is_replaced_and_nobody_else_may_read_it() {
        let path = place("again");
        fs::write(&path, compressed("# wmshim-trace 1; and much more than is written below\n"))
            .expect("a file");
        let mut file = RecordingFile::create(&path, BEGINNING).expect("a recording");
        file.append(b"one\n").expect("room");
        assert_eq!(fs::read(&path).expect("there"), compressed_fast("one\n"));
        fs::remove_file(&path).expect("there");
        drop(RecordingFile::create(&path, BEGINNING).expect("a file"));
        let mode = fs::metadata(&path).expect("there").mode();
        fs::remove_file(&path).expect("there");
        assert_eq!(mode & 0o777, 0o600);
    }

    /// The limit on a file's size stands for a full disk: a write of part of a chunk, then a
    /// failure.
    #[test]
    fn a_disk_that_is_full_leaves_whole_chunks() {
        let path = place("full");
        let mut file = RecordingFile::create(&path, BEGINNING).expect("a file");
        file.append(b"one\n").expect("room");
        let whole = fs::metadata(&path).expect("there").len();
        // SAFETY: one process a test; the signal that tells of the limit is ignored, as the limit's
        // users do.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let limit = libc::rlimit { rlim_cur: whole + 5, rlim_max: libc::RLIM_INFINITY };
            libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
        }
        let written = file.append(b"two\n");
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
}
