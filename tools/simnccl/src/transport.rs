//! The network: a connection to each other rank, over which the messages of one group at a time
//! move together.
//!
//! To one rank, messages keep the order of the calls; the receiver compares each one's operation
//! and length with those that it expects, and a difference is an error, never a shorter message.
//! Only ranks with unfinished messages are watched, as in NCCL: an idle communicator does not
//! notice a death.

use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, poll};

use crate::abi::{Code, Outcome};
use crate::faults::Delays;
use crate::link::{Link, Message};
use crate::report::error;
use crate::wire::{Stop, TICK, timespec};

/// The end of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Complete,
    Stopped,
}

/// Messages and bytes that a rank has sent to others.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) messages: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

/// The connections of one rank.
#[derive(Debug)]
pub(crate) struct Transport {
    links: Vec<Option<Link>>,
    delays: Delays,
    /// The number of messages after which the network drops everything.
    drop_after: Option<u64>,
    dropped: bool,
    counters: Arc<Counters>,
}

impl Transport {
    /// The transport over the sockets of a rendezvous.
    pub(crate) fn new(
        sockets: Vec<Option<TcpStream>>,
        delays: Delays,
        drop_after: Option<u64>,
        counters: Arc<Counters>,
    ) -> Outcome<Self> {
        let link =
            |(peer, socket): (usize, Option<TcpStream>)| socket.map(|it| Link::new(peer, it)).transpose();
        let links = sockets.into_iter().enumerate().map(link).collect::<Outcome<_>>()?;
        Ok(Self { links, delays, drop_after, dropped: false, counters })
    }

    /// Moves all messages, or ends at a stop or an error.
    pub(crate) fn exchange(
        &mut self,
        sends: &[Message],
        receives: &[Message],
        out: &[u8],
        into: &mut [u8],
        stop: Stop<'_>,
    ) -> Outcome<End> {
        let now = Instant::now();
        for message in sends {
            let due = now + self.delays.next();
            self.link(message.peer)?.send_later(message.clone(), due);
        }
        for message in receives {
            self.link(message.peer)?.expect(message.clone());
        }
        while self.links.iter().flatten().any(Link::is_busy) {
            if stop() {
                return Ok(End::Stopped);
            }
            self.begin_due();
            self.wait();
            for link in self.links.iter_mut().flatten() {
                link.step(out, into)?;
            }
        }
        Ok(End::Complete)
    }

    /// Ends the sending half of each connection: the others read to the end of what was sent.
    pub(crate) fn finish(&self) {
        for link in self.links.iter().flatten().filter(|link| !link.is_silent()) {
            // A connection that is closed already is as wanted.
            let _ = link.socket().shutdown(Shutdown::Write);
        }
    }

    fn link(&mut self, peer: usize) -> Outcome<&mut Link> {
        let found = self.links.get_mut(peer).and_then(Option::as_mut);
        found.ok_or_else(|| error(Code::INTERNAL, "a message to the rank itself reached the network"))
    }

    /// Begins the messages whose delay is over, up to the one that the network drops.
    fn begin_due(&mut self) {
        let now = Instant::now();
        for at in 0..self.links.len() {
            let Some(link) = self.links[at].as_mut() else { continue };
            let Some(bytes) = link.due(now) else { continue };
            if self.dropped || self.drop_after.is_some_and(|last| self.sent() >= last) {
                self.drop_all();
                return;
            }
            self.counters.messages.fetch_add(1, Ordering::Relaxed);
            self.counters.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            self.links[at].as_mut().into_iter().for_each(Link::begin);
        }
    }

    fn sent(&self) -> u64 {
        self.counters.messages.load(Ordering::Relaxed)
    }

    fn drop_all(&mut self) {
        if !std::mem::replace(&mut self.dropped, true) {
            self.links.iter_mut().flatten().for_each(Link::drop_silently);
        }
    }

    /// Waits until a socket is ready, a delay is over, or a stop must be looked for.
    fn wait(&self) {
        let now = Instant::now();
        let links = || self.links.iter().flatten();
        let due = links().filter_map(Link::next_due).min();
        let timeout = due.map_or(TICK, |due| due.saturating_duration_since(now)).clamp(Duration::ZERO, TICK);
        let wanted = links().map(|link| (link, link.interest())).filter(|(_, flags)| !flags.is_empty());
        let mut fds: Vec<_> = wanted.map(|(link, flags)| PollFd::new(link.socket(), flags)).collect();
        // An interrupted wait is a short one.
        let _ = poll(&mut fds, Some(&timespec(timeout)));
    }
}
