//! Hazard (use after free): the broker gives a chunk back while a client maps it, or keeps it
//! after its last client. A lease that is renewed for the wrong client and a table that grows
//! without end are the same fault in the broker's books. A client that waits for ever while another
//! one has the bytes is one of its promises that is broken.
//!
//! Hazard (data race): a client takes back a chunk that another process maps, and writes it.
//!
//! Random clients against a model that is a list of leases and nothing else.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use wm_dedup::broker::{Broker, ClientNumber, CopyLimits, LeaseNumber, Limits, LookUpOutcome, OfferOutcome};
use wm_dedup::chunk::{ChunkName, Fingerprint};

const LIMITS: Limits =
    Limits { clients: 4, chunks: 6, leases: 20, leases_of_one: 8, copies: CopyLimits::NONE };

fn name(number: u8) -> ChunkName {
    ChunkName { device: [number % 2; 16], fingerprint: Fingerprint(u128::from(number)) }
}

/// A client is named by its turn of joining, a lease by the turn of its grant: both may be gone, or
/// another's.
#[derive(Debug, Clone)]
enum Step {
    Join,
    Gone(usize),
    Offer(usize, u8, bool),
    LookUp(usize, u8, bool),
    Release(usize, usize),
    Forge(usize, u64),
    Arrivals(usize, usize),
    /// The process of a client ends, if the client is gone.
    Ended(usize),
    TakeBack(usize, usize),
    Later,
}

/// A client that was asked for a chunk is not waited for any longer.
const TO_GIVE: Duration = Duration::from_secs(5);

/// Did the client hold the chunk under an earlier broker?
fn again() -> impl Strategy<Value = bool> {
    proptest::bool::weighted(0.1)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Join),
        1 => (0..8_usize).prop_map(Step::Gone),
        6 => (0..8_usize, 0..10_u8, again()).prop_map(|(client, name, again)| Step::Offer(client, name, again)),
        6 => (0..8_usize, 0..10_u8, again())
            .prop_map(|(client, name, again)| Step::LookUp(client, name, again)),
        5 => (0..8_usize, 0..40_usize).prop_map(|(client, lease)| Step::Release(client, lease)),
        1 => (0..8_usize, any::<u64>()).prop_map(|(client, lease)| Step::Forge(client, lease)),
        2 => (0..8_usize, 0..4_usize).prop_map(|(client, most)| Step::Arrivals(client, most)),
        2 => (0..8_usize).prop_map(Step::Ended),
        4 => (0..8_usize, 1..4_usize).prop_map(|(client, most)| Step::TakeBack(client, most)),
        1 => Just(Step::Later),
    ]
}

/// What is known of the memory of a chunk, besides its leases.
#[derive(Default)]
struct ChunkMemory {
    was_shared: bool,
    is_renewed: bool,
    /// Clients that had leases when they were gone, and did not end since.
    lost: Vec<ClientNumber>,
}

/// Live clients, and live leases with their client and chunk. A chunk is there if a lease of it is.
/// The leases that wait have no chunk; they are told once when one comes.
#[derive(Default)]
struct Model {
    clients: Vec<ClientNumber>,
    leases: Vec<(LeaseNumber, ClientNumber, u8)>,
    waiting: Vec<(LeaseNumber, ClientNumber, u8, bool)>,
    arrived: Vec<(ClientNumber, u8)>,
    /// Clients that were asked for a chunk, by its name, and until when they are waited for.
    givers: BTreeMap<u8, (ClientNumber, Instant)>,
    /// By name, of chunks that are there.
    memory: BTreeMap<u8, ChunkMemory>,
}

