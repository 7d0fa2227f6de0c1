//! PyTorch's own cache of large blocks as it is with `max_split_size_mb:21`: it gives out whole
//! blocks, and is told of a shortage.

use std::collections::BTreeMap;

/// A block is given out for a request that is up to so many bytes smaller.
const ROUNDING: u64 = 20 << 20;

/// Freed blocks, by size and address.
#[derive(Debug, Default)]
pub struct TorchCache<B>(BTreeMap<(u64, u64), B>);

impl<B> TorchCache<B> {
    pub fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub fn blocks(&self) -> impl Iterator<Item = &B> {
        self.0.values()
    }

    /// The program frees a block.
    pub fn put(&mut self, bytes: u64, address: u64, block: B) {
        self.0.insert((bytes, address), block);
    }

    /// The program needs a block.
    pub fn take(&mut self, bytes: u64) -> Option<B> {
        let key = *self.0.range((bytes, 0)..(bytes + ROUNDING, 0)).next()?.0;
        self.0.remove(&key)
    }

    /// Memory for so many bytes was refused: the cache gives up the smallest block that is large
    /// enough, else the largest ones.
    pub fn give_up(&mut self, bytes: u64) -> Vec<B> {
        let enough = self.0.range((bytes, 0)..).next().map(|(key, _)| *key);
        if let Some(block) = enough.and_then(|key| self.0.remove(&key)) {
            return vec![block];
        }
        let (mut given, mut found) = (Vec::new(), 0);
        while found < bytes {
            let Some(((bytes, _), block)) = self.0.pop_last() else { break };
            found += bytes;
            given.push(block);
        }
        given
    }
}
