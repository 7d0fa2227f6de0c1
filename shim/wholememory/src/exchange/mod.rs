//! Messages among the ranks of one machine: bytes and descriptors, all to all, over Unix sockets.
//!
//! Rank 0 of an exchange is its *hub*: it listens under a name that only the ranks' common key
//! gives, and all others connect. In each round every rank sends a part and receives the parts of
//! all ranks. The hub works inside its own call, on the caller's thread: nothing runs between
//! calls.
//!
//! Invariants:
//! * A round ends for all ranks alike: with all parts, or with an error. Where ranks make different
//!   calls, all of them learn it, and the next round is sound again.
//! * A rank that ends is noticed by its closed socket, and by a descriptor of its process where a
//!   child holds the socket open: the others get an error at once, and no round comes after it. A
//!   rank that stays away is given up after the [patience](RankExchange::PATIENCE).
//! * An exchange belongs to the process that met the others. A forked child's calls are refused
//!   before they touch a socket.
//! * Parts of the ranks get their sockets from rank 0, in a round.
//! * Names are abstract ones, which end with the process: nothing is left by one that is killed.

#[allow(unsafe_code, reason = "a fork handler")]
mod forked;
mod guests;
mod key;
mod link;
mod markers;
mod meeting;
pub mod parts;
mod terms;
mod wire;

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFlags, poll};

use crate::error::{Error, Result};
pub use key::Key;
use link::{RankLink, left};
use markers::Marker;
use parts::{Colors, Dealt};
pub use terms::VERSION;
pub use wire::Part;
use wire::RankFrame;

/// A rank's connections.
#[derive(Debug)]
enum RankLinks {
    Alone,
    /// By rank, from rank 1 on.
    Hub(Vec<RankLink>),
    Spoke(RankLink),
}

/// What rank 0 answers in a round.
#[derive(Debug, Clone, Copy)]
enum RoundAnswer<'a> {
    /// The parts of all ranks, to each.
    All,
    /// To each rank its connections in a part.
    Dealt(&'a Colors),
}

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
    size: usize,
    patience: Duration,
    /// The process that met the others: a child of its has no part in it.
    process: u32,
    /// Held for a round: collective calls of one communicator are made one after the other.
    state: Mutex<ExchangeState>,
    /// Of rank 0, where ranks met by a key: it tells a late rank that the meeting is over.
    _met: Option<Marker>,
}

impl RankExchange {
    /// How long a rank waits for the others, unless `WMSHIM_WHOLEMEMORY_TIMEOUT` says otherwise.
    pub const PATIENCE: Duration = Duration::from_secs(300);

    /// Meets the other ranks that have the same key. Returns when all are there.
    ///
    /// # Errors
    /// [`Error::Communication`] where not all came in time, or a rank came twice.
    pub fn meet(key: Key, rank: usize, size: usize, patience: Duration) -> Result<Self> {
        let links = match (rank, size) {
            (_, 1) => RankLinks::Alone,
            (0, _) => RankLinks::Hub(meeting::gather(key, size, patience)?),
            _ => RankLinks::Spoke(meeting::join(key, rank, size, patience)?),
        };
        let met = if rank == 0 { markers::mark_met(key, size) } else { None };
        Ok(Self::new(links, rank, size, patience, met))
    }

