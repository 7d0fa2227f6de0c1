//! A rank that comes to a meeting, and what its end is.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::key::Key;
use super::links::RankLinks;
use super::markers::{self, Marker};
use super::roster::Roster;
use super::wire::RankFrame;
use crate::error::{Error, Result};

/// The name of the meeting's messages.
pub(super) const CALL: &str = "meeting";

/// What a rank knows of the place where ranks meet.
#[derive(Debug, Clone)]
pub struct Invitation {
    /// The ranks' key.
    pub key: Key,
    /// The machine that this rank says it is on; empty if it says none.
    pub node: String,
    /// Where the root listens for ranks of other machines.
    pub door: Option<SocketAddr>,
    /// Is this rank on the machine, and in the network, of the door?
    pub is_home: bool,
}

impl Invitation {
    /// To ranks of one machine.
    pub fn here(key: Key) -> Self {
        Self { key, node: String::new(), door: None, is_home: true }
    }
}

/// A rank that comes.
#[derive(Debug, Clone, Copy)]
pub(super) struct RankArrival<'a> {
    pub(super) invitation: &'a Invitation,
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) patience: Duration,
    pub(super) deadline: Instant,
}

/// A rank's place among all others.
#[derive(Debug)]
pub(super) struct Met {
    pub(super) roster: Roster,
    pub(super) links: RankLinks,
    /// Of a leader: it tells a late rank that the meeting is over.
    pub(super) marker: Option<Marker>,
}

/// Has the meeting failed, or do the ranks that have met count fewer?
///
/// # Errors
/// The reason.
pub(super) fn is_over(arrival: RankArrival<'_>, asks_for_met: bool) -> Result {
    let (key, rank, size) = (arrival.invitation.key, arrival.rank, arrival.size);
    if markers::has_failed(key) {
        return Err(Error::Communication(
            "the ranks' meeting has failed before this rank came: the other ranks' errors say why; make a new \
             unique id for the next attempt"
                .to_owned(),
        ));
    }
    match asks_for_met.then(|| markers::met_without(key, rank)).flatten() {
        None => Ok(()),
        Some(met) => Err(Error::Input(format!(
            "{met} ranks have met, this one is rank {rank} of {size}: pass the same size on all ranks"
        ))),
    }
}

/// Is the listener not there yet, or has it closed this connection because it had no room?
pub(super) fn is_early(error: &io::Error) -> bool {
    use ErrorKind::{
        BrokenPipe, ConnectionRefused, ConnectionReset, Interrupted, TimedOut, UnexpectedEof, WouldBlock,
    };
    matches!(
        error.kind(),
        ConnectionRefused
            | Interrupted
            | UnexpectedEof
            | ConnectionReset
            | BrokenPipe
            | WouldBlock
            | TimedOut
    )
}

/// The roster in a message.
///
/// # Errors
/// The reason in a refusal; [`Error::Communication`] for any other message.
pub(super) fn roster(told: RankFrame, size: usize) -> Result<Roster> {
    let told = told.into_part(0, CALL)?;
    let wrong = || Error::Communication("the ranks' roster is not that of a meeting".to_owned());
    Roster::of_bytes(&told.bytes, size).ok_or_else(wrong)
}
