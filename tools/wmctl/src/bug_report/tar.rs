//! A tar archive in memory, gzipped: plain files in one folder, in the form of POSIX (ustar), which
//! every tool reads.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

/// Bytes of a header, and of what file contents are filled up to.
const BLOCK: usize = 512;

/// The archive so far.
#[derive(Debug)]
pub(super) struct Archive {
    packed: GzEncoder<Vec<u8>>,
    /// Seconds since 1970, the time of all files.
    time: u64,
}

impl Archive {
    pub(super) fn new(time: u64) -> Self {
        Self { packed: GzEncoder::new(Vec::new(), Compression::default()), time }
    }

    /// Adds a file. The name has at most 100 bytes.
    ///
    /// # Errors
    /// None: memory takes all bytes.
    pub(super) fn add(&mut self, name: &str, contents: &[u8]) -> io::Result<()> {
        self.packed.write_all(&header(name, contents.len(), self.time))?;
        self.packed.write_all(contents)?;
        self.packed.write_all(&vec![0; contents.len().next_multiple_of(BLOCK) - contents.len()])
    }

    /// The bytes of the finished archive.
    ///
    /// # Errors
    /// As [`Archive::add`].
    pub(super) fn finish(mut self) -> io::Result<Vec<u8>> {
        self.packed.write_all(&[0; 2 * BLOCK])?;
        self.packed.finish()
    }
}

/// Numbers are octal text. The checksum is the sum of all bytes, with blanks in its own place.
fn header(name: &str, length: usize, time: u64) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000600\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{length:011o}\0"));
    put(136, &format!("{time:011o}\0"));
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    header
}
