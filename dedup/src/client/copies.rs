//! A process as a user of copies in host memory, which the user's other processes use, too: on a
//! connection of its own, with an answer to each request.
//!
//! A process that loses its broker loses no memory, since it maps the segments. But the broker's
//! numbers mean nothing to the next one, and other processes cannot find these copies any more.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use wm_sockets::descriptor::Descriptor;

use super::home::BrokerHome;
use super::link::{BrokerLink, was_not_sent};
use super::reach::{BACKOFF, StartBroker, reach};
pub use crate::broker::{CopyPlace, SegmentNumber};
use crate::chunk::CopyName;
use crate::protocol::{BrokerAnswer, BrokerRequest, COPIES, RELEASES, Role};

/// The broker's answer about names of copies.
#[derive(Debug)]
pub struct FoundCopies {
    /// One for each name. `None`: there is no such copy, or it lies in a segment for which there is
    /// no room, in this answer or in the broker's limits.
    pub places: Vec<Option<CopyPlace>>,
    /// The segments of these places that this process did not use before.
    pub segments: Vec<(SegmentNumber, Descriptor)>,
}

/// The broker's answer to an offer of copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedCopies {
    /// Of the segment, which this process uses from now on. `None`: the broker does not hold it,
    /// because no name is accepted, or a limit is reached.
    pub segment: Option<SegmentNumber>,
    /// One for each name. False: there is such a copy, it does not lie in the segment, or a limit
    /// is reached.
    pub accepted: Vec<bool>,
}

/// The broker of this process's copies, if there is one.
#[derive(Debug)]
pub struct CopyClient {
    home: BrokerHome,
    start: StartBroker,
    link: Option<BrokerLink>,
    connections: u64,
    backoff: Duration,
    /// `None`: no attempt is of use.
    retry_at: Option<Instant>,
}

impl CopyClient {
    /// The most names in one call.
    pub const BATCH: usize = COPIES;

    /// Not connected yet.
    pub fn new(home: BrokerHome, start: StartBroker) -> Self {
        let (link, connections, retry_at) = (None, 0, Some(Instant::now()));
        Self { home, start, link, connections, backoff: BACKOFF.0, retry_at }
    }

    /// Is there a connection? Connects if there is none and the last attempt was long enough ago,
    /// and starts a broker if none listens. If the client [was lost](Self::is_lost), this process
    /// uses no segment of the new connection: it drops all numbers that it has before it connects.
    pub fn connect(&mut self) -> bool {
        if self.link.is_some() {
            return true;
        }
        if self.retry_at.is_none_or(|at| at > Instant::now()) {
            return false;
        }
        match reach(&self.home, self.start, Role::Keeper) {
            Ok((link, _)) => {
                (self.link, self.backoff) = (Some(link), BACKOFF.0);
                self.connections += 1;
                true
            }
            Err(error) => {
                log::info!("paused programs use no common copies: {error}");
                self.lose();
                self.retry_at = self.retry_at.filter(|_| !error.is_final());
                false
            }
        }
    }

    /// Is there no connection? It ends in [`find`](Self::find), [`offer`](Self::offer) and
    /// [`release`](Self::release) only. The numbers of segments mean nothing then.
    pub fn is_lost(&self) -> bool {
        self.link.is_none()
    }

    /// How often this client has connected. The numbers of segments are those of one connection.
    pub fn connections(&self) -> u64 {
        self.connections
    }

    /// The time of the next attempt to [`connect`](Self::connect); `None`: there is none.
    pub fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Where copies of these names lie, at most [`Self::BATCH`]. This process becomes a user of
    /// each segment in the answer. One answer has room for 32 new segments: a name in a further one
    /// is answered as if there were no copy, and may be asked for again.
    ///
    /// # Errors
    /// The client [is lost](Self::is_lost), or there are too many names.
    pub fn find(&mut self, names: &[CopyName]) -> io::Result<FoundCopies> {
        if names.is_empty() {
            return Ok(FoundCopies { places: Vec::new(), segments: Vec::new() });
        }
        fits(names.len())?;
        match self.ask(&BrokerRequest::FindCopies(names.to_vec()), &[])? {
            (BrokerAnswer::CopiesFound { places, segments }, descriptors) if places.len() == names.len() => {
                Ok(FoundCopies { places, segments: segments.into_iter().zip(descriptors).collect() })
            }
            _ => Err(self.broken()),
        }
    }

    /// Offers a new segment with copies at these offsets, at most [`Self::BATCH`]. The segment is a
    /// memfd that is sealed against writes and shrinking. The offsets are multiples of 4096, and
    /// the copies lie within the segment; one that does not is not accepted.
    ///
    /// # Errors
    /// The client [is lost](Self::is_lost); there are too many names; or the kernel holds too many
    /// descriptors of this user that no process has received yet, and the client is not lost.
    pub fn offer(
        &mut self,
        segment: BorrowedFd<'_>,
        copies: &[(CopyName, u64)],
    ) -> io::Result<OfferedCopies> {
        if copies.is_empty() {
            return Ok(OfferedCopies { segment: None, accepted: Vec::new() });
        }
        fits(copies.len())?;
        match self.ask(&BrokerRequest::OfferCopies(copies.to_vec()), &[segment])? {
            (BrokerAnswer::CopiesOffered { segment, accepted }, _) if accepted.len() == copies.len() => {
                Ok(OfferedCopies { segment, accepted })
            }
            _ => Err(self.broken()),
        }
    }

    /// This process uses these segments no longer. Those that it does not use are ignored. The
    /// client [is lost](Self::is_lost) if the broker does not answer; then all uses are over.
    pub fn release(&mut self, segments: &[SegmentNumber]) {
        for segments in segments.chunks(RELEASES) {
            match self.ask(&BrokerRequest::ReleaseCopies(segments.to_vec()), &[]) {
                Ok((BrokerAnswer::CopiesReleased(_), _)) => {}
                Ok(_) => return self.lose(),
                Err(_) => return,
            }
        }
    }

    fn ask(
        &mut self,
        request: &BrokerRequest,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<(BrokerAnswer, Vec<Descriptor>)> {
        let link = self.link.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let answer = link.ask(request, descriptors);
        if let Err(error) = &answer
            && !was_not_sent(error)
        {
            log::info!("the broker of common copies is lost: {error}");
            self.lose();
        }
        answer
    }

    /// The broker answered another question: its later answers cannot be believed either.
    fn broken(&mut self) -> io::Error {
        self.lose();
        io::ErrorKind::InvalidData.into()
    }

    /// Forgets the connection: the broker has ended, or does not answer.
    fn lose(&mut self) {
        self.link = None;
        self.retry_at = Some(Instant::now() + self.backoff);
        self.backoff = (self.backoff * 2).min(BACKOFF.1);
    }
}

fn fits(count: usize) -> io::Result<()> {
    if count <= COPIES { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
}
