//! A process as a user of copies in host memory, which the user's other processes use, too: on a
//! connection of its own, with an answer to each request.
//!
//! A process that loses its broker loses no memory, since it maps the segments. But the broker's
//! numbers mean nothing to the next one, and other processes cannot find these copies any more.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use wm_sockets::descriptor::Descriptor;

use super::connection::BrokerConnection;
use super::home::BrokerHome;
use super::reach::StartBroker;
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
    connection: BrokerConnection,
    /// How often it has connected.
    connections: u64,
}

impl CopyClient {
    /// The most names in one call.
    pub const BATCH: usize = COPIES;

    /// Not connected yet.
    pub fn new(home: BrokerHome, start: StartBroker) -> Self {
        Self { connection: BrokerConnection::new(home, start, Role::Keeper), connections: 0 }
    }

    /// Is there a connection? Connects if there is none and the last attempt was long enough ago,
    /// and starts a broker if none listens. If the client [was lost](Self::is_lost), this process
    /// uses no segment of the new connection: it drops all numbers that it has before it connects.
    pub fn connect(&mut self) -> bool {
        if !self.connection.is_due() {
            return !self.is_lost();
        }
        match self.connection.connect() {
            Ok(()) => self.connections += 1,
            Err(error) => log::info!("paused programs use no common copies: {error}"),
        }
        !self.is_lost()
    }

    /// Is there no connection? It ends in [`find`](Self::find), [`offer`](Self::offer) and
    /// [`release`](Self::release) only. The numbers of segments mean nothing then.
    pub fn is_lost(&self) -> bool {
        self.connection.is_lost()
    }

    /// How often this client has connected. The numbers of segments are those of one connection.
    pub fn connections(&self) -> u64 {
        self.connections
    }

    /// The time of the next attempt to [`connect`](Self::connect); `None`: there is none.
    pub fn retry_at(&self) -> Option<Instant> {
        self.connection.retry_at()
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
        match self.connection.ask(&BrokerRequest::FindCopies(names.to_vec()), &[])? {
            (BrokerAnswer::CopiesFound { places, segments }, descriptors) if places.len() == names.len() => {
                Ok(FoundCopies { places, segments: segments.into_iter().zip(descriptors).collect() })
            }
            _ => Err(self.connection.broken()),
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
        match self.connection.ask(&BrokerRequest::OfferCopies(copies.to_vec()), &[segment])? {
            (BrokerAnswer::CopiesOffered { segment, accepted }, _) if accepted.len() == copies.len() => {
                Ok(OfferedCopies { segment, accepted })
            }
            _ => Err(self.connection.broken()),
        }
    }

    /// This process uses these segments no longer. Those that it does not use are ignored. The
    /// client [is lost](Self::is_lost) if the broker does not answer; then all uses are over.
    pub fn release(&mut self, segments: &[SegmentNumber]) {
        for segments in segments.chunks(RELEASES) {
            match self.connection.ask(&BrokerRequest::ReleaseCopies(segments.to_vec()), &[]) {
                Ok((BrokerAnswer::CopiesReleased(_), _)) => {}
                Ok(_) => return self.connection.lose(),
                Err(_) => return,
            }
        }
    }
}

fn fits(count: usize) -> io::Result<()> {
    if count <= COPIES { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
}
