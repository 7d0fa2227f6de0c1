//! Names of chunks that clients could share, and the copies of each, for advice. No chunk is held
//! for them.

use std::collections::HashMap;

use super::numbers::ClientNumber;
use crate::chunk::ChunkName;

/// Each client's names, and all clients' by name.
#[derive(Debug, Default)]
pub(super) struct Notes {
    of: HashMap<ClientNumber, Vec<ChunkName>>,
    totals: HashMap<ChunkName, u32>,
    count: usize,
}

impl Notes {
    /// Names of all clients.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Names of one client.
    pub(super) fn len_of(&self, client: ClientNumber) -> usize {
        self.of.get(&client).map_or(0, Vec::len)
    }

    pub(super) fn add(&mut self, client: ClientNumber, name: ChunkName) {
        self.of.entry(client).or_default().push(name);
        *self.totals.entry(name).or_default() += 1;
        self.count += 1;
    }

    pub(super) fn forget(&mut self, client: ClientNumber) {
        for name in self.of.remove(&client).unwrap_or_default() {
            self.count -= 1;
            let left = self.totals.get_mut(&name).map(|total| {
                *total -= 1;
                *total
            });
            if left == Some(0) {
                self.totals.remove(&name);
            }
        }
    }

    /// How often a name was noted.
    pub(super) fn total(&self, name: &ChunkName) -> u32 {
        self.totals.get(name).copied().unwrap_or(0)
    }
}
