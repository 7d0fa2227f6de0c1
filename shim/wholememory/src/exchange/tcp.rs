//! TCP streams between ranks of different machines.
//!
//! The end of a process closes its streams. The end of a machine, or of the network, closes none:
//! so both ends ask each other once a second whether they are there (`SO_KEEPALIVE`), and a wait
//! looks whether bytes that were sent have been acknowledged. Either way a rank is given up after
//! [`LOST`]. A rank that does not read for a long time, while its machine answers, is not given up:
//! this is why `TCP_USER_TIMEOUT` is not used, which ends a stream whose reader is busy.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// Without an answer for this time a machine is taken for lost.
const LOST: Duration = Duration::from_secs(3);
/// How often an end asks whether the other one is there, and a wait looks at the stream.
pub(super) const SECOND: Duration = Duration::from_secs(1);
/// Questions without an answer. One may be on its way: a machine whose reader is busy answers.
const UNANSWERED: u8 = 2;
/// Connections that wait to be accepted: more than machines of a job.
const BACKLOG: i32 = 4096;
/// How long a connection may take to be opened: the system asks three times meanwhile.
pub(super) const OPENING: Duration = Duration::from_secs(4);

/// Listens at a new port of an address. The listener does not block.
///
/// # Errors
/// The system's.
pub fn listen(address: IpAddr) -> io::Result<(OwnedFd, SocketAddr)> {
    let listener = TcpListener::bind((address, 0))?;
    rustix::net::listen(&listener, BACKLOG)?;
    listener.set_nonblocking(true)?;
    let place = listener.local_addr()?;
    Ok((listener.into(), place))
}

/// Connects to a listener.
///
/// # Errors
/// The system's.
pub(super) fn connect(to: SocketAddr, longest: Duration) -> io::Result<OwnedFd> {
    let stream = TcpStream::connect_timeout(&to, longest.clamp(Duration::from_millis(1), OPENING))?;
    tune(stream.as_fd())?;
    Ok(stream.into())
}

/// Begins to connect to a listener, and does not wait: the system's answer comes when the stream is
/// read.
///
/// # Errors
/// The system's.
pub(super) fn begin(to: SocketAddr) -> io::Result<OwnedFd> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stream = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    tune(stream.as_fd())?;
    match rustix::net::connect(&stream, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(stream),
        Err(error) => Err(error.into()),
    }
}

/// Small messages are sent at once, and the end of the other machine is noticed.
///
/// # Errors
/// The system's.
pub(super) fn tune(stream: BorrowedFd<'_>) -> io::Result<()> {
    sockopt::set_tcp_nodelay(stream, true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, SECOND)?;
    sockopt::set_tcp_keepintvl(stream, SECOND)?;
    sockopt::set_tcp_keepcnt(stream, LOST.as_secs() as u32)?;
    Ok(())
}

/// Are there bytes, or questions, that the other machine should have answered long ago?
pub(super) fn is_lost(stream: BorrowedFd<'_>) -> bool {
    // SAFETY: numbers, for which zero is a value.
    let mut state: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<libc::tcp_info>() as libc::socklen_t;
    let place = (&raw mut state).cast();
    // SAFETY: the option's value is such a structure, and its size is given.
    let outcome = unsafe {
        libc::getsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, place, &raw mut bytes)
    };
    outcome == 0
        && (state.tcpi_unacked > 0 || state.tcpi_probes >= UNANSWERED)
        && Duration::from_millis(state.tcpi_last_ack_recv.into()) >= LOST
}
