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

use super::forked::closed_in_child;
use super::guests::Guests;
use super::key::{GREETING, Key, random};
use super::link::RankLink;
use super::markers;
use super::terms::Terms;
use super::wire::RankFrame;
use crate::error::{Error, Result};

/// The time between two attempts to connect: there is no event for a name that appears.
const PAUSE: Duration = Duration::from_millis(5);
/// Attempts between two looks for a meeting that is over.
const ATTEMPTS: usize = 20;

/// The others' connections, by rank from 1 on. If the meeting fails, the ranks that have come are
/// told the reason, and the ranks that come later are told that it has failed.
pub(super) fn gather(key: Key, size: usize, patience: Duration) -> Result<Vec<RankLink>> {
    let mut spokes: Vec<Option<RankLink>> = (1..size).map(|_| None).collect();
    let outcome = wait_for_all(key, &mut spokes, patience);
    if let Err(error) = &outcome {
        markers::mark_failed(key);
        let refusal = RankFrame::refusal(1, error);
        // One that has ended needs no reason.
        spokes.iter().flatten().for_each(|spoke| drop(refusal.send(spoke)));
    }
    outcome.map(|()| spokes.into_iter().flatten().collect())
}

fn wait_for_all(key: Key, spokes: &mut [Option<RankLink>], patience: Duration) -> Result {
    let (deadline, size) = (Instant::now() + patience, spokes.len() + 1);
    let listener = UnixListener::bind_addr(&key.address()?).map_err(|error| {
        Error::Communication(format!("rank 0 cannot listen; is there a second one? {error}"))
    })?;
    listener.set_nonblocking(true)?;
    let listener = closed_in_child(listener)?;
    let (mut guests, own) = (Guests::default(), Terms::new(size));
    while spokes.iter().any(Option::is_none) {
        if markers::has_failed(key) {
            return Err(failed_before());
        }
        let ended = |rank: &usize| spokes[rank - 1].as_ref().is_some_and(RankLink::has_ended);
        if let Some(rank) = (1..size).find(ended) {
            return Err(Error::Communication(format!("rank {rank} has ended while ranks meet")));
        }
        if !guests.wait(listener.get()?, deadline)? {
            let missing: Vec<_> = (1..size).filter(|rank| spokes[rank - 1].is_none()).collect();
            return Err(Error::Communication(format!("ranks {missing:?} did not come within {patience:?}")));
        }
        guests.admit(listener.get()?)?;
        let mut outcome = Ok(());
        for (rank, terms, socket) in guests.known(key, own) {
            let link = RankLink::to_peer(socket, patience)?;
            let found = own.compare(rank, terms).and(match spokes.get_mut(rank.wrapping_sub(1)) {
                Some(place @ None) => {
                    *place = Some(link);
                    Ok(())
                }
                Some(Some(_)) => Err(Error::Communication(format!("rank {rank} came twice"))),
                None => Err(Error::Communication(format!("rank {rank} of {size} came"))),
            });
            outcome = outcome.and(found);
        }
        outcome?;
    }
    Ok(())
}

fn failed_before() -> Error {
    Error::Communication(
        "the ranks' meeting has failed before this rank came: the other ranks' errors say why; make a new \
         unique id for the next attempt"
            .to_owned(),
    )
}

/// The connection to rank 0.
pub(super) fn join(key: Key, rank: usize, size: usize, patience: Duration) -> Result<RankLink> {
    let joined = try_to_join(key, rank, size, patience);
    if joined.is_err() {
        markers::mark_failed(key);
    }
    joined
}

fn try_to_join(key: Key, rank: usize, size: usize, patience: Duration) -> Result<RankLink> {
    let (deadline, own) = (Instant::now() + patience, Terms::new(size));
    for attempt in 0_usize.. {
        match connect(key).and_then(|socket| greet(key, rank, own, socket)) {
            Ok((hub, socket)) => {
                hub.compare(rank, own)?;
                return Ok(RankLink::to_peer(socket, patience)?);
            }
            Err(error) if Instant::now() >= deadline => {
                return Err(Error::Communication(format!(
                    "rank 0 did not come within {patience:?}: {error}"
                )));
            }
            Err(error) if is_early(&error) => {}
            Err(error) => return Err(Error::Communication(format!("rank 0 does not answer: {error}"))),
        }
        if markers::has_failed(key) {
            return Err(failed_before());
        }
        if attempt.is_multiple_of(ATTEMPTS)
            && let Some(met) = markers::met_without(key, rank)
        {
            return Err(Error::Input(format!(
                "{met} ranks have met, this one is rank {rank} of {size}: pass the same size on all ranks"
            )));
        }
        std::thread::sleep(PAUSE);
    }
    unreachable!("attempts do not end")
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

/// The terms of rank 0, and the connection that it accepted.
fn greet(key: Key, rank: usize, own: Terms, mut socket: UnixStream) -> io::Result<(Terms, UnixStream)> {
    socket.set_read_timeout(Some(GREETING))?;
    socket.set_write_timeout(Some(GREETING))?;
    let [nonce] = words(&socket)?;
    let (rank, own, random) = (rank as u64, own.word(), random()?);
    let text = [rank, random, own, key.proof("rank", nonce, [rank, own])].map(u64::to_le_bytes).concat();
    socket.write_all(&text)?;
    let [hub, proof] = words(&socket)?;
    let is_hub = proof == key.proof("hub", random, [rank, hub]);
    if is_hub { Ok((Terms::of_word(hub), socket)) } else { Err(ErrorKind::PermissionDenied.into()) }
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
