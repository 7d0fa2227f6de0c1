//! Chunks that clients have and would share, and that no client has offered. A client waits until
//! another one has the same bytes, since memory that is shared can be read only, and a client that
//! is alone with its bytes would gain nothing for it.
//!
//! Of several clients that have the bytes one is asked to give its memory, and the others wait
//! for it: memory of a second one would have to be made private again. A client that does not give
//! it in [`TO_GIVE`] is not waited for any longer.
//!
//! Invariant: a lease waits for one name, and is told once to ask again: a chunk of it has come, or
//! the client that was asked for it has given none.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::numbers::{ClientNumber, LeaseNumber};
use crate::chunk::ChunkName;

/// How long other clients wait for the one that was asked to give a chunk.
const TO_GIVE: Duration = Duration::from_secs(5);

/// A client that was asked to give a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AskedClient {
    client: ClientNumber,
    until: Instant,
}

/// A client that waits.
#[derive(Debug)]
struct Waiter {
    client: ClientNumber,
    lease: LeaseNumber,
    is_told: bool,
}

/// The clients that wait, by name, and the names that have come for each client.
#[derive(Debug, Default)]
pub(super) struct WaitingClients {
    waiters: HashMap<ChunkName, Vec<Waiter>>,
    arrivals: HashMap<ClientNumber, Vec<ChunkName>>,
    /// Of names with waiters.
    asked: HashMap<ChunkName, AskedClient>,
    /// The same by the time until which they are waited for, with some that are none any more.
    deadlines: VecDeque<(ChunkName, AskedClient)>,
}

impl WaitingClients {
    pub(super) fn add(&mut self, client: ClientNumber, lease: LeaseNumber, name: ChunkName) {
        self.waiters.entry(name).or_default().push(Waiter { client, lease, is_told: false });
    }

    /// A lease waits no longer.
    pub(super) fn remove(&mut self, lease: LeaseNumber, name: &ChunkName) {
        let Some(waiters) = self.waiters.get_mut(name) else { return };
        waiters.retain(|waiter| waiter.lease != lease);
        if waiters.is_empty() {
            self.waiters.remove(name);
            self.asked.remove(name);
        }
    }

    /// Is a client that has the bytes asked to give them? Another one waits for the name, and no
    /// third one was asked.
    pub(super) fn asks_for(&mut self, client: ClientNumber, name: &ChunkName, now: Instant) -> bool {
        self.expire(now);
        if !self.is_wanted_beside(client, name) {
            return false;
        }
        if let Some(asked) = self.asked.get(name) {
            return asked.client == client;
        }
        // Deadlines of names that no client is asked for are dropped once they are the larger part.
        if self.deadlines.len() > 2 * self.asked.len() {
            self.deadlines.retain(|(name, asked)| self.asked.get(name) == Some(asked));
        }
        let asked = AskedClient { client, until: now + TO_GIVE };
        self.asked.insert(*name, asked);
        self.deadlines.push_back((*name, asked));
        true
    }

    /// Does any client but this one wait for the name?
    fn is_wanted_beside(&self, client: ClientNumber, name: &ChunkName) -> bool {
        self.waiters.get(name).is_some_and(|waiters| waiters.iter().any(|waiter| waiter.client != client))
    }

    /// Clients that have had their time are not waited for any longer.
    fn expire(&mut self, now: Instant) {
        while let Some((name, asked)) = self.deadlines.pop_front_if(|(_, asked)| asked.until <= now) {
            if self.asked.get(&name) == Some(&asked) {
                self.arrived(&name);
            }
        }
    }

    /// A chunk of the name was offered, or none is to be expected: its waiters are to be told.
    pub(super) fn arrived(&mut self, name: &ChunkName) {
        self.asked.remove(name);
        for waiter in self.waiters.get_mut(name).into_iter().flatten().filter(|waiter| !waiter.is_told) {
            waiter.is_told = true;
            self.arrivals.entry(waiter.client).or_default().push(*name);
        }
    }

