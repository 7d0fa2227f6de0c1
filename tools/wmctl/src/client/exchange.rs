//! One question and its answer, with a peer that may be anything.
//!
//! One deadline holds for connecting, asking and the whole answer: a peer that sends a byte now and
//! then, or that never accepts, costs no more than one that is silent. An answer is no longer than
//! the endpoint's own limit. The kernel reports the listener's user, and only the expected user and
//! root are asked.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Gid, Uid};
use serde_json::json;

use super::processes;

/// Longest answer: the endpoint's limit and the line's end.
const LONGEST: usize = (8 << 20) + 1;
/// Between two attempts to get into a queue that is full.
const PAUSE: Duration = Duration::from_millis(10);

/// How a socket answers to a knock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Knock {
    /// A process listens.
    Alive,
    /// No process listens any more.
    Refused,
    /// It cannot be reached: gone, or not ours to reach.
    Unreachable,
}

/// Does a process listen? Never waits.
pub(crate) fn knock(socket: &Path) -> Knock {
    match try_connect(socket) {
        Ok(_) | Err(Errno::AGAIN) => Knock::Alive,
        Err(Errno::CONNREFUSED) => Knock::Refused,
        Err(_) => Knock::Unreachable,
    }
}

/// Asks one question. `user`: the owner that the socket must have; `None`: any user.
pub(super) fn exchange(
    socket: &Path,
    user: Option<u32>,
    request: &str,
    patience: Duration,
) -> Result<String> {
    let deadline = Instant::now() + patience;
    let mut stream = enter(socket, deadline)?;
    let peer = peer(stream.as_fd())?;
    if user.is_some_and(|user| user != peer.user) && peer.user != 0 {
        bail!("user {} listens there, who is not to be believed; it was not asked", peer.user);
    }
    stream.set_write_timeout(Some(patience))?;
    let has_arguments = request.starts_with('{');
    let line = if has_arguments { request.to_owned() } else { json!({ "request": request }).to_string() };
    writeln!(stream, "{line}")?;
    read_line(&mut stream, deadline).map_err(|error| explain(error, &peer, patience))
}

/// The kernel's number for a group that has none: the socket's folder is its user's alone.
const NO_GROUP: u32 = 65_534;

/// Has a thread with the rights of another user do something, and waits for it. Only root can.
pub(super) fn as_user<T: Send>(user: u32, ask: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let change = || {
        // Rights are a thread's: the others keep theirs.
        rustix::thread::set_thread_groups(&[])?;
        let group = Gid::from_raw(NO_GROUP);
        rustix::thread::set_thread_res_gid(group, group, group)?;
        let user = Uid::from_raw(user);
        rustix::thread::set_thread_res_uid(user, user, user)
    };
    let asked = thread::scope(|scope| {
        let asks = scope.spawn(|| {
            change()
                .with_context(|| format!("it is asked as user {user}, which this process may not become"))?;
            ask()
        });
        asks.join()
    });
    asked.unwrap_or_else(|_| Err(anyhow!("internal error, please report it")))
}

/// The process and user at the other end, as the kernel reports them. A process of another
/// namespace has the number 0.
pub(super) struct SocketPeer {
    pub(super) pid: u32,
    pub(super) user: u32,
}

pub(super) fn peer(stream: BorrowedFd<'_>) -> Result<SocketPeer> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    let place = (&raw mut peer).cast();
    // SAFETY: the option's value is a `ucred`, and its size is given.
    let outcome = unsafe {
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, place, &raw mut bytes)
    };
    if outcome != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(SocketPeer { pid: peer.pid.unsigned_abs(), user: peer.uid })
}

fn try_connect(path: &Path) -> Result<UnixStream, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

/// Connects; waits while the listener's queue is full.
fn enter(path: &Path, deadline: Instant) -> Result<UnixStream> {
    loop {
        match try_connect(path) {
            Ok(stream) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(Errno::AGAIN) if Instant::now() < deadline => thread::sleep(PAUSE),
            Err(Errno::AGAIN) => bail!("its queue is full: is the process stopped? Else try again"),
            Err(Errno::CONNREFUSED) => {
                bail!("the process has ended; the socket is left over, and `wmctl clean` removes it")
            }
            Err(Errno::NOENT) => bail!("there is no such socket"),
            Err(Errno::PROTOTYPE) => bail!("it is a socket of another kind than that of statistics"),
            Err(error) => return Err(std::io::Error::from(error).into()),
        }
    }
}

/// Reads up to the end of a line, or of the stream.
fn read_line(stream: &mut UnixStream, deadline: Instant) -> Result<String> {
    let (mut line, mut buffer) = (Vec::new(), [0_u8; 1 << 16]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(std::io::Error::from(ErrorKind::TimedOut).into());
        }
        stream.set_read_timeout(Some(left))?;
        let count = match stream.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            count => count?,
        };
        let end = buffer[..count].iter().position(|byte| *byte == b'\n');
        line.extend_from_slice(&buffer[..end.unwrap_or(count)]);
        if line.len() > LONGEST {
            bail!("the answer is longer than {} MiB: no statistics are", LONGEST >> 20);
        }
        if end.is_some() || count == 0 {
            break;
        }
    }
    if line.is_empty() {
        bail!("the process closed the connection: it is ending, or belongs to another user");
    }
    String::from_utf8(line).map_err(|_| anyhow!("the answer is not UTF-8"))
}

/// Why there is no answer in time.
fn explain(error: anyhow::Error, peer: &SocketPeer, patience: Duration) -> anyhow::Error {
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    if !matches!(kind, Some(ErrorKind::WouldBlock | ErrorKind::TimedOut)) {
        return error;
    }
    let (pid, seconds) = (peer.pid, patience.as_secs());
    if processes::is_stopped(pid) {
        return anyhow!(
            "no whole answer within {seconds} s: process {pid} is stopped; `kill -CONT {pid}`, or let its debugger go on"
        );
    }
    anyhow!("no whole answer within {seconds} s: the process is busy, or many others ask it now; try again")
}
