//! What the code that calls at this moment bears where the device is full.
//!
//! * Libraries whose buffers others write into need memory of the device itself, or the driver's answer.
//! * PyTorch's own allocator keeps what tensors have freed. Told of a shortage it empties that cache and asks once more: its first
//!   attempt is refused, and its second one goes where the user allows.
//! * Everybody else gets memory elsewhere at once.
//!
//! Invariant: PyTorch is refused at most once for a request: after that it has nothing left to give up. Where that is in doubt, its
//! memory goes elsewhere too soon and is never refused twice.

use std::cell::Cell;
use std::thread::LocalKey;
use std::time::{Duration, Instant};

use wm_abi::CUdevice;
use wm_driver::Bears;

use crate::physical::kept;
use crate::settings::{self, Created, TorchShortage};
use crate::state::streams;
use crate::{callers, managers};

/// Blocks that are not refused first after an emptied cache has brought nothing.
const FRUITLESS: u32 = 16;

/// Pieces that follow each other within this time are taken for one request.
const TOGETHER: Duration = Duration::from_secs(1);

/// What PyTorch was told of blocks in a thread. A block is one call, so that a second attempt is known: it asks for as much, and
/// nothing was given in between.
#[derive(Debug, Clone, Copy)]
struct Blocks {
    refused: Option<Refused>,
    /// Blocks that are not refused first.
    spared: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Refused {
    device: CUdevice,
    bytes: usize,
    /// Blocks that had been freed by then.
    frees: u64,
}

impl Blocks {
    const NEW: Self = Self { refused: None, spared: 0 };

    /// A block for which the device has no room.
    fn answer(&mut self, request: Refused) -> Bears {
        let Refused { device, bytes, frees } = request;
        let before = self.refused.take().filter(|before| (before.device, before.bytes) == (device, bytes));
        match before {
            Some(before) => self.spared = if before.frees == frees { FRUITLESS } else { 0 },
            None if self.spared > 0 => self.spared -= 1,
            None => {
                self.refused = Some(request);
                return Bears::NotYet;
            }
        }
        Bears::Elsewhere
    }
}

/// What PyTorch was told of pieces in a thread. One of its requests comes in many pieces, some of which are mapped before another one
/// is refused. So whatever is short after a refusal is the second attempt.
#[derive(Debug, Clone, Copy)]
struct Pieces {
    refused: bool,
    granted: Option<Instant>,
}

impl Pieces {
    const NEW: Self = Self { refused: false, granted: None };

    /// A piece for which the device has no room.
    fn answer(&mut self, now: Instant) -> Bears {
        let together = self.granted.is_some_and(|last| now.saturating_duration_since(last) < TOGETHER);
        if !self.refused && !together {
            self.refused = true;
            return Bears::NotYet;
        }
        *self = Self { refused: false, granted: Some(now) };
        Bears::Elsewhere
    }
}

thread_local! {
    static BLOCKS: Cell<Blocks> = const { Cell::new(Blocks::NEW) };
    static PIECES: Cell<Pieces> = const { Cell::new(Pieces::NEW) };
}

/// What the caller bears, for a block of so many bytes that a device has no room for. Takes microseconds.
pub(crate) fn of_block(device: CUdevice, bytes: usize) -> Bears {
    if kept::give_back(device, bytes as u64) > 0 {
        return Bears::LookAgain;
    }
    if callers::need_device() {
        return Bears::Never;
    }
    if !is_told() || !callers::is_torch() {
        return Bears::Elsewhere;
    }
    let frees = managers::of(device).map_or(0, |manager| manager.usage().counters.frees);
    with(&BLOCKS, |blocks| blocks.answer(Refused { device, bytes, frees }))
}

/// The same for physical memory that the program makes itself.
pub(crate) fn of_piece() -> Bears {
    match (settings::load().overflow_created, callers::is_torch()) {
        (Created::Off, _) | (Created::Torch, false) => Bears::Never,
        // While something is captured PyTorch does not ask again.
        (_, true) if is_told() && !streams().capturing() => {
            with(&PIECES, |pieces| pieces.answer(Instant::now()))
        }
        _ => Bears::Elsewhere,
    }
}

/// This thread was given a block.
#[inline]
pub(crate) fn met() {
    let blocks = BLOCKS.get();
    if blocks.refused.is_some() {
        BLOCKS.set(Blocks { refused: None, ..blocks });
    }
}

fn is_told() -> bool {
    settings::load().torch_shortage == TorchShortage::Told
}

fn with<T: Copy>(cell: &'static LocalKey<Cell<T>>, change: impl FnOnce(&mut T) -> Bears) -> Bears {
    let mut value = cell.get();
    let answer = change(&mut value);
    cell.set(value);
    answer
}

#[cfg(test)]
mod tests {
    //! Hazard: PyTorch gives up where memory could be had, or its cache is never emptied.
    use super::*;

    fn ask(blocks: &mut Blocks, device: CUdevice, bytes: usize, frees: u64) -> Bears {
        blocks.answer(Refused { device, bytes, frees })
    }

    #[test]
    fn a_blocks_second_attempt_goes_elsewhere() {
        let mut blocks = Blocks::NEW;
        assert_eq!(ask(&mut blocks, 0, 5, 1), Bears::NotYet);
        assert_eq!(ask(&mut blocks, 0, 5, 9), Bears::Elsewhere);
        assert_eq!(ask(&mut blocks, 0, 5, 9), Bears::NotYet, "a new request");
    }

    #[test]
    fn another_block_is_a_first_attempt() {
        let mut blocks = Blocks::NEW;
        for (device, bytes) in [(0, 5), (0, 6), (1, 6)] {
            assert_eq!(ask(&mut blocks, device, bytes, 0), Bears::NotYet);
        }
        assert_eq!(ask(&mut blocks, 1, 6, 1), Bears::Elsewhere);
    }

    #[test]
    fn who_had_nothing_to_give_up_is_not_asked_again_for_a_while() {
        let mut blocks = Blocks::NEW;
        assert_eq!(ask(&mut blocks, 0, 5, 7), Bears::NotYet);
        for _ in 0..=FRUITLESS {
            assert_eq!(ask(&mut blocks, 0, 5, 7), Bears::Elsewhere);
        }
        assert_eq!(ask(&mut blocks, 0, 5, 7), Bears::NotYet);
    }

    #[test]
    fn after_a_refusal_a_request_gets_all_its_pieces_however_late_it_comes() {
        let (mut pieces, start) = (Pieces::NEW, Instant::now());
        assert_eq!(pieces.answer(start), Bears::NotYet);
        let later = start + 100 * TOGETHER;
        for number in 0..10 {
            assert_eq!(pieces.answer(later + number * TOGETHER / 2), Bears::Elsewhere);
        }
        assert_eq!(pieces.answer(later + 20 * TOGETHER), Bears::NotYet, "the next request");
    }
}
