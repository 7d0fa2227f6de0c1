//! The words of a process that has connected, to the one that listens: both prove that they have
//! the key before anything else is said.
//!
//! The listener sends a nonce; the caller answers with its rank, a nonce of its own, its terms and
//! its proof; the listener sends its terms and its proof.

use std::io::{self, ErrorKind};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use wm_sockets::descriptor::Descriptor;

use super::forked::closed_in_child;
use super::key::{Key, random};
use super::link::left;
use super::terms::Terms;

/// The listener's nonce.
const NONCE: usize = 8;
/// The listener's nonce, its terms, its proof.
const WHOLE: usize = 24;

/// A connection whose listener has not proved yet that it has the key.
#[derive(Debug)]
pub(super) struct Caller {
    socket: Descriptor,
    rank: u64,
    own: Terms,
    random: u64,
    heard: [u8; WHOLE],
    count: usize,
}

impl Caller {
    /// A caller with a new connection, which does not block from now on, and which children of a
    /// fork close: the listener may answer late.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn new(socket: OwnedFd, rank: usize, own: Terms) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        let socket = closed_in_child(socket)?;
        Ok(Self { socket, rank: rank as u64, own, random: random()?, heard: [0; WHOLE], count: 0 })
    }

    /// The socket, to poll for the listener's words.
    ///
    /// # Errors
    /// The program has closed it.
    pub(super) fn socket(&self) -> io::Result<BorrowedFd<'_>> {
        self.socket.get()
    }

    /// Has the other machine taken the connection?
    pub(super) fn is_connected(&self) -> bool {
        self.socket.get().is_ok_and(|socket| rustix::net::getpeername(socket).is_ok())
    }

    /// Hears what has arrived, and answers. Returns the listener's terms when it has proved itself.
    ///
    /// # Errors
    /// `PermissionDenied` where the listener does not have the key; the system's.
    pub(super) fn go_on(&mut self, key: Key) -> io::Result<Option<Terms>> {
        loop {
            let end = if self.count < NONCE { NONCE } else { WHOLE };
            match rustix::net::recv(self.socket.get()?, &mut self.heard[self.count..end], RecvFlags::empty())
            {
                Ok((0, _)) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok((bytes, _)) => self.count += bytes,
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            match self.count {
                NONCE => self.answer(key)?,
                WHOLE => return self.terms(key).map(Some),
                _ => {}
            }
        }
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.heard.as_chunks::<8>().0[at])
    }

    fn answer(&self, key: Key) -> io::Result<()> {
        let proof = key.proof("rank", self.word(0), [self.rank, self.own.word()]);
        let text = [self.rank, self.random, self.own.word(), proof].map(u64::to_le_bytes).concat();
        // There is room for few bytes in a socket that is new.
        let sent = rustix::net::send(self.socket.get()?, &text, SendFlags::NOSIGNAL)?;
        if sent == text.len() { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
    }

    fn terms(&self, key: Key) -> io::Result<Terms> {
        let proof = key.proof("hub", self.random, [self.rank, self.word(1)]);
        let is_hub = self.word(2) == proof;
        if is_hub { Ok(Terms::of_word(self.word(1))) } else { Err(ErrorKind::PermissionDenied.into()) }
    }

    /// The connection.
    pub(super) fn into_socket(self) -> Descriptor {
        self.socket
    }
}

/// Waits until a listener has proved itself.
///
/// # Errors
/// `TimedOut` after the deadline; as [`Caller::go_on`].
pub(super) fn talk(caller: &mut Caller, key: Key, deadline: Instant) -> io::Result<Terms> {
    loop {
        if let Some(terms) = caller.go_on(key)? {
            return Ok(terms);
        }
        if Instant::now() >= deadline {
            return Err(ErrorKind::TimedOut.into());
        }
        let mut polled = [PollFd::from_borrowed_fd(caller.socket()?, PollFlags::IN)];
        match poll(&mut polled, Some(&left(deadline))) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
