//! The answer to an out-of-memory, by caller.
//!
//! * Communication libraries need memory on the device itself, because other devices write into
//!   their buffers. They get the driver's error.
//! * PyTorch's own allocator is refused once, so that it empties its cache ([`TorchAnswers`]). Its
//!   `cudaMallocAsync` back end caches nothing and gives up at once: a call that names a stream is
//!   not refused.
//! * All other code gets memory of another tier at once.

use std::cell::Cell;
use std::sync::Mutex;
use std::thread::LocalKey;
use std::time::Instant;

use wm_abi::CUdevice;
use wm_driver::{OomAnswer, Shortfall, Tier, lock};
use wm_memory::{TorchAnswers, TorchPaths, TorchRequest};

use crate::physical;
use crate::process::{callers, streams};
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
        return OomAnswer::Fail;
    }
    // PyTorch's cache is unused: it is emptied before live memory moves.
    if !in_stream && callers::is_torch() {
        let frees = manager.usage().counters.frees;
        let answer = answer(&BLOCKS, TorchRequest::Block { device, bytes, frees });
        // If memory may move, PyTorch is refused each time: its cache would be copied.
        if PROCESS.moves.is_on() {
            change(&BLOCKS, TorchAnswers::spare_none);
        }
        if answer != OomAnswer::Spill {
            return answer;
        }
    }
    // Another GPU's memory is faster than the host's, and than moves to it.
    if PROCESS.moves.is_on() && manager.has_peer_room(bytes as u64) {
        return OomAnswer::Spill;
    }
    if PROCESS.moves.make_for(manager, bytes as u64) {
        PROCESS.overflow.note();
        return OomAnswer::Retry;
    }
    physical::cache().make_host_room(manager, bytes as u64);
    OomAnswer::Spill
}

/// The answer to a request for a piece.
pub(crate) fn of_piece() -> OomAnswer {
    match (settings::load().overflow_created, callers::is_torch()) {
        (Created::Off, _) | (Created::Torch, false) => OomAnswer::Fail,
        // While something is captured PyTorch does not ask again.
        (_, true) if !streams().capturing() => {
            let path = callers::way_through_torch();
            path.map_or(OomAnswer::Spill, |path| answer(&PIECES, TorchRequest::Piece { path }))
        }
        _ => OomAnswer::Spill,
    }
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
