//! A process as a member that takes turns: reports to the broker, and orders from it, on a
//! connection of its own. It does not wait for answers.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use super::connection::BrokerConnection;
use super::error::ConnectError;
use super::home::BrokerHome;
use super::reach::StartBroker;
use crate::protocol::{self, BrokerAnswer, BrokerRequest, Malformed, Role};
use crate::turns::message::{TurnOrder, TurnReport};

/// The broker of this process's turns, if there is one.
#[derive(Debug)]
pub struct TurnClient {
    connection: BrokerConnection,
}

impl TurnClient {
    /// Not connected yet.
    pub fn new(home: BrokerHome, start: StartBroker) -> Self {
        Self { connection: BrokerConnection::new(home, start, Role::Member) }
    }

    /// Is there a connection? Connects if there is none and the last attempt was long enough ago,
    /// and starts a broker if none listens. Returns `None` if it is not the time for an attempt. An
    /// error that [is final](ConnectError::is_final) is the last one.
    pub fn connect(&mut self) -> Option<Result<(), ConnectError>> {
        if !self.connection.is_lost() {
            return Some(Ok(()));
        }
        self.connection.is_due().then(|| self.connection.connect())
    }

    /// Is there a connection now?
    pub fn is_connected(&self) -> bool {
        !self.connection.is_lost()
    }

    /// The time of the next attempt to [`connect`](Self::connect); `None`: there is none.
    pub fn retry_at(&self) -> Option<Instant> {
        self.connection.retry_at()
    }

    /// To wait for orders. `None`: there is no connection.
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.connection.socket()
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
        self.connection.lose();
    }

    fn lost(&mut self, error: io::Error) -> io::Error {
        self.lose();
        error
    }
}
