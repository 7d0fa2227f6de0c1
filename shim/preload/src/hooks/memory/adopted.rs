//! When the program's own memory takes part in moves, with `WMSHIM_MIGRATE=on`.
//!
//! A piece may move from the call on that gives the program access to it, as long as it is mapped
//! whole, once, for its own device alone ([`wm_memory::Manager::adopt`]). Calls that use its
//! handle, its mapping or its rights have it disowned first. They pass the gate (`gate` in
//! `driver.tsv`), so no move is under way while one of them runs; a call that does not pass waits
//! in the manager.
//!
//! Lock order: the handle cache, the books, the manager. None is held across a driver call of the
//! manager's.

use wm_abi::{CU_MEM_LOCATION_TYPE_DEVICE, CUmemAccessDesc};
use wm_driver::Handle;

use crate::physical::{self, Access, PlacedPieces, book, cache};
use crate::process;
use crate::subsystems::PROCESS;

/// The pieces in a range may move, as far as they are fit for it.
pub(super) fn adopt_in(address: u64, bytes: u64) {
    if !PROCESS.moves.is_on() || !physical::is_any_elsewhere() || process::exiting() {
        return;
    }
    let least = PROCESS.moves.smallest();
    let adopted = cache().adopt_in(address, bytes, least, |piece| {
        let book = book();
        let charge = book.charge_at(piece.at);
        charge.is_some_and(|charge| charge.manager().adopt(charge, piece.at, Handle(piece.handle)))
    });
    for piece in adopted {
        // Another thread may have unmapped it.
        let manager = book().charge_at(piece.at).map(|charge| charge.manager());
        manager.into_iter().for_each(|manager| PROCESS.moves.piece_came(manager, piece.at));
    }
}

/// The same for the piece of an alias, which was disowned without need.
pub(super) fn adopt_again(alias: u64) {
    let held = cache().handles_for(alias).and_then(|handles| handles.held(alias));
    if let Some(piece) = held {
        piece.at.iter().for_each(|at| adopt_in(*at, piece.kind.bytes));
    }
}

/// The pieces that a range touches move no more; with `granted`, those that lack one of these
/// rights.
pub(super) fn disown_in(address: u64, bytes: u64, granted: Option<&[CUmemAccessDesc]>) {
    if !PROCESS.moves.has_pieces() {
        return;
    }
    let is_own = |entry: &CUmemAccessDesc| entry.location.type_ == CU_MEM_LOCATION_TYPE_DEVICE;
    let granted = granted.filter(|granted| granted.iter().all(is_own));
    let granted: Option<Access> =
        granted.map(|granted| granted.iter().map(|entry| (entry.location.id, entry.flags)).collect());
    let pieces: PlacedPieces = cache().adopted_in(address, bytes, granted.as_ref());
    pieces.iter().for_each(|piece| disown(piece.alias));
}

/// The piece of an alias moves no more.
pub(super) fn disown(alias: u64) {
    if !PROCESS.moves.has_pieces() {
        return;
    }
    cache().disown(alias, |at| {
        let manager = book().charge_at(at).map(|charge| charge.manager())?;
        PROCESS.moves.piece_leaves(manager, at);
        manager.disown(at)
    });
}