    /// Names that have come for a client since it was told last, at most `most`.
    pub(super) fn arrivals(&mut self, client: ClientNumber, most: usize, now: Instant) -> Vec<ChunkName> {
        self.expire(now);
        let Some(names) = self.arrivals.get_mut(&client) else { return Vec::new() };
        let told = names.split_off(names.len().saturating_sub(most));
        if names.is_empty() {
            self.arrivals.remove(&client);
        }
        told
    }

    /// The client is gone. Its leases are removed one by one.
    pub(super) fn forget(&mut self, client: ClientNumber) {
        self.arrivals.remove(&client);
        let by_client = self.asked.iter().filter(|(_, asked)| asked.client == client);
        let names: Vec<ChunkName> = by_client.map(|(name, _)| *name).collect();
        names.iter().for_each(|name| self.arrived(name));
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (silent degradation): several processes give the same memory, and all but one of them
    //! copy it back. Hazard (hang): others wait for a process that does not give it.
    use super::*;

    const NAME: ChunkName = ChunkName { device: [0; 16], fingerprint: crate::chunk::Fingerprint(1) };
    const CLIENTS: [ClientNumber; 3] = [ClientNumber(1), ClientNumber(2), ClientNumber(3)];

    /// The first client waits, the second one was asked, and the third one waits.
    fn asked(now: Instant) -> WaitingClients {
        let [first, second, third] = CLIENTS;
        let mut waiting = WaitingClients::default();
        assert!(!waiting.asks_for(first, &NAME, now), "no other client has the bytes");
        waiting.add(first, LeaseNumber(1), NAME);
        assert!(waiting.asks_for(second, &NAME, now));
        assert!(!waiting.asks_for(third, &NAME, now), "one is enough");
        waiting.add(third, LeaseNumber(3), NAME);
        waiting
    }

    fn told(waiting: &mut WaitingClients, now: Instant) -> Vec<bool> {
        CLIENTS.iter().map(|client| !waiting.arrivals(*client, 9, now).is_empty()).collect()
    }

    #[test]
    fn one_client_is_asked_and_the_others_are_told_when_it_has_given() {
        let now = Instant::now();
        let mut waiting = asked(now);
        assert_eq!(told(&mut waiting, now), [false; 3]);
        waiting.arrived(&NAME);
        assert_eq!(told(&mut waiting, now), [true, false, true]);
        assert_eq!(told(&mut waiting, now + TO_GIVE), [false; 3], "each is told once");
    }

    /// Hazard (resource leak): a client makes the broker's books grow without end.
    #[test]
    fn questions_that_are_repeated_or_given_up_leave_nothing() {
        let (now, [first, second, _]) = (Instant::now(), CLIENTS);
        let mut waiting = WaitingClients::default();
        for lease in 0..100 {
            waiting.add(first, LeaseNumber(lease), NAME);
            for _ in 0..3 {
                assert!(waiting.asks_for(second, &NAME, now));
            }
            assert!(waiting.deadlines.len() <= 2);
            waiting.remove(LeaseNumber(lease), &NAME);
            assert!(waiting.asked.is_empty());
        }
    }

    #[test]
    fn a_client_that_gives_nothing_is_not_waited_for() {
        let (now, [first, second, third]) = (Instant::now(), CLIENTS);
        for leaves in [true, false] {
            let mut waiting = asked(now);
            let later = if leaves { now } else { now + TO_GIVE };
            assert_eq!(told(&mut waiting, later - Duration::from_nanos(1)), [false; 3]);
            if leaves {
                waiting.forget(second);
            }
            assert_eq!(told(&mut waiting, later), [true, false, true]);
            waiting.remove(LeaseNumber(3), &NAME);
            assert!(waiting.asks_for(third, &NAME, later), "it asks again, and the first one waits");
            assert!(!waiting.asks_for(second, &NAME, later) || !waiting.is_wanted_beside(second, &NAME));
            waiting.remove(LeaseNumber(1), &NAME);
            assert!(!waiting.asks_for(first, &NAME, later));
        }
    }
}
