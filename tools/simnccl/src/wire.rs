//! Sockets of the rendezvous: every wait ends within [`TICK`] after a stop is asked for.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::abi::{Code, Outcome};
use crate::report::error;

/// The longest time until a wait sees that it shall stop.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// Attempts to connect, [`TICK`] apart. A listener is there before its address is known, so that
/// only a full queue or a dead process refuses.
const ATTEMPTS: u32 = 100;

/// A condition under which waits end.
pub(crate) type Stop<'a> = &'a dyn Fn() -> bool;

/// A duration as the kernel takes it.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

/// A listener at a free port of an address.
pub(crate) fn listen(address: IpAddr) -> Outcome<(TcpListener, SocketAddr)> {
    let bound = TcpListener::bind(SocketAddr::new(address, 0)).and_then(|listener| {
        listener.set_nonblocking(true)?;
        let at = listener.local_addr()?;
        Ok((listener, at))
    });
    bound.map_err(|reason| error(Code::SYSTEM, &format!("cannot listen at {address}: {reason}")))
}

/// A socket whose reads and writes wait no longer than a [`TICK`].
fn prepared(socket: TcpStream) -> std::io::Result<TcpStream> {
    socket.set_nonblocking(false)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(TICK))?;
    socket.set_write_timeout(Some(TICK))?;
    Ok(socket)
}

/// The next connection.
pub(crate) fn accept(listener: &TcpListener, stop: Stop<'_>) -> Outcome<TcpStream> {
    loop {
        if stop() {
            return Err(Code::INTERNAL);
        }
        match listener.accept().and_then(|(socket, _)| prepared(socket)) {
            Ok(socket) => return Ok(socket),
            Err(reason) if is_transient(reason.kind()) => {
                let mut fds = [PollFd::new(listener, PollFlags::IN)];
                // An interrupted wait is a short one.
                let _ = poll(&mut fds, Some(&timespec(TICK)));
            }
            Err(reason) => return Err(error(Code::SYSTEM, &format!("cannot accept: {reason}"))),
        }
    }
}

/// A connection to a listener.
pub(crate) fn connect(address: SocketAddr, stop: Stop<'_>) -> Outcome<TcpStream> {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        if stop() {
            return Err(Code::INTERNAL);
        }
        match TcpStream::connect_timeout(&address, 20 * TICK).and_then(prepared) {
            Ok(socket) => return Ok(socket),
            Err(reason) => last = Some(reason),
        }
        std::thread::sleep(TICK);
    }
    let reason = last.map_or_else(String::new, |reason| reason.to_string());
    Err(error(Code::REMOTE, &format!("cannot connect to {address}: {reason}")))
}

/// Receives exactly these bytes.
pub(crate) fn receive(mut socket: &TcpStream, mut bytes: &mut [u8], stop: Stop<'_>) -> Outcome {
    while !bytes.is_empty() {
        let count = step(socket.read(bytes), stop)?;
        bytes = &mut bytes[count..];
    }
    Ok(())
}

/// Sends all bytes.
pub(crate) fn send(mut socket: &TcpStream, mut bytes: &[u8], stop: Stop<'_>) -> Outcome {
    while !bytes.is_empty() {
        let count = step(socket.write(bytes), stop)?;
        bytes = &bytes[count..];
    }
    Ok(())
}

/// Waits until the other side closes.
pub(crate) fn closed(mut socket: &TcpStream, stop: Stop<'_>) -> Outcome {
    loop {
        match socket.read(&mut [0]) {
            _ if stop() => return Err(Code::INTERNAL),
            Err(reason) if is_transient(reason.kind()) => {}
            _ => return Ok(()),
        }
    }
}

/// The bytes that a read or a write moved: none if it shall be repeated.
fn step(moved: std::io::Result<usize>, stop: Stop<'_>) -> Outcome<usize> {
    match moved {
        Ok(0) => Err(error(Code::REMOTE, "a connection of the rendezvous was closed")),
        Ok(count) => Ok(count),
        Err(_) if stop() => Err(Code::INTERNAL),
        Err(reason) if is_transient(reason.kind()) => Ok(0),
        Err(reason) => Err(error(Code::REMOTE, &format!("rendezvous: {reason}"))),
    }
}

/// Does an error mean that the call shall be repeated?
pub(crate) fn is_transient(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
