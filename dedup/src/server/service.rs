//! The answer to each packet: the state machine with descriptors in it.

use std::collections::BTreeMap;
use std::io::{Error, Result};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::copies::CopyService;
use super::lives::ProcessLives;
use super::reply::{Reply, SharedDescriptor, may_be_memory};
use crate::broker::{Broker, ClientNumber, KeeperNumber, LeaseNumber, Limits, LookUpOutcome, OfferOutcome};
use crate::chunk::ChunkName;
use crate::protocol::{
    BrokerAnswer, BrokerReport, BrokerRequest, ClientReport, DeviceReport, LookedUp, Malformed, NOTES,
    Offered, RELEASES, REPORTED, ReceivedPacket, Role, VERSION,
};
use crate::turns::{MemberNumber, TurnTable};

/// The peer of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    /// It has not said.
    Unknown,
    /// A process that shares.
    Sharer(ClientNumber),
    /// A process that asks for reports.
    Observer,
    /// A process that takes turns.
    Member(MemberNumber),
    /// A process that uses copies in host memory.
    Keeper(KeeperNumber),
}

/// The broker of a process.
#[derive(Debug)]
pub(super) struct SharingService {
    broker: Broker<SharedDescriptor>,
    capacity: usize,
    started: Instant,
    /// Processes of the clients that share.
    processes: BTreeMap<ClientNumber, u32>,
    /// Their lives.
    lives: ProcessLives,
    turns: TurnTable,
    copies: CopyService,
    most_members: usize,
}

impl SharingService {
    pub(super) fn new(limits: Limits, started: Instant) -> Self {
        Self {
            broker: Broker::new(limits),
            capacity: limits.chunks,
            started,
            processes: BTreeMap::new(),
            lives: ProcessLives::new(limits.clients),
            turns: TurnTable::default(),
            copies: CopyService::new(limits.copies),
            most_members: limits.clients,
        }
    }

    /// The clients that share, take turns or use copies.
    pub(super) fn clients(&self) -> usize {
        self.broker.clients() + self.turns.members() + self.copies.keepers()
    }

    /// Members that say nothing hold no other one up.
    pub(super) fn look_at_turns(&mut self, now: Instant) {
        if self.next_turn().is_some_and(|due| due <= now) {
            self.turns.tick(self.since_start(now));
        }
    }

    /// When it is to be looked at turns at the latest.
    pub(super) fn next_turn(&self) -> Option<Instant> {
        self.turns.next_due().map(|due| self.started + due)
    }

    /// Has a speaker an order that was not sent?
    pub(super) fn has_order(&self, speaker: &Speaker) -> bool {
        matches!(speaker, Speaker::Member(member) if self.turns.has_order(*member))
    }

    /// The next one.
    pub(super) fn take_order(&mut self, speaker: &Speaker) -> Option<Reply> {
        let Speaker::Member(member) = speaker else { return None };
        self.turns.take_order(*member).map(|order| BrokerAnswer::Turn(order).into())
    }

