//! TCP streams between ranks of different machines.
//!
//! The end of a process closes its streams. The end of a machine, or of the network, closes none:
//! so both ends ask each other once a second whether they are there (`SO_KEEPALIVE`), and a wait
//! looks whether bytes that were sent have been acknowledged, and whether bytes that were written
//! could be sent. Either way a rank is given up after [`LOST`]. A rank that does not read for a
//! long time, while its machine answers, is not given up: this is why `TCP_USER_TIMEOUT` is not
//! used, which ends a stream whose reader is busy.

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
    StreamProgress::of(stream).is_some_and(|progress| progress.is_lost())
}

/// How far a stream has come, of what the system tells of it.
#[derive(Clone, Copy, Debug)]
struct StreamProgress {
    /// Since the last answer of the other machine.
    silent: Duration,
    /// Packets on their way.
    unanswered: u32,
    /// Questions to a machine that had nothing to answer, or no room for bytes.
    questions: u8,
    /// Bytes that were written and never sent.
    unsent: u32,
    /// Bytes that the other machine has room for.
    room: u32,
    /// Bytes of a full packet.
    packet: u32,
}

impl StreamProgress {
    fn of(stream: BorrowedFd<'_>) -> Option<Self> {
        // An older kernel fills in less. What it leaves is zero: Linux tells of unsent bytes since
        // 4.6 and of the room since 5.4, and without room no bytes could have been sent.
        //
        // SAFETY: numbers, for which zero is a value.
        let mut told: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut bytes = size_of::<libc::tcp_info>() as libc::socklen_t;
        let place = (&raw mut told).cast();
        // SAFETY: the option's value is such a structure, and its size is given.
        let outcome = unsafe {
            libc::getsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, place, &raw mut bytes)
        };
        (outcome == 0).then(|| Self {
            silent: Duration::from_millis(told.tcpi_last_ack_recv.into()),
            unanswered: told.tcpi_unacked,
            questions: told.tcpi_probes,
            unsent: told.tcpi_notsent_bytes,
            room: told.tcpi_snd_wnd,
            packet: told.tcpi_snd_mss,
        })
    }

    fn is_lost(&self) -> bool {
        let waits = self.unanswered > 0 || self.questions >= UNANSWERED || self.cannot_leave();
        waits && self.silent >= LOST
    }

    /// Are there bytes that the other machine has room for, and this one does not send? Its
    /// interface is down. The system tries again when an answer could have come, and asks no
    /// questions meanwhile: on a stream whose first packet waited for the address of a neighbour
    /// that takes three seconds, and six more for the second attempt.
    fn cannot_leave(&self) -> bool {
        // The room is that beyond the last answer: packets on their way have a part of it. Less
        // room than a packet is not used until there is more.
        self.unanswered == 0 && self.unsent > 0 && self.room > 0 && self.room >= self.unsent.min(self.packet)
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (deadlock): a lost machine is waited for. Hazard (API conformance): a machine that
    //! reads late is taken for lost.
    use std::io::{ErrorKind, Write};
    use std::net::Ipv4Addr;
    use std::time::Instant;

    use super::*;

    const NO_WORD: StreamProgress =
        StreamProgress { silent: LOST, unanswered: 0, questions: 0, unsent: 0, room: 65536, packet: 1448 };

    #[test]
    fn what_should_have_been_answered_or_sent_tells_of_a_lost_machine() {
        let in_time = LOST - Duration::from_millis(1);
        let waits = [
            StreamProgress { unanswered: 1, ..NO_WORD },
            StreamProgress { questions: UNANSWERED, ..NO_WORD },
            StreamProgress { unsent: 1, room: 1, ..NO_WORD },
            StreamProgress { unsent: 1 << 20, ..NO_WORD },
        ];
        for progress in waits {
            assert!(progress.is_lost());
            assert!(!StreamProgress { silent: in_time, ..progress }.is_lost());
        }
    }

    #[test]
    fn a_machine_that_reads_late_or_is_told_nothing_is_there() {
        let waits = [
            NO_WORD,
            StreamProgress { questions: UNANSWERED - 1, ..NO_WORD },
            StreamProgress { unsent: 1 << 20, room: 0, ..NO_WORD },
            StreamProgress { unsent: 1 << 20, room: 1447, ..NO_WORD },
        ];
        assert!(waits.iter().all(|progress| !progress.is_lost()));
    }

    /// Hazard (API conformance): numbers of the system are read at other places than it writes
    /// them.
    #[test]
    fn bytes_that_find_no_room_are_told_by_the_system() {
        let (listener, place) = listen(Ipv4Addr::LOCALHOST.into()).expect("a listener");
        let mut stream = TcpStream::from(connect(place, SECOND).expect("a stream"));
        let progress = StreamProgress::of(stream.as_fd()).expect("a stream has progress");
        assert_eq!((progress.unsent, progress.questions), (0, 0));
        assert!(progress.room > 0 && progress.packet > 0);
        stream.set_nonblocking(true).expect("it is set");
        let full = loop {
            if let Err(error) = stream.write_all(&[0; 1 << 16]) {
                break error;
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        // The other end acknowledges the last packets after a while, and nothing else tells of it.
        let begin = Instant::now();
        let progress = loop {
            let progress = StreamProgress::of(stream.as_fd()).expect("a stream has progress");
            if progress.unanswered == 0 || begin.elapsed() > LOST {
                break progress;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!(progress.unsent > 0 && !progress.cannot_leave(), "{progress:?}");
        assert!(progress.unanswered == 0 && progress.room < progress.packet, "{progress:?}");
        drop(listener);
    }
}
