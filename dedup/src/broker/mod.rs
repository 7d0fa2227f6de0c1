//! The holders of each chunk: the broker without sockets and descriptors.
//!
//! A client is a connection. It holds chunks by leases, and its leases go with it. A chunk lives
//! from the offer that brought it until its last lease goes; then its descriptor (`D`) is dropped.
//! A lease may also wait for a chunk, which no client offers before a second one has the bytes.
//! A chunk with one user is given up if that user asks: no other process maps the memory then, and
//! none can find it any more. That is not known of a chunk that a client held under an earlier
//! broker, or of which a user's connection has ended and its process has not.
//!
//! Invariants:
//! * A chunk has at least one lease; each lease is one client's, and of a chunk that is there, or
//!   of a name that the client waits for.
//! * A lease is never given twice by one broker. A request that names another client's lease, or
//!   one that never was, has no effect.
//! * Each number stays within [`Limits`]. A limit that is reached is an answer.

mod chunks;
mod copies;
mod notes;
mod numbers;
mod waiting;

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use crate::chunk::ChunkName;
use chunks::ChunkTable;
pub use copies::{CopyLimits, CopyPlace, CopyTable, OfferedPlaces, PlacesFound};
use notes::Notes;
pub use numbers::{ClientNumber, KeeperNumber, LeaseNumber, SegmentNumber};
use waiting::WaitingClients;

/// How much the broker takes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Clients at a time.
    pub clients: usize,
    /// Chunks at a time; each costs a descriptor.
    pub chunks: usize,
    /// Leases at a time, of all clients.
    pub leases: usize,
    /// Leases of one client.
    pub leases_of_one: usize,
    /// Of the copies in host memory.
    pub copies: CopyLimits,
}

/// The outcome of an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferOutcome {
    /// The chunk is held, and this is the offering client's use of it.
    Accepted(LeaseNumber),
    /// A chunk of this name is held already; the offered one is dropped.
    Present,
    /// A limit is reached; the offered one is dropped.
    Full,
}

/// The outcome of a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookUpOutcome<D> {
    /// The chunk, and the asking client's use of it.
    Found(LeaseNumber, D),
    /// There is no chunk of that name, and another client waits for one: the asking client is to
    /// offer it.
    Wanted,
    /// There is none, and no other client has asked for it, or one of them is to offer it: the
    /// asking client waits from now on.
    Waiting(LeaseNumber),
    /// A limit is reached.
    Full,
}

/// The chunks of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceUse {
    /// Chunks.
    pub chunks: u64,
    /// Uses of them.
    pub leases: u64,
}

/// What a lease is of.
#[derive(Debug, Clone, Copy)]
enum Leased {
    /// The chunk at this place.
    Chunk(usize),
    /// A chunk that has not come.
    Awaited(ChunkName),
}

/// The leases of one client.
#[derive(Debug, Default)]
struct ClientLeases {
    of: HashMap<LeaseNumber, Leased>,
    /// The departures when it was looked for chunks that are its own.
    looked_at: u64,
}

/// The state. `D` stands for a chunk: a descriptor, shared with answers that are under way.
#[derive(Debug)]
pub struct Broker<D> {
    limits: Limits,
    /// Leases of each client.
    clients: HashMap<ClientNumber, ClientLeases>,
    chunks: ChunkTable<D>,
    waiting: WaitingClients,
    notes: Notes,
    leases: usize,
    last_client: u64,
    last_lease: u64,
    /// Grows when a chunk may have become one client's.
    departures: u64,
}

