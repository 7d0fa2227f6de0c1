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

/// By first address.
fn table() -> &'static DashMap<u64, Owned> {
    static TABLE: OnceLock<DashMap<u64, Owned>> = OnceLock::new();
    TABLE.get_or_init(DashMap::new)
}

/// A block was allocated in the site's context.
pub(crate) fn insert(site: &Site, address: u64) {
    if let Some(block) = site.manager.block(address) {
        let context = streams().home(site.context);
        table().insert(address, Owned { context, id: block.id });
    }
}

/// The context that a block was allocated in.
pub(crate) fn context_of(address: u64, id: u64) -> Option<CUcontext> {
    table().get(&address).filter(|owned| owned.id == id).map(|owned| owned.context)
}

/// A block was freed: its entry is removed, unless the address has been given out again since.
pub(crate) fn remove(address: u64, id: u64) {
    table().remove_if(&address, |_, owned| owned.id == id);
}

/// The blocks of a context that ends, by address and id. They are forgotten here, and the caller's
/// to free.
pub(crate) fn take(context: CUcontext) -> Vec<(u64, u64)> {
    let mut ended = Vec::new();
    table().retain(|address, owned| {
        let keep = owned.context != context;
        if !keep {
            ended.push((*address, owned.id));
        }
        keep
    });
    ended
}

#[cfg(test)]
mod tests {
    //! Hazard: a table that grows with every address that a program ever got, or that forgets a
    //! live block's context.
    use super::*;

    #[test]
    fn a_free_forgets_its_own_block_only() {
        let owned = |id| Owned { context: CUcontext(7), id };
        for id in 1..100 {
            table().insert(4096 * id, owned(id));
            remove(4096 * id, id);
        }
        assert!(table().is_empty());
        table().insert(4096, owned(101));
        remove(4096, 100);
        assert!(table().get(&4096).is_some_and(|owned| owned.id == 101), "it is another block's by now");
    }
}
