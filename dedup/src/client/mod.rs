//! A process as the broker's client: the chunks that it uses, and its requests to the broker.
//!
//! A lease outlives the connection. It is this process's use of a chunk, whether or not a broker
//! knows of it. While there is no broker, sharing pauses; [`Client::reconnect`] then tells the next
//! broker about all leases. No memory is lost meanwhile, because mapped memory stays with the
//! processes that map it.
//!
//! The client belongs to one thread, which may wait. A forked child does not use its copy.

mod connection;
mod copies;
mod error;
mod home;
mod link;
mod member;
mod presence;
mod reach;

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use wm_sockets::descriptor::Descriptor;

use connection::BrokerConnection;
pub use copies::{CopyClient, CopyPlace, FoundCopies, OfferedCopies, SegmentNumber};
pub use error::{ConnectError, LinkError, StartError};
pub use home::{BrokerHome, program_beside};
pub use link::{BrokerLink, is_end, is_ready};
pub use member::TurnClient;
pub use presence::Presence;
pub use reach::StartBroker;

use crate::broker::LeaseNumber;
use crate::chunk::ChunkName;
use crate::protocol::{BATCH, BrokerAnswer, BrokerRequest, LookedUp, NOTES, Offered, RELEASES, Role};

/// One use of a chunk by this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease(pub(crate) u64);

/// The broker's answer to an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferAnswer {
    /// Other processes may use the chunk.
    Accepted(Lease),
    /// The broker has a chunk of that name: it can be looked up.
    Present,
    /// The broker has no room.
    Full,
}

/// The broker's answer about a name.
#[derive(Debug)]
pub enum LookUpAnswer {
    /// Another process's chunk, and this process's use of it.
    Chunk(Lease, Descriptor),
    /// Another process has a chunk of that name, and none has offered one.
    Wanted,
    /// No other process has one. The name is among the [arrivals](Client::arrivals) once there is
    /// a chunk.
    Waiting(Lease),
    /// The broker has no room.
    Full,
}

/// A chunk in use, with the broker's number of the use. `None`: this broker does not know of it.
#[derive(Debug, Clone, Copy)]
struct HeldUse {
    name: ChunkName,
    number: Option<LeaseNumber>,
    /// It waits for a chunk.
    is_waiting: bool,
}

/// This process as the broker's client.
#[derive(Debug)]
pub struct Client {
    connection: BrokerConnection,
    /// The broker's process, as it sees it itself.
    broker: Option<u32>,
    held: HashMap<Lease, HeldUse>,
    /// Names that this process waited for when a broker was lost.
    forgotten: Vec<ChunkName>,
    last: u64,
}

impl Client {
    /// The most chunks that one call looks up or offers.
    pub const BATCH: usize = BATCH;

    /// Connects to the user's broker, and starts one if none listens. If the broker does not
    /// answer, as one that is stopped for a moment, the client is returned [lost](Self::is_lost).
    ///
    /// # Errors
    /// There will be no broker for this process.
    pub fn connect(home: BrokerHome, start: StartBroker) -> Result<Self, ConnectError> {
        let mut client = Self {
            connection: BrokerConnection::new(home, start, Role::User),
            broker: None,
            held: HashMap::new(),
            forgotten: Vec::new(),
            last: 0,
        };
        match client.connection.open() {
            Ok(process) => client.broker = Some(process),
            Err(error) if error.is_final() => return Err(error),
            Err(error) => log::warn!("sharing with other processes begins later: {error}"),
        }
        Ok(client)
    }

    /// Is there no connection? Then all requests but [`release`](Self::release) fail until
    /// [`reconnect`](Self::reconnect) succeeds.
    pub fn is_lost(&self) -> bool {
        self.connection.is_lost()
    }

    /// The time of the next attempt to [`reconnect`](Self::reconnect); `None`: there is none.
    pub fn retry_at(&self) -> Option<Instant> {
        self.connection.retry_at()
    }

    /// The broker's process, as it sees it itself, while there is a connection.
    pub fn broker(&self) -> Option<u32> {
        self.broker.filter(|_| !self.is_lost())
    }

