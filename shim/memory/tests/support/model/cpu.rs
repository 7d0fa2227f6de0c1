//! What the CPU may use of the memory that is mapped.

use std::ops::Range;

use super::{Inner, Mapping, Model};

impl Inner {
    pub(super) fn is_on_cpu(&self, address: u64) -> bool {
        let mapping = self.mappings.range(..=address).next_back();
        mapping.is_some_and(|(start, mapping)| address < start + mapping.bytes && mapping.on_cpu)
    }
}

impl Model {
    /// Whether the host may hold a stream back from now on.
    pub fn hold(&self, is_held: bool) {
        self.lock().is_held = is_held;
    }

    /// Bytes of a range that the CPU may use.
    pub fn bytes_on_cpu(&self, range: &Range<u64>) -> u64 {
        let bytes = |(start, mapping): (&u64, &Mapping)| {
            let end = (start + mapping.bytes).min(range.end);
            if mapping.on_cpu { end.saturating_sub((*start).max(range.start)) } else { 0 }
        };
        self.lock().mappings.iter().map(bytes).sum()
    }
}