impl Model {
    fn chunks(&self) -> Vec<u8> {
        let mut names: Vec<u8> = self.leases.iter().map(|(_, _, name)| *name).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    fn leases_of(&self, client: ClientNumber) -> usize {
        let own = self.leases.iter().filter(|(_, owner, _)| *owner == client).count();
        own + self.waiting.iter().filter(|(_, owner, ..)| *owner == client).count()
    }

    fn all_leases(&self) -> usize {
        self.leases.len() + self.waiting.len()
    }

    fn may_lease(&self, client: ClientNumber) -> bool {
        self.clients.contains(&client)
            && self.leases_of(client) < LIMITS.leases_of_one
            && self.all_leases() < LIMITS.leases
    }

    /// After leases have ended.
    fn forget_memory(&mut self) {
        let chunks = self.chunks();
        self.memory.retain(|name, _| chunks.contains(name));
    }

    /// Leases of chunks that the client maps, and that no other process can map.
    fn own_again(&self, client: ClientNumber) -> Vec<LeaseNumber> {
        let users = |name| self.leases.iter().filter(|(.., of)| *of == name).count();
        let is_own = |name: u8| {
            let memory = &self.memory[&name];
            users(name) == 1 && memory.was_shared && !memory.is_renewed && memory.lost.is_empty()
        };
        let own = self.leases.iter().filter(|(_, owner, name)| *owner == client && is_own(*name));
        own.map(|(lease, ..)| *lease).collect()
    }

    fn is_wanted_beside(&self, client: ClientNumber, name: u8) -> bool {
        self.waiting.iter().any(|(_, owner, wanted, _)| *owner != client && *wanted == name)
    }

    /// Is this client to give the chunk?
    fn is_asked_for(&self, client: ClientNumber, name: u8) -> bool {
        let is_asked = self.givers.get(&name).is_none_or(|(giver, _)| *giver == client);
        is_asked && self.clients.contains(&client) && self.is_wanted_beside(client, name)
    }

    /// Without a client that waits none is to give.
    fn forget_givers(&mut self) {
        let waiting = &self.waiting;
        self.givers.retain(|name, _| waiting.iter().any(|(.., wanted, _)| wanted == name));
    }

    fn give_up(&mut self, is_over: impl Fn(ClientNumber, Instant) -> bool) {
        let over = |(name, (client, until)): (&u8, &(ClientNumber, Instant))| {
            is_over(*client, *until).then_some(*name)
        };
        let names: Vec<u8> = self.givers.iter().filter_map(over).collect();
        names.into_iter().for_each(|name| self.tell(name));
    }

    /// The clients that wait for the name are told, each once.
    fn tell(&mut self, name: u8) {
        self.givers.remove(&name);
        for (_, owner, _, is_told) in self.waiting.iter_mut().filter(|it| it.2 == name && !it.3) {
            *is_told = true;
            self.arrived.push((*owner, name));
        }
    }
}

/// All leases and clients so far, dead or alive, and the descriptors of the chunks.
struct Run {
    broker: Broker<Rc<u8>>,
    now: Instant,
    model: Model,
    joined: Vec<ClientNumber>,
    granted: Vec<LeaseNumber>,
    descriptors: Vec<(u8, std::rc::Weak<u8>)>,
}

impl Run {
    fn client(&self, turn: usize) -> Option<ClientNumber> {
        self.joined.iter().rev().nth(turn).copied()
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Join => self.join(),
            Step::Later => self.now += TO_GIVE / 2,
            Step::Gone(client) => self.client(client).into_iter().for_each(|client| self.gone(client)),
            Step::Offer(client, name, again) => {
                self.client(client).into_iter().for_each(|client| self.offer(client, name, again));
            }
            Step::LookUp(client, name, again) => {
                self.client(client).into_iter().for_each(|client| self.look_up(client, name, again));
            }
            Step::Ended(client) => self.client(client).into_iter().for_each(|client| self.ended(client)),
            Step::TakeBack(client, most) => {
                self.client(client).into_iter().for_each(|client| self.take_back(client, most));
            }
            Step::Release(client, lease) => {
                let lease = self.granted.iter().rev().nth(lease).copied();
                self.client(client)
                    .zip(lease)
                    .into_iter()
                    .for_each(|(client, lease)| self.release(client, lease));
            }
            Step::Forge(client, lease) => {
                self.client(client).into_iter().for_each(|client| self.release(client, LeaseNumber(lease)));
            }
            Step::Arrivals(client, most) => {
                self.client(client).into_iter().for_each(|client| self.ask_for_arrivals(client, most));
            }
        }
    }

