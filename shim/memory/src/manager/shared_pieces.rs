//! Adopted pieces as chunks of sharing: one handle of any size, which the program's own GPU alone
//! may reach.

use super::remap::MappedAccess;
use crate::books::ledger::OccupiedHandle;

/// The access to memory of this process's own at the places of a handle. That of a piece is no more
/// than the program granted.
pub(super) fn own_access(handle: &OccupiedHandle) -> MappedAccess {
    if handle.adopted { MappedAccess::Alone } else { MappedAccess::Full }
}
