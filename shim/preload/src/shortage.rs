//! The answer to an out-of-memory, by caller.
//!
//! * Communication libraries need memory on the device itself, because other devices write into
//!   their buffers. They get the driver's error.
//! * PyTorch's own allocator is refused once, so that it empties its cache ([`TorchAnswers`]),
//!   where it is certain to ask again ([`torch_pools`]). Its `cudaMallocAsync` back end caches
//!   nothing and gives up at once: a call that names a stream is not refused.
//! * All other code gets memory of another tier at once.

use std::cell::Cell;
use std::sync::Mutex;
use std::thread::LocalKey;
use std::time::Instant;

use wm_abi::CUdevice;
use wm_driver::{Device, Handle, OomAnswer, Shortfall, Tier, lock};
use wm_memory::{Manager, OverflowVerdict, TorchAnswers, TorchPaths, TorchRequest};

use crate::physical;
use crate::process::callers::{self, PieceMaker};
use crate::process::{streams, torch_pools};
use crate::registry;
use crate::settings::{self, Created};
use crate::subsystems::PROCESS;

/// The paths through PyTorch's allocator that this process knows. Managers ask through a callback
/// without a state, so it is a static of this layer.
static PATHS: Mutex<TorchPaths> = Mutex::new(TorchPaths::new());

thread_local! {
    static BLOCKS: Cell<TorchAnswers> = const { Cell::new(TorchAnswers::NEW) };
    static PIECES: Cell<TorchAnswers> = const { Cell::new(TorchAnswers::NEW) };
}

fn answer(cell: &'static LocalKey<Cell<TorchAnswers>>, request: TorchRequest) -> OomAnswer {
    let mut answers = cell.get();
    let mut paths = lock(&PATHS);
    let answer = answers.answer(request, &mut paths, Instant::now());
    cell.set(answers);
    answer
}

fn change(cell: &'static LocalKey<Cell<TorchAnswers>>, change: impl FnOnce(&mut TorchAnswers)) {
    let mut answers = cell.get();
    change(&mut answers);
    cell.set(answers);
}

/// The answer to a request for a block for which a device has no room. Takes microseconds.
pub(crate) fn of_block(device: CUdevice, short: Shortfall) -> OomAnswer {
    let Shortfall { bytes, in_stream } = short;
    let Some(manager) = registry::of_device(device) else { return OomAnswer::Spill };
    if physical::cache().give_back(manager, Tier::Device, bytes as u64) > 0 {
        return OomAnswer::Retry;
    }
    if callers::need_device() {
        let has_room = PROCESS.turns.make_room_for_block(manager, bytes as u64);
        return if has_room { OomAnswer::Retry } else { OomAnswer::Fail };
    }
    // PyTorch's cache is unused: it is emptied before live memory moves.
    if !in_stream && callers::is_torch() && torch_pools::asks_again() {
        let frees = manager.usage().counters.frees;
        let answer = answer(&BLOCKS, TorchRequest::Block { device, bytes, frees });
        // If memory may move, PyTorch is refused each time: its cache would be copied.
        if PROCESS.moves.gives_way() {
            change(&BLOCKS, TorchAnswers::spare_none);
        }
        if answer != OomAnswer::Spill {
            return answer;
        }
    }
    if PROCESS.turns.make_room_for_block(manager, bytes as u64) {
        return OomAnswer::Retry;
    }
    // Another GPU's memory is faster than the host's, and than moves to it.
    if PROCESS.moves.gives_way() && manager.has_peer_room(bytes as u64) {
        return OomAnswer::Spill;
    }
    if PROCESS.moves.make_for(manager, bytes as u64) {
        PROCESS.overflow.note();
        return OomAnswer::Retry;
    }
    physical::cache().make_host_room(manager, bytes as u64);
    OomAnswer::Spill
}

