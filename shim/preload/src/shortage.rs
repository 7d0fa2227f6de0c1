//! What the code that calls at this moment bears where the device is full.
//!
//! * Libraries whose buffers others write into need memory of the device itself, or the driver's answer.
//! * PyTorch's own allocator keeps what tensors have freed. Told of a shortage it empties that cache and asks once more: its first
//!   attempt is refused, and its second one goes where the user allows.
//! * Everybody else gets memory elsewhere at once.
//!
//! Invariant: PyTorch is refused at most once for a request. Whoever asks the same again has nothing left to give up.

use std::cell::Cell;

use wm_abi::CUdevice;
use wm_driver::Bears;

use crate::settings::{self, Created, TorchShortage};
use crate::{callers, managers, physical};

/// Requests that are not refused first after an emptied cache has brought nothing.
const FRUITLESS: u32 = 16;

/// What PyTorch was told in this thread.
#[derive(Debug, Clone, Copy)]
struct Told {
    /// What was refused, until something is met.
    refused: Option<Refused>,
    /// The request that is being met may lie elsewhere. It may come in pieces.
    granted: bool,
    /// Requests that are not refused first.
    spared: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Refused {
    device: CUdevice,
    bytes: usize,
    /// Moves when memory is given up.
    mark: u64,
}

impl Told {
    const NOTHING: Self = Self { refused: None, granted: false, spared: 0 };

    /// A request for which the device has no room.
    fn answer(&mut self, request: Refused) -> Bears {
        let Refused { device, bytes, mark } = request;
        match self.refused.filter(|before| (before.device, before.bytes) == (device, bytes)) {
            _ if self.granted => {}
            Some(before) => self.spared = if before.mark == mark { FRUITLESS } else { 0 },
            None if self.spared > 0 => self.spared -= 1,
            None => {
                self.refused = Some(request);
                return Bears::NotYet;
            }
        }
        self.granted = true;
        Bears::Elsewhere
    }

    fn met(&mut self) {
        *self = Self { spared: self.spared, ..Self::NOTHING };
    }
}

thread_local! {
    static TOLD: Cell<Told> = const { Cell::new(Told::NOTHING) };
}

/// What the caller bears, for a block of so many bytes that a device has no room for. Takes microseconds.
pub(crate) fn of_block(device: CUdevice, bytes: usize) -> Bears {
    if callers::need_device() {
        return Bears::Never;
    }
    if !callers::is_torch() {
        return Bears::Elsewhere;
    }
    let frees = managers::of(device).map_or(0, |manager| manager.usage().counters.frees);
    torch(Refused { device, bytes, mark: frees })
}

/// The same for physical memory that the program makes itself.
pub(crate) fn of_piece(device: CUdevice, bytes: usize) -> Bears {
    match (settings::load().overflow_created, callers::is_torch()) {
        (Created::Off, _) | (Created::Torch, false) => Bears::Never,
        (Created::All, false) => Bears::Elsewhere,
        (_, true) => torch(Refused { device, bytes, mark: physical::account(device).held.device }),
    }
}

fn torch(request: Refused) -> Bears {
    if settings::load().torch_shortage == TorchShortage::Hidden {
        return Bears::Elsewhere;
    }
    let mut told = TOLD.get();
    let answer = told.answer(request);
    TOLD.set(told);
    answer
}

/// A request of this thread's was met: a block was given, or pieces were mapped.
#[inline]
pub(crate) fn met() {
    let mut told = TOLD.get();
    if told.granted || told.refused.is_some() {
        told.met();
        TOLD.set(told);
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: PyTorch gives up where memory could be had, or its cache is never emptied.
    use super::*;

    fn ask(told: &mut Told, device: CUdevice, bytes: usize, mark: u64) -> Bears {
        told.answer(Refused { device, bytes, mark })
    }

    #[test]
    fn the_second_attempt_goes_elsewhere_piece_by_piece() {
        let mut told = Told::NOTHING;
        assert_eq!(ask(&mut told, 0, 5, 1), Bears::NotYet);
        for mark in 9..12 {
            assert_eq!(ask(&mut told, 0, 5, mark), Bears::Elsewhere);
        }
        told.met();
        assert_eq!(ask(&mut told, 0, 5, 12), Bears::NotYet, "a new request");
    }

    #[test]
    fn what_the_device_had_room_for_at_the_second_attempt_was_met() {
        let mut told = Told::NOTHING;
        assert_eq!(ask(&mut told, 0, 5, 1), Bears::NotYet);
        told.met();
        assert_eq!(ask(&mut told, 0, 5, 9), Bears::NotYet);
    }

    #[test]
    fn another_request_is_a_first_attempt() {
        let mut told = Told::NOTHING;
        for (device, bytes) in [(0, 5), (0, 6), (1, 6)] {
            assert_eq!(ask(&mut told, device, bytes, 0), Bears::NotYet);
        }
        assert_eq!(ask(&mut told, 1, 6, 1), Bears::Elsewhere);
    }

    #[test]
    fn who_had_nothing_to_give_up_is_not_asked_again_for_a_while() {
        let mut told = Told::NOTHING;
        assert_eq!(ask(&mut told, 0, 5, 7), Bears::NotYet);
        for _ in 0..=FRUITLESS {
            assert_eq!(ask(&mut told, 0, 5, 7), Bears::Elsewhere);
            told.met();
        }
        assert_eq!(ask(&mut told, 0, 5, 7), Bears::NotYet);
    }
}
