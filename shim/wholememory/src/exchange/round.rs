//! One round at one rank: parts go upwards to the root, and the parts of all ranks come down.
//!
//! Every rank does the same: it collects the parts of the ranks that it hears, of none in most
//! cases; asks the rank above it, unless it is the root; and answers the ranks that it hears.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::link::{RankLink, left};
use super::links::{RankLinks, Spoke};
use super::parts::{self, Colors, Dealt};
use super::roster::Roster;
use super::wire::{Part, RankFrame};
use super::{link, tcp};
use crate::error::{Error, Result};

/// A round as one rank makes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round<'a> {
    pub(super) rank: usize,
    pub(super) roster: &'a Roster,
    /// How long this rank waits for the others.
    pub(super) patience: Duration,
    pub(super) number: u32,
    pub(super) call: &'a str,
    /// Ranks are divided, and each gets its connections.
    pub(super) colors: Option<&'a Colors>,
}

/// Why a round failed, and whether the rank above knows it.
#[derive(Debug)]
struct RoundFault {
    error: Error,
    is_known_above: bool,
}

impl RoundFault {
    fn of_above(error: Error) -> Self {
        Self { error, is_known_above: true }
    }
}

impl From<Error> for RoundFault {
    fn from(error: Error) -> Self {
        Self { error, is_known_above: false }
    }
}

type Heard = BTreeMap<usize, RankFrame>;