    /// Looks chunks up that this process has, at most [`Self::BATCH`].
    ///
    /// # Errors
    /// The broker [is lost](Self::is_lost), or there are too many names.
    pub fn look_up(&mut self, names: &[ChunkName]) -> io::Result<Vec<LookUpAnswer>> {
        let (found, descriptors) = self.find(names, false)?;
        let mut descriptors = descriptors.into_iter();
        let mut answer = |name: &ChunkName, found: LookedUp| match found {
            LookedUp::Chunk(number) => match descriptors.next() {
                Some(open) => LookUpAnswer::Chunk(self.hold(*name, number, false), open),
                None => LookUpAnswer::Full,
            },
            LookedUp::Wanted => LookUpAnswer::Wanted,
            LookedUp::Waiting(number) => LookUpAnswer::Waiting(self.hold(*name, number, true)),
            LookedUp::Full => LookUpAnswer::Full,
        };
        Ok(names.iter().zip(found).map(|(name, found)| answer(name, found)).collect())
    }

    /// Names that this process waits for and that can be looked up again, since another process has
    /// offered such a chunk or the broker was lost. There may be more. The leases stay this
    /// process's.
    ///
    /// # Errors
    /// The broker [is lost](Self::is_lost).
    pub fn arrivals(&mut self) -> io::Result<Vec<ChunkName>> {
        if !self.forgotten.is_empty() {
            return Ok(std::mem::take(&mut self.forgotten));
        }
        if !self.held.values().any(|held| held.is_waiting) {
            return Ok(Vec::new());
        }
        match self.ask(&BrokerRequest::Arrivals, &[])? {
            (BrokerAnswer::Arrived(names), _) => Ok(names),
            _ => Err(self.broken()),
        }
    }

