//! What the code that calls at this moment can cope with when the device is full.
//!
//! * Communication libraries need memory on the device itself, because other devices write into
//!   their buffers. They get the driver's error.
//! * PyTorch's own allocator caches what tensors have freed. When it is refused memory it empties
//!   that cache and asks once more. So its first attempt is refused, and its second one goes where
//!   the user allows. Its `cudaMallocAsync` back end caches nothing and gives up at once: what
//!   names a stream is not refused.
//! * All other code gets memory elsewhere at once.
//!
//! Invariant: PyTorch is refused at most once for a request, because then its cache is empty. If it
//! is in doubt whether a request was refused before, its memory goes elsewhere: too early, perhaps,
//! but no request is refused twice.

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};
use std::thread::LocalKey;
use std::time::{Duration, Instant};

use wm_abi::CUdevice;
use wm_driver::{OomAnswer, Shortfall, Tier};

use crate::moves;
use crate::physical::{self, kept};
use crate::process::{callers, streams};
use crate::registry;
use crate::settings::{self, Created};
use crate::subsystems::PROCESS;

/// How many blocks are not refused first, after an emptied cache brought nothing.
const FRUITLESS: u32 = 16;

/// The time for which a piece that went to another tier affects the next one: pinning host memory
/// takes time.
const TOGETHER: Duration = Duration::from_secs(1);

/// The time for which a piece that was mapped after a refusal does.
const MAPPING: Duration = Duration::from_millis(100);

/// What PyTorch was answered for blocks in a thread. A block is one call, so a second attempt is
/// recognised: it asks for as many bytes, and no block was given in between.
#[derive(Debug, Clone, Copy)]
struct TorchBlocks {
    refused: Option<RefusedBlock>,
    /// One that was not refused, and was not met yet: it may ask for room several times.
    granted: Option<(CUdevice, usize)>,
    /// Blocks that are not refused first.
    spared: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RefusedBlock {
    device: CUdevice,
    bytes: usize,
    /// Blocks that had been freed by then.
    frees: u64,
}

impl TorchBlocks {
    const NEW: Self = Self { refused: None, granted: None, spared: 0 };

    /// A block for which the device has no room.
    fn answer(&mut self, request: RefusedBlock) -> OomAnswer {
        let RefusedBlock { device, bytes, frees } = request;
        if self.granted == Some((device, bytes)) {
            return OomAnswer::Spill;
        }
        self.granted = None;
        let before = self.refused.take().filter(|before| (before.device, before.bytes) == (device, bytes));
        match before {
            Some(before) => self.spared = if before.frees == frees { FRUITLESS } else { 0 },
            None if self.spared > 0 => self.spared -= 1,
            None => {
                self.refused = Some(request);
                return OomAnswer::FailOnce;
            }
        }
        self.granted = Some((device, bytes));
        OomAnswer::Spill
    }

    /// The thread was given a block.
    fn met(&mut self) {
        (self.refused, self.granted) = (None, None);
    }
}

/// What PyTorch was told of pieces in a thread. One of its requests comes in many pieces, and
/// nothing in a call says where one request ends. What tells attempts apart is the way through
/// PyTorch's allocator: the second one is made from another place in its code. A way is known once
/// it was seen where there is no doubt.
#[derive(Debug, Clone, Copy)]
struct Pieces {
    refused: Option<RefusedPiece>,
    /// The first and the last piece that went elsewhere, of those that follow each other within
    /// [`TOGETHER`] of the first.
    granted: Option<[Instant; 2]>,
}

#[derive(Debug, Clone, Copy)]
struct RefusedPiece {
    /// When the thread has mapped something since: then its second attempt may have been met, and
    /// what is short is another request.
    mapped: Option<Instant>,
}

impl Pieces {
    const NEW: Self = Self { refused: None, granted: None };

