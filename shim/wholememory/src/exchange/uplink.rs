//! The way of a leader to the root, while ranks meet.
//!
//! A connection may be lost in the network: so a leader that does not reach the root tries again
//! until its patience ends. Without a route to the root's machine it ends at once, and also if that
//! machine refuses the connection: the port was open before the unique id was known.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::arrival::{CALL, RankArrival};
use super::greeting::Caller;
use super::link::{RankLink, left};
use super::tcp;
use super::terms::Terms;
use super::wire::{Part, RankFrame};
use crate::error::{Error, Result};

/// The time between two calls.
const PAUSE: Duration = Duration::from_millis(200);

/// The way to the root.
#[derive(Debug)]
pub(super) enum Uplink {
    /// This leader is the root, or there is none.
    Absent,
    /// To be called at this moment; why the last call failed.
    Wanted {
        at: Instant,
        failed: Option<io::Error>,
    },
    /// The connection is not open yet, or the root has not proved yet that it has the key. It may
    /// not have come.
    Called {
        caller: Caller,
        since: Instant,
        is_repeated: bool,
    },
    Open(RankLink),
}

impl Uplink {
    /// To be called now.
    pub(super) fn wanted() -> Self {
        Self::Wanted { at: Instant::now(), failed: None }
    }

    /// The descriptors to poll for the root's words.
    ///
    /// # Errors
    /// The program has closed them.
    pub(super) fn polled(&self) -> io::Result<Vec<PollFd<'_>>> {
        match self {
            Self::Called { caller, .. } => {
                Ok(vec![PollFd::from_borrowed_fd(caller.socket()?, PollFlags::IN)])
            }
            Self::Open(up) => up.polled(PollFlags::IN),
            Self::Absent | Self::Wanted { .. } => Ok(Vec::new()),
        }
    }

    /// When there is something to do without a word of the root.
    pub(super) fn until(&self) -> Option<Instant> {
        match self {
            Self::Wanted { at, .. } => Some(*at),
            Self::Called { caller, since, .. } if !caller.is_connected() => Some(*since + tcp::OPENING),
            _ => None,
        }
    }

    /// Waits until there is something to do.
    ///
    /// # Errors
    /// There never is, since the root is not called; the system's.
    pub(super) fn wait(&self, deadline: Instant) -> io::Result<()> {
        if let Self::Absent = self {
            return Err(ErrorKind::NotConnected.into());
        }
        let until = self.until().map_or(deadline, |until| until.min(deadline));
        match poll(&mut self.polled()?, Some(&left(until))) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Calls the root, and goes on talking to it. Does not wait. Returns the root's terms when it
    /// has proved itself. After an error it is not called any more.
    ///
    /// # Errors
    /// [`Error::Communication`] where the root's machine refuses, or a stranger answers.
    pub(super) fn call(&mut self, arrival: RankArrival<'_>, own: Terms) -> Result<Option<Terms>> {
        let called = self.go_on(arrival, own);
        if called.is_err() {
            *self = Self::Absent;
        }
        called
    }

    fn go_on(&mut self, arrival: RankArrival<'_>, own: Terms) -> Result<Option<Terms>> {
        let Some(door) = arrival.invitation.door else { return Ok(None) };
        let now = Instant::now();
        if let Self::Wanted { at, failed } = self
            && *at <= now
        {
            let is_repeated = failed.is_some();
            match tcp::begin(door).and_then(|socket| Caller::new(socket, arrival.rank, own)) {
                Ok(caller) => *self = Self::Called { caller, since: now, is_repeated },
                Err(error) => return self.call_later(arrival, door, error),
            }
        }
        let Self::Called { caller, since, .. } = self else { return Ok(None) };
        match caller.go_on(arrival.invitation.key) {
            Ok(Some(root)) => Ok(Some(root)),
            Ok(None) if caller.is_connected() || now < *since + tcp::OPENING => Ok(None),
            Ok(None) => self.call_later(arrival, door, ErrorKind::TimedOut.into()),
            Err(error) if caller.is_connected() && error.kind() == ErrorKind::PermissionDenied => {
                Err(Error::Communication(format!("the root of the ranks does not answer: {error}")))
            }
            Err(error) => self.call_later(arrival, door, error),
        }
    }

    /// Has a call failed before?
    fn is_repeated(&self) -> bool {
        match self {
            Self::Wanted { failed, .. } => failed.is_some(),
            Self::Called { is_repeated, .. } => *is_repeated,
            Self::Absent | Self::Open(_) => false,
        }
    }

    fn call_later(
        &mut self,
        arrival: RankArrival<'_>,
        door: SocketAddr,
        error: io::Error,
    ) -> Result<Option<Terms>> {
        let is_home = arrival.invitation.is_home;
        // Loopback leads to no other machine.
        if !may_pass(&error) || (door.ip().is_loopback() && !is_home) {
            // Ranks of one machine need no root.
            *self = Self::Absent;
            return if is_home { Ok(None) } else { Err(unreachable_root(door, &error)) };
        }
        // One line: the calls after the first one fail for the same reason.
        let level = if self.is_repeated() { log::Level::Debug } else { log::Level::Warn };
        log::log!(level, "wholememory: {door} is not reached, and is called again: {error}");
        *self = Self::Wanted { at: Instant::now() + PAUSE, failed: Some(error) };
        Ok(None)
    }

    /// The root has proved itself: opens the link to it.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn open(&mut self, patience: Duration) -> Result<Option<&RankLink>> {
        if let Self::Called { caller, .. } = std::mem::replace(self, Self::Absent) {
            *self = Self::Open(RankLink::remote(caller.into_socket(), patience)?);
        }
        Ok(self.link())
    }

    /// The link to the root, if it is open.
    pub(super) fn link(&self) -> Option<&RankLink> {
        if let Self::Open(up) = self { Some(up) } else { None }
    }

    /// The same.
    pub(super) fn into_link(self) -> Option<RankLink> {
        if let Self::Open(up) = self { Some(up) } else { None }
    }

    /// Why ranks of other machines were not heard of in time, as far as that is due to the root.
    pub(super) fn unheard(&self, arrival: RankArrival<'_>) -> Option<Error> {
        let (patience, door) = (arrival.patience, arrival.invitation.door?);
        match self {
            Self::Open(_) => Some(Error::Communication(format!(
                "not all ranks of other machines came within {patience:?}"
            ))),
            Self::Called { caller, .. } if caller.is_connected() => Some(Error::Communication(format!(
                "no rank came within {patience:?} on the machine where the unique id was made: let a rank of the \
                 communicator make it"
            ))),
            Self::Called { .. } => Some(unreachable_root(door, &ErrorKind::TimedOut.into())),
            Self::Wanted { failed: Some(error), .. } if !arrival.invitation.is_home => {
                Some(unreachable_root(door, error))
            }
            Self::Wanted { .. } | Self::Absent => None,
        }
    }
}

