//! Connections that have not shown yet that they belong here.
//!
//! Every process on the machine can read a Unix name and connect, and every machine of the network
//! can connect to a TCP port. Unix connections of other users are closed before anything is read
//! from them. All other connections are read at the same time, so that a silent one delays no
//! other. There is room for [`MOST`] connections: if more arrive, the one that has been silent
//! longest is closed, and a rank that was only busy connects again.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with};
use wm_trust::peer::may_be_own;

use super::key::{GREETING, Key, random};
use super::terms::Terms;
use crate::error::Result;

/// Connections that wait for their first words: more than ranks of a machine, and few enough to
/// leave descriptors to the program.
const MOST: usize = 128;
/// The rank, its nonce, its terms, its proof.
const ANSWER: usize = 32;

/// A connection to a process that has the key.
#[derive(Debug)]
pub(super) struct KnownGuest {
    pub(super) rank: usize,
    pub(super) terms: Terms,
    pub(super) socket: OwnedFd,
    /// It came over TCP.
    pub(super) is_remote: bool,
}

/// One that has been sent a nonce.
#[derive(Debug)]
struct Guest {
    socket: OwnedFd,
    is_remote: bool,
    nonce: u64,
    answer: [u8; ANSWER],
    heard: usize,
    until: Instant,
}

/// All of them, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Guests(VecDeque<Guest>);

impl Guests {
    /// When the one that has been silent longest is sent away.
    pub(super) fn until(&self) -> Option<Instant> {
        self.0.front().map(|oldest| oldest.until)
    }

    /// The descriptors to poll for their words.
    pub(super) fn polled(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.0.iter().map(|guest| PollFd::new(&guest.socket, PollFlags::IN))
    }

    /// Lets in those that have connected, and sends away those that were silent for too long.
    pub(super) fn admit(&mut self, listener: BorrowedFd<'_>, is_remote: bool) -> Result<()> {
        let now = Instant::now();
        self.0.retain(|guest| guest.until > now);
        // More than have room could be sent away before they were heard.
        for _ in 0..MOST / 2 {
            match accept_with(listener, SocketFlags::CLOEXEC) {
                Ok(socket) => self.greet(socket, is_remote),
                Err(Errno::WOULDBLOCK) => return Ok(()),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                // No descriptors are left: one that is silent gives its own.
                Err(error) if self.0.pop_front().is_none() => return Err(error.into()),
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn greet(&mut self, socket: OwnedFd, is_remote: bool) {
        if !is_remote && !may_be_own(socket.as_fd()) {
            return;
        }
        if let Ok(guest) = Guest::new(socket, is_remote) {
            self.0.extend([guest]);
        }
        if self.0.len() > MOST {
            self.0.pop_front();
        }
    }

    /// Those that have proved to be ranks. Each is told `own` terms. One that does not have the key
    /// is sent away.
    pub(super) fn known(&mut self, key: Key, own: Terms) -> Vec<KnownGuest> {
        let mut known = Vec::new();
        for mut guest in std::mem::take(&mut self.0) {
            match guest.hear().and_then(|is_whole| is_whole.then(|| guest.rank(key, own)).transpose()) {
                Ok(None) => self.0.push_back(guest),
                Ok(Some((rank, terms))) => {
                    let Guest { socket, is_remote, .. } = guest;
                    known.push(KnownGuest { rank, terms, socket, is_remote });
                }
                Err(_) => {}
            }
        }
        known
    }
}

impl Guest {
    fn new(socket: OwnedFd, is_remote: bool) -> io::Result<Self> {
        let (nonce, until) = (random()?, Instant::now() + GREETING);
        rustix::io::ioctl_fionbio(&socket, true)?;
        let guest = Self { socket, is_remote, nonce, answer: [0; ANSWER], heard: 0, until };
        guest.say(&nonce.to_le_bytes())?;
        Ok(guest)
    }

    /// There is room for few bytes in a socket that is new.
    fn say(&self, bytes: &[u8]) -> io::Result<()> {
        let sent = rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL)?;
        if sent == bytes.len() { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
    }

    /// Reads the bytes that have arrived. Returns whether the answer is complete.
    fn hear(&mut self) -> io::Result<bool> {
        match rustix::net::recv(&self.socket, &mut self.answer[self.heard..], RecvFlags::empty()) {
            Ok((0, _)) => Err(ErrorKind::UnexpectedEof.into()),
            Ok((bytes, _)) => {
                self.heard += bytes;
                Ok(self.heard == ANSWER)
            }
            Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Its rank and terms, if it has the key; then it is told that this process has it, too.
    fn rank(&self, key: Key, own: Terms) -> io::Result<(usize, Terms)> {
        let (words, _) = self.answer.as_chunks::<8>();
        let [rank, theirs, terms, proof] = [0, 1, 2, 3].map(|at| u64::from_le_bytes(words[at]));
        if proof != key.proof("rank", self.nonce, [rank, terms]) {
            return Err(ErrorKind::PermissionDenied.into());
        }
        let words = [own.word(), key.proof("hub", theirs, [rank, own.word()])];
        self.say(&words.map(u64::to_le_bytes).concat())?;
        Ok((usize::try_from(rank).map_err(io::Error::other)?, Terms::of_word(terms)))
    }
}
