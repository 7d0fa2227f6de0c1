//! The page on which the processes of one user publish the links that they use.
//!
//! A file of 8192 bytes in memory (`/dev/shm`), 32 records of 256 bytes, one a process: links, each
//! with the end of its claim. A process writes its own record only, with one write, and reads the
//! page with one read, a microsecond or two each. Nothing is mapped, so a damaged or truncated file
//! is a short read and never a fault. A record has a checksum; a reader skips one that is half
//! written or foreign. A record of a process that has ended is reused under a file lock, which is
//! held only then.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use wm_trust::user;

use crate::vocabulary::machine::Link;

/// Links that one record can name.
pub(crate) const RECORD_LINKS: usize = 14;
/// Bytes of a record.
const RECORD: usize = 256;
/// Records of a page.
const RECORDS: usize = 32;
/// Words before the links: process, its start, checksum, number of links.
const HEAD: usize = 4;
/// The checksum's word.
const SUM: usize = 2;

/// The claims of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimsRecord {
    /// The process.
    pub pid: u32,
    /// When it started, in the kernel's ticks: a later process of the same number is another one.
    pub start: u64,
    /// The links, and when each claim ends, in milliseconds since 1970.
    pub links: Vec<(Link, u64)>,
}

impl ClaimsRecord {
    /// The record as bytes of the page. Links beyond `RECORD_LINKS` are left out.
    pub fn encode(&self) -> [u8; RECORD] {
        let mut words = [0_u64; RECORD / 8];
        let count = self.links.len().min(RECORD_LINKS);
        (words[0], words[1], words[3]) = (u64::from(self.pid), self.start, count as u64);
        for (pair, (link, until)) in words[HEAD..].chunks_exact_mut(2).zip(&self.links[..count]) {
            pair.copy_from_slice(&[link.0, *until]);
        }
        words[SUM] = checksum(&words);
        let mut bytes = [0; RECORD];
        for (part, word) in bytes.chunks_exact_mut(8).zip(words) {
            part.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The record in bytes of the page; `None` for an empty, half-written or foreign one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut words = [0_u64; RECORD / 8];
        for (word, part) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(part.try_into().ok()?);
        }
        let count = usize::try_from(words[3]).ok().filter(|count| *count <= RECORD_LINKS)?;
        let pid = u32::try_from(words[0]).ok().filter(|pid| *pid != 0)?;
        let pairs = words[HEAD..].chunks_exact(2).take(count);
        let links = pairs.map(|pair| (Link(pair[0]), pair[1])).collect();
        let sound = bytes.len() == RECORD && words[SUM] == checksum(&words);
        sound.then_some(Self { pid, start: words[1], links })
    }
}

