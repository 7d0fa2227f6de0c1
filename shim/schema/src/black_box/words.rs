//! The words of a file that is read as a black box.

/// The words of a file, one after the other; zeros behind its end.
pub(super) struct FileWords<'a> {
    bytes: &'a [u8],
}

impl<'a> FileWords<'a> {
    /// From a word on.
    pub(super) fn from(bytes: &'a [u8], word: usize) -> Self {
        Self { bytes: bytes.get(8 * word..).unwrap_or_default() }
    }

    pub(super) fn next(&mut self) -> u64 {
        match self.bytes.split_first_chunk() {
            Some((word, rest)) => {
                self.bytes = rest;
                u64::from_ne_bytes(*word)
            }
            None => 0,
        }
    }

    /// A text of so many words, up to its first zero.
    pub(super) fn text(&mut self, words: usize) -> String {
        let bytes: Vec<u8> = (0..words).flat_map(|_| self.next().to_ne_bytes()).collect();
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}
