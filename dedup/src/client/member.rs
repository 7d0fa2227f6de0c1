//! A process as a member that takes turns: reports to the broker, and orders from it, on a
//! connection of its own. It does not wait for answers.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::error::ConnectError;
use super::home::BrokerHome;
use super::link::BrokerLink;
use super::reach::{BACKOFF, StartBroker, reach};
use crate::protocol::{self, BrokerAnswer, BrokerRequest, Malformed, Role};
use crate::turns::message::{TurnOrder, TurnReport};

/// The broker of this process's turns, if there is one.
#[derive(Debug)]
pub struct TurnClient {
    home: BrokerHome,
    start: StartBroker,
    link: Option<BrokerLink>,
    backoff: Duration,
    /// `None`: no attempt is of use.
    retry_at: Option<Instant>,
}

impl TurnClient {
    /// Not connected yet.
    pub fn new(home: BrokerHome, start: StartBroker) -> Self {
        Self { home, start, link: None, backoff: BACKOFF.0, retry_at: Some(Instant::now()) }
    }

    /// Is there a connection? Connects if there is none and the last attempt was long enough ago,
    /// and starts a broker if none listens. Returns `None` if it is not the time for an attempt. An
    /// error that [is final](ConnectError::is_final) is the last one.
    pub fn connect(&mut self) -> Option<Result<(), ConnectError>> {
        if self.link.is_some() {
            return Some(Ok(()));
        }
        self.retry_at.filter(|at| *at <= Instant::now())?;
        match reach(&self.home, self.start, Role::Member) {
            Ok((link, _)) => {
                (self.link, self.backoff) = (Some(link), BACKOFF.0);
                Some(Ok(()))
            }
            Err(error) => {
                self.lose();
                self.retry_at = self.retry_at.filter(|_| !error.is_final());
                Some(Err(error))
            }
        }
    }

    /// Is there a connection now?
    pub fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    /// The time of the next attempt to [`connect`](Self::connect); `None`: there is none.
    pub fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// To wait for orders. `None`: there is no connection.
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.link.as_ref()?.socket().ok()
    }

    /// Tells the broker how this process is.
    ///
    /// # Errors
    /// The broker is lost, or was.
    pub fn report(&mut self, report: &TurnReport) -> io::Result<()> {
        let bytes = BrokerRequest::Turn(report.clone()).encode();
        let socket = self.socket().ok_or(io::ErrorKind::NotConnected)?;
        match protocol::send(socket, &bytes, &[]) {
            // A broker that does not read learns of a later report.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(self.lost(error)),
            Ok(()) => Ok(()),
        }
    }

    /// The next order that has come; `None`: there is none yet.
    ///
    /// # Errors
    /// The broker is lost, or was.
    pub fn order(&mut self) -> io::Result<Option<TurnOrder>> {
        let socket = self.socket().ok_or(io::ErrorKind::NotConnected)?;
        let packet = match protocol::receive(socket) {
            Ok(packet) => packet,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(None),
            Err(error) => return Err(self.lost(error)),
        };
        match BrokerAnswer::decode(&packet.bytes) {
            Ok(BrokerAnswer::Turn(order)) => Ok(Some(order)),
            _ => Err(self.lost(Malformed.into())),
        }
    }

    /// Forgets the connection: the broker has ended, or does not speak.
    pub fn lose(&mut self) {
        self.link = None;
        self.retry_at = Some(Instant::now() + self.backoff);
        self.backoff = (self.backoff * 2).min(BACKOFF.1);
    }

    fn lost(&mut self, error: io::Error) -> io::Error {
        self.lose();
        error
    }
}