    fn new(links: RankLinks, rank: usize, size: usize, patience: Duration, met: Option<Marker>) -> Self {
        let state = Mutex::new(ExchangeState { links, round: 0, broken: None });
        Self { rank, size, patience, process: std::process::id(), state, _met: met }
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// How long this rank waits for the others.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Sends a part and receives the parts of all ranks, by rank, with this rank's own descriptors.
    /// `call` names the collective call: all ranks must make the same.
    ///
    /// # Errors
    /// [`Error::Logic`] on every rank where they make different calls; [`Error::Communication`]
    /// where a rank has ended.
    pub fn round(&self, call: &str, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<Vec<Part>> {
        self.turn(call, bytes, descriptors, RoundAnswer::All)
    }

    /// Is there room for the connections of a split, on this rank?
    ///
    /// # Errors
    /// The system's.
    pub fn can_split(&self) -> Result {
        self.is_own()?;
        parts::have_room(self.rank, self.size)
    }

    /// This rank's exchange with the ranks of its color, which has no name. `None` for a rank
    /// without a color. All ranks know the colors.
    ///
    /// # Errors
    /// As [`RankExchange::round`]; [`Error::System`] where rank 0 could not open the connections.
    pub fn part(&self, call: &str, colors: &Colors) -> Result<Option<Self>> {
        let life = link::own_life();
        let life: Vec<_> = life.iter().map(AsFd::as_fd).collect();
        let dealt = self.turn(call, &[], &life, RoundAnswer::Dealt(colors))?.pop().and_then(Dealt::of_part);
        let color = colors[self.rank].0;
        if color == parts::NO_COLOR {
            return Ok(None);
        }
        let ranks = parts::ranks_of(colors, color);
        let rank = ranks.iter().position(|rank| *rank == self.rank).unwrap_or_default();
        let count = if rank == 0 { ranks.len() - 1 } else { 1 };
        let Some(dealt) = dealt.filter(|dealt| dealt.sockets.len() == count) else {
            return Err(Error::System("the connections of a part were not opened".to_owned()));
        };
        let links = dealt.sockets.into_iter().zip(dealt.lives);
        let links = links.map(|(socket, life)| RankLink::new(socket, life, self.patience));
        let mut links = links.collect::<std::io::Result<Vec<_>>>()?;
        let links = match links.pop() {
            None => RankLinks::Alone,
            Some(hub) if rank > 0 => RankLinks::Spoke(hub),
            Some(last) => RankLinks::Hub(links.into_iter().chain([last]).collect()),
        };
        Ok(Some(Self::new(links, rank, ranks.len(), self.patience, None)))
    }

    fn is_own(&self) -> Result {
        if std::process::id() == self.process {
            return Ok(());
        }
        Err(Error::Logic(format!(
            "this process is a child of process {}, to which the communicator belongs: make collective calls there, \
             or create a communicator here",
            self.process
        )))
    }

    fn turn(
        &self,
        call: &str,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
        answer: RoundAnswer<'_>,
    ) -> Result<Vec<Part>> {
        // Before the lock, which another thread may have held when the process was forked.
        self.is_own()?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = &state.broken {
            return Err(error.clone());
        }
        state.round = state.round.wrapping_add(1);
        let own = RankFrame::contribution(state.round, call, bytes, descriptors)?;
        let outcome = match &state.links {
            RankLinks::Alone => match answer {
                RoundAnswer::All => own.into_part(state.round, call).map(|part| vec![part]),
                RoundAnswer::Dealt(_) => Ok(vec![Part::default()]),
            },
            RankLinks::Hub(spokes) => self.as_hub(spokes, (state.round, call), own, answer),
            RankLinks::Spoke(hub) => self.as_spoke(hub, (state.round, call), &own, answer),
        };
        // If ranks made different calls, all of them have been answered. After any other failure
        // the state of the exchange is unknown.
        if let Err(error @ (Error::Communication(_) | Error::System(_))) = &outcome {
            state.broken = Some(error.clone());
        }
        outcome
    }

    /// Waits for all ranks.
    ///
    /// # Errors
    /// As [`RankExchange::round`].
    pub fn barrier(&self, call: &str) -> Result {
        self.round(call, &[], &[]).map(drop)
    }

    fn as_spoke(
        &self,
        hub: &RankLink,
        (round, call): (u32, &str),
        own: &RankFrame,
        answer: RoundAnswer<'_>,
    ) -> Result<Vec<Part>> {
        // A hub that has left may have said why.
        let sent = own.send(hub).or_else(|error| match error.kind() {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => Ok(()),
            _ => Err(ended(0, &error)),
        });
        sent?;
        let count = if matches!(answer, RoundAnswer::All) { self.size } else { 1 };
        let mut parts = Vec::with_capacity(count);
        while parts.len() < count {
            let frame = RankFrame::receive(hub).map_err(|error| ended(0, &error))?;
            parts.push(frame.into_part(round, call)?);
        }
        Ok(parts)
    }

    fn as_hub(
        &self,
        spokes: &[RankLink],
        (round, call): (u32, &str),
        own: RankFrame,
        answer: RoundAnswer<'_>,
    ) -> Result<Vec<Part>> {
        let collected = self.collect(spokes, own).and_then(|frames| {
            let strays = frames.iter().enumerate().find(|(_, frame)| !frame.is_of(round, call));
            match strays {
                None => Ok(frames),
                Some((rank, frame)) => Err(Error::Logic(format!(
                    "rank 0 calls {call}, rank {rank} calls {}: all ranks of a communicator must make the same call",
                    frame.call()
                ))),
            }
        });
        let frames = match collected {
            Ok(frames) => frames,
            Err(error) => {
                let refusal = RankFrame::refusal(round, &error);
                // One that has ended is why this round fails, or the next one will.
                spokes.iter().for_each(|spoke| drop(refusal.send(spoke)));
                return Err(error);
            }
        };
        let told = |rank: usize, sent: std::io::Result<()>| {
            if let Err(error) = sent {
                log::debug!("wholememory: rank {rank} does not take its answer: {error}");
            }
        };
        match answer {
            RoundAnswer::All => {
                for (spoke, rank) in spokes.iter().zip(1..) {
                    told(rank, frames.iter().try_for_each(|frame| frame.send(spoke)));
                }
                frames.into_iter().map(|frame| frame.into_part(round, call)).collect()
            }
            RoundAnswer::Dealt(colors) => {
                let dealt = parts::deal(colors, &frames).unwrap_or_else(|error| {
                    // Ranks without connections say so, and all of them fail alike.
                    log::warn!("wholememory: no connections for parts: {error}");
                    frames.iter().map(|_| Dealt::default()).collect()
                });
                let mut dealt = dealt.into_iter().map(Dealt::into_part);
                let own = dealt.next().unwrap_or_default();
                for ((spoke, rank), part) in spokes.iter().zip(1..).zip(dealt) {
                    told(rank, RankFrame::of_part(round, call, part).send(spoke));
                }
                Ok(vec![own])
            }
        }
    }

    /// One frame of each rank, in any order of arrival.
    fn collect(&self, spokes: &[RankLink], own: RankFrame) -> Result<Vec<RankFrame>> {
        let deadline = Instant::now() + self.patience;
        let mut frames: Vec<Option<RankFrame>> =
            std::iter::once(Some(own)).chain(spokes.iter().map(|_| None)).collect();
        loop {
            let waiting: Vec<usize> = (1..self.size).filter(|rank| frames[*rank].is_none()).collect();
            if waiting.is_empty() {
                return Ok(frames.into_iter().flatten().collect());
            }
            let heard = wait_for_any(spokes, &waiting, deadline)?;
            if heard.is_empty() {
                return Err(Error::Communication(format!(
                    "ranks {waiting:?} did not come within {:?}",
                    self.patience
                )));
            }
            for rank in heard {
                frames[rank] =
                    Some(RankFrame::receive(&spokes[rank - 1]).map_err(|error| ended(rank, &error))?);
            }
        }
    }
}

/// Those of some ranks that have sent something, or have ended; none after the deadline.
fn wait_for_any(spokes: &[RankLink], ranks: &[usize], deadline: Instant) -> Result<Vec<usize>> {
    loop {
        let (mut polled, mut owners) = (Vec::new(), Vec::new());
        for rank in ranks {
            polled.extend(spokes[rank - 1].polled(PollFlags::IN)?);
            owners.resize(polled.len(), *rank);
        }
        match poll(&mut polled, Some(&left(deadline))) {
            Ok(0) if Instant::now() < deadline => {}
            Ok(_) => {
                let heard = owners.iter().zip(&polled).filter(|(_, poll)| !poll.revents().is_empty());
                let mut heard: Vec<_> = heard.map(|(rank, _)| *rank).collect();
                heard.dedup();
                return Ok(heard);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn ended(rank: usize, error: &std::io::Error) -> Error {
    Error::Communication(format!("rank {rank} has ended or does not answer: {error}"))
}

#[cfg(test)]
mod tests;
