//! The front cache: freed blocks, whole, by order and rounded size.
//!
//! Training repeats its sizes, so most allocations are answered from here: one hash look-up, no search, no driver
//! call. What is cached counts as used in the ledger; a miss in the back end flushes the cache into it.

use std::collections::VecDeque;

use crate::fast_map::FastMap;
use crate::order::Order;
use crate::sizes::Class;

/// A cached block and the number of its free in its order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cached {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) freed: u64,
    /// The block's.
    pub(crate) slot: u32,
}

/// Which blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    All,
    Of(Order),
    /// Those whose memory serves requests of a class at once.
    Packed(Class),
}

impl Part {
    fn has(self, order: Order, bytes: u64) -> bool {
        match self {
            Self::All => true,
            Self::Of(only) => order == only,
            Self::Packed(class) => Class::of(bytes) == class,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Front {
    lists: FastMap<(Order, u64), VecDeque<Cached>>,
    bytes: u64,
}

impl Front {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn push(&mut self, order: Order, cached: Cached) {
        self.bytes += cached.bytes;
        self.lists.entry((order, cached.bytes)).or_default().push_back(cached);
    }

    /// A stream gets its last freed block, whose bytes the GPU's caches may still hold. The device's order gets its
    /// first freed one, if `is_past` says that the GPU is done with it.
    pub(crate) fn pop(&mut self, order: Order, bytes: u64, is_past: impl Fn(u64) -> bool) -> Option<Cached> {
        let list = self.lists.get_mut(&(order, bytes))?;
        let cached = match order {
            Order::Stream(_) => list.pop_back(),
            Order::Device => list.pop_front_if(|cached| is_past(cached.freed)),
        }?;
        self.bytes -= bytes;
        Some(cached)
    }

    /// Empties the cache, or a part of it.
    pub(crate) fn drain(&mut self, part: Part) -> Vec<(Order, Cached)> {
        let lists = self.lists.extract_if(|(order, bytes), _| part.has(*order, *bytes));
        let drained: Vec<_> =
            lists.flat_map(|((order, _), list)| list.into_iter().map(move |c| (order, c))).collect();
        self.bytes -= drained.iter().map(|(_, cached)| cached.bytes).sum::<u64>();
        drained
    }
}
