//! Memory that other processes may have, too: a pause asks for it.

use wm_dedup::chunk::{CHUNK_BYTES, CopyName, SharableMemory};
use wm_dedup::client::CopyClient;

use super::broker_start;
use super::sharing::Sharing;

impl Sharing {
    /// All memory of which the bytes have a name. Behind the open gate the program may write it
    /// meanwhile.
    pub(crate) fn named_memory(&self) -> Vec<SharableMemory> {
        let mut named = Vec::new();
        if !self.is_on() {
            return named;
        }
        for block in self.blocks.all() {
            let facts = block.facts();
            let bytes = block.unit * CHUNK_BYTES;
            for (index, fingerprint) in facts.named() {
                let start = block.chunk_address(index);
                named.push(SharableMemory {
                    range: start..start + bytes,
                    name: CopyName { fingerprint, bytes },
                    is_shared: facts.handle(index).is_some(),
                });
            }
        }
        named
    }

    /// A connection to the user's broker for copies of paused memory, to be made. `None`: there is
    /// no folder for its socket.
    pub(crate) fn copies(&self) -> Option<CopyClient> {
        let home = broker_start::location().ok()?;
        Some(CopyClient::new(home, broker_start::start))
    }
}
