//! The leader of a machine's ranks while ranks meet: it hears ranks of its machine and, as root,
//! the leaders of other machines; or it calls the root.

use std::io;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use wm_sockets::descriptor::Descriptor;

use super::arrival::{CALL, Met, RankArrival, is_over, roster};
use super::forked::closed_in_child;
use super::guests::{Guests, KnownGuest};
use super::link::{RankLink, left};
use super::links::{RankLinks, Spoke};
use super::roster::Roster;
use super::terms::Terms;
use super::uplink::{Uplink, root_ended, say_came};
use super::wire::{Part, RankFrame};
use super::{door, markers, tcp};
use crate::error::{Error, Result};

/// The longest wait: there is more to watch than sockets.
const LONGEST: Duration = Duration::from_secs(1);

/// The ranks that have come to a leader.
#[derive(Debug)]
pub(super) struct Gathering<'a> {
    arrival: RankArrival<'a>,
    own: Terms,
    listener: Descriptor,
    /// Of the root.
    door: Option<Descriptor>,
    guests: Guests,
    spokes: Vec<Spoke>,
    /// By rank, the leader of a rank that has come.
    leaders: Vec<Option<usize>>,
    up: Uplink,
}

impl<'a> Gathering<'a> {
    pub(super) fn new(arrival: RankArrival<'a>, listener: UnixListener) -> Result<Self> {
        listener.set_nonblocking(true)?;
        let mut leaders = vec![None; arrival.size];
        leaders[arrival.rank] = Some(arrival.rank);
        Ok(Self {
            arrival,
            own: Terms::new(arrival.size),
            listener: closed_in_child(listener)?,
            door: None,
            guests: Guests::default(),
            spokes: Vec::new(),
            leaders,
            up: Uplink::Absent,
        })
    }

    /// Returns when all ranks have come.
    ///
    /// # Errors
    /// [`Error::Communication`] where not all came in time, or a rank came twice; the other ranks
    /// are told.
    pub(super) fn run(mut self) -> Result<Met> {
        let key = self.arrival.invitation.key;
        match self.wait_for_all() {
            Ok(roster) => {
                let told =
                    RankFrame::of_part(0, CALL, Part { bytes: roster.bytes(), descriptors: Vec::new() });
                for spoke in &mut self.spokes {
                    spoke.ranks.sort_unstable();
                    // If one has ended, the first round says so.
                    let _ended = told.send(&spoke.link);
                }
                let up = self.up.into_link();
                let marker = markers::mark_met(key, self.arrival.size);
                Ok(Met { roster, links: RankLinks { spokes: self.spokes, up }, marker })
            }
            Err(error) => {
                // Before the name is free.
                markers::mark_failed(key);
                let refusal = RankFrame::refusal(0, &error);
                for spoke in &self.spokes {
                    // One that has ended needs no reason.
                    let _ended = refusal.send(&spoke.link);
                }
                self.refuse_root(&refusal);
                Err(error)
            }
        }
    }

    /// Tells the root why this machine's ranks do not come. A root that has not proved itself yet
    /// has some seconds for it: without this word it waits for the ranks until its patience ends.
    fn refuse_root(&mut self, refusal: &RankFrame) {
        let until = self.arrival.deadline.min(Instant::now() + tcp::OPENING);
        while self.up.link().is_none() {
            match self.up.call(self.arrival, self.own) {
                Ok(Some(_)) if self.up.open(self.arrival.patience).is_ok() => {}
                Ok(None) if Instant::now() < until && self.up.wait(until).is_ok() => {}
                _ => return,
            }
        }
        if let Some(up) = self.up.link() {
            // One that has ended needs no reason.
            let _ended = refusal.send(up);
        }
    }

    fn wait_for_all(&mut self) -> Result<Roster> {
        let RankArrival { invitation, rank, size, .. } = self.arrival;
        self.door = invitation.door.and_then(|_| door::take(invitation.key, rank, self.own));
        if self.door.is_none() && invitation.door.is_some() && size > 1 {
            self.up = Uplink::wanted();
        }
        let mut next_look = Instant::now();
        loop {
            self.hear_guests()?;
            self.hear_leaders()?;
            if let Some(up) = self.up.link() {
                if up.is_readable() {
                    return roster(RankFrame::receive(up).map_err(|error| root_ended(&error))?, size);
                }
            } else if self.leaders.iter().all(Option::is_some) {
                return Ok(Roster::new(rank, self.leaders.iter().flatten().copied().collect()));
            }
            let now = Instant::now();
            is_over(self.arrival, now >= next_look)?;
            if now >= next_look {
                next_look = now + LONGEST;
            }
            self.watch(now)?;
            self.call()?;
            self.wait()?;
        }
    }

