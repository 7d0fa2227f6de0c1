//! Messages among ranks: bytes to all, and descriptors to those of the same machine.
//!
//! The ranks of a machine have Unix sockets to one of them, their *leader*; leaders have TCP
//! streams to one of them, the *root*. In each round every rank sends a part upwards, and the parts
//! of all ranks come down. Leaders and the root work inside their own calls, on the callers'
//! threads: nothing runs between calls. Where all ranks are on one machine, its leader is the root,
//! and no stream is opened.
//!
//! Invariants:
//! * A round ends for all ranks alike: with all parts, or with an error. Where ranks make different
//!   calls, all of them learn it, and the next round is sound again.
//! * A rank that ends is noticed by its closed socket, and by a descriptor of its process where a
//!   child holds the socket open; a machine that is lost, by its silence. The others get an error
//!   at once, or in a few seconds, and no round comes after it. A rank that stays away is given up
//!   after the [patience](RankExchange::PATIENCE).
//! * An exchange belongs to the process that met the others. A forked child's calls are refused
//!   before they touch a socket.
//! * Parts of the ranks get their sockets from their leaders, in a round.
//! * Names are abstract ones, which end with the process: nothing is left by one that is killed.

mod arrival;
mod door;
#[allow(unsafe_code, reason = "a fork handler")]
mod forked;
mod gathering;
mod greeting;
mod guests;
#[allow(unsafe_code, reason = "the system's list of addresses")]
mod interfaces;
mod key;
mod link;
mod links;
mod markers;
mod meeting;
pub mod parts;
mod roster;
mod round;
mod streams;
#[allow(unsafe_code, reason = "an option of a socket")]
mod tcp;
mod terms;
mod uplink;
mod watch;
mod wire;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result};
pub use arrival::Invitation;
pub use door::keep as keep_door;
pub use interfaces::own_address;
pub use key::Key;
use link::RankLink;
use links::{RankLinks, Spoke};
use markers::Marker;
pub use meeting::turn_away;
use parts::{Colors, Dealt};
pub use roster::Roster;
use round::Round;
pub use tcp::listen;
pub use terms::VERSION;
pub use wire::Part;
use wire::RankFrame;

#[derive(Debug)]
struct ExchangeState {
    links: RankLinks,
    round: u32,
    /// Why there are no more rounds.
    broken: Option<Error>,
}

/// One rank's end of an exchange.
#[derive(Debug)]
pub struct RankExchange {
    rank: usize,
    roster: Roster,
    patience: Duration,
    /// The process that met the others: a child of its has no part in it.
    process: u32,
    /// Held for a round: collective calls of one communicator are made one after the other.
    state: Mutex<ExchangeState>,
    /// Of a leader, where ranks met by a key: it tells a late rank that the meeting is over.
    _met: Option<Marker>,
}

impl RankExchange {
    /// How long a rank waits for the others, unless `WMSHIM_WHOLEMEMORY_TIMEOUT` says otherwise.
    pub const PATIENCE: Duration = Duration::from_secs(300);

    /// Meets the other ranks that have the same key. Returns when all are there.
    ///
    /// # Errors
    /// [`Error::Communication`] where not all came in time, or a rank came twice.
    pub fn meet(invitation: &Invitation, rank: usize, size: usize, patience: Duration) -> Result<Self> {
        let met = meeting::meet(invitation, rank, size, patience)?;
        Ok(Self::new(met.links, met.roster, rank, patience, met.marker))
    }

    fn new(links: RankLinks, roster: Roster, rank: usize, patience: Duration, met: Option<Marker>) -> Self {
        let state = Mutex::new(ExchangeState { links, round: 0, broken: None });
        Self { rank, roster, patience, process: std::process::id(), state, _met: met }
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.roster.size()
    }