    /// A piece for which the device has no room, and the way by which it is asked for.
    fn answer(&mut self, ways: &mut Ways, way: u64, now: Instant) -> OomAnswer {
        let is_within = |span: Duration, time: Instant| now.saturating_duration_since(time) < span;
        let is_recent = |time: Instant| is_within(TOGETHER, time);
        let refusal = self.refused.take();
        // Nothing was mapped, so that this is what was refused.
        let is_second = refusal.is_some_and(|refusal| refusal.mapped.is_none());
        if is_second || ways.seconds.contains(&way) {
            ways.is_second(way);
            let first = self.granted.map(|[first, _]| first).filter(|first| is_recent(*first));
            self.granted = Some([first.unwrap_or(now), now]);
            return OomAnswer::Spill;
        }
        let [first, last] = self.granted.map_or([None; 2], |times| times.map(Some));
        let in_doubt = if ways.firsts.contains(&way) {
            // Emptied caches do not bring enough: for a while they are left alone.
            first.is_some_and(is_recent)
        } else {
            let mapped = refusal.and_then(|refusal| refusal.mapped);
            last.is_some_and(is_recent) || mapped.is_some_and(|time| is_within(MAPPING, time))
        };
        if in_doubt || !ways.is_first(way) {
            return OomAnswer::Spill;
        }
        self.refused = Some(RefusedPiece { mapped: None });
        OomAnswer::FailOnce
    }

    /// The thread has mapped a piece.
    fn mapped(&mut self, now: Instant) {
        if let Some(refusal) = &mut self.refused {
            refusal.mapped = Some(now);
        }
    }
}

/// The ways through PyTorch's allocator by which first and second attempts come.
#[derive(Debug)]
struct Ways {
    firsts: Vec<u64>,
    seconds: Vec<u64>,
}

impl Ways {
    const NEW: Self = Self { firsts: Vec::new(), seconds: Vec::new() };
    const MOST: usize = 64;

    /// Learns a way of first attempts; `false` where there are too many to be believed.
    fn is_first(&mut self, way: u64) -> bool {
        let known = self.firsts.contains(&way);
        if !known && self.firsts.len() < Self::MOST {
            self.firsts.push(way);
        }
        known || self.firsts.contains(&way)
    }

