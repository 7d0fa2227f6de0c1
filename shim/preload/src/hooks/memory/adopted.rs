//! When the program's own memory takes part in moves, with `WMSHIM_MIGRATE=on`, and in sharing,
//! with `WMSHIM_DEDUP`.
//!
//! A piece may move or be shared from the call on that gives the program access to it, as long as
//! it is mapped whole, once, for its own device alone ([`wm_memory::Manager::adopt`]). Calls that
//! use its handle, its mapping or its rights have it disowned first. They pass the gate (`gate` in
//! `driver.tsv`), so no move is under way while one of them runs; a call that does not pass waits
//! in the manager. Memory that other processes use becomes private before that. If there is no room
//! for it, the call is out of memory, and the piece stays as it is.
//!
//! Lock order: the handle cache, the books, the manager. None is held across a driver call of the
//! manager's.

use std::ops::Range;

use wm_abi::{CU_MEM_LOCATION_TYPE_DEVICE, CUmemAccessDesc};
use wm_driver::Handle;

use crate::physical::{self, Access, PlacedPieces, book, cache};
use crate::process;
use crate::subsystems::PROCESS;

/// The pieces in a range may move, as far as they are fit for it.
pub(super) fn adopt_in(address: u64, bytes: u64) {
    let is_any_taken = PROCESS.moves.is_on() || PROCESS.sharing.is_on();
    if !is_any_taken || !physical::is_any_elsewhere() || process::exiting() {
        return;
    }
    let adopted = cache().adopt_in(address, bytes, |piece| {
        let book = book();
        let charge = book.charge_at(piece.at).filter(|charge| takes(&(piece.at..piece.at + charge.bytes())));
        charge.is_some_and(|charge| charge.manager().adopt(charge, piece.at, Handle(piece.handle)))
    });
    for piece in adopted {
        // Another thread may have unmapped it.
        let manager = book().charge_at(piece.at).map(|charge| charge.manager());
        manager.into_iter().for_each(|manager| PROCESS.moves.piece_came(manager, piece.at));
    }
}

/// Do moves or sharing take the piece in a range?
fn takes(range: &Range<u64>) -> bool {
    let moves = PROCESS.moves.is_on() && range.end - range.start >= PROCESS.moves.smallest();
    moves || PROCESS.sharing.asks_for_piece(range)
}

/// The same for the piece of an alias, which was disowned without need.
pub(super) fn adopt_again(alias: u64) {
    let held = cache().handles_for(alias).and_then(|handles| handles.held(alias));
    if let Some(piece) = held {
        piece.at.iter().for_each(|at| adopt_in(*at, piece.kind.bytes));
    }
}

/// The pieces that a range touches are the program's alone; with `granted`, those that lack one of
/// these rights. `false`: one of them cannot be, and all stay as they are.
#[must_use]
pub(super) fn disown_in(address: u64, bytes: u64, granted: Option<&[CUmemAccessDesc]>) -> bool {
    if !PROCESS.moves.has_pieces() {
        return true;
    }
    let is_own = |entry: &CUmemAccessDesc| entry.location.type_ == CU_MEM_LOCATION_TYPE_DEVICE;
    let granted = granted.filter(|granted| granted.iter().all(is_own));
    let granted: Option<Access> =
        granted.map(|granted| granted.iter().map(|entry| (entry.location.id, entry.flags)).collect());
    let pieces: PlacedPieces = cache().adopted_in(address, bytes, granted.as_ref());
    let are_disowned = pieces.iter().all(|piece| disown(piece.alias));
    if !are_disowned {
        adopt_in(address, bytes);
    }
    are_disowned
}

/// The piece of an alias is the program's alone. `false`: other processes use its memory, and there
/// was no time or no room for a copy.
#[must_use]
pub(super) fn disown(alias: u64) -> bool {
    if !PROCESS.moves.has_pieces() {
        return true;
    }
    let at = cache().handles_for(alias).and_then(|handles| handles.adopted_at(alias));
    if at.is_some_and(|at| !PROCESS.sharing.piece_leaves(at)) {
        return false;
    }
    cache().disown(alias, |at| {
        let manager = book().charge_at(at).map(|charge| charge.manager())?;
        PROCESS.moves.piece_leaves(manager, at);
        manager.disown(at)
    });
    true
}
