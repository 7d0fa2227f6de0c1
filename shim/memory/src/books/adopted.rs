//! The pieces of the program that the manager may move.
//!
//! Invariant: an address is of a piece that is in the ledger, or of an orphan, or of neither.

use std::collections::BTreeMap;
use std::sync::Arc;

use wm_driver::Tier;

use crate::vocabulary::piece::{Disowned, PiecePlace};

/// By first address.
#[derive(Debug, Default)]
pub(crate) struct AdoptedPieces {
    places: BTreeMap<u64, Arc<PiecePlace>>,
    /// The context went while these were adopted: their memory lives on, and nothing moves it.
    orphans: BTreeMap<u64, Disowned>,
    /// Bytes of the adopted ones.
    whole: u64,
    /// Those of them that are on the host.
    on_host: u64,
    /// Bytes of the adopted ones with memory that other processes use too.
    shared: u64,
}

impl AdoptedPieces {
    pub(crate) fn insert(&mut self, address: u64, bytes: u64, place: Arc<PiecePlace>) {
        self.orphans.remove(&address);
        self.whole += bytes;
        self.on_host += on_host(bytes, place.tier());
        self.places.insert(address, place);
    }

    pub(crate) fn remove(&mut self, address: u64, bytes: u64) {
        if let Some(place) = self.places.remove(&address) {
            self.whole -= bytes;
            self.on_host -= on_host(bytes, place.tier());
        }
    }

    /// A piece has moved.
    pub(crate) fn moved(&mut self, address: u64, bytes: u64, to: Tier) {
        if let Some(place) = self.places.get(&address) {
            self.on_host = self.on_host + on_host(bytes, to) - on_host(bytes, place.tier());
            place.set(to);
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.whole
    }

    pub(crate) fn bytes_on_host(&self) -> u64 {
        self.on_host
    }

    /// A piece has memory that other processes use too.
    pub(crate) fn became_shared(&mut self, bytes: u64) {
        self.shared += bytes;
    }

    /// A piece has no such memory any more.
    pub(crate) fn became_private(&mut self, bytes: u64) {
        self.shared = self.shared.saturating_sub(bytes);
    }

    pub(crate) fn shared_bytes(&self) -> u64 {
        self.shared
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
        self.orphans.insert(address, memory);
    }

    pub(crate) fn take_orphan(&mut self, address: u64) -> Option<Disowned> {
        self.orphans.remove(&address)
    }
}

fn on_host(bytes: u64, tier: Tier) -> u64 {
    if tier == Tier::Host { bytes } else { 0 }
}
