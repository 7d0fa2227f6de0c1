//! The connection to another rank, with the life of the rank's process.
//!
//! Ranks of one machine have a Unix socket, ranks of different machines a TCP stream.
//!
//! A Unix socket alone does not tell that a rank has ended: a child that the rank has forked holds
//! the same socket open, unless it was forked by a call that runs fork handlers. Each wait
//! therefore polls a descriptor of the other process, too. A rank that leaves shuts its socket
//! down, which its children cannot undo.

use std::io::{self, Error, ErrorKind, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use wm_sockets::descriptor::Descriptor;

use super::tcp;

/// The longest wait between two looks at the clock.
const LONGEST: Duration = Duration::from_secs(3600);

/// For bytes to a rank that says nothing before it has them all, but that it refuses them: a word
/// of it ends the wait with `BrokenPipe`.
pub(super) const UNLESS_ANSWERED: PollFlags = PollFlags::OUT.union(PollFlags::IN);

/// A connection.
#[derive(Debug)]
pub(super) struct RankLink {
    socket: Descriptor,
    /// Readable when the other rank's process has ended. Absent where the kernel has no such
    /// descriptors: then the socket alone tells.
    life: Option<OwnedFd>,
    /// A TCP stream, which carries no descriptors.
    is_remote: bool,
    /// How long one wait may take.
    patience: Duration,
    /// The process that the link belongs to.
    process: u32,
}

/// A descriptor of this process, which becomes readable when it ends.
pub(super) fn own_life() -> Option<OwnedFd> {
    pidfd_open(getpid(), PidfdFlags::empty()).ok()
}

impl RankLink {
    /// A link over a Unix socket.
    pub(super) fn new(socket: Descriptor, life: Option<OwnedFd>, patience: Duration) -> io::Result<Self> {
        Self::over(socket, life, false, patience)
    }

    /// The link over a Unix socket to the process that connected, or listens.
    pub(super) fn to_peer(socket: Descriptor, patience: Duration) -> io::Result<Self> {
        let life = wm_trust::peer::life(socket.get()?);
        Self::over(socket, life, false, patience)
    }

    /// The link over a TCP stream.
    pub(super) fn remote(stream: Descriptor, patience: Duration) -> io::Result<Self> {
        tcp::tune(stream.get()?)?;
        Self::over(stream, None, true, patience)
    }

    fn over(
        socket: Descriptor,
        life: Option<OwnedFd>,
        is_remote: bool,
        patience: Duration,
    ) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(socket.get()?, true)?;
        Ok(Self { socket, life, is_remote, patience, process: std::process::id() })
    }

    /// Is the other rank on another machine?
    pub(super) fn is_remote(&self) -> bool {
        self.is_remote
    }

    /// Does the other rank's machine not answer any more?
    pub(super) fn is_lost(&self) -> bool {
        self.is_remote && self.socket.get().is_ok_and(tcp::is_lost)
    }

    /// Are there bytes to read, or has the other rank left?
    pub(super) fn is_readable(&self) -> bool {
        let polled = self.polled(PollFlags::IN);
        polled.is_ok_and(|mut polled| {
            poll(&mut polled[..1], Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
        })
    }

    /// The descriptors to poll for bytes, and for the end of the other rank.
    ///
    /// # Errors
    /// The program has closed the socket.
    pub(super) fn polled(&self, flags: PollFlags) -> io::Result<Vec<PollFd<'_>>> {
        let life = self.life.iter().map(|life| PollFd::new(life, PollFlags::IN));
        Ok(std::iter::once(PollFd::from_borrowed_fd(self.socket.get()?, flags)).chain(life).collect())
    }

    /// Has the other rank left or ended, or is its machine lost? Bytes that it has sent may be
    /// unread.
    pub(super) fn has_ended(&self) -> bool {
        // Of a TCP stream that the other end has closed, this end is open.
        self.is_lost() || self.is_heard(PollFlags::RDHUP)
    }

    /// Has the other rank sent something, left or ended?
    pub(super) fn has_news(&self) -> bool {
        self.is_lost() || self.is_heard(PollFlags::IN)
    }

    fn is_heard(&self, flags: PollFlags) -> bool {
        let polled = self.polled(flags);
        polled.map_or(true, |mut polled| {
            poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
        })
    }

    /// Ends the connection at both ranks.
    pub(super) fn shut_down(&self) {
        if let Ok(socket) = self.socket.get() {
            let _already_closed = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
    }

    /// Waits until the socket is ready. The bytes that a rank has sent before its end are read.
    fn wait(&self, flags: PollFlags) -> io::Result<()> {
        let deadline = Instant::now() + self.patience;
        loop {
            let mut polled = self.polled(flags)?;
            let until = if self.is_remote { deadline.min(Instant::now() + tcp::SECOND) } else { deadline };
            match poll(&mut polled, Some(&left(until))) {
                Ok(0) if Instant::now() >= deadline => return Err(ErrorKind::TimedOut.into()),
                Ok(0) if self.is_lost() => return Err(lost()),
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            let found = polled[0].revents();
            if flags.contains(UNLESS_ANSWERED) && !found.is_empty() && !found.contains(PollFlags::OUT) {
                return Err(Error::new(ErrorKind::BrokenPipe, "it has answered before it was told all"));
            }
            if !found.is_empty() {
                return Ok(());
            }
            // The process has ended after its last byte was sent, perhaps since the socket was
            // polled.
            let mut socket = [PollFd::from_borrowed_fd(self.socket.get()?, flags)];
            let is_ready = poll(&mut socket, Some(&Timespec::default()))? > 0;
            let ended = || Error::new(ErrorKind::UnexpectedEof, "its process has ended");
            return if is_ready { Ok(()) } else { Err(ended()) };
        }
    }

    /// Sends all bytes. `flags` are those of the waits: [`PollFlags::OUT`] or [`UNLESS_ANSWERED`].
    /// It raises no `SIGPIPE`: the process is not ours.
    pub(super) fn send_all(&self, mut bytes: &[u8], flags: PollFlags) -> io::Result<()> {
        while !bytes.is_empty() {
            let send = |socket: BorrowedFd<'_>| Ok(rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)?);
            bytes = &bytes[self.until_ready(flags, send)?..];
        }
        Ok(())
    }

    /// Repeats a call of the socket until it does not block.
    pub(super) fn until_ready<T>(
        &self,
        flags: PollFlags,
        mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match call(self.socket.get()?) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(flags)?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                outcome => return outcome,
            }
        }
    }
}