impl<D: Clone> Broker<D> {
    /// Without clients and chunks.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            clients: HashMap::new(),
            chunks: ChunkTable::default(),
            waiting: WaitingClients::default(),
            notes: Notes::default(),
            leases: 0,
            last_client: 0,
            last_lease: 0,
            departures: 0,
        }
    }

    /// A new client. `None`: there are too many.
    pub fn join(&mut self) -> Option<ClientNumber> {
        if self.clients.len() >= self.limits.clients {
            return None;
        }
        self.last_client += 1;
        let client = ClientNumber(self.last_client);
        self.clients.insert(client, ClientLeases::default());
        Some(client)
    }

    /// A client's connection has ended, and its leases with it. An unknown client has no effect.
    /// Until its process has [`ended`](Self::ended), it may map the memory of its chunks.
    pub fn gone(&mut self, client: ClientNumber) {
        for (lease, leased) in self.clients.remove(&client).unwrap_or_default().of {
            match leased {
                Leased::Chunk(place) => {
                    self.leases -= 1;
                    self.chunks.lose(place, client);
                }
                Leased::Awaited(_) => self.end(lease, leased),
            }
        }
        self.waiting.forget(client);
        self.notes.forget(client);
    }

    /// Does the end of a client that is gone matter? Other clients use chunks that it may map.
    pub fn lingers(&self, client: ClientNumber) -> bool {
        self.chunks.lingers(client)
    }

    /// The process of a client that is [`gone`](Self::gone) has ended. The time grows with the
    /// number of chunks.
    pub fn ended(&mut self, client: ClientNumber) {
        self.chunks.ended(client);
        self.departures += 1;
    }

    /// A client takes back chunks that it uses alone again, at most `most`: they are its own memory
    /// from now on, and its leases are over. While no user of any chunk leaves, each question after
    /// one that found fewer is answered at once.
    pub fn take_back(&mut self, client: ClientNumber, most: usize) -> Vec<LeaseNumber> {
        let Some(leases) = self.clients.get_mut(&client) else { return Vec::new() };
        if leases.looked_at == self.departures {
            return Vec::new();
        }
        let is_own = |(_, leased): &(&LeaseNumber, &Leased)| match leased {
            Leased::Chunk(place) => self.chunks.is_of_one_again(*place),
            Leased::Awaited(_) => false,
        };
        let own: Vec<_> = leases.of.iter().filter(is_own).map(|(lease, _)| *lease).take(most).collect();
        if own.len() < most {
            leases.looked_at = self.departures;
        }
        for lease in &own {
            self.release(client, *lease);
        }
        own
    }

    /// A client could share chunks of these names, besides its earlier ones, or instead of them
    /// (`anew`). Returns the copies of each: notes of all clients, and uses of held chunks. Names
    /// beyond the limits of leases are not noted.
    pub fn declare(&mut self, client: ClientNumber, anew: bool, names: &[ChunkName]) -> Vec<u32> {
        if anew {
            self.notes.forget(client);
        }
        let is_known = self.clients.contains_key(&client);
        for name in names {
            let has_room = self.notes.len_of(client) < self.limits.leases_of_one
                && self.notes.len() < self.limits.leases;
            if is_known && has_room {
                self.notes.add(client, *name);
            }
        }
        let held = |name| self.chunks.place(name).map_or(0, |place| self.chunks.users(place) as u32);
        names.iter().map(|name| self.notes.total(name) + held(name)).collect()
    }

    /// The same as [`offer`](Self::offer), by a client that had the chunk under an earlier broker.
    pub fn offer_again(&mut self, client: ClientNumber, name: ChunkName, descriptor: D) -> OfferOutcome {
        let outcome = self.offer(client, name, descriptor);
        self.renew(&name);
        outcome
    }

    /// The same as [`look_up`](Self::look_up), by a client that had memory of this name under an
    /// earlier broker.
    pub fn look_up_again(
        &mut self,
        client: ClientNumber,
        name: &ChunkName,
        now: Instant,
    ) -> LookUpOutcome<D> {
        let outcome = self.look_up(client, name, now);
        self.renew(name);
        outcome
    }

    fn renew(&mut self, name: &ChunkName) {
        self.chunks.place(name).into_iter().for_each(|place| self.chunks.renew(place));
    }

    /// A client has a chunk that others may use.
    pub fn offer(&mut self, client: ClientNumber, name: ChunkName, descriptor: D) -> OfferOutcome {
        if self.chunks.place(&name).is_some() {
            return OfferOutcome::Present;
        }
        if self.chunks.len() >= self.limits.chunks || !self.may_lease(client) {
            return OfferOutcome::Full;
        }
        let place = self.chunks.insert(name, descriptor);
        self.waiting.arrived(&name);
        OfferOutcome::Accepted(self.lease(client, Leased::Chunk(place)))
    }

    /// A client that has a chunk of this name asks for another one's, to use it instead.
    pub fn look_up(&mut self, client: ClientNumber, name: &ChunkName, now: Instant) -> LookUpOutcome<D> {
        let place = self.chunks.place(name);
        let is_known = self.clients.contains_key(&client);
        if place.is_none() && is_known && self.waiting.asks_for(client, name, now) {
            return LookUpOutcome::Wanted;
        }
        if !self.may_lease(client) {
            return LookUpOutcome::Full;
        }
        let Some(place) = place else {
            let lease = self.lease(client, Leased::Awaited(*name));
            self.waiting.add(client, lease, *name);
            return LookUpOutcome::Waiting(lease);
        };
        let descriptor = self.chunks.enter(place);
        LookUpOutcome::Found(self.lease(client, Leased::Chunk(place)), descriptor)
    }

    /// Names that a client waits for, and that it is to look up again: chunks of them were offered
    /// since it asked last, or will not be; at most `most`. The client's leases stay.
    pub fn arrivals(&mut self, client: ClientNumber, most: usize, now: Instant) -> Vec<ChunkName> {
        self.waiting.arrivals(client, most, now)
    }

    /// A client uses a chunk no longer, or waits for it no longer. False: it has no such lease.
    pub fn release(&mut self, client: ClientNumber, lease: LeaseNumber) -> bool {
        let held = self.clients.get_mut(&client).and_then(|leases| leases.of.remove(&lease));
        let Some(leased) = held else { return false };
        self.end(lease, leased);
        true
    }

    /// Clients that are connected.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Chunks that are held.
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Leases of all clients, also those that wait.
    pub fn leases(&self) -> usize {
        self.leases
    }

    /// Leases of one client, also those that wait; 0 if it is not known.
    pub fn leases_of(&self, client: ClientNumber) -> usize {
        self.clients.get(&client).map_or(0, |leases| leases.of.len())
    }

    /// Chunks that one client uses; 0 if it is not known. Those that it waits for do not count. The
    /// time grows with their number.
    pub fn uses_of(&self, client: ClientNumber) -> usize {
        let leases = self.clients.get(&client).into_iter().flat_map(|leases| leases.of.values());
        leases.filter(|leased| matches!(leased, Leased::Chunk(_))).count()
    }

    /// The chunks of each device, by its UUID. The time grows with the number of chunks.
    pub fn devices(&self) -> BTreeMap<[u8; 16], DeviceUse> {
        let mut devices: BTreeMap<_, DeviceUse> = BTreeMap::new();
        for (name, users) in self.chunks.iter() {
            let device = devices.entry(name.device).or_default();
            device.chunks += 1;
            device.leases += users;
        }
        devices
    }

    /// Has this client room for one more lease, and have all?
    fn may_lease(&self, client: ClientNumber) -> bool {
        let held = self.clients.get(&client).map(|leases| leases.of.len());
        held.is_some_and(|held| held < self.limits.leases_of_one) && self.leases < self.limits.leases
    }

    /// The next lease, of a client that [`may_lease`](Self::may_lease).
    fn lease(&mut self, client: ClientNumber, leased: Leased) -> LeaseNumber {
        self.last_lease += 1;
        let lease = LeaseNumber(self.last_lease);
        self.clients.entry(client).or_default().of.insert(lease, leased);
        self.leases += 1;
        lease
    }

    /// A lease is its client's no longer.
    fn end(&mut self, lease: LeaseNumber, leased: Leased) {
        self.leases -= 1;
        match leased {
            Leased::Chunk(place) => {
                self.departures += 1;
                self.chunks.leave(place);
            }
            Leased::Awaited(name) => self.waiting.remove(lease, &name),
        }
    }
}