    fn since_start(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    /// A speaker's process is known by a descriptor that tells its end. `None`: there is none.
    pub(super) fn watch(&mut self, speaker: &Speaker, life: Option<OwnedFd>) {
        if let (Speaker::Sharer(client), Some(life)) = (speaker, life) {
            self.lives.join(*client, life);
        }
    }

    /// Descriptors that are readable once processes have ended that left chunks behind.
    pub(super) fn departed_lives(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.lives.departed().map(|life| PollFd::from_borrowed_fd(life, PollFlags::IN))
    }

    /// Processes that have departed and have ended map no memory any more.
    pub(super) fn forget_ended(&mut self) {
        self.lives.take_ended().for_each(|ended| self.broker.ended(ended));
    }

    /// A connection has ended.
    pub(super) fn leave(&mut self, speaker: &Speaker, now: Instant) {
        match speaker {
            Speaker::Sharer(client) => {
                self.broker.gone(*client);
                self.processes.remove(client);
                self.lives.depart(*client, |client| self.broker.lingers(client));
            }
            Speaker::Member(member) => self.turns.gone(*member, self.since_start(now)),
            Speaker::Keeper(keeper) => self.copies.gone(*keeper),
            Speaker::Unknown | Speaker::Observer => {}
        }
    }

    /// Answers a packet, if it has an answer.
    ///
    /// # Errors
    /// This speaker may not send such a packet now. The state is unchanged.
    pub(super) fn serve(
        &mut self,
        speaker: &mut Speaker,
        process: u32,
        packet: ReceivedPacket,
        now: Instant,
    ) -> Result<Option<Reply>> {
        let request = BrokerRequest::decode(&packet.bytes)?;
        let reply = match (*speaker, request) {
            (Speaker::Unknown, BrokerRequest::Hello { version, role }) if packet.descriptors.is_empty() => {
                Ok(self.greet(speaker, process, version, role, now))
            }
            (Speaker::Sharer(client), BrokerRequest::Offer { again, names }) => {
                self.offer(client, again, names, packet)
            }
            (Speaker::Keeper(keeper), BrokerRequest::OfferCopies(copies)) => {
                self.copies.offer(keeper, &copies, packet)
            }
            (Speaker::Unknown, _) | (_, BrokerRequest::Hello { .. }) => {
                Err(Error::other("no hello, or a second one"))
            }
            _ if !packet.descriptors.is_empty() || packet.lost_some => Err(Malformed.into()),
            (Speaker::Member(member), BrokerRequest::Turn(report)) => {
                self.turns.report(member, report, self.since_start(now));
                return Ok(None);
            }
            (Speaker::Member(_), _) => Err(Error::other("a member that wants more than turns")),
            (Speaker::Keeper(keeper), request) => self.copies.serve(keeper, request),
            (_, BrokerRequest::Report) => Ok(BrokerAnswer::Report(self.report()).into()),
            (Speaker::Sharer(client), BrokerRequest::LookUp { again, names }) => {
                Ok(self.look_up(client, again, &names))
            }
            (Speaker::Sharer(client), BrokerRequest::Release(leases)) => Ok(self.release(client, &leases)),
            (Speaker::Sharer(client), BrokerRequest::Note { anew, names }) => {
                Ok(BrokerAnswer::Noted(self.broker.declare(client, anew, &names)).into())
            }
            (Speaker::Sharer(client), BrokerRequest::Arrivals) => {
                Ok(BrokerAnswer::Arrived(self.broker.arrivals(client, NOTES, Instant::now())).into())
            }
            (Speaker::Sharer(client), BrokerRequest::TakeBack) => {
                Ok(BrokerAnswer::TakenBack(self.broker.take_back(client, RELEASES)).into())
            }
            (Speaker::Sharer(_), _) => Err(Error::other("one that shares, and wants more than that")),
            (Speaker::Observer, _) => Err(Error::other("an observer that wants more than to look")),
        };
        reply.map(Some)
    }

    fn greet(
        &mut self,
        speaker: &mut Speaker,
        process: u32,
        version: u32,
        role: Role,
        now: Instant,
    ) -> Reply {
        let hello = BrokerAnswer::Hello { version: VERSION, process: std::process::id() };
        if version != VERSION {
            log::warn!("process {process} speaks version {version} of the protocol, not {VERSION}");
            return Reply { is_last: true, ..hello.into() };
        }
        *speaker = match role {
            Role::Observer => Speaker::Observer,
            Role::User => match self.broker.join() {
                Some(client) => Speaker::Sharer(client),
                None => return BrokerAnswer::Refused.into(),
            },
            Role::Member if self.turns.members() >= self.most_members => return BrokerAnswer::Refused.into(),
            Role::Member => {
                log::info!("process {process} takes turns");
                Speaker::Member(self.turns.join(self.since_start(now)))
            }
            Role::Keeper => match self.copies.join() {
                Some(keeper) => Speaker::Keeper(keeper),
                None => return BrokerAnswer::Refused.into(),
            },
        };
        match speaker {
            Speaker::Sharer(client) => {
                self.processes.insert(*client, process);
                log::info!("process {process} shares");
            }
            Speaker::Keeper(_) => log::info!("process {process} uses common copies"),
            _ => {}
        }
        hello.into()
    }

    fn offer(
        &mut self,
        client: ClientNumber,
        again: bool,
        names: Vec<ChunkName>,
        packet: ReceivedPacket,
    ) -> Result<Reply> {
        let ReceivedPacket { descriptors, lost_some, .. } = packet;
        if descriptors.len() < names.len() && lost_some {
            // No more can be opened here. Which of them arrived is known, but not worth a case of
            // its own.
            return Ok(BrokerAnswer::Offered(vec![Offered::Full; names.len()]).into());
        }
        if descriptors.len() != names.len() || lost_some || !descriptors.iter().all(may_be_memory) {
            return Err(Malformed.into());
        }
        let offer = if again { Broker::offer_again } else { Broker::offer };
        let outcomes = names.into_iter().zip(descriptors).map(|(name, descriptor)| {
            match offer(&mut self.broker, client, name, Rc::new(descriptor)) {
                OfferOutcome::Accepted(lease) => Offered::Accepted(lease),
                OfferOutcome::Present => Offered::Present,
                OfferOutcome::Full => Offered::Full,
            }
        });
        Ok(BrokerAnswer::Offered(outcomes.collect()).into())
    }

    fn look_up(&mut self, client: ClientNumber, again: bool, names: &[ChunkName]) -> Reply {
        let look_up = if again { Broker::look_up_again } else { Broker::look_up };
        let mut descriptors = Vec::new();
        let now = Instant::now();
        let found = names.iter().map(|name| match look_up(&mut self.broker, client, name, now) {
            LookUpOutcome::Found(lease, descriptor) => {
                descriptors.push(descriptor);
                LookedUp::Chunk(lease)
            }
            LookUpOutcome::Wanted => LookedUp::Wanted,
            LookUpOutcome::Waiting(lease) => LookedUp::Waiting(lease),
            LookUpOutcome::Full => LookedUp::Full,
        });
        let answer = BrokerAnswer::Found(found.collect());
        Reply { descriptors, ..answer.into() }
    }

    fn release(&mut self, client: ClientNumber, leases: &[LeaseNumber]) -> Reply {
        let released = leases.iter().filter(|lease| self.broker.release(client, **lease)).count();
        BrokerAnswer::Released(released as u32).into()
    }

    fn report(&self) -> BrokerReport {
        let clients = self.processes.iter().take(REPORTED / 2).map(|(client, process)| ClientReport {
            process: *process,
            leases: self.broker.uses_of(*client) as u64,
        });
        let devices = self.broker.devices().into_iter().take(REPORTED / 2);
        let devices =
            devices.map(|(device, held)| DeviceReport { device, chunks: held.chunks, leases: held.leases });
        BrokerReport {
            release: release(),
            process: std::process::id(),
            uptime: self.started.elapsed().as_secs(),
            capacity: self.capacity as u64,
            segments: self.copies.segments() as u64,
            copy_bytes: self.copies.bytes(),
            clients: clients.collect(),
            devices: devices.collect(),
        }
    }
}

/// This package's version.
fn release() -> [u32; 3] {
    let number = |text: &str| text.parse().unwrap_or(0);
    [env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"), env!("CARGO_PKG_VERSION_PATCH")]
        .map(number)
}
