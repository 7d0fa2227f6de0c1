//! Chunks that clients have and would share, and that no client has offered. A client waits until
//! another one has the same bytes, since memory that is shared can be read only, and a client that
//! is alone with its bytes would gain nothing for it.
//!
//! Invariant: a lease waits for one name, and is told once that a chunk of it has come.

use std::collections::HashMap;

use super::numbers::{ClientNumber, LeaseNumber};
use crate::chunk::ChunkName;

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
        }
    }

    /// Does any client but this one wait for the name?
    pub(super) fn is_wanted_beside(&self, client: ClientNumber, name: &ChunkName) -> bool {
        self.waiters.get(name).is_some_and(|waiters| waiters.iter().any(|waiter| waiter.client != client))
    }

    /// A chunk of the name was offered: its waiters are to be told.
    pub(super) fn arrived(&mut self, name: &ChunkName) {
        for waiter in self.waiters.get_mut(name).into_iter().flatten().filter(|waiter| !waiter.is_told) {
            waiter.is_told = true;
            self.arrivals.entry(waiter.client).or_default().push(*name);
        }
    }

    /// Names that have come for a client since it was told last, at most `most`.
    pub(super) fn arrivals(&mut self, client: ClientNumber, most: usize) -> Vec<ChunkName> {
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
    }
}