    /// Learns a way of second attempts. If first ones come by it as well, nothing that comes by it
    /// is refused any more.
    fn is_second(&mut self, way: u64) {
        self.firsts.retain(|first| *first != way);
        if !self.seconds.contains(&way) && self.seconds.len() < Self::MOST {
            self.seconds.push(way);
        }
    }
}

static WAYS: Mutex<Ways> = Mutex::new(Ways::NEW);

thread_local! {
    static BLOCKS: Cell<TorchBlocks> = const { Cell::new(TorchBlocks::NEW) };
    static PIECES: Cell<Pieces> = const { Cell::new(Pieces::NEW) };
}

/// What the caller can cope with, for a block that a device has no room for. Takes microseconds.
pub(crate) fn of_block(device: CUdevice, short: Shortfall) -> OomAnswer {
    let Shortfall { bytes, in_stream } = short;
    if kept::give_back(device, Tier::Device, bytes as u64) > 0 {
        return OomAnswer::Retry;
    }
    if callers::need_device() {
        return OomAnswer::Fail;
    }
    let Some(manager) = registry::of_device(device) else { return OomAnswer::Spill };
    // What its cache holds is used by nothing: that goes before anything that lives moves.
    if !in_stream && callers::is_torch() {
        let frees = manager.usage().counters.frees;
        let answer = with(&BLOCKS, |blocks| {
            let answer = blocks.answer(RefusedBlock { device, bytes, frees });
            // Where memory moves it is worth to ask each time: what a cache holds would be copied.
            if moves::is_on() {
                blocks.spared = 0;
            }
            answer
        });
        if answer != OomAnswer::Spill {
            return answer;
        }
    }
    // Another GPU's memory is faster than moves to the host, and than the host.
    if moves::is_on() && manager.has_peer_room(bytes as u64) {
        return OomAnswer::Spill;
    }
    if moves::make_for(manager, bytes as u64) {
        PROCESS.overflow.note();
        return OomAnswer::Retry;
    }
    physical::make_host_room(manager, bytes as u64);
    OomAnswer::Spill
}

/// The same for physical memory that the program makes itself.
pub(crate) fn of_piece() -> OomAnswer {
    match (settings::load().overflow_created, callers::is_torch()) {
        (Created::Off, _) | (Created::Torch, false) => OomAnswer::Fail,
        // While something is captured PyTorch does not ask again.
        (_, true) if !streams().capturing() => {
            let Some(way) = callers::way_through_torch() else { return OomAnswer::Spill };
            let mut ways = WAYS.lock().unwrap_or_else(PoisonError::into_inner);
            with(&PIECES, |pieces| pieces.answer(&mut ways, way, Instant::now()))
        }
        _ => OomAnswer::Spill,
    }
}

/// This thread has mapped a piece.
#[inline]
pub(crate) fn mapped() {
    let mut pieces = PIECES.get();
    if pieces.refused.is_some() {
        pieces.mapped(Instant::now());
        PIECES.set(pieces);
    }
}

/// This thread was refused a piece for another reason than a shortage.
pub(crate) fn refused_piece(comes_again: bool) {
    let refused = comes_again.then_some(RefusedPiece { mapped: None });
    PIECES.set(Pieces { refused, ..PIECES.get() });
}

/// This thread was given a block.
#[inline]
pub(crate) fn met() {
    let mut blocks = BLOCKS.get();
    if blocks.refused.is_some() || blocks.granted.is_some() {
        blocks.met();
        BLOCKS.set(blocks);
    }
}

/// This thread was refused a block for good: the next request is a new one, whatever its size.
pub(crate) fn refused() {
    BLOCKS.set(TorchBlocks { granted: None, ..BLOCKS.get() });
}

fn with<T: Copy>(cell: &'static LocalKey<Cell<T>>, change: impl FnOnce(&mut T) -> OomAnswer) -> OomAnswer {
    let mut value = cell.get();
    let answer = change(&mut value);
    cell.set(value);
    answer
}

#[cfg(test)]
mod tests {
    //! Hazard: PyTorch gives up where memory could be had, or its cache is never emptied.
    use super::*;

    fn ask(blocks: &mut TorchBlocks, device: CUdevice, bytes: usize, frees: u64) -> OomAnswer {
        blocks.answer(RefusedBlock { device, bytes, frees })
    }

    #[test]
    fn a_blocks_second_attempt_goes_elsewhere() {
        let mut blocks = TorchBlocks::NEW;
        assert_eq!(ask(&mut blocks, 0, 5, 1), OomAnswer::FailOnce);
        assert_eq!(ask(&mut blocks, 0, 5, 9), OomAnswer::Spill);
        assert_eq!(
            ask(&mut blocks, 0, 5, 9),
            OomAnswer::Spill,
            "blocks left, and there is not enough room yet"
        );
        blocks.met();
        assert_eq!(ask(&mut blocks, 0, 5, 9), OomAnswer::FailOnce, "a new request");
    }

    /// Hazard: a program catches its error and frees, and what PyTorch caches then is never asked
    /// for again.
    #[test]
    fn after_a_request_that_was_refused_for_good_the_next_one_is_a_first_attempt() {
        let answer = || with(&BLOCKS, |blocks| ask(blocks, 0, 5, 1));
        assert_eq!([answer(), answer(), answer()], [OomAnswer::FailOnce, OomAnswer::Spill, OomAnswer::Spill]);
        refused();
        BLOCKS.set(TorchBlocks { spared: 0, ..BLOCKS.get() });
        assert_eq!(answer(), OomAnswer::FailOnce);
    }

    #[test]
    fn another_block_is_a_first_attempt() {
        let mut blocks = TorchBlocks::NEW;
        for (device, bytes) in [(0, 5), (0, 6), (1, 6)] {
            assert_eq!(ask(&mut blocks, device, bytes, 0), OomAnswer::FailOnce);
        }
        assert_eq!(ask(&mut blocks, 1, 6, 1), OomAnswer::Spill);
    }

