//! What this process shares, and its word with the broker about it.
//!
//! A lease here outlives the connection: it is this process's use of a chunk, whether or not a broker knows of it. When the broker is
//! gone sharing pauses, [`Client::reconnect`] tells the next one what is held, and nothing is lost meanwhile: memory that is mapped
//! stays with those who mapped it.
//!
//! For one thread, which may wait. A forked child has no connection; it makes no use of its copy.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use wm_dedup::broker::LeaseNumber;
use wm_dedup::chunk::ChunkName;
use wm_dedup::protocol::{BATCH, BrokerAnswer, BrokerRequest, LookedUp, NOTES, Offered, RELEASES};

use super::home::BrokerHome;
use super::link::{BrokerLink, NoLink};
use super::start;
use wm_sockets::descriptor::Descriptor;

/// First and longest time between attempts to reach a broker.
const REST: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Brokers that may end in our face one after the other.
const ATTEMPTS: usize = 3;

/// One use of a chunk by this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Lease(u64);

/// What became of an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OfferAnswer {
    /// Others may use it.
    Accepted(Lease),
    /// There is one of that name: it can be looked up.
    Present,
    /// The broker has no room.
    Full,
}

/// A chunk in use, and what this broker calls the use; `None`: it does not know of it.
#[derive(Debug, Clone, Copy)]
struct HeldUse {
    name: ChunkName,
    number: Option<LeaseNumber>,
}

/// This process as the broker's client.
#[derive(Debug)]
pub(crate) struct Client {
    home: BrokerHome,
    link: Option<BrokerLink>,
    held: HashMap<Lease, HeldUse>,
    last: u64,
    rest: Duration,
    retry_at: Instant,
}

impl Client {
    /// Chunks that one call looks up or offers, at most.
    pub(crate) const BATCH: usize = BATCH;

    /// Connects to the user's broker, and starts it if there is none. One that gives no answer, as one that is stopped for a moment, is asked
    /// again [later](Self::retry_at).
    ///
    /// # Errors
    /// There will be none for this process. A sentence for the log.
    pub(crate) fn connect(home: BrokerHome) -> Result<Self, String> {
        let reached = reach(&home);
        let mut client =
            Self { home, link: None, held: HashMap::new(), last: 0, rest: REST.0, retry_at: Instant::now() };
        match reached {
            Ok(link) => client.link = Some(link),
            Err(Unreached::ForNow(problem)) => {
                log::warn!("sharing with other processes begins later: {problem}");
                client.lose();
            }
            Err(Unreached::ForGood(problem)) => return Err(problem),
        }
        Ok(client)
    }

    /// Is there no broker to talk to? Then everything but [`release`](Self::release) fails until [`reconnect`](Self::reconnect).
    pub(crate) fn is_lost(&self) -> bool {
        self.link.is_none()
    }

    /// When the next attempt to [`reconnect`](Self::reconnect) is due.
    pub(crate) fn retry_at(&self) -> Instant {
        self.retry_at
    }

    /// Chunks of these names, for each that the broker has one: a use of it, and its descriptor. At most [`Self::BATCH`].
    ///
    /// # Errors
    /// The broker [is lost](Self::is_lost), or these are too many.
    pub(crate) fn look_up(&mut self, names: &[ChunkName]) -> io::Result<Vec<Option<(Lease, Descriptor)>>> {
        let (found, descriptors) = self.find(names)?;
        let mut descriptors = descriptors.into_iter();
        let found = names.iter().zip(found).map(|(name, found)| match found {
            LookedUp::Chunk(number) => Some(self.hold(*name, number)).zip(descriptors.next()),
            LookedUp::Unknown | LookedUp::Full => None,
        });
        Ok(found.collect())
    }

