//! The loop: waits for all at once, and does a bounded piece of work for each.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::accepting::{Arrival, accept_one, refuse};
use super::connection::{ClientConnection, PAUSE};
use super::peer::AskPeer;
use super::place::{BrokerPlace, PlaceState};
use super::service::SharingService;
use crate::broker::Limits;

/// Connections accepted a round.
const ROUND: usize = 64;

/// Connections for observers, beside those for clients.
const OBSERVERS: usize = 8;

/// How a broker runs.
#[derive(Debug, Clone, Copy)]
pub struct ServerSettings {
    /// The time without a client after which the broker ends.
    pub idle: Duration,
    /// The interval between checks of the socket's file, which another process may have removed.
    pub check: Duration,
    /// Clients, chunks and leases at a time.
    pub limits: Limits,
    /// The user whose clients are served, besides root's.
    pub user: u32,
    /// Asks the kernel for the user of a peer.
    pub ask_peer: AskPeer,
}

/// A broker that listens.
#[derive(Debug)]
pub struct BrokerServer {
    settings: ServerSettings,
    place: BrokerPlace,
    listener: Option<OwnedFd>,
    connections: Vec<ClientConnection>,
    service: SharingService,
    /// Since when there is no client.
    idle_since: Option<Instant>,
    paused_until: Option<Instant>,
    check_at: Instant,
}

impl BrokerServer {
    /// Listens at its place.
    ///
    /// # Errors
    /// The system's.
    pub fn listen(place: BrokerPlace, settings: ServerSettings) -> io::Result<Self> {
        let mut place = place;
        let (now, listener) = (Instant::now(), Some(place.listen()?));
        Ok(Self {
            settings,
            place,
            listener,
            connections: Vec::new(),
            service: SharingService::new(settings.limits, now),
            idle_since: Some(now),
            paused_until: None,
            check_at: now + settings.check,
        })
    }

    /// Serves until it is not needed.
    ///
    /// # Errors
    /// The system's, if it cannot wait.
    pub fn run(mut self) -> io::Result<()> {
        loop {
            let ready = self.wait()?;
            let now = Instant::now();
            let (knocked, spoke) =
                ready.split_first().map_or((false, &[][..]), |(first, rest)| (*first, rest));
            self.service.forget_ended();
            self.serve(spoke, now);
            self.paused_until = self.paused_until.filter(|until| *until > now);
            if knocked {
                self.accept(now);
            }
            if self.check_at <= now {
                self.check_place(now);
            }
            if self.is_idle(now) {
                self.place.leave();
                log::info!("no process shares anything: ended");
                return Ok(());
            }
        }
    }

    /// Waits for an event or a deadline. Returns which sockets are ready: the listener, then the
    /// connections, and then the lives of processes that have departed.
    fn wait(&self) -> io::Result<Vec<bool>> {
        let listener = self.listener.as_ref().filter(|_| self.paused_until.is_none());
        let mut entries = Vec::with_capacity(1 + self.connections.len());
        entries.extend(listener.map(|listener| PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)));
        let without_listener = entries.is_empty();
        entries.extend(self.connections.iter().map(ClientConnection::poll_entry));
        entries.extend(self.service.departed_lives());
        match poll(&mut entries, Some(&self.timeout())) {
            Ok(_) => {}
            Err(Errno::INTR) => entries.iter_mut().for_each(PollFd::clear_revents),
            Err(error) => return Err(error.into()),
        }
        let said = entries.iter().map(|entry| !entry.revents().is_empty());
        Ok(without_listener.then_some(false).into_iter().chain(said).collect())
    }

    /// Time until something must be done without an event.
    fn timeout(&self) -> Timespec {
        let idle = self.idle_since.map(|since| since + self.settings.idle);
        let deadlines = self.connections.iter().filter_map(ClientConnection::deadline);
        let deadlines = deadlines.chain(idle).chain(self.paused_until).chain(self.service.next_turn());
        let next = deadlines.fold(self.check_at, Instant::min);
        let left = next.saturating_duration_since(Instant::now());
        // A wait that ends a millisecond late saves a round just before the deadline.
        let left = left + Duration::from_millis(1);
        Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
    }

    /// Serves each connection that is ready. Drops connections that ended, or that sent no hello in
    /// time.
    fn serve(&mut self, spoke: &[bool], now: Instant) {
        let (service, mut spoke) = (&mut self.service, spoke.iter());
        self.connections.retain_mut(|connection| {
            let spoke = spoke.next() == Some(&true);
            let outcome = connection.attend(spoke, service, now);
            let stays = outcome.is_ok() && connection.is_patient(now);
            if !stays {
                let why = outcome.err().map_or_else(|| "says nothing".to_owned(), |error| ended(&error));
                log::info!("{} {why}", connection.shown());
                connection.leave(service, now);
            }
            stays
        });
        self.send_orders(now);
        self.note_idle(now);
    }

    /// Sends all orders. A member that cannot be told is gone, which may be an order to another
    /// one.
    fn send_orders(&mut self, now: Instant) {
        let service = &mut self.service;
        service.look_at_turns(now);
        let mut is_done = false;
        while !is_done {
            is_done = true;
            self.connections.retain_mut(|connection| {
                let outcome = connection.send_orders(service, now);
                if let Err(error) = &outcome {
                    log::info!("{} {}", connection.shown(), ended(error));
                    connection.leave(service, now);
                    is_done = false;
                }
                outcome.is_ok()
            });
        }
    }

    fn note_idle(&mut self, now: Instant) {
        self.idle_since = (self.service.clients() == 0).then(|| self.idle_since.unwrap_or(now));
    }

    fn is_idle(&self, now: Instant) -> bool {
        let rested = self.idle_since.is_some_and(|since| since + self.settings.idle <= now);
        rested || (self.listener.is_none() && self.service.clients() == 0)
    }

    /// Accepts waiting connections, a bounded number a round: other users' may come faster than
    /// they are refused.
    fn accept(&mut self, now: Instant) {
        for _ in 0..ROUND {
            let Some(listener) = &self.listener else { return };
            match accept_one(listener, self.settings.user, self.settings.ask_peer) {
                Arrival::Empty => return,
                Arrival::Foreign => {}
                Arrival::Trusted(socket, _) if self.connections.len() >= self.most() => refuse(&socket),
                Arrival::Trusted(socket, peer) => {
                    self.connections.push(ClientConnection::new(socket, peer, now));
                }
                Arrival::Failed(error) => {
                    log::warn!("no connection can be accepted: {error}");
                    self.paused_until = Some(now + PAUSE);
                    return;
                }
            }
        }
    }

    /// Connections at a time.
    fn most(&self) -> usize {
        self.settings.limits.clients + self.settings.limits.copies.keepers + OBSERVERS
    }

    /// Makes the socket anew if its file was removed, unless another broker has the place.
    fn check_place(&mut self, now: Instant) {
        self.check_at = now + self.settings.check;
        match self.place.state() {
            PlaceState::Listening => {}
            PlaceState::Vanished => match self.place.listen() {
                Ok(listener) => self.listener = Some(listener),
                Err(error) => log::warn!("the socket is gone, and there is no new one: {error}"),
            },
            PlaceState::Lost => {
                log::warn!("another broker has this place: no more clients are taken");
                self.listener = None;
            }
        }
    }
}

/// Why a connection has ended, for the log.
fn ended(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "is gone".to_owned(),
        _ => format!("is not served any more: {error}"),
    }
}
