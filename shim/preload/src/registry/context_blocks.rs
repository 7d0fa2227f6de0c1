//! Which context a block of `cuMemAlloc` was allocated in: it ends with that context.
//!
//! Stream-ordered memory belongs to the device's pool instead, and survives. An entry is removed
//! when `cuMemFree` frees its block. It has the allocation's id, so that an entry of an earlier
//! block at the same address is recognised.

use std::sync::OnceLock;

use dashmap::DashMap;
use wm_abi::CUcontext;

use crate::process::{Site, streams};

#[derive(Debug, Clone, Copy)]
struct Owned {
    context: CUcontext,
    id: u64,
}

/// Blocks of `cuMemAlloc` with their contexts.
#[derive(Debug)]
pub(crate) struct ContextBlocks {
    /// By first address.
    blocks: OnceLock<DashMap<u64, Owned>>,
}

impl ContextBlocks {
    pub(super) const fn new() -> Self {
        Self { blocks: OnceLock::new() }
    }

    fn blocks(&self) -> &DashMap<u64, Owned> {
        self.blocks.get_or_init(DashMap::new)
    }

    /// A block was allocated in the site's context.
    pub(crate) fn insert(&self, site: &Site, address: u64) {
        if let Some(block) = site.manager.block(address) {
            let context = streams().home(site.context);
            self.blocks().insert(address, Owned { context, id: block.id });
        }
    }

    /// The context that a block was allocated in.
    pub(crate) fn context_of(&self, address: u64, id: u64) -> Option<CUcontext> {
        self.blocks().get(&address).filter(|owned| owned.id == id).map(|owned| owned.context)
    }

    /// A block was freed: its entry is removed, unless the address has been given out again since.
    pub(crate) fn remove(&self, address: u64, id: u64) {
        self.blocks().remove_if(&address, |_, owned| owned.id == id);
    }

    /// Removes the blocks of a context that ends. Their addresses and ids: the caller frees them.
    pub(crate) fn drain(&self, context: CUcontext) -> Vec<(u64, u64)> {
        let mut ended = Vec::new();
        self.blocks().retain(|address, owned| {
            let lives = owned.context != context;
            if !lives {
                ended.push((*address, owned.id));
            }
            lives
        });
        ended
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (resource leak): a table that grows with every address that a program ever got, or
    //! that forgets a live block's context.
    use super::*;

    fn owned(id: u64) -> Owned {
        Owned { context: CUcontext(7), id }
    }

    #[test]
    fn a_free_forgets_its_own_block_only() {
        let table = ContextBlocks::new();
        for id in 1..100 {
            table.blocks().insert(4096 * id, owned(id));
            table.remove(4096 * id, id);
        }
        assert!(table.blocks().is_empty());
        table.blocks().insert(4096, owned(101));
        table.remove(4096, 100);
        assert_eq!(table.context_of(4096, 101), Some(CUcontext(7)), "it is another block's by now");
        assert_eq!(table.context_of(4096, 100), None);
    }

    #[test]
    fn a_context_ends_with_its_own_blocks() {
        let table = ContextBlocks::new();
        table.blocks().insert(4096, owned(1));
        table.blocks().insert(8192, Owned { context: CUcontext(8), id: 2 });
        assert_eq!(table.drain(CUcontext(7)), [(4096, 1)]);
        assert_eq!((table.drain(CUcontext(7)), table.blocks().len()), (Vec::new(), 1));
    }
}