/// A checksum over all words but its own.
fn checksum(words: &[u64; RECORD / 8]) -> u64 {
    let others = words.iter().enumerate().filter(|(index, _)| *index != SUM);
    others.fold(0x9e37_79b9_7f4a_7c15, |sum, (_, word)| {
        (sum ^ word).rotate_left(23).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The opened page.
#[derive(Debug)]
pub struct ClaimsPage {
    file: File,
    start: u64,
    record: OnceLock<Option<usize>>,
    /// Held while a record is taken: a file lock does not keep threads of one process apart.
    admitting: Mutex<()>,
}

impl ClaimsPage {
    /// The path of the calling user's page. `None` if the user's number is shared by other users.
    pub fn of_user() -> Option<PathBuf> {
        Some(format!("/dev/shm/wmshim-links-{}", user::own()?).into())
    }

    /// Opens or makes the page.
    ///
    /// # Errors
    /// Those of the file system, and `PermissionDenied` for a file that is not the user's own.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
        let file = options.open(path)?;
        if !user::is_own(file.metadata()?.uid()) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        if file.metadata()?.len() < (RECORD * RECORDS) as u64 {
            file.set_len((RECORD * RECORDS) as u64)?;
        }
        let start = started(std::process::id()).unwrap_or(0);
        Ok(Self { file, start, record: OnceLock::new(), admitting: Mutex::new(()) })
    }

    /// Links that other processes claim at the time `now`.
    pub fn others(&self, now: u64) -> Vec<Link> {
        let me = (std::process::id(), self.start);
        let records = self.read().into_iter().flatten();
        records
            .filter(|record| (record.pid, record.start) != me)
            .flat_map(|record| record.links)
            .filter(|(_, until)| *until > now)
            .map(|(link, _)| link)
            .collect()
    }

    /// Publishes the links that this process uses and when each claim ends, as many as a record
    /// holds. Without a record it publishes nothing, and other processes may relay through these
    /// links. That is also so while another process reserves a record or was stopped while it did:
    /// copies call this, and copies wait for no other process.
    pub fn publish(&self, links: &[(Link, u64)]) {
        if let Some(index) = self.index() {
            let _ = self.write(index, links);
        }
    }

    /// The record of this process. The first call that finds the page unlocked reserves it.
    fn index(&self) -> Option<usize> {
        if let Some(index) = self.record.get() {
            return *index;
        }
        let _admitting = self.admitting.try_lock().ok()?;
        if self.record.get().is_none() {
            let admitted = match self.file.try_lock() {
                Ok(()) => self.admit().ok().flatten(),
                Err(TryLockError::WouldBlock) => return None,
                Err(TryLockError::Error(_)) => None,
            };
            let _ = self.record.set(admitted);
        }
        *self.record.get()?
    }

    fn write(&self, index: usize, links: &[(Link, u64)]) -> io::Result<()> {
        let record = ClaimsRecord { pid: std::process::id(), start: self.start, links: links.to_vec() };
        self.file.write_all_at(&record.encode(), (index * RECORD) as u64)
    }

    fn read(&self) -> Vec<Option<ClaimsRecord>> {
        let mut bytes = [0; RECORD * RECORDS];
        match self.file.read_at(&mut bytes, 0) {
            Ok(length) => bytes[..length].chunks_exact(RECORD).map(ClaimsRecord::decode).collect(),
            Err(_) => Vec::new(),
        }
    }

    /// Reserves a record that no living process has, and unlocks the page.
    fn admit(&self) -> io::Result<Option<usize>> {
        let is_free = |record: &Option<ClaimsRecord>| {
            record.as_ref().is_none_or(|record| started(record.pid) != Some(record.start))
        };
        let index = self.read().iter().position(is_free);
        let outcome = index.map_or(Ok(()), |index| self.write(index, &[]));
        self.file.unlock()?;
        outcome.map(|()| index)
    }
}

/// When a process started, in the kernel's ticks; `None` if it has ended.
fn started(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything; 19 fields behind it is the start.
    text.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    //! Hazard (resource leak): a killed process blocks links for ever, or a record that is half
    //! written names links that are idle.
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("wmshim-page-{name}-{}", std::process::id()))
    }

    fn record() -> ClaimsRecord {
        ClaimsRecord {
            pid: 7,
            start: 8,
            links: (1..=RECORD_LINKS as u64).map(|link| (Link(link), 9)).collect(),
        }
    }

    #[test]
    fn a_record_is_what_was_written_or_nothing() {
        let bytes = record().encode();
        assert_eq!(ClaimsRecord::decode(&bytes), Some(record()));
        assert_eq!(ClaimsRecord::decode(&[0; RECORD]), None);
        for index in 0..RECORD {
            let mut damaged = bytes;
            damaged[index] ^= 0x10;
            assert_eq!(ClaimsRecord::decode(&damaged), None, "byte {index}");
        }
    }

    #[test]
    fn a_dead_process_is_seen_until_its_claim_ends_and_its_record_is_taken_over() {
        let path = scratch("dead");
        let page = ClaimsPage::open(&path).expect("a writable folder");
        // No process has this number: it is above the kernel's limit.
        let dead = ClaimsRecord { pid: u32::MAX, ..record() };
        page.file.write_all_at(&dead.encode(), 0).expect("writes");
        assert_eq!(page.others(8).len(), RECORD_LINKS);
        assert!(page.others(9).is_empty());
        page.publish(&[(Link(3), 1000)]);
        assert_eq!(page.read()[0].as_ref().map(|record| record.pid), Some(std::process::id()));
        assert!(page.others(8).is_empty(), "its own claims are no obstacle");
        std::fs::remove_file(path).expect("removes");
    }

    #[test]
    fn a_living_process_keeps_its_record() {
        let path = scratch("living");
        let page = ClaimsPage::open(&path).expect("a writable folder");
        let parent = std::os::unix::process::parent_id();
        let living = ClaimsRecord { pid: parent, start: started(parent).expect("it lives"), ..record() };
        page.file.write_all_at(&living.encode(), 0).expect("writes");
        page.publish(&[(Link(3), 1000)]);
        assert_eq!(page.read()[0], Some(living));
        assert_eq!(page.read()[1].as_ref().map(|record| record.links.clone()), Some(vec![(Link(3), 1000)]));
        std::fs::remove_file(path).expect("removes");
    }

    /// Hazard: a copy hangs while a stopped or debugged process holds the lock.
    #[test]
    fn a_page_that_another_process_has_locked_delays_nobody() {
        let path = scratch("locked");
        let page = ClaimsPage::open(&path).expect("a writable folder");
        let holder = File::open(&path).expect("it is there");
        holder.lock().expect("the only holder");
        std::thread::scope(|scope| {
            let (done, published) = std::sync::mpsc::channel();
            let page = &page;
            scope.spawn(move || {
                page.publish(&[(Link(3), 1000)]);
                let _ = done.send(());
            });
            let outcome = published.recv_timeout(std::time::Duration::from_secs(10));
            assert!(page.read().iter().all(Option::is_none), "nothing is written without the lock");
            // A thread that waits for the lock would prevent the end of this test.
            holder.unlock().expect("it is held");
            outcome.expect("a copy waits for the lock");
        });
        page.publish(&[(Link(3), 1000)]);
        assert_eq!(page.read()[0].as_ref().map(|record| record.links.clone()), Some(vec![(Link(3), 1000)]));
        std::fs::remove_file(path).expect("removes");
    }

    #[test]
    fn a_short_file_is_no_claim() {
        let path = scratch("short");
        let page = ClaimsPage::open(&path).expect("a writable folder");
        page.file.set_len(60).expect("shrinks");
        assert!(page.others(0).is_empty());
        std::fs::remove_file(path).expect("removes");
    }
}