/// The error of a wait for a machine that does not answer.
pub(super) fn lost() -> Error {
    Error::new(ErrorKind::TimedOut, "its machine, or the network to it, does not answer")
}

/// The time until a deadline, for `poll`.
pub(super) fn left(deadline: Instant) -> Timespec {
    let left = deadline.saturating_duration_since(Instant::now()).min(LONGEST);
    let tv_sec = left.as_secs().try_into().unwrap_or(i64::MAX);
    Timespec { tv_sec, tv_nsec: left.subsec_nanos().into() }
}

impl Read for &RankLink {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut receive = |socket: BorrowedFd<'_>| {
            Ok(rustix::net::recv(socket, &mut *bytes, RecvFlags::empty()).map(|(read, _)| read)?)
        };
        self.until_ready(PollFlags::IN, &mut receive)
    }
}

/// Writing raises no `SIGPIPE`: the process is not ours.
impl Write for &RankLink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.until_ready(PollFlags::OUT, |socket| Ok(rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)?))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for RankLink {
    fn drop(&mut self) {
        // A child closes its copy and leaves the rank's connection as it is.
        if std::process::id() == self.process
            && let Ok(socket) = self.socket.get()
        {
            let _already_closed = rustix::net::shutdown(socket, Shutdown::Both);
        }
    }
}