    /// Offers chunks to others. At most [`Self::BATCH`].
    ///
    /// # Errors
    /// The broker [is lost](Self::is_lost); or these are too many, or the user has too many descriptors under way now.
    pub(crate) fn offer(&mut self, chunks: &[(ChunkName, BorrowedFd<'_>)]) -> io::Result<Vec<OfferAnswer>> {
        let answers = self.propose(chunks)?;
        let answers = chunks.iter().zip(answers).map(|((name, _), answer)| match answer {
            Offered::Accepted(number) => OfferAnswer::Accepted(self.hold(*name, number)),
            Offered::Present => OfferAnswer::Present,
            Offered::Full => OfferAnswer::Full,
        });
        Ok(answers.collect())
    }

    /// Names of all chunks that this process would share. How many there are of each, of all processes.
    ///
    /// # Errors
    /// The broker [is lost](Self::is_lost).
    pub(crate) fn count(&mut self, names: &[ChunkName]) -> io::Result<Vec<u32>> {
        let mut counts = Vec::new();
        for first in (0..names.len().max(1)).step_by(NOTES) {
            let names = &names[first..names.len().min(first + NOTES)];
            let request = BrokerRequest::Note { anew: first == 0, names: names.to_vec() };
            match self.ask(&request, &[])? {
                (BrokerAnswer::Noted(some), _) if some.len() == names.len() => counts.extend(some),
                _ => return Err(self.broken()),
            }
        }
        Ok(counts)
    }

    /// These chunks are used no longer. Leases that are not held change nothing.
    pub(crate) fn release(&mut self, leases: &[Lease]) {
        let held = leases.iter().filter_map(|lease| self.held.remove(lease)?.number);
        let numbers: Vec<_> = held.collect();
        for numbers in numbers.chunks(RELEASES) {
            // Where the broker is lost, so is the lease.
            if self.ask(&BrokerRequest::Release(numbers.to_vec()), &[]).is_err() {
                return;
            }
        }
    }

    /// Tries to reach a broker again, if that is due, and tells it what is held. `export` makes a descriptor of a chunk that is held.
    /// True: there is a broker, and it knows of everything that it has room for.
    pub(crate) fn reconnect(
        &mut self,
        mut export: impl FnMut(Lease, &ChunkName) -> Option<Descriptor>,
    ) -> bool {
        if !self.is_lost() || Instant::now() < self.retry_at {
            return !self.is_lost();
        }
        match reach(&self.home) {
            Ok(link) => self.link = Some(link),
            Err(Unreached::ForNow(problem) | Unreached::ForGood(problem)) => {
                log::info!("sharing between processes pauses: {problem}");
                self.lose();
                return false;
            }
        }
        let told = self.offer_again(&mut export).and_then(|()| self.take_again());
        if told.is_ok() {
            self.rest = REST.0;
        }
        told.is_ok()
    }

    /// Offers one chunk of each name that is held.
    fn offer_again(
        &mut self,
        export: &mut impl FnMut(Lease, &ChunkName) -> Option<Descriptor>,
    ) -> io::Result<()> {
        let mut seen = HashSet::new();
        let one_each = self.unknown().into_iter().filter(|(_, name)| seen.insert(*name));
        for batch in one_each.collect::<Vec<_>>().chunks(BATCH) {
            let exported =
                batch.iter().filter_map(|(lease, name)| Some((*lease, *name, export(*lease, name)?)));
            let exported: Vec<_> = exported.collect();
            let open =
                exported.iter().filter_map(|(lease, name, one)| Some((*lease, (*name, one.get().ok()?))));
            let (leases, chunks): (Vec<_>, Vec<_>) = open.unzip();
            if chunks.is_empty() {
                continue;
            }
            for (lease, answer) in leases.into_iter().zip(self.propose(&chunks)?) {
                if let Offered::Accepted(number) = answer {
                    self.note(lease, number);
                }
            }
        }
        Ok(())
    }

    /// Takes leases of what others have offered first, and for what is held more than once.
    fn take_again(&mut self) -> io::Result<()> {
        for batch in self.unknown().chunks(BATCH) {
            let names: Vec<_> = batch.iter().map(|(_, name)| *name).collect();
            // The descriptors are of memory that is mapped here already.
            let (found, _) = self.find(&names)?;
            for ((lease, _), found) in batch.iter().zip(found) {
                if let LookedUp::Chunk(number) = found {
                    self.note(*lease, number);
                }
            }
        }
        Ok(())
    }

    /// Uses that the broker does not know of.
    fn unknown(&self) -> Vec<(Lease, ChunkName)> {
        let unknown = self.held.iter().filter(|(_, held)| held.number.is_none());
        unknown.map(|(lease, held)| (*lease, held.name)).collect()
    }

    fn note(&mut self, lease: Lease, number: LeaseNumber) {
        if let Some(held) = self.held.get_mut(&lease) {
            held.number = Some(number);
        }
    }

    fn hold(&mut self, name: ChunkName, number: LeaseNumber) -> Lease {
        self.last += 1;
        let lease = Lease(self.last);
        self.held.insert(lease, HeldUse { name, number: Some(number) });
        lease
    }

    fn find(&mut self, names: &[ChunkName]) -> io::Result<(Vec<LookedUp>, Vec<Descriptor>)> {
        if names.is_empty() || names.len() > BATCH {
            return if names.is_empty() {
                Ok(Default::default())
            } else {
                Err(io::ErrorKind::InvalidInput.into())
            };
        }
        match self.ask(&BrokerRequest::LookUp(names.to_vec()), &[])? {
            (BrokerAnswer::Found(found), descriptors) if found.len() == names.len() => {
                Ok((found, descriptors))
            }
            _ => Err(self.broken()),
        }
    }

    fn propose(&mut self, chunks: &[(ChunkName, BorrowedFd<'_>)]) -> io::Result<Vec<Offered>> {
        if chunks.is_empty() || chunks.len() > BATCH {
            return if chunks.is_empty() { Ok(Vec::new()) } else { Err(io::ErrorKind::InvalidInput.into()) };
        }
        let (names, descriptors): (Vec<_>, Vec<_>) = chunks.iter().copied().unzip();
        match self.ask(&BrokerRequest::Offer(names), &descriptors)? {
            (BrokerAnswer::Offered(answers), _) if answers.len() == chunks.len() => Ok(answers),
            _ => Err(self.broken()),
        }
    }

    fn ask(
        &mut self,
        request: &BrokerRequest,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<(BrokerAnswer, Vec<Descriptor>)> {
        let link = self.link.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let answer = link.ask(request, descriptors);
        if answer.as_ref().is_err_and(|error| !was_not_sent(error)) {
            log::info!(
                "the broker is lost: {}",
                answer.as_ref().err().map(io::Error::to_string).unwrap_or_default()
            );
            self.lose();
        }
        answer
    }

    /// An answer to something else: nothing that comes after it can be believed.
    fn broken(&mut self) -> io::Error {
        self.lose();
        io::ErrorKind::InvalidData.into()
    }

    /// No broker knows of us any more.
    fn lose(&mut self) {
        self.link = None;
        self.held.values_mut().for_each(|held| held.number = None);
        self.retry_at = Instant::now() + self.rest;
        self.rest = (self.rest * 2).min(REST.1);
    }

    /// The broker's process, as it sees it itself.
    #[cfg(test)]
    pub(super) fn broker(&self) -> Option<u32> {
        self.link.as_ref().map(|link| link.process)
    }
}

/// Why there is no broker, in a sentence for the log.
enum Unreached {
    /// Another attempt may succeed.
    ForNow(String),
    /// The one that there is refuses this process, or none can be started from it.
    ForGood(String),
}

/// Connects, and starts a broker if nobody listens.
fn reach(home: &BrokerHome) -> Result<BrokerLink, Unreached> {
    for _ in 0..ATTEMPTS {
        match BrokerLink::open(&home.folder) {
            Ok(link) => return Ok(link),
            Err(NoLink::Silent(problem)) => return Err(Unreached::ForNow(problem)),
            Err(NoLink::Refused(problem)) => return Err(Unreached::ForGood(problem)),
            Err(NoLink::Absent) => start::broker(home).map_err(Unreached::ForGood)?,
        }
    }
    // A machine that is busy may start it later than it was waited for.
    Err(Unreached::ForNow(format!(
        "the broker was started, and no process listens in {}",
        home.folder.display()
    )))
}

/// Did the kernel refuse to take more descriptors under way, of all the user's processes? Nothing has left this one then.
fn was_not_sent(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::TOOMANYREFS.raw_os_error())
}
