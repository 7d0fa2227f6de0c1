//! One connection to the broker: each request has one answer, within a second.
//!
//! Whoever listens must be of our user, or root: descriptors of memory go to nobody else.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketType, connect};
use wm_dedup::protocol::{self, BrokerAnswer, BrokerRequest, Role, SOCKET, VERSION};
use wm_trust::peer::is_trusted;

use wm_sockets::descriptor::Descriptor;
use wm_sockets::file;

/// For one answer. The broker gives it in far less; longer means that it is stopped.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum NoLink {
    /// No process listens, or one that is just ending.
    Absent,
    /// One that does not answer now, as one that is stopped. A sentence for the log.
    Silent(String),
    /// One that will not serve this process, however long it waits. A sentence for the log.
    Refused(String),
}

/// A broker that has greeted.
#[derive(Debug)]
pub(super) struct BrokerLink {
    socket: Descriptor,
    /// The broker's process, as it sees it itself.
    pub(super) process: u32,
}

impl BrokerLink {
    /// Connects to the broker of a folder.
    pub(super) fn open(folder: &Path) -> Result<Self, NoLink> {
        let path = folder.join(SOCKET);
        let because = |error: io::Error| format!("{}: {error}", path.display());
        let silent = |error: io::Error| NoLink::Silent(because(error));
        let socket = file::socket(SocketType::SEQPACKET).and_then(Descriptor::adopt).map_err(silent)?;
        let address = SocketAddrUnix::new(&path).map_err(|error| NoLink::Refused(because(error.into())))?;
        match socket.get().map(|open| connect(open, &address)).map_err(silent)? {
            Ok(()) => {}
            Err(Errno::NOENT | Errno::CONNREFUSED) => return Err(NoLink::Absent),
            Err(error) => return Err(silent(error.into())),
        }
        if !socket.get().is_ok_and(is_trusted) {
            return Err(NoLink::Refused(format!("{}: another user's process listens there", path.display())));
        }
        let mut link = Self { socket, process: 0 };
        link.process = link.greet()?;
        Ok(link)
    }

    /// The process that answers.
    fn greet(&self) -> Result<u32, NoLink> {
        match self.ask(&BrokerRequest::Hello { version: VERSION, role: Role::User }, &[]) {
            Ok((BrokerAnswer::Hello { version: VERSION, process }, _)) => Ok(process),
            Ok((BrokerAnswer::Hello { version, .. }, _)) => Err(NoLink::Refused(format!(
                "the broker that runs speaks version {version} of the protocol, not {VERSION}: it is of another installation, and \
                 ends a minute after its last program"
            ))),
            Ok(_) => Err(NoLink::Silent("the broker serves as many programs as it can".into())),
            Err(error) if is_end(&error) => Err(NoLink::Absent),
            Err(error) => Err(NoLink::Silent(format!("the broker does not answer: {error}"))),
        }
    }

    /// Asks, and waits for the answer and its descriptors.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub(super) fn ask(
        &self,
        request: &BrokerRequest,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<(BrokerAnswer, Vec<Descriptor>)> {
        let (bytes, deadline) = (request.encode(), Instant::now() + PATIENCE);
        self.until(PollFlags::OUT, deadline, |socket| protocol::send(socket, &bytes, descriptors))?;
        let packet = self.until(PollFlags::IN, deadline, protocol::receive)?;
        let answer = BrokerAnswer::decode(&packet.bytes)?;
        let adopted =
            packet.descriptors.into_iter().map(Descriptor::adopt).collect::<io::Result<Vec<_>>>()?;
        if packet.lost_some || adopted.len() != answer.descriptors() {
            return Err(io::Error::other(
                "descriptors were lost; is the limit on open files reached (ulimit -n)?",
            ));
        }
        Ok((answer, adopted))
    }

    /// Does something with the socket as soon as it can be done.
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

/// Waits for a descriptor. False: the time is up.
pub(super) fn is_ready(socket: BorrowedFd<'_>, ready: PollFlags, deadline: Instant) -> io::Result<bool> {
    let left = deadline.saturating_duration_since(Instant::now());
    let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    match poll(&mut [PollFd::from_borrowed_fd(socket, ready)], Some(&left)) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe)
}
