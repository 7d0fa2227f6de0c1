//! A client's connection to the broker, and the time of the next attempt to connect.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use wm_sockets::descriptor::Descriptor;

use super::error::ConnectError;
use super::home::BrokerHome;
use super::link::{BrokerLink, was_not_sent};
use super::reach::{StartBroker, reach};
use crate::protocol::{BrokerAnswer, BrokerRequest, Role};

/// First and longest time between two attempts to reach a broker.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// A connection in one role; between two brokers there is none.
#[derive(Debug)]
pub(super) struct BrokerConnection {
    home: BrokerHome,
    start: StartBroker,
    role: Role,
    link: Option<BrokerLink>,
    backoff: Duration,
    /// `None`: no attempt is of use.
    retry_at: Option<Instant>,
}

impl BrokerConnection {
    /// Not connected yet.
    pub(super) fn new(home: BrokerHome, start: StartBroker, role: Role) -> Self {
        Self { home, start, role, link: None, backoff: BACKOFF.0, retry_at: Some(Instant::now()) }
    }

    /// Is there no connection?
    pub(super) fn is_lost(&self) -> bool {
        self.link.is_none()
    }

    /// The time of the next attempt; `None`: there is none.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Is there no connection, and is it time for an attempt?
    pub(super) fn is_due(&self) -> bool {
        self.is_lost() && self.retry_at.is_some_and(|at| at <= Instant::now())
    }

    /// Connects, and starts a broker if no process listens. Returns the broker's process, as it
    /// sees it itself.
    ///
    /// # Errors
    /// There is no broker now. The next attempt is due after the back-off.
    pub(super) fn open(&mut self) -> Result<u32, ConnectError> {
        let (link, process) = reach(&self.home, self.start, self.role).inspect_err(|_| self.lose())?;
        self.link = Some(link);
        Ok(process)
    }

    /// The same for a client that has nothing to tell a new broker.
    ///
    /// # Errors
    /// As those of [`open`](Self::open). One that [is final](ConnectError::is_final) is the last:
    /// no further attempt is due.
    pub(super) fn connect(&mut self) -> Result<(), ConnectError> {
        match self.open() {
            Ok(_) => {
                self.reset_backoff();
                Ok(())
            }
            Err(error) => {
                self.retry_at = self.retry_at.filter(|_| !error.is_final());
                Err(error)
            }
        }
    }

    /// The broker knows all that it has to: after the next loss the first attempt comes soon.
    pub(super) fn reset_backoff(&mut self) {
        self.backoff = BACKOFF.0;
    }

    /// To wait for what the broker sends. `None`: there is no connection.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.link.as_ref()?.socket().ok()
    }

    /// Asks, and waits for the answer and its descriptors.
    ///
    /// # Errors
    /// The connection [is lost](Self::is_lost); or the kernel holds too many descriptors of this
    /// user that no process has received yet, and it is not lost.
    pub(super) fn ask(
        &mut self,
        request: &BrokerRequest,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<(BrokerAnswer, Vec<Descriptor>)> {
        let link = self.link.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        link.ask(request, descriptors).inspect_err(|error| {
            if !was_not_sent(error) {
                log::info!("the broker is lost: {error}");
                self.lose();
            }
        })
    }

    /// The broker answered another question: its later answers cannot be believed either.
    pub(super) fn broken(&mut self) -> io::Error {
        self.lose();
        io::ErrorKind::InvalidData.into()
    }

    /// Forgets the connection: the broker has ended, or does not answer.
    pub(super) fn lose(&mut self) {
        self.link = None;
        self.retry_at = Some(Instant::now() + self.backoff);
        self.backoff = (self.backoff * 2).min(BACKOFF.1);
    }
}