/// Memory of the host of so many bytes that lies idle for later pieces: it is the manager's from
/// now on.
pub(crate) fn idle_host_memory(device: CUdevice, bytes: u64) -> Option<Handle> {
    physical::cache().take_idle(device, bytes).map(Handle)
}

/// Do other processes give way for a piece that the device has no room for? `verdict`: why it may
/// not lie elsewhere. A caller that gives up what it does not use first asks again.
pub(crate) fn others_give_way(
    manager: &Manager<Device>,
    bytes: u64,
    verdict: Option<OverflowVerdict>,
) -> bool {
    verdict != Some(OverflowVerdict::Later) && PROCESS.turns.make_room(manager, bytes)
}

/// May a piece that the calling code makes lie on the host? `is_for_cards`: a network card may be
/// told to use it.
pub(crate) fn may_leave_device(is_for_cards: bool) -> bool {
    let is_for_cards = || is_for_cards && callers::registering_loaded().is_some();
    bears_host(settings::load().overflow_created, callers::piece_maker, is_for_cards)
}

/// PyTorch's allocator asks for memory for network cards whether there is a card or not, and NCCL
/// loads libraries of such cards in each distributed program.
fn bears_host(
    created: Created,
    maker: impl FnOnce() -> PieceMaker,
    is_for_cards: impl FnOnce() -> bool,
) -> bool {
    match created {
        Created::Off => false,
        Created::All => true,
        Created::Torch => maker() == PieceMaker::Torch,
        Created::Auto => match maker() {
            PieceMaker::Torch => true,
            PieceMaker::Communication => false,
            PieceMaker::Other => !is_for_cards(),
        },
    }
}

/// May the calling code export memory of the host as that of a device, and does it take imported
/// memory of the host for a device's? A program that shares its own memory of the host does not.
pub(crate) fn shares_host_memory() -> bool {
    match settings::load().overflow_created {
        Created::Off => false,
        Created::All => true,
        Created::Torch | Created::Auto => callers::is_torch(),
    }
}

/// The answer to a request for a piece that may leave the device.
pub(crate) fn of_piece() -> OomAnswer {
    // While something is captured PyTorch does not ask again, in any pool.
    if !callers::is_torch() || streams().capturing() || !torch_pools::asks_again() {
        return OomAnswer::Spill;
    }
    let path = callers::way_through_torch();
    path.map_or(OomAnswer::Spill, |path| {
        let held = registry::all().map(Manager::bytes_of_pieces).sum();
        answer(&PIECES, TorchRequest::Piece { path, copies_cache: PROCESS.moves.gives_way(), held })
    })
}

/// This thread has mapped a piece.
#[inline]
pub(crate) fn mapped() {
    if PIECES.get().is_refused() {
        change(&PIECES, |pieces| pieces.mapped(Instant::now()));
    }
}

/// This thread was refused a piece for another reason than a shortage.
pub(crate) fn refused_piece(comes_again: bool) {
    change(&PIECES, |pieces| pieces.refused_otherwise(comes_again));
}

/// This thread was given a block.
#[inline]
pub(crate) fn met() {
    if BLOCKS.get().is_short() {
        change(&BLOCKS, TorchAnswers::met);
    }
}

/// This thread was refused a block for good.
pub(crate) fn refused() {
    change(&BLOCKS, TorchAnswers::refused_for_good);
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): memory that a network card or another device writes lies on the host.
    use super::*;

    #[test]
    fn what_may_leave_the_device_is_decided_by_its_maker_and_by_what_is_loaded() {
        use Created::{All, Auto, Off, Torch};
        let makers = [PieceMaker::Torch, PieceMaker::Communication, PieceMaker::Other];
        let of =
            |created| makers.map(|maker| [false, true].map(|card| bears_host(created, || maker, || card)));
        assert_eq!(of(Auto), [[true, true], [false, false], [true, false]]);
        assert_eq!(of(Torch), [[true, true], [false, false], [false, false]]);
        assert_eq!((of(All), of(Off)), ([[true; 2]; 3], [[false; 2]; 3]));
    }
}
