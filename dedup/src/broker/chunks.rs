//! Chunks by name and by place, with the number of their users, and with processes that may map
//! the memory without being users any more.
//!
//! A place is that of one chunk until its last user leaves; then it is used again. Names and places
//! say the same at all times.

use std::collections::HashMap;

use super::numbers::ClientNumber;
use crate::chunk::ChunkName;

/// A chunk that has users.
#[derive(Debug)]
struct HeldChunk<D> {
    name: ChunkName,
    descriptor: D,
    users: u64,
    /// It had a second user.
    was_shared: bool,
    /// A client held it under an earlier broker. There may be other holders that were not heard of.
    is_renewed: bool,
    /// Users that have lost their connection, in processes that may map the memory still.
    lingering: Vec<ClientNumber>,
}

/// All chunks.
#[derive(Debug)]
pub(super) struct ChunkTable<D> {
    places: HashMap<ChunkName, usize>,
    held: Vec<Option<HeldChunk<D>>>,
    free: Vec<usize>,
    /// Chunks in which each client lingers.
    lingering: HashMap<ClientNumber, usize>,
}

impl<D> Default for ChunkTable<D> {
    fn default() -> Self {
        Self { places: HashMap::new(), held: Vec::new(), free: Vec::new(), lingering: HashMap::new() }
    }
}

impl<D: Clone> ChunkTable<D> {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn place(&self, name: &ChunkName) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// Users of a place that is in use.
    pub(super) fn users(&self, place: usize) -> u64 {
        self.held[place].as_ref().map_or(0, |chunk| chunk.users)
    }

    /// A chunk with one user, under a name that is not there yet.
    pub(super) fn insert(&mut self, name: ChunkName, descriptor: D) -> usize {
        let (was_shared, is_renewed, lingering) = (false, false, Vec::new());
        let chunk = Some(HeldChunk { name, descriptor, users: 1, was_shared, is_renewed, lingering });
        let place = match self.free.pop() {
            Some(place) => {
                self.held[place] = chunk;
                place
            }
            None => {
                self.held.push(chunk);
                self.held.len() - 1
            }
        };
        self.places.insert(name, place);
        place
    }

    /// One user more, of a place that is in use.
    pub(super) fn enter(&mut self, place: usize) -> D {
        let chunk = self.held[place].as_mut().expect("a name leads to a chunk");
        chunk.users += 1;
        chunk.was_shared = true;
        chunk.descriptor.clone()
    }

    /// A user of a place had the chunk under an earlier broker.
    pub(super) fn renew(&mut self, place: usize) {
        self.held[place].iter_mut().for_each(|chunk| chunk.is_renewed = true);
    }

    /// Was the memory of a place shared, and does one user map it now, and no other process? One
    /// that was not shared yet is about to be.
    pub(super) fn is_of_one_again(&self, place: usize) -> bool {
        let is_of_one = |chunk: &HeldChunk<D>| {
            chunk.users == 1 && chunk.was_shared && !chunk.is_renewed && chunk.lingering.is_empty()
        };
        self.held[place].as_ref().is_some_and(is_of_one)
    }

    /// The process of a client that has lost its connection has ended, too.
    pub(super) fn ended(&mut self, client: ClientNumber) {
        let chunks = self.held.iter_mut().flatten();
        chunks.for_each(|chunk| chunk.lingering.retain(|other| *other != client));
        self.lingering.remove(&client);
    }

    /// One user less, because its connection has ended. The process may live on.
    pub(super) fn lose(&mut self, place: usize, client: ClientNumber) {
        let chunk = self.held[place].as_mut().expect("a lease leads to a chunk");
        if !chunk.lingering.contains(&client) {
            chunk.lingering.push(client);
            *self.lingering.entry(client).or_default() += 1;
        }
        self.leave(place);
    }

    /// Does a client linger in a chunk that others use?
    pub(super) fn lingers(&self, client: ClientNumber) -> bool {
        self.lingering.contains_key(&client)
    }

    /// One user less; the last one takes the chunk along.
    pub(super) fn leave(&mut self, place: usize) {
        let chunk = self.held[place].as_mut().expect("a lease leads to a chunk");
        chunk.users -= 1;
        if chunk.users == 0 {
            self.places.remove(&chunk.name);
            for client in std::mem::take(&mut chunk.lingering) {
                forget_one(&mut self.lingering, client);
            }
            self.held[place] = None;
            self.free.push(place);
        }
        if self.places.is_empty() {
            // The memory of a large model's table is given back.
            *self = Self::default();
        }
    }

    /// Names, and how many use them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&ChunkName, u64)> {
        self.held.iter().flatten().map(|chunk| (&chunk.name, chunk.users))
    }
}

fn forget_one(lingering: &mut HashMap<ClientNumber, usize>, client: ClientNumber) {
    if let Some(count) = lingering.get_mut(&client) {
        *count -= 1;
        if *count == 0 {
            lingering.remove(&client);
        }
    }
}
