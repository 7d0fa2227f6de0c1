//! Hazard (use after free): the broker gives a chunk back while a client maps it, or keeps it
//! after its last client. A lease that is renewed for the wrong client and a table that grows
//! without end are the same fault in the broker's books. A client that waits for ever while another
//! one has the bytes is one of its promises that is broken.
//!
//! Random clients against a model that is a list of leases and nothing else.

use std::rc::Rc;

use proptest::prelude::*;
use wm_dedup::broker::{Broker, ClientNumber, LeaseNumber, Limits, LookUpOutcome, OfferOutcome};
use wm_dedup::chunk::{ChunkName, Fingerprint};

const LIMITS: Limits = Limits { clients: 4, chunks: 6, leases: 20, leases_of_one: 8 };

fn name(number: u8) -> ChunkName {
    ChunkName { device: [number % 2; 16], fingerprint: Fingerprint(u128::from(number)) }
}

/// A client is named by its turn of joining, a lease by the turn of its grant: both may be gone, or
/// another's.
#[derive(Debug, Clone)]
enum Step {
    Join,
    Gone(usize),
    Offer(usize, u8),
    LookUp(usize, u8),
    Release(usize, usize),
    Forge(usize, u64),
    Arrivals(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Join),
        1 => (0..8_usize).prop_map(Step::Gone),
        6 => (0..8_usize, 0..10_u8).prop_map(|(client, name)| Step::Offer(client, name)),
        6 => (0..8_usize, 0..10_u8).prop_map(|(client, name)| Step::LookUp(client, name)),
        5 => (0..8_usize, 0..40_usize).prop_map(|(client, lease)| Step::Release(client, lease)),
        1 => (0..8_usize, any::<u64>()).prop_map(|(client, lease)| Step::Forge(client, lease)),
        2 => (0..8_usize, 0..4_usize).prop_map(|(client, most)| Step::Arrivals(client, most)),
    ]
}

/// Live clients, and live leases with their client and chunk. A chunk is there if a lease of it is.
/// The leases that wait have no chunk; they are told once when one comes.
#[derive(Default)]
struct Model {
    clients: Vec<ClientNumber>,
    leases: Vec<(LeaseNumber, ClientNumber, u8)>,
    waiting: Vec<(LeaseNumber, ClientNumber, u8, bool)>,
    arrived: Vec<(ClientNumber, u8)>,
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

    fn is_wanted_beside(&self, client: ClientNumber, name: u8) -> bool {
        self.waiting.iter().any(|(_, owner, wanted, _)| *owner != client && *wanted == name)
    }
}

/// All leases and clients so far, dead or alive, and the descriptors of the chunks.
struct Run {
    broker: Broker<Rc<u8>>,
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
            Step::Gone(client) => self.client(client).into_iter().for_each(|client| self.gone(client)),
            Step::Offer(client, name) => {
                self.client(client).into_iter().for_each(|client| self.offer(client, name));
            }
            Step::LookUp(client, name) => {
                self.client(client).into_iter().for_each(|client| self.look_up(client, name));
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
        self.broker.gone(client);
        self.model.clients.retain(|live| *live != client);
        self.model.leases.retain(|(_, owner, _)| *owner != client);
        self.model.waiting.retain(|(_, owner, ..)| *owner != client);
        self.model.arrived.retain(|(owner, _)| *owner != client);
    }

    fn ask_for_arrivals(&mut self, client: ClientNumber, most: usize) {
        let told = self.broker.arrivals(client, most);
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

    fn offer(&mut self, client: ClientNumber, number: u8) {
        let chunks = self.model.chunks();
        let descriptor = Rc::new(number);
        let weak = Rc::downgrade(&descriptor);
        match self.broker.offer(client, name(number), descriptor) {
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
                let waiting = self.model.waiting.iter_mut();
                for (_, owner, _, is_told) in waiting.filter(|it| it.2 == number && !it.3) {
                    *is_told = true;
                    self.model.arrived.push((*owner, number));
                }
            }
        }
    }

    fn look_up(&mut self, client: ClientNumber, number: u8) {
        let is_there = self.model.chunks().contains(&number);
        match self.broker.look_up(client, &name(number)) {
            LookUpOutcome::Wanted => {
                assert!(!is_there && self.model.is_wanted_beside(client, number));
            }
            LookUpOutcome::Waiting(lease) => {
                assert!(!is_there && !self.model.is_wanted_beside(client, number));
                assert!(self.model.may_lease(client) && !self.granted.contains(&lease));
                self.granted.push(lease);
                self.model.waiting.push((lease, client, number, false));
            }
            LookUpOutcome::Full => assert!(!self.model.may_lease(client)),
            LookUpOutcome::Found(lease, descriptor) => {
                assert!(is_there && self.model.may_lease(client));
                assert_eq!(*descriptor, number, "the chunk of another name");
                self.grant(lease, client, number);
            }
        }
    }

    fn release(&mut self, client: ClientNumber, lease: LeaseNumber) {
        let before = self.model.all_leases();
        self.model.leases.retain(|(live, owner, _)| (*live, *owner) != (lease, client));
        self.model.waiting.retain(|(live, owner, ..)| (*live, *owner) != (lease, client));
        assert_eq!(self.broker.release(client, lease), self.model.all_leases() < before);
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
        let mut run = Run { broker, model, joined, granted, descriptors };
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