    /// Lets ranks and leaders in that have the key.
    fn hear_guests(&mut self) -> Result {
        let key = self.arrival.invitation.key;
        self.guests.admit(self.listener.get()?, false)?;
        if let Some(door) = &self.door {
            self.guests.admit(door.get()?, true)?;
        }
        let mut outcome = Ok(());
        // All of them are told before the first error is.
        for guest in self.guests.known(key, self.own) {
            outcome = outcome.and(self.seat(guest));
        }
        outcome
    }

    fn seat(&mut self, guest: KnownGuest) -> Result {
        let KnownGuest { rank, terms, socket, is_remote } = guest;
        let patience = self.arrival.patience;
        let link =
            if is_remote { RankLink::remote(socket, patience) } else { RankLink::to_peer(socket, patience) }?;
        self.spokes.push(Spoke { link, ranks: Vec::new() });
        self.own.compare(rank, terms)?;
        let spoke = self.spokes.len() - 1;
        self.came(spoke, rank, if is_remote { rank } else { self.arrival.rank })?;
        self.up.link().map_or(Ok(()), |up| say_came(up, &[rank]))
    }

    fn came(&mut self, spoke: usize, rank: usize, leader: usize) -> Result {
        match self.leaders.get_mut(rank) {
            Some(place @ None) => *place = Some(leader),
            Some(Some(_)) => return Err(Error::Communication(format!("rank {rank} came twice"))),
            None => {
                return Err(Error::Communication(format!("rank {rank} of {} came", self.arrival.size)));
            }
        }
        self.spokes[spoke].ranks.push(rank);
        Ok(())
    }

    /// The leaders of other machines say which ranks have come, or why they refuse.
    fn hear_leaders(&mut self) -> Result {
        for spoke in 0..self.spokes.len() {
            while self.spokes[spoke].link.is_remote() && self.spokes[spoke].link.is_readable() {
                let leader = self.spokes[spoke].ranks[0];
                let ended = |error| while_ranks_meet(leader, &error);
                let told = RankFrame::receive(&self.spokes[spoke].link).map_err(ended)?;
                let told = told.into_part(0, CALL)?;
                for rank in told.bytes.as_chunks::<4>().0 {
                    self.came(spoke, u32::from_le_bytes(*rank) as usize, leader)?;
                }
            }
        }
        Ok(())
    }

    /// Has a rank ended, or has the time?
    fn watch(&self, now: Instant) -> Result {
        let local = |spoke: &&Spoke| !spoke.link.is_remote() && spoke.link.has_ended();
        if let Some(rank) = self.spokes.iter().find(local).and_then(|spoke| spoke.ranks.first()) {
            return Err(Error::Communication(format!("rank {rank} has ended while ranks meet")));
        }
        if now < self.arrival.deadline {
            return Ok(());
        }
        Err(self.up.unheard(self.arrival).unwrap_or_else(|| {
            let ranks = 0..self.arrival.size;
            let missing: Vec<_> = ranks.filter(|rank| self.leaders[*rank].is_none()).collect();
            Error::Communication(format!("ranks {missing:?} did not come within {:?}", self.arrival.patience))
        }))
    }

    /// Calls the root, and goes on talking to it.
    fn call(&mut self) -> Result {
        let Some(root) = self.up.call(self.arrival, self.own)? else { return Ok(()) };
        let up = self.up.open(self.arrival.patience)?;
        root.compare(self.arrival.rank, self.own)?;
        let local: Vec<_> = self.spokes.iter().flat_map(|spoke| spoke.ranks.iter().copied()).collect();
        up.map_or(Ok(()), |up| say_came(up, &local))
    }

    /// Waits until a process connects, says something, or has been silent for too long, and no
    /// longer than a second.
    fn wait(&self) -> Result {
        let mut all = vec![PollFd::from_borrowed_fd(self.listener.get()?, PollFlags::IN)];
        if let Some(door) = &self.door {
            all.push(PollFd::from_borrowed_fd(door.get()?, PollFlags::IN));
        }
        all.extend(self.guests.polled());
        for spoke in &self.spokes {
            all.extend(spoke.link.polled(PollFlags::IN)?);
        }
        all.extend(self.up.polled()?);
        let until = [self.guests.until(), self.up.until()].into_iter().flatten();
        let until = until.fold(self.arrival.deadline.min(Instant::now() + LONGEST), Instant::min);
        match poll(&mut all, Some(&left(until))) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn while_ranks_meet(rank: usize, error: &io::Error) -> Error {
    Error::Communication(format!("rank {rank}, on another machine, has ended while ranks meet: {error}"))
}
