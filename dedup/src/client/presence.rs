//! Which processes of a user could share memory, before any of them has a broker: a file in the
//! folder of sockets, which each of them holds a shared lock of.
//!
//! The kernel drops a lock with its process, so no process that was killed counts. A process asks
//! by taking the lock for itself alone, which succeeds if no other holds it. Two that ask at the
//! same time may both be told that they are alone; they ask again some time.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use wm_sockets::descriptor::Descriptor;

/// File name in the folder of sockets. It stays there.
const FILE: &str = "dedup.present";

/// How often a process tries to get its lock back from others that ask.
const TRIES: usize = 1000;

/// This process, as long as it is one that could share.
#[derive(Debug)]
pub struct Presence(Descriptor);

impl Presence {
    /// This process could share from now on. `folder`: of sockets, which is the user's alone.
    ///
    /// # Errors
    /// The system's. The process then counts as absent.
    pub fn announce(folder: &Path) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = rustix::fs::open(folder.join(FILE), flags, Mode::RUSR | Mode::WUSR)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            // Another process asks just now: the next question takes the lock.
            Ok(()) | Err(Errno::WOULDBLOCK) => Ok(Self(Descriptor::adopt(file)?)),
            Err(error) => Err(error.into()),
        }
    }

    /// Is no other process present? Waits for nothing.
    pub fn is_alone(&self) -> bool {
        // A program that closes all descriptors has closed this one, and shares nothing.
        let Ok(file) = self.0.get() else { return true };
        let alone = rustix::fs::flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive).is_ok();
        // A question that fails has lost the shared lock. Another process may ask just now, for a
        // microsecond.
        for _ in 0..TRIES {
            match rustix::fs::flock(file.as_fd(), FlockOperation::NonBlockingLockShared) {
                Err(Errno::WOULDBLOCK) => std::thread::yield_now(),
                _ => break,
            }
        }
        alone
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (silent degradation): two processes that could share never notice each other.
    use super::*;

    #[test]
    fn the_second_one_is_seen_by_both_and_only_while_it_is_there() {
        let folder = std::env::temp_dir().join(format!("wm-dedup-presence-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let announce = || Presence::announce(&folder).expect("a lock");
        let one = announce();
        assert!(one.is_alone() && one.is_alone());
        let other = announce();
        assert!(!one.is_alone() && !other.is_alone() && !one.is_alone());
        drop(one);
        assert!(other.is_alone());
        assert!(Presence::announce(&folder.join("missing")).is_err());
        std::fs::remove_dir_all(folder).expect("removed");
    }
}
