//! Blocks that others than this process's streams use from a call on: they stay where they are
//! until they are freed.
//!
//! The column `gate` of `shim/abi/data/driver.tsv` names a function here for each driver function
//! that says which blocks these are. It is called inside the gate, before the driver's.

use crate::registry;

/// The block that an address is in.
pub(in crate::hooks) fn block(address: u64) {
    range(address, 1);
}

/// The blocks in a range.
pub(in crate::hooks) fn range(address: u64, bytes: u64) {
    let end = address.saturating_add(bytes);
    for manager in registry::all() {
        manager.keep_in_place(&(address..end));
    }
}
