//! Connections to rank 0 that have not shown yet that they belong here.
//!
//! Every process on the machine can read the name and connect. Connections of other users are
//! closed before anything is read from them. All other connections are read at the same time, so
//! that a silent one delays no other. There is room for [`MOST`] connections: if more arrive, the
//! one that has been silent longest is closed, and a rank that was only busy connects again.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use wm_trust::peer::may_be_own;

use super::key::{GREETING, Key, random};
use super::link::left;
use super::terms::Terms;
use crate::error::Result;

/// Connections that wait for their first words: more than ranks of a machine, and few enough to
/// leave descriptors to the program.
const MOST: usize = 128;
/// The rank, its nonce, its terms, its proof.
const ANSWER: usize = 32;
/// The longest wait: the caller has more to watch than sockets.
const LONGEST: Duration = Duration::from_secs(1);

/// One that has been sent a nonce.
#[derive(Debug)]
struct Guest {
    socket: UnixStream,
    nonce: u64,
    answer: [u8; ANSWER],
    heard: usize,
    until: Instant,
}

/// All of them, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Guests(VecDeque<Guest>);

impl Guests {
    /// Waits until a process connects, sends bytes, or has been silent for too long, and no longer
    /// than a second. Returns false if the deadline has passed.
    pub(super) fn wait(&self, listener: BorrowedFd<'_>, deadline: Instant) -> Result<bool> {
        let now = Instant::now();
        if now >= deadline {
            return Ok(false);
        }
        let until = self.0.front().map_or(deadline, |oldest| oldest.until.min(deadline));
        let timeout = left(until.min(now + LONGEST));
        let mut polled = vec![PollFd::from_borrowed_fd(listener, PollFlags::IN)];
        polled.extend(self.0.iter().map(|guest| PollFd::new(&guest.socket, PollFlags::IN)));
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Lets in those that have connected, and sends away those that were silent for too long.
    pub(super) fn admit(&mut self, listener: BorrowedFd<'_>) -> Result<()> {
        let now = Instant::now();
        self.0.retain(|guest| guest.until > now);
        // More than have room could be sent away before they were heard.
        for _ in 0..MOST / 2 {
            match accept_with(listener, SocketFlags::CLOEXEC) {
                Ok(socket) => self.greet(socket.into()),
                Err(Errno::WOULDBLOCK) => return Ok(()),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                // No descriptors are left: one that is silent gives its own.
                Err(error) if self.0.pop_front().is_none() => return Err(error.into()),
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn greet(&mut self, socket: UnixStream) {
        if !may_be_own(socket.as_fd()) {
            return;
        }
        if let Ok(guest) = Guest::new(socket) {
            self.0.extend([guest]);
        }
        if self.0.len() > MOST {
            self.0.pop_front();
        }
    }

    /// Those that have proved to be ranks, with their terms and connections. Each is told `own`
    /// terms. One that does not have the key is sent away.
    pub(super) fn known(&mut self, key: Key, own: Terms) -> Vec<(usize, Terms, UnixStream)> {
        let mut known = Vec::new();
        for mut guest in std::mem::take(&mut self.0) {
            match guest.hear().and_then(|is_whole| is_whole.then(|| guest.rank(key, own)).transpose()) {
                Ok(None) => self.0.push_back(guest),
                Ok(Some((rank, terms))) => known.push((rank, terms, guest.socket)),
                Err(_) => {}
            }
        }
        known
    }
}

impl Guest {
    fn new(mut socket: UnixStream) -> io::Result<Self> {
        let (nonce, until) = (random()?, Instant::now() + GREETING);
        socket.set_nonblocking(true)?;
        // There is room in a socket that is new.
        socket.write_all(&nonce.to_le_bytes())?;
        Ok(Self { socket, nonce, answer: [0; ANSWER], heard: 0, until })
    }

    /// Reads the bytes that have arrived. Returns whether the answer is complete.
    fn hear(&mut self) -> io::Result<bool> {
        match self.socket.read(&mut self.answer[self.heard..]) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => {
                self.heard += bytes;
                Ok(self.heard == ANSWER)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Its rank and terms, if it has the key; then it is told that this process has it, too.
    fn rank(&mut self, key: Key, own: Terms) -> io::Result<(usize, Terms)> {
        let (words, _) = self.answer.as_chunks::<8>();
        let [rank, theirs, terms, proof] = [0, 1, 2, 3].map(|at| u64::from_le_bytes(words[at]));
        if proof != key.proof("rank", self.nonce, [rank, terms]) {
            return Err(ErrorKind::PermissionDenied.into());
        }
        let words = [own.word(), key.proof("hub", theirs, [rank, own.word()])];
        self.socket.write_all(&words.map(u64::to_le_bytes).concat())?;
        Ok((usize::try_from(rank).map_err(io::Error::other)?, Terms::of_word(terms)))
    }
}