impl Round<'_> {
    /// All parts, by rank, and this rank's connections in its part.
    pub(super) fn run(self, links: &RankLinks, own: RankFrame) -> Result<(Vec<Part>, Option<Dealt>)> {
        let told = self.collect(links, own).and_then(|heard| match &links.up {
            None => self.checked(heard).map_err(RoundFault::from),
            Some(up) => self.ask(up, heard).map_err(RoundFault::of_above),
        });
        let frames = match told {
            Ok(frames) => frames,
            Err(fault) => {
                let refusal = RankFrame::refusal(self.number, &fault.error);
                let up = links.up.as_ref().filter(|_| !fault.is_known_above);
                for link in links.spokes.iter().map(|spoke| &spoke.link).chain(up) {
                    // One that has ended is why this round fails, or the next one will.
                    let _ended = refusal.send(link);
                }
                return Err(fault.error);
            }
        };
        let dealt = self.colors.map(|colors| self.answer_dealt(links, colors, &frames)).transpose()?;
        if dealt.is_none() {
            links.spokes.iter().for_each(|spoke| answer(spoke, frames.iter()));
        }
        let parts = frames.into_iter().map(|frame| frame.into_part(self.number, self.call));
        Ok((parts.collect::<Result<_>>()?, dealt))
    }

    /// The frames of this rank and of all ranks that it hears, in any order of arrival.
    fn collect(&self, links: &RankLinks, own: RankFrame) -> Result<Heard, RoundFault> {
        let deadline = Instant::now() + self.patience;
        let mut heard = Heard::from([(self.rank, own)]);
        if links.spokes.is_empty() {
            return Ok(heard);
        }
        let mut awaited = Awaited::new(links).map_err(Error::from)?;
        loop {
            awaited.forget(&heard);
            if awaited.spokes().next().is_none() {
                return Ok(heard);
            }
            let (speaking, above) = awaited.wait(links.up.as_ref(), deadline)?;
            if above && let Some(up) = &links.up {
                // Before it has heard this machine's parts, it can only refuse.
                return Err(RoundFault::of_above(self.refused(up)));
            }
            if speaking.is_empty() {
                let ranks = links.spokes.iter().flat_map(|spoke| &spoke.ranks);
                let missing: Vec<_> = ranks.filter(|rank| !heard.contains_key(rank)).collect();
                return Err(Error::Communication(format!(
                    "ranks {missing:?} did not come within {:?}",
                    self.patience
                ))
                .into());
            }
            for spoke in speaking {
                // The ranks of another machine come in their order.
                let rank = spoke.ranks.iter().find(|rank| !heard.contains_key(rank));
                let Some(rank) = rank.copied() else { continue };
                let frame = RankFrame::receive(&spoke.link).map_err(|error| ended(spoke.ranks[0], &error));
                heard.insert(rank, frame.and_then(RankFrame::refused)?);
            }
        }
    }

    fn refused(&self, up: &RankLink) -> Error {
        match RankFrame::receive(up).map_err(|error| self.ended_above(&error)).and_then(RankFrame::refused) {
            Ok(early) => Error::Communication(format!("an answer to {} came too early", early.call())),
            Err(error) => error,
        }
    }

    /// Why the rank above does not take a frame to its end. No other frame may follow it.
    fn torn(&self, up: &RankLink) -> Error {
        match self.refused(up) {
            error @ (Error::Communication(_) | Error::System(_)) => error,
            error => Error::Communication(error.reason().to_owned()),
        }
    }

    /// At the root: do all ranks make the same call?
    fn checked(&self, heard: Heard) -> Result<Vec<RankFrame>> {
        match heard.iter().find(|(_, frame)| !frame.is_of(self.number, self.call)) {
            None => Ok(heard.into_values().collect()),
            Some((rank, frame)) => Err(Error::Logic(format!(
                "rank {} calls {}, rank {rank} calls {}: all ranks of a communicator must make the same call",
                self.rank,
                self.call,
                frame.call()
            ))),
        }
    }

    /// Hands the frames upwards, and receives those of all ranks.
    fn ask(&self, up: &RankLink, mut heard: Heard) -> Result<Vec<RankFrame>> {
        match heard.values().try_for_each(|frame| frame.send_unless_answered(up)) {
            Ok(()) => {}
            // Before the rank above has heard all, it can only refuse, or end.
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                return Err(self.torn(up));
            }
            Err(error) => return Err(self.ended_above(&error)),
        }
        let mut frames = Vec::with_capacity(self.roster.size());
        for rank in 0..self.roster.size() {
            let frame = RankFrame::receive(up).map_err(|error| self.ended_above(&error))?.refused()?;
            if !frame.is_of(self.number, self.call) {
                return Err(Error::Communication(format!(
                    "an answer to {}, not to {}",
                    frame.call(),
                    self.call
                )));
            }
            // From another machine it comes without its descriptors.
            frames.push(heard.remove(&rank).unwrap_or(frame));
        }
        Ok(frames)
    }

    /// Answers a round in which ranks are divided. Returns this rank's own connections.
    fn answer_dealt(&self, links: &RankLinks, colors: &Colors, frames: &[RankFrame]) -> Result<Dealt> {
        if let Some(up) = links.up.as_ref().filter(|up| !up.is_remote()) {
            let told = RankFrame::receive(up).map_err(|error| self.ended_above(&error))?;
            let dealt = Dealt::of_part(told.into_part(self.number, self.call)?);
            return dealt.ok_or_else(|| Error::System("connections of a part are missing".to_owned()));
        }
        let dealt = parts::deal(colors, self.roster, self.rank, frames).unwrap_or_else(|error| {
            // Ranks without connections say so, and all of them fail alike.
            log::warn!("wholememory: no connections for parts: {error}");
            frames.iter().map(|_| Dealt::default()).collect()
        });
        let mut dealt: Vec<_> = dealt.into_iter().map(Some).collect();
        for spoke in &links.spokes {
            let own = dealt[spoke.ranks[0]].take().filter(|_| !spoke.link.is_remote());
            let own = own.map(|own| RankFrame::of_part(self.number, self.call, own.into_part()));
            answer(spoke, frames.iter().chain(&own));
        }
        Ok(dealt[self.rank].take().unwrap_or_default())
    }

    /// The rank above has ended.
    fn ended_above(&self, error: &io::Error) -> Error {
        let leader = self.roster.leader(self.rank);
        let is_leader = leader == self.rank;
        ended(if is_leader { self.roster.root() } else { leader }, error)
    }
}

fn answer<'a>(spoke: &Spoke, mut frames: impl Iterator<Item = &'a RankFrame>) {
    if let Err(error) = frames.try_for_each(|frame| frame.send(&spoke.link)) {
        log::debug!("wholememory: rank {} does not take its answer: {error}", spoke.ranks[0]);
    }
}

/// The descriptors of the ranks that a rank waits for, and of the rank above. Each is checked once
/// a round: a check is a system call, and a wait ends once for each rank. A number that the program
/// has closed and opened meanwhile wakes the wait, and the read after it refuses the number.
struct Awaited<'a> {
    polled: Vec<PollFd<'a>>,
    /// Of each descriptor; `None` for the rank above.
    owners: Vec<Option<&'a Spoke>>,
}

