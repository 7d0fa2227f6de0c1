//! The lives of the clients' processes, beyond their connections: a process that has lost its
//! connection maps memory still, and one that has ended does not.
//!
//! Invariant: at most so many descriptors are held as the broker has clients at a time. A process
//! without one never counts as ended.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::broker::ClientNumber;

/// See above. A descriptor is readable once its process has ended.
#[derive(Debug)]
pub(super) struct ProcessLives {
    most: usize,
    lives: BTreeMap<ClientNumber, OwnedFd>,
    /// Clients without a connection.
    departed: BTreeSet<ClientNumber>,
}

impl ProcessLives {
    pub(super) fn new(most: usize) -> Self {
        Self { most, lives: BTreeMap::new(), departed: BTreeSet::new() }
    }

    /// A new client. If there are too many, the client that departed first is watched no longer.
    pub(super) fn join(&mut self, client: ClientNumber, life: OwnedFd) {
        if self.lives.len() >= self.most
            && let Some(first) = self.departed.pop_first()
        {
            self.lives.remove(&first);
        }
        if self.lives.len() < self.most {
            self.lives.insert(client, life);
        }
    }

    /// A client's connection has ended. Those that departed are watched while their end `matters`.
    pub(super) fn depart(&mut self, client: ClientNumber, matters: impl Fn(ClientNumber) -> bool) {
        self.departed.insert(client);
        let unneeded = self.departed.extract_if(.., |client| !matters(*client));
        unneeded.for_each(|client| drop(self.lives.remove(&client)));
    }

    /// The lives of clients without a connection.
    pub(super) fn departed(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.departed.iter().filter_map(|client| self.lives.get(client)).map(AsFd::as_fd)
    }

    /// Clients without a connection that have ended, each once.
    pub(super) fn take_ended(&mut self) -> impl Iterator<Item = ClientNumber> {
        let lives = &mut self.lives;
        let has_ended = |client: &ClientNumber| lives.get(client).is_some_and(is_over);
        let ended: Vec<_> = self.departed.extract_if(.., |client| has_ended(client)).collect();
        ended.iter().for_each(|client| drop(lives.remove(client)));
        ended.into_iter()
    }
}

fn is_over(life: &OwnedFd) -> bool {
    let mut entries = [PollFd::from_borrowed_fd(life.as_fd(), PollFlags::IN)];
    let ready = poll(&mut entries, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    ready == Ok(1) && entries[0].revents().contains(PollFlags::IN)
}

#[cfg(test)]
mod tests {
    //! Hazard (data race): a process that lives counts as ended, and another one writes memory that
    //! it reads. Hazard (resource leak): each process that was ever connected keeps a descriptor.
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::broker::{Broker, CopyLimits, Limits};

    fn clients(count: usize) -> Vec<ClientNumber> {
        let mut broker: Broker<()> = Broker::new(Limits {
            clients: 9,
            chunks: 9,
            leases: 9,
            leases_of_one: 9,
            copies: CopyLimits::NONE,
        });
        (0..count).map(|_| broker.join().expect("there is room")).collect()
    }

    /// A process that ends when its input does.
    fn process() -> Child {
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it can be started")
    }

    fn life(process: &Child) -> OwnedFd {
        let pid = rustix::process::Pid::from_child(process);
        rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).expect("it lives")
    }

    #[test]
    fn a_process_has_ended_once_it_has_and_not_when_its_connection_has() {
        let (mut lives, mut process) = (ProcessLives::new(4), process());
        let client = clients(1)[0];
        lives.join(client, life(&process));
        lives.depart(client, |_| true);
        assert_eq!(lives.take_ended().count(), 0, "it lives");
        drop(process.stdin.take());
        process.wait().expect("it ends");
        assert_eq!(lives.take_ended().collect::<Vec<_>>(), [client]);
        assert_eq!((lives.take_ended().count(), lives.lives.len()), (0, 0), "it is told once");
    }

    #[test]
    fn a_process_that_is_connected_or_not_watched_has_not_ended() {
        let (mut lives, mut process) = (ProcessLives::new(2), process());
        let all = clients(4);
        all[..2].iter().for_each(|client| lives.join(*client, life(&process)));
        lives.depart(all[0], |_| true);
        lives.join(all[2], life(&process));
        assert_eq!(lives.lives.len(), 2, "the one without a connection gives way");
        lives.join(all[3], life(&process));
        assert_eq!(lives.lives.len(), 2, "those with one do not");
        drop(process.stdin.take());
        process.wait().expect("it ends");
        assert_eq!(lives.take_ended().count(), 0, "the others are connected");
        [all[0], all[3]].into_iter().for_each(|client| lives.depart(client, |_| true));
        assert_eq!(lives.take_ended().count(), 0, "and these are not watched");
        lives.depart(all[1], |_| true);
        assert_eq!(lives.take_ended().collect::<Vec<_>>(), [all[1]]);
        lives.depart(all[2], |_| false);
        assert_eq!((lives.take_ended().count(), lives.lives.len()), (0, 0), "its end is of no interest");
    }
}