    /// Offers chunks to other processes, at most [`Self::BATCH`].
    ///
    /// # Errors
    /// The broker [is lost](Self::is_lost); there are too many chunks; or the kernel holds too many
    /// descriptors of this user that no process has received yet.
    pub fn offer(&mut self, chunks: &[(ChunkName, BorrowedFd<'_>)]) -> io::Result<Vec<OfferAnswer>> {
        let answers = self.propose(chunks, false)?;
        let answers = chunks.iter().zip(answers).map(|((name, _), answer)| match answer {
            Offered::Accepted(number) => OfferAnswer::Accepted(self.hold(*name, number, false)),
            Offered::Present => OfferAnswer::Present,
            Offered::Full => OfferAnswer::Full,
        });
        Ok(answers.collect())
    }

    /// Tells the broker the names of all chunks that this process would share. Returns for each
    /// name how many chunks of all processes have it.
    ///
    /// # Errors
    /// The broker [is lost](Self::is_lost).
    pub fn count(&mut self, names: &[ChunkName]) -> io::Result<Vec<u32>> {
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

    /// Takes back chunks that no other process maps any more: no other process can look them up,
    /// and these leases are over. There may be more.
    ///
    /// # Errors
    /// The broker [is lost](Self::is_lost). Then the leases stay, and the chunks are not taken back.
    pub fn take_back(&mut self) -> io::Result<Vec<Lease>> {
        let is_any = self.held.values().any(|held| held.number.is_some() && !held.is_waiting);
        if !is_any {
            return Ok(Vec::new());
        }
        let numbers: HashSet<LeaseNumber> = match self.ask(&BrokerRequest::TakeBack, &[])? {
            (BrokerAnswer::TakenBack(numbers), _) => numbers.into_iter().collect(),
            _ => return Err(self.broken()),
        };
        let is_over = |held: &HeldUse| held.number.is_some_and(|number| numbers.contains(&number));
        let over = self.held.extract_if(|_, held| is_over(held));
        Ok(over.map(|(lease, _)| lease).collect())
    }

    /// Gives leases back. Leases that are not held are ignored.
    pub fn release(&mut self, leases: &[Lease]) {
        let held = leases.iter().filter_map(|lease| self.held.remove(lease)?.number);
        let numbers: Vec<_> = held.collect();
        for numbers in numbers.chunks(RELEASES) {
            // A broker that is lost has dropped its leases.
            if self.ask(&BrokerRequest::Release(numbers.to_vec()), &[]).is_err() {
                return;
            }
        }
    }

    /// Tries to reach a broker again, if the back-off is over, and tells it about all leases.
    /// `export` makes a descriptor of a chunk that is held. Returns `true` if there is a broker,
    /// and it knows of all leases that it has room for.
    pub fn reconnect(&mut self, mut export: impl FnMut(Lease, &ChunkName) -> Option<Descriptor>) -> bool {
        if !self.connection.is_due() {
            return !self.is_lost();
        }
        match self.connection.open() {
            Ok(process) => self.broker = Some(process),
            Err(error) => {
                log::info!("sharing between processes pauses: {error}");
                return false;
            }
        }
        let told = self.offer_again(&mut export).and_then(|()| self.take_again());
        if told.is_ok() {
            self.connection.reset_backoff();
        }
        told.is_ok()
    }

    /// Offers one chunk of each name that is held and that the broker does not know.
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
            for (lease, answer) in leases.into_iter().zip(self.propose(&chunks, true)?) {
                if let Offered::Accepted(number) = answer {
                    self.set_number(lease, number);
                }
            }
        }
        Ok(())
    }

    /// Looks the remaining names up: another process has offered them first, or they are held
    /// twice.
    fn take_again(&mut self) -> io::Result<()> {
        for batch in self.unknown().chunks(BATCH) {
            let names: Vec<_> = batch.iter().map(|(_, name)| *name).collect();
            // This process has mapped that memory already, so it drops the descriptors.
            let (found, _) = self.find(&names, true)?;
            for ((lease, _), found) in batch.iter().zip(found) {
                if let LookedUp::Chunk(number) = found {
                    self.set_number(*lease, number);
                }
            }
        }
        Ok(())
    }

    /// Leases that the broker does not know of.
    fn unknown(&self) -> Vec<(Lease, ChunkName)> {
        let unknown = self.held.iter().filter(|(_, held)| held.number.is_none());
        unknown.map(|(lease, held)| (*lease, held.name)).collect()
    }

    fn set_number(&mut self, lease: Lease, number: LeaseNumber) {
        if let Some(held) = self.held.get_mut(&lease) {
            held.number = Some(number);
        }
    }

    fn hold(&mut self, name: ChunkName, number: LeaseNumber, is_waiting: bool) -> Lease {
        self.last += 1;
        let lease = Lease(self.last);
        self.held.insert(lease, HeldUse { name, number: Some(number), is_waiting });
        lease
    }

    fn find(&mut self, names: &[ChunkName], again: bool) -> io::Result<(Vec<LookedUp>, Vec<Descriptor>)> {
        if names.is_empty() {
            return Ok(Default::default());
        }
        fits(names.len())?;
        match self.ask(&BrokerRequest::LookUp { again, names: names.to_vec() }, &[])? {
            (BrokerAnswer::Found(found), descriptors) if found.len() == names.len() => {
                Ok((found, descriptors))
            }
            _ => Err(self.broken()),
        }
    }

    fn propose(&mut self, chunks: &[(ChunkName, BorrowedFd<'_>)], again: bool) -> io::Result<Vec<Offered>> {
        if chunks.is_empty() {
            return Ok(Vec::new());
        }
        fits(chunks.len())?;
        let (names, descriptors): (Vec<_>, Vec<_>) = chunks.iter().copied().unzip();
        match self.ask(&BrokerRequest::Offer { again, names }, &descriptors)? {
            (BrokerAnswer::Offered(answers), _) if answers.len() == chunks.len() => Ok(answers),
            _ => Err(self.broken()),
        }
    }

    fn ask(
        &mut self,
        request: &BrokerRequest,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<(BrokerAnswer, Vec<Descriptor>)> {
        let answer = self.connection.ask(request, descriptors);
        if self.is_lost() {
            self.forget_numbers();
        }
        answer
    }

    /// The broker answered another question: its later answers cannot be believed either.
    fn broken(&mut self) -> io::Error {
        self.forget_numbers();
        self.connection.broken()
    }

    /// The numbers are those of a connection. The next broker does not know what this process waits
    /// for, so these names are looked up again.
    fn forget_numbers(&mut self) {
        self.held.values_mut().for_each(|held| held.number = None);
        let waiting = self.held.extract_if(|_, held| held.is_waiting);
        self.forgotten.extend(waiting.map(|(_, held)| held.name));
    }
}

fn fits(count: usize) -> io::Result<()> {
    if count <= BATCH { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
}
