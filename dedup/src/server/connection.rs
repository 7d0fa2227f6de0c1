//! One connection: a state that moves when its socket is ready, and never waits.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::peer::PeerIdentity;
use super::reply::Reply;
use super::service::{SharingService, Speaker};
use crate::protocol;

/// For a client to say hello.
const PATIENCE: Duration = Duration::from_secs(5);

/// The pause after a failure by lack of descriptors or memory.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// A process at the other end of a socket.
#[derive(Debug)]
pub(super) struct ClientConnection {
    socket: OwnedFd,
    peer: PeerIdentity,
    speaker: Speaker,
    /// The answer that did not fit into the socket.
    pending: Option<Reply>,
    /// The kernel has no room for more descriptors under way; it is asked again then.
    resting_until: Option<Instant>,
    /// For a hello.
    deadline: Instant,
}

impl ClientConnection {
    pub(super) fn new(socket: OwnedFd, peer: PeerIdentity, now: Instant) -> Self {
        let (speaker, deadline) = (Speaker::Unknown, now + PATIENCE);
        Self { socket, peer, speaker, pending: None, resting_until: None, deadline }
    }

    /// The event that it waits for. The peer's end is always reported.
    pub(super) fn poll_entry(&self) -> PollFd<'_> {
        let wanted = match (&self.pending, self.resting_until) {
            (Some(_), Some(_)) => PollFlags::empty(),
            (Some(_), None) => PollFlags::OUT,
            (None, _) => PollFlags::IN,
        };
        PollFd::from_borrowed_fd(self.socket.as_fd(), wanted)
    }

    /// When something must be done without an event.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let hello = matches!(self.speaker, Speaker::Unknown).then_some(self.deadline);
        hello.into_iter().chain(self.resting_until).min()
    }

    /// False once it had time to say hello, and did not.
    pub(super) fn is_patient(&self, now: Instant) -> bool {
        !matches!(self.speaker, Speaker::Unknown) || self.deadline > now
    }

    /// Does one piece of work, if there is one.
    ///
    /// # Errors
    /// The connection ends with it.
    pub(super) fn attend(
        &mut self,
        is_ready: bool,
        service: &mut SharingService,
        now: Instant,
    ) -> Result<()> {
        let rested = self.resting_until.is_some_and(|until| until <= now);
        if !is_ready && !rested {
            return Ok(());
        }
        self.resting_until = None;
        if self.pending.is_some() {
            return self.send(now);
        }
        let packet = match protocol::receive(self.socket.as_fd()) {
            Err(error) if is_momentary(&error) => return Ok(()),
            packet => packet?,
        };
        let was_unknown = self.speaker == Speaker::Unknown;
        self.pending = service.serve(&mut self.speaker, self.peer.process, packet, now)?;
        if was_unknown {
            service.watch(&self.speaker, wm_trust::peer::life(self.socket.as_fd()));
        }
        self.send(now)
    }

    /// Sends the orders that there are for it, as far as the socket takes them.
    ///
    /// # Errors
    /// The connection ends with it.
    pub(super) fn send_orders(&mut self, service: &mut SharingService, now: Instant) -> Result<()> {
        while self.pending.is_none() && service.has_order(&self.speaker) {
            self.pending = service.take_order(&self.speaker);
            self.send(now)?;
        }
        Ok(())
    }

    /// Sends the pending answer, or leaves it for later.
    fn send(&mut self, now: Instant) -> Result<()> {
        let Some(reply) = &self.pending else { return Ok(()) };
        let descriptors: Vec<BorrowedFd<'_>> =
            reply.descriptors.iter().map(|one| Rc::as_ref(one).as_fd()).collect();
        match protocol::send(self.socket.as_fd(), &reply.bytes, &descriptors) {
            Ok(()) if reply.is_last => return Err(Error::other("another version, or one client too many")),
            Ok(()) => self.pending = None,
            Err(error) if is_momentary(&error) => {}
            Err(error) if is_scarcity(&error) => self.resting_until = Some(now + PAUSE),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Gives back all it held.
    pub(super) fn leave(&self, service: &mut SharingService, now: Instant) {
        service.leave(&self.speaker, now);
    }

    /// For the log.
    pub(super) fn shown(&self) -> String {
        format!("process {}", self.peer.process)
    }
}

fn is_momentary(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// The user has as many descriptors under way as the kernel allows, or the machine has no memory
/// for more.
fn is_scarcity(error: &Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::TOOMANYREFS | Errno::NOBUFS | Errno::NOMEM))
}
