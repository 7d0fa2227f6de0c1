//! The importer's side of an exchange: find the exporter, see that it is the one, get its memory a
//! batch at a time.
//!
//! Nothing here waits without a limit. Up to the exporter's offer it has [`PATIENCE`] in all: a
//! thread answers that has no other work. A batch then has [`BATCH_PATIENCE`], for the exporter's
//! driver may be busy; by then the exporter is known to be the one, and if it dies the socket says
//! so. A signal handler of the program costs no attempt: a call that it interrupts is made again
//! for the time that is left.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{SocketAddrUnix, connect};
use wm_abi::CUresult;
use wm_trust::{peer, user};

use super::handle::Ticket;
use super::key::{Purpose, nonce};
use super::names;
use super::wire::{self, Failure, Packet, malformed};
use wm_sockets::descriptor::Descriptor;
use wm_sockets::file;

/// For everything before the first batch.
const PATIENCE: Duration = Duration::from_secs(5);

/// For each batch.
const BATCH_PATIENCE: Duration = Duration::from_secs(30);

/// A block as it is offered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Offer {
    /// Pieces of physical memory that hold it, and their bytes.
    pub(super) pieces: u64,
    pub(super) span: usize,
    /// Where it lies in them.
    pub(super) offset: u64,
    pub(super) bytes: usize,
}

/// A connection to the exporter, until a deadline.
#[derive(Debug)]
pub(super) struct Exchange {
    socket: Descriptor,
    deadline: Instant,
}

impl Exchange {
    /// Asks the ticket's exporter for its allocation.
    pub(super) fn begin(ticket: &Ticket) -> std::result::Result<(Self, Offer), Failure> {
        let exchange = Self::find(ticket)?;
        let ours = nonce()?;
        exchange.send(&ours)?;
        let [theirs, tag] = pairs(exchange.receive()?.words()?);
        let nonces = [ours, theirs].concat();
        if !ticket.key.verify(Purpose::Exporter, &nonces, tag) {
            return Err(Error::other("whoever answers did not make this handle").into());
        }
        let asked = [ticket.id, ticket.address, ticket.bytes];
        let [one, two] = ticket.key.tag(Purpose::Importer, &[&nonces[..], &asked].concat());
        exchange.send(&[&asked[..], &[one, two]].concat())?;
        let [status, pieces, span, offset, bytes] = exchange.receive()?.words()?;
        accept(status)?;
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= span) && bytes > 0;
        if !fits {
            return Err(malformed("a block that does not lie in its memory").into());
        }
        Ok((exchange, Offer { pieces, span: span as usize, offset, bytes: bytes as usize }))
    }

    /// The pieces from this one on: as many as come at once, and at least one.
    pub(super) fn pieces(&mut self, from: u64) -> std::result::Result<Vec<(Descriptor, usize)>, Failure> {
        self.deadline = Instant::now() + BATCH_PATIENCE;
        self.send(&[from])?;
        let (status, pieces) = self.receive()?.pieces()?;
        accept(status)?;
        if pieces.is_empty() { Err(malformed("a batch without pieces").into()) } else { Ok(pieces) }
    }

    /// A connection to the first of the exporter's addresses where a process of the right user
    /// listens.
    fn find(ticket: &Ticket) -> Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        let mut problem = Error::from(ErrorKind::NotFound);
        for address in names::addresses(ticket) {
            match Self::connect(&address, deadline).and_then(|exchange| exchange.check(ticket)) {
                Ok(exchange) => return Ok(exchange),
                // "No listener" says less than the answer of another address.
                Err(error) if is_absence(&error) => {}
                Err(error) => problem = error,
            }
        }
        Err(problem)
    }

    fn connect(address: &SocketAddrUnix, deadline: Instant) -> Result<Self> {
        let socket = file::socket(names::KIND)?;
        fcntl_setfl(&socket, OFlags::empty())?;
        let exchange = Self { socket: Descriptor::adopt(socket)?, deadline };
        exchange.within(Timeout::Send, |socket| Ok(connect(socket, address)?))?;
        Ok(exchange)
    }

    /// Is it the user that the handle names, or one that could be that user anyway? Any process can
    /// take a name.
    fn check(self, ticket: &Ticket) -> Result<Self> {
        let peer = peer::identity(self.socket.get()?)?.user;
        if user::own().is_some_and(|own| [ticket.user, own, 0].contains(&peer)) && user::is_one(peer) {
            return Ok(self);
        }
        Err(Error::new(ErrorKind::PermissionDenied, format!("a process of user {peer} has taken its name")))
    }

    fn send(&self, words: &[u64]) -> Result<()> {
        self.within(Timeout::Send, |socket| wire::send(socket, words, &[]))
    }

    fn receive(&self) -> Result<Packet> {
        self.within(Timeout::Recv, wire::receive)
    }

    /// Makes a call that may take until the deadline, again when a signal interrupts it.
    fn within<T>(&self, kind: Timeout, call: impl Fn(BorrowedFd<'_>) -> Result<T>) -> Result<T> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            let socket = self.socket.get()?;
            set_socket_timeout(socket, kind, Some(left))?;
            match call(socket) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(ErrorKind::TimedOut.into()),
                outcome => return outcome,
            }
        }
    }
}

/// Does the error say that nothing listens there?
fn is_absence(error: &Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::NOENT | Errno::NOTDIR | Errno::CONNREFUSED))
}

fn accept(status: u64) -> std::result::Result<(), Failure> {
    match u32::try_from(status) {
        Ok(0) => Ok(()),
        Ok(code) => Err(Failure::Answer(CUresult(code))),
        Err(_) => Err(malformed("a status that is none").into()),
    }
}

fn pairs([a, b, c, d]: [u64; 4]) -> [[u64; 2]; 2] {
    [[a, b], [c, d]]
}
