//! How ranks find each other: by a key that only they have.
//!
//! The key gives the name at which rank 0 listens; both ends prove to each other that they have it
//! before anything else is said, so a process that reads the name from the kernel's list learns
//! nothing and is not believed.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use wm_trust::peer::may_be_own;

use super::guests::Guests;
use super::key::{GREETING, Key, random};
use crate::error::{Error, Result};

/// The time between two attempts to connect: there is no event for a name that appears.
const PAUSE: Duration = Duration::from_millis(5);
/// The others' connections, by rank from 1 on.
pub(super) fn gather(key: Key, size: usize, patience: Duration) -> Result<Vec<UnixStream>> {
    let deadline = Instant::now() + patience;
    let listener = UnixListener::bind_addr(&key.address()?).map_err(|error| {
        Error::Communication(format!("rank 0 cannot listen; is there a second one? {error}"))
    })?;
    listener.set_nonblocking(true)?;
    let mut spokes: Vec<Option<UnixStream>> = (1..size).map(|_| None).collect();
    let mut guests = Guests::default();
    while spokes.iter().any(Option::is_none) {
        let missing = || (1..size).filter(|rank| spokes[rank - 1].is_none()).collect::<Vec<_>>();
        if !guests.wait(&listener, deadline)? {
            return Err(Error::Communication(format!(
                "ranks {:?} did not come within {patience:?}",
                missing()
            )));
        }
        guests.admit(&listener)?;
        for (rank, socket) in guests.known(key) {
            match spokes.get_mut(rank.wrapping_sub(1)) {
                Some(place @ None) => *place = Some(socket),
                Some(Some(_)) => return Err(Error::Communication(format!("rank {rank} came twice"))),
                None => return Err(Error::Communication(format!("rank {rank} of {size} came"))),
            }
        }
    }
    let spokes: Vec<_> = spokes.into_iter().flatten().collect();
    spokes.iter().try_for_each(|spoke| with_patience(spoke, patience))?;
    Ok(spokes)
}

/// The connection to rank 0.
pub(super) fn join(key: Key, rank: usize, patience: Duration) -> Result<UnixStream> {
    let deadline = Instant::now() + patience;
    loop {
        match connect(key).and_then(|socket| greet(key, rank, socket)) {
            Ok(socket) => {
                with_patience(&socket, patience)?;
                return Ok(socket);
            }
            Err(error) if Instant::now() >= deadline => {
                return Err(Error::Communication(format!(
                    "rank 0 did not come within {patience:?}: {error}"
                )));
            }
            Err(error) if is_early(&error) => std::thread::sleep(PAUSE),
            Err(error) => return Err(Error::Communication(format!("rank 0 does not answer: {error}"))),
        }
    }
}

/// Is rank 0 not there yet, or has it closed this connection because it had no room?
fn is_early(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, Interrupted, UnexpectedEof, WouldBlock};
    matches!(
        error.kind(),
        ConnectionRefused | Interrupted | UnexpectedEof | ConnectionReset | BrokenPipe | WouldBlock
    )
}

/// A connection to a process of this user, or root's, that listens under the name.
fn connect(key: Key) -> io::Result<UnixStream> {
    let socket = UnixStream::connect_addr(&key.address()?)?;
    if may_be_own(socket.as_fd()) { Ok(socket) } else { Err(ErrorKind::PermissionDenied.into()) }
}

fn with_patience(socket: &UnixStream, patience: Duration) -> io::Result<()> {
    socket.set_read_timeout(Some(patience))?;
    socket.set_write_timeout(Some(patience))
}

fn greet(key: Key, rank: usize, mut socket: UnixStream) -> io::Result<UnixStream> {
    with_patience(&socket, GREETING)?;
    let [nonce] = words(&socket)?;
    let (rank, own) = (rank as u64, random()?);
    let text = [rank, own, key.proof("rank", nonce, rank)].map(u64::to_le_bytes).concat();
    socket.write_all(&text)?;
    let [proof] = words(&socket)?;
    if proof == key.proof("hub", own, rank) { Ok(socket) } else { Err(ErrorKind::PermissionDenied.into()) }
}

fn words<const COUNT: usize>(mut socket: &UnixStream) -> io::Result<[u64; COUNT]> {
    let mut words = [0; COUNT];
    for word in &mut words {
        let mut bytes = [0; 8];
        socket.read_exact(&mut bytes)?;
        *word = u64::from_le_bytes(bytes);
    }
    Ok(words)
}