impl<'a> Awaited<'a> {
    fn new(links: &'a RankLinks) -> io::Result<Self> {
        let mut all = Self { polled: Vec::new(), owners: Vec::new() };
        let spokes = links.spokes.iter().map(|spoke| (&spoke.link, Some(spoke)));
        for (link, owner) in spokes.chain(links.up.iter().map(|up| (up, None))) {
            all.polled.extend(link.polled(PollFlags::IN)?);
            all.owners.resize(all.polled.len(), owner);
        }
        Ok(all)
    }

    fn spokes(&self) -> impl Iterator<Item = &'a Spoke> {
        self.owners.iter().flatten().copied()
    }

    /// Waits no longer for the ranks that are heard.
    fn forget(&mut self, heard: &Heard) {
        let is_awaited = |spoke: &Spoke| spoke.ranks.iter().any(|rank| !heard.contains_key(rank));
        let all = std::mem::take(&mut self.polled).into_iter().zip(std::mem::take(&mut self.owners));
        (self.polled, self.owners) = all.filter(|(_, owner)| owner.is_none_or(is_awaited)).unzip();
    }

    /// Those that have sent something, or have ended, and whether the rank above has; none after
    /// the deadline.
    fn wait(&mut self, up: Option<&RankLink>, deadline: Instant) -> Result<(Vec<&'a Spoke>, bool)> {
        loop {
            let remote =
                up.is_some_and(RankLink::is_remote) || self.spokes().any(|spoke| spoke.link.is_remote());
            let until = if remote { deadline.min(Instant::now() + tcp::SECOND) } else { deadline };
            match poll(&mut self.polled, Some(&left(until))) {
                Ok(0) if Instant::now() < deadline => {
                    if let Some(spoke) = self.spokes().find(|spoke| spoke.link.is_lost()) {
                        return Err(ended(spoke.ranks[0], &link::lost()));
                    }
                }
                Ok(_) => return Ok(self.speaking()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn speaking(&self) -> (Vec<&'a Spoke>, bool) {
        let heard = self.owners.iter().zip(&self.polled).filter(|(_, poll)| !poll.revents().is_empty());
        let mut heard: Vec<_> = heard.map(|(owner, _)| *owner).collect();
        let above = heard.iter().any(Option::is_none);
        heard.dedup_by_key(|owner| owner.map(std::ptr::from_ref));
        (heard.into_iter().flatten().collect(), above)
    }
}

fn ended(rank: usize, error: &io::Error) -> Error {
    Error::Communication(format!("rank {rank} has ended or does not answer: {error}"))
}

#[cfg(test)]
mod tests {
    //! Hazard (deadlock): a rank sends its part to one that reads no more.
    use std::os::unix::net::UnixStream;

    use super::super::forked::closed_in_child;
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn a_refusal_is_heard_while_a_large_part_goes_up() {
        let (here, above) = UnixStream::pair().expect("sockets");
        let [up, down] = [here, above].map(|socket| {
            RankLink::new(closed_in_child(socket).expect("a slot"), None, PATIENCE).expect("a link")
        });
        // The rank above refuses, and makes no call in which it would read.
        for error in [Error::Communication("rank 2 has ended".to_owned()), Error::Logic("other".to_owned())] {
            RankFrame::refusal(1, &error).send(&down).expect("there is room");
        }
        let roster = Roster::of_one(2, 0);
        let round =
            Round { rank: 1, roster: &roster, patience: PATIENCE, number: 1, call: "large", colors: None };
        let links = RankLinks { spokes: Vec::new(), up: Some(up) };
        for reason in ["rank 2 has ended", "other"] {
            let own = RankFrame::contribution(1, "large", &vec![7; 8 << 20], &[]).expect("not too large");
            let begin = Instant::now();
            let error = round.run(&links, own).expect_err("refused");
            // The exchange is at its end: a frame was torn.
            assert!(error.code() == 5 && error.reason() == reason, "{error}");
            assert!(begin.elapsed() < PATIENCE / 2, "{:?}", begin.elapsed());
        }
    }
}