    #[test]
    fn who_had_nothing_to_give_up_is_not_asked_again_for_a_while() {
        let mut blocks = TorchBlocks::NEW;
        assert_eq!(ask(&mut blocks, 0, 5, 7), OomAnswer::FailOnce);
        for _ in 0..=FRUITLESS {
            assert_eq!(ask(&mut blocks, 0, 5, 7), OomAnswer::Spill);
            blocks.met();
        }
        assert_eq!(ask(&mut blocks, 0, 5, 7), OomAnswer::FailOnce);
    }

    const FIRST: u64 = 1;
    const SECOND: u64 = 3;
    const OTHER: u64 = 5;

    #[test]
    fn a_request_that_is_short_twice_gets_all_its_pieces_however_late_they_come() {
        let (mut pieces, mut ways, start) = (Pieces::NEW, Ways::NEW, Instant::now());
        assert_eq!(pieces.answer(&mut ways, FIRST, start), OomAnswer::FailOnce);
        for number in 1..100 {
            assert_eq!(pieces.answer(&mut ways, SECOND, start + number * TOGETHER), OomAnswer::Spill);
        }
        assert_eq!(
            pieces.answer(&mut ways, FIRST, start + 100 * TOGETHER),
            OomAnswer::FailOnce,
            "the next request"
        );
    }

    /// Hazard: after one emptied cache everything goes to the host.
    #[test]
    fn each_request_is_a_first_attempt_where_the_emptied_cache_sufficed() {
        let (mut pieces, mut ways, start) = (Pieces::NEW, Ways::NEW, Instant::now());
        for number in 0..10 {
            let now = start + number * TOGETHER / 100;
            assert_eq!(pieces.answer(&mut ways, FIRST, now), OomAnswer::FailOnce);
            pieces.mapped(now);
        }
    }

    #[test]
    fn where_emptied_caches_do_not_suffice_they_are_left_alone_for_a_while() {
        let (mut pieces, mut ways, start) = (Pieces::NEW, Ways::NEW, Instant::now());
        assert_eq!(pieces.answer(&mut ways, FIRST, start), OomAnswer::FailOnce);
        assert_eq!(pieces.answer(&mut ways, SECOND, start), OomAnswer::Spill);
        for number in 0..5 {
            assert_eq!(pieces.answer(&mut ways, FIRST, start + number * TOGETHER / 5), OomAnswer::Spill);
        }
        assert_eq!(pieces.answer(&mut ways, FIRST, start + TOGETHER), OomAnswer::FailOnce);
    }

    /// Hazard (out of memory): a second attempt that comes by an unknown path is taken for a first
    /// one, and PyTorch gives up.
    #[test]
    fn an_unknown_way_is_not_refused_in_doubt() {
        let (mut pieces, mut ways, start) = (Pieces::NEW, Ways::NEW, Instant::now());
        assert_eq!(pieces.answer(&mut ways, FIRST, start), OomAnswer::FailOnce);
        // A part of the second attempt was met and mapped.
        pieces.mapped(start);
        assert_eq!(pieces.answer(&mut ways, SECOND, start + MAPPING / 2), OomAnswer::Spill);
        assert_eq!(
            pieces.answer(&mut ways, OTHER, start + 9 * MAPPING),
            OomAnswer::FailOnce,
            "a first attempt"
        );
    }

    #[test]
    fn where_both_attempts_come_by_one_way_it_is_refused_once() {
        let (mut pieces, mut ways, start) = (Pieces::NEW, Ways::NEW, Instant::now());
        assert_eq!(pieces.answer(&mut ways, FIRST, start), OomAnswer::FailOnce);
        for number in 0..5 {
            assert_eq!(pieces.answer(&mut ways, FIRST, start + 9 * number * TOGETHER), OomAnswer::Spill);
        }
    }
}
