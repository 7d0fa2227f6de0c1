//! The pieces of the program that the manager may move.
//!
//! Invariant: an address is of a piece that is in the ledger, or of an orphan, or of neither.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::vocabulary::piece::{Disowned, PiecePlace};

/// By first address.
#[derive(Debug, Default)]
pub(crate) struct AdoptedPieces {
    places: BTreeMap<u64, Arc<PiecePlace>>,
    /// The context went while these were adopted: their memory lives on, and nothing moves it.
    orphans: BTreeMap<u64, Disowned>,
}

impl AdoptedPieces {
    pub(crate) fn insert(&mut self, address: u64, place: Arc<PiecePlace>) {
        self.orphans.remove(&address);
        self.places.insert(address, place);
    }

    pub(crate) fn remove(&mut self, address: u64) {
        self.places.remove(&address);
    }

    pub(crate) fn has(&self, address: u64) -> bool {
        self.places.contains_key(&address)
    }

    pub(crate) fn place(&self, address: u64) -> Option<&PiecePlace> {
        self.places.get(&address).map(|place| &**place)
    }

    pub(crate) fn addresses(&self) -> Vec<u64> {
        self.places.keys().copied().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn orphan(&mut self, address: u64, memory: Disowned) {
        self.places.remove(&address);
        self.orphans.insert(address, memory);
    }

    pub(crate) fn take_orphan(&mut self, address: u64) -> Option<Disowned> {
        self.orphans.remove(&address)
    }
}
