//! One connection to the broker. Each request has one answer, within a time limit.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketType, connect};
use wm_sockets::descriptor::Descriptor;
use wm_sockets::{file, packet};

use super::error::LinkError;
use crate::protocol::{self, BrokerAnswer, BrokerRequest, Role, VERSION};

/// A connection to a broker.
#[derive(Debug)]
pub struct BrokerLink {
    socket: Descriptor,
    /// The time limit of one request and its answer.
    patience: Duration,
}

impl BrokerLink {
    /// Connects to the broker that listens at a path, and says nothing yet.
    ///
    /// # Errors
    /// [`LinkError::Absent`] if no process listens there.
    pub fn connect(path: &Path, patience: Duration) -> Result<Self, LinkError> {
        let system = |error: io::Error| LinkError::System { path: path.to_owned(), error };
        let socket = file::socket(SocketType::SEQPACKET).and_then(Descriptor::adopt).map_err(system)?;
        let address = SocketAddrUnix::new(path)
            .map_err(|error| LinkError::Address { path: path.to_owned(), error: error.into() })?;
        match socket.get().map(|open| connect(open, &address)).map_err(system)? {
            Ok(()) => Ok(Self { socket, patience }),
            Err(Errno::NOENT | Errno::CONNREFUSED) => Err(LinkError::Absent(path.to_owned())),
            Err(error) => Err(system(error.into())),
        }
    }

    /// The socket, to ask the kernel which process listens.
    ///
    /// # Errors
    /// `EBADF` if the host program has closed it.
    pub fn socket(&self) -> io::Result<BorrowedFd<'_>> {
        self.socket.get()
    }

    /// Says hello. Returns the broker's process number, as the broker itself sees it.
    ///
    /// # Errors
    /// The broker does not answer, or will not serve this process.
    pub fn greet(&self, role: Role) -> Result<u32, LinkError> {
        match self.ask(&BrokerRequest::Hello { version: VERSION, role }, &[]) {
            Ok((BrokerAnswer::Hello { version: VERSION, process }, _)) => Ok(process),
            Ok((BrokerAnswer::Hello { version, .. }, _)) => Err(LinkError::Version(version)),
            Ok(_) => Err(LinkError::Full),
            Err(error) => Err(LinkError::Silent(error)),
        }
    }

    /// Asks, and waits for the answer and its descriptors.
    ///
    /// # Errors
    /// `TimedOut` if the broker does not answer in time. The connection is of no use after any
    /// error.
    pub fn ask(
        &self,
        request: &BrokerRequest,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<(BrokerAnswer, Vec<Descriptor>)> {
        let (bytes, deadline) = (request.encode(), Instant::now() + self.patience);
        self.until(PollFlags::OUT, deadline, |socket| protocol::send(socket, &bytes, descriptors))?;
        let packet = self.until(PollFlags::IN, deadline, protocol::receive)?;
        let answer = BrokerAnswer::decode(&packet.bytes)?;
        let (_, descriptors) = packet.complete()?;
        let adopted = descriptors.into_iter().map(Descriptor::adopt).collect::<io::Result<Vec<_>>>()?;
        if adopted.len() != answer.descriptors() {
            return Err(packet::lost());
        }
        Ok((answer, adopted))
    }

    /// Calls `action` on the socket, again each time that the socket becomes ready.
    fn until<T>(
        &self,
        ready: PollFlags,
        deadline: Instant,
        action: impl Fn(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            let socket = self.socket.get()?;
            match action(socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                outcome => return outcome,
            }
            if !is_ready(socket, ready, deadline)? {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
}

/// Waits until a descriptor is ready. Returns `false` at the deadline.
///
/// # Errors
/// The system's.
pub fn is_ready(socket: BorrowedFd<'_>, ready: PollFlags, deadline: Instant) -> io::Result<bool> {
    let left = deadline.saturating_duration_since(Instant::now());
    let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    match poll(&mut [PollFd::from_borrowed_fd(socket, ready)], Some(&left)) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Has the broker ended the connection?
pub fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe)
}

/// Did the kernel refuse the message, because too many descriptors of this user are on their way?
/// Then the connection still works.
pub(super) fn was_not_sent(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::TOOMANYREFS.raw_os_error())
}