    fn join(&mut self) {
        let joined = self.broker.join();
        assert_eq!(joined.is_some(), self.model.clients.len() < LIMITS.clients);
        self.model.clients.extend(joined);
        self.joined.extend(joined);
    }

    fn gone(&mut self, client: ClientNumber) {
        let used: Vec<u8> =
            self.model.leases.iter().filter(|(_, of, _)| *of == client).map(|it| it.2).collect();
        self.broker.gone(client);
        for (_, memory) in self.model.memory.iter_mut().filter(|(name, _)| used.contains(name)) {
            memory.lost.extend((!memory.lost.contains(&client)).then_some(client));
        }
        self.model.clients.retain(|live| *live != client);
        self.model.leases.retain(|(_, owner, _)| *owner != client);
        self.model.waiting.retain(|(_, owner, ..)| *owner != client);
        self.model.forget_givers();
        self.model.arrived.retain(|(owner, _)| *owner != client);
        self.model.give_up(|giver, _| giver == client);
        self.model.forget_memory();
    }

    fn ended(&mut self, client: ClientNumber) {
        if !self.model.clients.contains(&client) {
            self.broker.ended(client);
            self.model.memory.values_mut().for_each(|memory| memory.lost.retain(|lost| *lost != client));
        }
    }

    fn take_back(&mut self, client: ClientNumber, most: usize) {
        let own = self.model.own_again(client);
        let taken = self.broker.take_back(client, most);
        assert_eq!(taken.len(), own.len().min(most), "none that can be taken back is missed");
        assert!(taken.iter().all(|lease| own.contains(lease)), "another process may map one of {taken:?}");
        self.model.leases.retain(|(lease, ..)| !taken.contains(lease));
        self.model.forget_memory();
    }

    fn ask_for_arrivals(&mut self, client: ClientNumber, most: usize) {
        let now = self.now;
        let told = self.broker.arrivals(client, most, now);
        self.model.give_up(|_, until| until <= now);
        let all = self.model.arrived.iter().filter(|(owner, _)| *owner == client).count();
        assert_eq!(told.len(), all.min(most));
        for name_of_it in told {
            let is_it =
                |(owner, number): &(ClientNumber, u8)| *owner == client && name(*number) == name_of_it;
            let at = self.model.arrived.iter().position(is_it).expect("it has come for this client");
            self.model.arrived.swap_remove(at);
        }
    }

    fn grant(&mut self, lease: LeaseNumber, client: ClientNumber, name: u8) {
        assert!(!self.granted.contains(&lease), "a lease is given once");
        self.granted.push(lease);
        self.model.leases.push((lease, client, name));
    }

    fn offer(&mut self, client: ClientNumber, number: u8, again: bool) {
        let chunks = self.model.chunks();
        let descriptor = Rc::new(number);
        let weak = Rc::downgrade(&descriptor);
        let offer = if again { Broker::offer_again } else { Broker::offer };
        let outcome = offer(&mut self.broker, client, name(number), descriptor);
        if let OfferOutcome::Accepted(_) = outcome {
            self.model.memory.insert(number, ChunkMemory::default());
        }
        self.renew(number, again);
        match outcome {
            OfferOutcome::Present => assert!(chunks.contains(&number)),
            OfferOutcome::Full => {
                assert!(!chunks.contains(&number));
                assert!(chunks.len() >= LIMITS.chunks || !self.model.may_lease(client));
            }
            OfferOutcome::Accepted(lease) => {
                assert!(!chunks.contains(&number) && self.model.may_lease(client));
                assert!(chunks.len() < LIMITS.chunks);
                self.grant(lease, client, number);
                self.descriptors.push((number, weak));
                self.model.tell(number);
            }
        }
    }

