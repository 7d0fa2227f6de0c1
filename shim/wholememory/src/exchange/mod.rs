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
//! * A rank that ends is noticed by the kernel's closing of its socket: the others get an error at
//!   once, and no round comes after it. A rank that stays away is given up after the
//!   [patience](RankExchange::PATIENCE).
//! * The name is an abstract one, which ends with the process: nothing is left by one that is
//!   killed.

mod guests;
mod key;
mod meeting;
mod wire;

use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::{Error, Result};
pub use key::Key;
pub use wire::Part;
use wire::RankFrame;

/// A rank's connections.
#[derive(Debug)]
enum RankLinks {
    Alone,
    /// By rank, from rank 1 on.
    Hub(Vec<UnixStream>),
    Spoke(UnixStream),
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
    /// Held for a round: collective calls of one communicator are made one after the other.
    state: Mutex<ExchangeState>,
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
            _ => RankLinks::Spoke(meeting::join(key, rank, patience)?),
        };
        let state = Mutex::new(ExchangeState { links, round: 0, broken: None });
        Ok(Self { rank, size, patience, state })
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
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = &state.broken {
            return Err(error.clone());
        }
        state.round = state.round.wrapping_add(1);
        let own = RankFrame::contribution(state.round, call, bytes, descriptors)?;
        let outcome = match &state.links {
            RankLinks::Alone => own.into_part(state.round, call).map(|part| vec![part]),
            RankLinks::Hub(spokes) => self.as_hub(spokes, state.round, call, own),
            RankLinks::Spoke(hub) => self.as_spoke(hub, state.round, call, &own),
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

    fn as_spoke(&self, hub: &UnixStream, round: u32, call: &str, own: &RankFrame) -> Result<Vec<Part>> {
        let lost = |error| ended(0, &error);
        own.send(hub).map_err(lost)?;
        let mut parts = Vec::with_capacity(self.size);
        while parts.len() < self.size {
            let frame = RankFrame::receive(hub).map_err(lost)?;
            parts.push(frame.into_part(round, call)?);
        }
        Ok(parts)
    }

    fn as_hub(&self, spokes: &[UnixStream], round: u32, call: &str, own: RankFrame) -> Result<Vec<Part>> {
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
        let answers = match &collected {
            Ok(frames) => frames.iter().collect(),
            Err(_) => Vec::new(),
        };
        let refusal = collected.as_ref().err().map(|error| RankFrame::refusal(round, error));
        for (spoke, rank) in spokes.iter().zip(1..) {
            let sent = match &refusal {
                Some(refusal) => refusal.send(spoke),
                None => answers.iter().try_for_each(|frame| frame.send(spoke)),
            };
            // One that has ended is why this round fails, or the next one will.
            if let (Err(error), None) = (sent, &refusal) {
                log::debug!("wholememory: rank {rank} does not take its answer: {error}");
            }
        }
        collected?.into_iter().map(|frame| frame.into_part(round, call)).collect()
    }

    /// One frame of each rank, in any order of arrival.
    fn collect(&self, spokes: &[UnixStream], own: RankFrame) -> Result<Vec<RankFrame>> {
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
fn wait_for_any(spokes: &[UnixStream], ranks: &[usize], deadline: Instant) -> Result<Vec<usize>> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut polled: Vec<_> =
            ranks.iter().map(|rank| PollFd::new(&spokes[rank - 1], PollFlags::IN)).collect();
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) => {
                let heard = ranks.iter().zip(&polled).filter(|(_, poll)| !poll.revents().is_empty());
                return Ok(heard.map(|(rank, _)| *rank).collect());
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
