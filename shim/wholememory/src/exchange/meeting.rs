//! How ranks find each other: by a key that only they have.
//!
//! The first rank of a machine that comes is its *leader*: it listens under a Unix name that the
//! key gives, and the machine's other ranks connect. A leader that gets the [door](super::door) is
//! the *root*; the other leaders connect to the root by TCP, and say which ranks have come. When
//! all have come, the root tells all of them the [`Roster`]. Ranks of one machine need no root.
//!
//! Both ends of a connection prove to each other that they have the key before anything else is
//! said, so a process that reads the name from the kernel's list, or finds the port, learns nothing
//! and is not believed.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use wm_sockets::descriptor::Descriptor;
use wm_trust::peer::may_be_own;

use super::arrival::{Invitation, Met, RankArrival, is_early, is_over, roster};
use super::gathering::Gathering;
use super::greeting::{Caller, talk};
use super::key::GREETING;
use super::link::RankLink;
use super::links::RankLinks;
use super::roster::Roster;
use super::terms::Terms;
use super::wire::RankFrame;
use super::{markers, tcp};
use crate::error::{Error, Result};

/// The time between two attempts to connect: there is no event for a name that appears.
const PAUSE: Duration = Duration::from_millis(5);
/// How long a rank that cannot meet the others tries to tell them.
const WORD: Duration = Duration::from_secs(1);
/// Attempts between two looks for a meeting that is over.
const ATTEMPTS: usize = 20;

/// Meets the others. If it fails, the ranks that have come are told the reason, and the ranks that
/// come later are told that it has failed.
pub(super) fn meet(invitation: &Invitation, rank: usize, size: usize, patience: Duration) -> Result<Met> {
    let deadline = Instant::now() + patience;
    let met = come(RankArrival { invitation, rank, size, patience, deadline });
    if met.is_err() {
        markers::mark_failed(invitation.key);
    }
    met
}

/// A rank whose messages are of another `version` than the id says cannot meet the others, and they
/// need not wait for it: they get their error now, as far as they have come.
pub fn turn_away(invitation: &Invitation, rank: usize, size: usize, version: u32) {
    markers::mark_failed(invitation.key);
    let Some(door) = invitation.door else { return };
    let say = || -> io::Result<Terms> {
        let socket = tcp::connect(door, GREETING)?;
        let mut caller = Caller::new(socket, rank, Terms::of_version(size, version))?;
        talk(&mut caller, invitation.key, Instant::now() + WORD)
    };
    if let Err(error) = say() {
        log::debug!("wholememory: the ranks of other machines do not hear of the version: {error}");
    }
}

fn come(arrival: RankArrival<'_>) -> Result<Met> {
    let (key, rank, size) = (arrival.invitation.key, arrival.rank, arrival.size);
    let address = key.address(&arrival.invitation.node)?;
    for attempt in 0_usize.. {
        match UnixListener::bind_addr(&address) {
            Ok(listener) => return Gathering::new(arrival, listener)?.run(),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            // A rank alone needs no name.
            Err(_) if size == 1 => return Ok(alone(rank)),
            Err(error) => return Err(error.into()),
        }
        match join(arrival, &address) {
            Ok((leader, socket)) => {
                leader.compare(rank, Terms::new(size))?;
                return member(arrival, socket);
            }
            Err(error) if Instant::now() >= arrival.deadline => {
                return Err(Error::Communication(format!(
                    "the first rank of this machine did not answer within {:?}: {error}",
                    arrival.patience
                )));
            }
            Err(error) if is_early(&error) => {}
            Err(error) => {
                return Err(Error::Communication(format!("the first rank of this machine: {error}")));
            }
        }
        is_over(arrival, attempt.is_multiple_of(ATTEMPTS))?;
        std::thread::sleep(PAUSE);
    }
    unreachable!("attempts do not end")
}

fn alone(rank: usize) -> Met {
    Met { roster: Roster::of_one(1, rank), links: RankLinks::default(), marker: None }
}

/// The terms of this machine's leader, which is a process of this user's or root's, and the
/// connection.
fn join(
    arrival: RankArrival<'_>,
    address: &std::os::unix::net::SocketAddr,
) -> io::Result<(Terms, Descriptor)> {
    let socket = UnixStream::connect_addr(address)?;
    if !may_be_own(socket.as_fd()) {
        return Err(ErrorKind::PermissionDenied.into());
    }
    let mut caller = Caller::new(socket.into(), arrival.rank, Terms::new(arrival.size))?;
    let terms = talk(&mut caller, arrival.invitation.key, Instant::now() + GREETING)?;
    Ok((terms, caller.into_socket()))
}

/// A rank that is not the first of its machine waits for the roster.
fn member(arrival: RankArrival<'_>, socket: Descriptor) -> Result<Met> {
    let link = RankLink::to_peer(socket, arrival.patience)?;
    let told = RankFrame::receive(&link).map_err(|error| match error.kind() {
        ErrorKind::TimedOut => {
            Error::Communication(format!("not all ranks came within {:?}", arrival.patience))
        }
        _ => Error::Communication(format!(
            "the first rank of this machine has ended while ranks meet: {error}"
        )),
    })?;
    let roster = roster(told, arrival.size)?;
    Ok(Met { roster, links: RankLinks { spokes: Vec::new(), up: Some(link) }, marker: None })
}