/// May a call succeed later that has failed so? Without a route it does not.
fn may_pass(error: &io::Error) -> bool {
    use ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, HostUnreachable, Interrupted, TimedOut,
        UnexpectedEof, WouldBlock,
    };
    matches!(
        error.kind(),
        BrokenPipe
            | ConnectionAborted
            | ConnectionReset
            | HostUnreachable
            | Interrupted
            | TimedOut
            | UnexpectedEof
            | WouldBlock
    )
}

/// Says which ranks have come. A root that has heard of all ranks hears no more of the meeting: so
/// nothing is said of none.
///
/// # Errors
/// [`Error::Communication`] where the root has ended.
pub(super) fn say_came(up: &RankLink, ranks: &[usize]) -> Result {
    if ranks.is_empty() {
        return Ok(());
    }
    let bytes = ranks.iter().flat_map(|rank| (*rank as u32).to_le_bytes()).collect();
    let said = RankFrame::of_part(0, CALL, Part { bytes, descriptors: Vec::new() });
    said.send(up).map_err(|error| root_ended(&error))
}

pub(super) fn root_ended(error: &io::Error) -> Error {
    Error::Communication(format!("the root of the ranks has ended while ranks meet: {error}"))
}

fn unreachable_root(door: SocketAddr, error: &io::Error) -> Error {
    Error::Communication(format!(
        "this rank is on another machine, or in another network namespace, than the process that made the unique \
         id, and does not reach {door} there ({error}): {}",
        if door.ip().is_loopback() {
            "that process has no network but loopback; let it, or its container, have the machine's network, or \
             name an interface by NCCL_SOCKET_IFNAME"
        } else if error.kind() == ErrorKind::ConnectionRefused {
            "that process has ended, or its ranks have met or failed; make a new unique id for the next attempt"
        } else {
            "let the firewall pass TCP between the machines, or name another interface by NCCL_SOCKET_IFNAME"
        }
    ))
}