    /// The machines of the ranks.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// How long this rank waits for the others.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Sends a part and receives the parts of all ranks, by rank, with this rank's own descriptors.
    /// The parts of other machines come without descriptors. `call` names the collective call: all
    /// ranks must make the same.
    ///
    /// # Errors
    /// [`Error::Logic`] on every rank where they make different calls; [`Error::Communication`]
    /// where a rank has ended.
    pub fn round(&self, call: &str, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<Vec<Part>> {
        self.turn(call, bytes, descriptors, None).map(|(parts, _)| parts)
    }

    /// Waits for all ranks.
    ///
    /// # Errors
    /// As [`RankExchange::round`].
    pub fn barrier(&self, call: &str) -> Result {
        self.round(call, &[], &[]).map(drop)
    }

    /// Is there room for the connections of a split, on this rank?
    ///
    /// # Errors
    /// The system's.
    pub fn can_split(&self) -> Result {
        self.is_own()?;
        let leader = self.roster.leader(self.rank);
        let (ranks, machines) = (self.roster.members(leader).len(), self.roster.leaders().len());
        parts::have_room(leader == self.rank, ranks, machines)
    }

    /// This rank's exchange with the ranks of its color, which has no name. `None` for a rank
    /// without a color. All ranks know the colors; the ranks of the part have `key`.
    ///
    /// # Errors
    /// As [`RankExchange::round`]; [`Error::System`] where connections could not be opened.
    pub fn part(&self, call: &str, colors: &Colors, key: Key) -> Result<Option<Self>> {
        let color = colors[self.rank].0;
        let ranks = if color == parts::NO_COLOR { Vec::new() } else { parts::ranks_of(colors, color) };
        let (spans, roster) = (parts::span(colors, &self.roster), self.roster.part(&ranks));
        let rank = ranks.iter().position(|rank| *rank == self.rank).unwrap_or_default();
        let offer = streams::PartOffer::new(rank == 0 && !ranks.is_empty() && roster.spans());
        let said = offer.as_ref().map(streams::PartOffer::bytes).unwrap_or_default();
        let life = link::own_life();
        let life: Vec<_> = life.iter().map(AsFd::as_fd).collect();
        let (told, dealt) = self.turn(call, &said, &life, Some(colors))?;
        let offers: Vec<&[u8]> = ranks.iter().map(|rank| &*told[*rank].bytes).collect();
        let calls = !ranks.is_empty() && roster.leader(rank) == rank && rank != 0;
        let mut up = None;
        if spans {
            let called = match (&offer, calls) {
                (Ok(_), true) => streams::connect(key, rank, offers[0], self.patience).map(Some),
                _ => Ok(None),
            };
            let is_well = offer.is_ok() && called.is_ok();
            let all = self.round(call, &[u8::from(is_well)], &[])?;
            up = called?;
            if let Some(failed) = all.iter().position(|part| part.bytes != [1]) {
                offer?;
                return Err(Error::System(format!("rank {failed} has no connection to its part")));
            }
        }
        let offer = offer?;
        if ranks.is_empty() {
            return Ok(None);
        }
        let mut links = self.local_links(dealt, &roster, rank)?;
        if let Some(up) = up {
            streams::confirm(&up, key, rank, &offer)?;
            links.up = Some(up);
        } else if roster.spans() && rank == 0 {
            links.spokes.extend(streams::accept(&offer, key, &roster, &offers, self.patience)?);
        }
        Ok(Some(Self::new(links, roster, rank, self.patience, None)))
    }

    /// The links of a rank of a part to ranks of its machine.
    fn local_links(&self, dealt: Option<Dealt>, roster: &Roster, rank: usize) -> Result<RankLinks> {
        let leader = roster.leader(rank);
        let members = roster.members(leader);
        let mut ranks: Vec<_> = members.into_iter().filter(|member| *member != rank).collect();
        if leader != rank {
            ranks = vec![leader];
        }
        let Some(dealt) = dealt.filter(|dealt| dealt.sockets.len() == ranks.len()) else {
            return Err(Error::System("the connections of a part were not opened".to_owned()));
        };
        let links = dealt.sockets.into_iter().zip(dealt.lives);
        let links =
            links.map(|(socket, life)| RankLink::new(forked::closed_in_child(socket)?, life, self.patience));
        let mut links = links.collect::<std::io::Result<Vec<_>>>()?;
        if leader != rank {
            return Ok(RankLinks { spokes: Vec::new(), up: links.pop() });
        }
        let spokes = links.into_iter().zip(ranks).map(|(link, rank)| Spoke { link, ranks: vec![rank] });
        Ok(RankLinks { spokes: spokes.collect(), up: None })
    }

    /// Refuses a child of the process that met the others.
    ///
    /// # Errors
    /// [`Error::Logic`].
    pub(crate) fn is_own(&self) -> Result {
        if std::process::id() == self.process {
            return Ok(());
        }
        Err(Error::Logic(format!(
            "this process is a child of process {}, to which the communicator belongs: make collective calls there, \
             or create a communicator here",
            self.process
        )))
    }

    /// A round. If ranks are divided, this rank's connections in its part come with it.
    fn turn(
        &self,
        call: &str,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
        colors: Option<&Colors>,
    ) -> Result<(Vec<Part>, Option<Dealt>)> {
        // Before the lock, which another thread may have held when the process was forked.
        self.is_own()?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = &state.broken {
            return Err(error.clone());
        }
        let number = state.round.wrapping_add(1);
        // A part that cannot be sent is no round: the others find this rank at its next call.
        let own = RankFrame::contribution(number, call, bytes, descriptors)?;
        state.round = number;
        let round =
            Round { rank: self.rank, roster: &self.roster, patience: self.patience, number, call, colors };
        let outcome = round.run(&state.links, own);
        // If ranks made different calls, all of them have been answered. After any other failure
        // the state of the exchange is unknown.
        if let Err(error @ (Error::Communication(_) | Error::System(_))) = &outcome {
            state.broken = Some(error.clone());
        }
        outcome
    }
}

#[cfg(test)]
mod machines_tests;
#[cfg(test)]
mod tests;