    fn renew(&mut self, number: u8, again: bool) {
        let memory = self.model.memory.get_mut(&number);
        memory.into_iter().for_each(|memory| memory.is_renewed |= again);
    }

    fn look_up(&mut self, client: ClientNumber, number: u8, again: bool) {
        let is_there = self.model.chunks().contains(&number);
        let look_up = if again { Broker::look_up_again } else { Broker::look_up };
        let now = self.now;
        let outcome = look_up(&mut self.broker, client, &name(number), now);
        self.renew(number, again);
        if !is_there && self.model.clients.contains(&client) {
            self.model.give_up(|_, until| until <= now);
        }
        let is_asked = !is_there && self.model.is_asked_for(client, number);
        match outcome {
            LookUpOutcome::Wanted => {
                assert!(is_asked);
                self.model.givers.entry(number).or_insert((client, now + TO_GIVE));
            }
            LookUpOutcome::Waiting(lease) => {
                assert!(!is_there && !is_asked);
                assert!(self.model.may_lease(client) && !self.granted.contains(&lease));
                self.granted.push(lease);
                self.model.waiting.push((lease, client, number, false));
            }
            LookUpOutcome::Full => assert!(!self.model.may_lease(client)),
            LookUpOutcome::Found(lease, descriptor) => {
                assert!(is_there && self.model.may_lease(client));
                assert_eq!(*descriptor, number, "the chunk of another name");
                self.model.memory.get_mut(&number).expect("it is there").was_shared = true;
                self.grant(lease, client, number);
            }
        }
    }

    fn release(&mut self, client: ClientNumber, lease: LeaseNumber) {
        let before = self.model.all_leases();
        self.model.leases.retain(|(live, owner, _)| (*live, *owner) != (lease, client));
        self.model.waiting.retain(|(live, owner, ..)| (*live, *owner) != (lease, client));
        self.model.forget_givers();
        assert_eq!(self.broker.release(client, lease), self.model.all_leases() < before);
        self.model.forget_memory();
    }

    fn check(&self) {
        let chunks = self.model.chunks();
        assert_eq!(self.broker.clients(), self.model.clients.len());
        assert_eq!(self.broker.leases(), self.model.all_leases());
        assert_eq!(self.broker.chunks(), chunks.len());
        let open: Vec<_> = self.descriptors.iter().filter(|(_, weak)| weak.strong_count() > 0).collect();
        assert_eq!(open.len(), chunks.len(), "a descriptor is open for each chunk and for nothing else");
        let by_device: (u64, u64) = self
            .broker
            .devices()
            .values()
            .fold((0, 0), |sum, device| (sum.0 + device.chunks, sum.1 + device.leases));
        assert_eq!(by_device, (chunks.len() as u64, self.model.leases.len() as u64));
        for client in &self.joined {
            let lingers = self.model.memory.values().any(|memory| memory.lost.contains(client));
            assert_eq!(self.broker.lingers(*client), lingers);
            assert_eq!(self.broker.leases_of(*client), self.model.leases_of(*client));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_broker_does_what_a_list_of_leases_does(steps in proptest::collection::vec(step(), 1..120)) {
        let broker = Broker::new(LIMITS);
        let (model, joined, granted, descriptors) = (Model::default(), Vec::new(), Vec::new(), Vec::new());
        let mut run = Run { broker, now: Instant::now(), model, joined, granted, descriptors };
        for step in &steps {
            run.take(step);
            run.check();
        }
        for client in run.joined.clone() {
            run.gone(client);
        }
        run.check();
        prop_assert_eq!(run.broker.chunks(), 0, "nothing is left of nobody");
    }
}
