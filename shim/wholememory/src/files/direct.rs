//! Reads that go past the kernel's cache of files (`O_DIRECT`): of use where files are larger than
//! memory, or read once from a fast disk.
//!
//! Such a read begins and ends at whole blocks of the disk, in memory as in the file. A file system
//! that has no such reads (tmpfs) is read as others are.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::error::{Error, Result};

/// Place, length and memory of a read are multiples of this number of bytes: no disk has larger
/// blocks.
const BLOCK: usize = 4096;

/// Memory of one thread's reads.
#[derive(Debug, Default)]
pub(super) struct DirectBuffer(Vec<u8>);

impl DirectBuffer {
    /// Bytes of a file, from `first` on.
    ///
    /// # Errors
    /// [`Error::Memory`] in the outer result; in the inner one the kernel's, and
    /// [`io::ErrorKind::UnexpectedEof`] where the file ends before.
    pub(super) fn read(&mut self, file: &File, first: u64, bytes: usize) -> Result<io::Result<&[u8]>> {
        let before = (first % BLOCK as u64) as usize;
        let wanted = before + bytes;
        let place = self.of(wanted.next_multiple_of(BLOCK))?;
        let filled =
            fill(place, wanted, |place, done| file.read_at(place, first - before as u64 + done as u64));
        Ok(filled.map(|()| &place[before..wanted]))
    }

    /// So many bytes, from the first whole block on.
    fn of(&mut self, bytes: usize) -> Result<&mut [u8]> {
        let more = (bytes + BLOCK).saturating_sub(self.0.len());
        let grown = self.0.try_reserve_exact(more);
        grown.map_err(|_| Error::Memory(format!("a buffer of {} MiB for files", bytes >> 20)))?;
        self.0.resize(self.0.len() + more, 0);
        let begin = self.0.as_ptr().align_offset(BLOCK);
        Ok(&mut self.0[begin..begin + bytes])
    }
}

/// Reads until there are so many bytes.
fn fill(
    place: &mut [u8],
    wanted: usize,
    mut read: impl FnMut(&mut [u8], usize) -> io::Result<usize>,
) -> io::Result<()> {
    let mut done = 0;
    while done < wanted {
        match read(&mut place[done..], done) {
            // A read that ends within a block has come to the file's end.
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(more) if more % BLOCK != 0 && done + more < wanted => {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Ok(more) => done += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    //! Hazard: a byte beside the one that was asked for, or one that was never in the file.
    use std::collections::VecDeque;

    use super::*;

    fn filled(wanted: usize, reads: &[io::Result<usize>]) -> io::Result<usize> {
        let mut reads: VecDeque<_> = reads.iter().collect();
        let mut place = vec![0; wanted.next_multiple_of(BLOCK)];
        let mut last = 0;
        fill(&mut place, wanted, |_, done| {
            last = done;
            match reads.pop_front().expect("no more reads than there are") {
                Ok(bytes) => Ok(*bytes),
                Err(error) => Err(error.kind().into()),
            }
        })
        .map(|()| last)
    }

    #[test]
    fn reads_go_on_until_all_is_there() {
        let interrupted = || Err(io::ErrorKind::Interrupted.into());
        assert_eq!(filled(9000, &[Ok(BLOCK), interrupted(), Ok(BLOCK), Ok(808)]).ok(), Some(2 * BLOCK));
        assert_eq!(filled(9000, &[Ok(3 * BLOCK)]).ok(), Some(0));
        for ends in [vec![Ok(0)], vec![Ok(100)], vec![Ok(BLOCK), Ok(0)], vec![Ok(2 * BLOCK), Ok(807), Ok(0)]]
        {
            let error = filled(9000, &ends).expect_err("the file ends before");
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn any_part_of_a_file_is_read() {
        let bytes: Vec<u8> = (0..20_000u32).map(|at| (at % 251) as u8).collect();
        let path = std::env::temp_dir().join(format!("wholememory-direct-{}", std::process::id()));
        std::fs::write(&path, &bytes).expect("a file");
        let file = File::open(&path).expect("the file");
        std::fs::remove_file(&path).expect("its name");
        let mut buffer = DirectBuffer::default();
        for (first, count) in
            [(0, 20_000), (1, 1), (4095, 2), (4096, 4096), (8191, 8194), (19_999, 1), (7, 0)]
        {
            let found = buffer.read(&file, first as u64, count).expect("memory").expect("bytes");
            assert_eq!(found, &bytes[first..first + count]);
        }
        assert!(buffer.read(&file, 19_999, 2).expect("memory").is_err());
    }
}
