//! Chunks by name and by place, with the number of their users.
//!
//! A place is that of one chunk until its last user leaves; then it is used again. Names and places
//! say the same at all times.

use std::collections::HashMap;

use crate::chunk::ChunkName;

/// A chunk that has users.
#[derive(Debug)]
struct HeldChunk<D> {
    name: ChunkName,
    descriptor: D,
    users: u64,
}

/// All chunks.
#[derive(Debug)]
pub(super) struct ChunkTable<D> {
    places: HashMap<ChunkName, usize>,
    held: Vec<Option<HeldChunk<D>>>,
    free: Vec<usize>,
}

impl<D> Default for ChunkTable<D> {
    fn default() -> Self {
        Self { places: HashMap::new(), held: Vec::new(), free: Vec::new() }
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
        let chunk = Some(HeldChunk { name, descriptor, users: 1 });
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
        chunk.descriptor.clone()
    }

    /// One user less; the last one takes the chunk along.
    pub(super) fn leave(&mut self, place: usize) {
        let chunk = self.held[place].as_mut().expect("a lease leads to a chunk");
        chunk.users -= 1;
        if chunk.users == 0 {
            self.places.remove(&chunk.name);
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
