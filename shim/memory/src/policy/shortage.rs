//! The answer to PyTorch's requests for which a device has no room.
//!
//! PyTorch's allocator caches the memory that tensors have freed. If a request is refused it
//! empties that cache and asks once more. So its first attempt is refused, and its second one
//! spills.
//!
//! A block is one call, so a second attempt is recognised: it asks for as many bytes, and no block
//! was given in between. A request for pieces comes in many calls, and nothing in a call says where
//! one request ends. Attempts differ by their path through PyTorch's allocator: the second one is
//! made from another place in its code. A path is known once it was seen where there is no doubt.
//!
//! Invariant: PyTorch is refused at most once for a request, because then its cache is empty. If it
//! is in doubt whether a request was refused before, its memory spills: too early, perhaps, but no
//! request is refused twice.

use std::time::{Duration, Instant};

use wm_abi::CUdevice;
use wm_driver::OomAnswer;

use super::cache_span::{self, CacheSpan};

/// How many blocks are not refused first, after an emptied cache brought nothing.
const FRUITLESS: u32 = 16;

/// The time for which a piece that went to another tier affects the next one.
const TOGETHER: Duration = cache_span::SHORTEST;

/// The time for which a piece that was mapped after a refusal does.
const MAPPING: Duration = Duration::from_millis(100);

/// A request of PyTorch's.
#[derive(Debug, Clone, Copy)]
pub enum TorchRequest {
    /// A block.
    Block {
        /// The device without room.
        device: CUdevice,
        /// As the program asked for them.
        bytes: usize,
        /// Blocks that had been freed by then.
        frees: u64,
    },
    /// A piece.
    Piece {
        /// Its path through PyTorch's allocator.
        path: u64,
        /// What PyTorch caches would be copied to the host for it: live memory moves.
        copies_cache: bool,
        /// Bytes of all pieces of the program, cached ones included.
        held: u64,
    },
}

/// The answers that one thread was given, to requests for blocks or to those for pieces.
#[derive(Debug, Clone, Copy)]
pub struct TorchAnswers {
    refused: Option<TorchRefusal>,
    /// The request that spilled last. A block may ask for room several times until it is met.
    spilled: Option<TorchSpill>,
    /// Blocks that are not refused first.
    spared: u32,
    /// The cache that PyTorch emptied last for a piece brought no memory.
    fruitless: bool,
    /// How long the cache is left alone.
    alone: CacheSpan,
}

#[derive(Debug, Clone, Copy)]
struct TorchRefusal {
    request: Option<TorchRequest>,
    /// When the thread has mapped a piece since: then its second attempt may have been met, and
    /// another request is short.
    mapped: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct TorchSpill {
    request: TorchRequest,
    /// Of pieces that follow each other while the cache is left alone: when the first one and
    /// the last one spilled.
    first: Instant,
    last: Instant,
}

/// Which attempt a request is.
enum AttemptNumber {
    First,
    Second,
    InDoubt,
}

/// The block that a request asks for.
fn block(request: TorchRequest) -> Option<(CUdevice, usize)> {
    match request {
        TorchRequest::Block { device, bytes, .. } => Some((device, bytes)),
        TorchRequest::Piece { .. } => None,
    }
}

impl TorchAnswers {
    /// No request was short yet.
    pub const NEW: Self =
        Self { refused: None, spilled: None, spared: 0, fruitless: false, alone: CacheSpan::NEW };

    /// The answer to a request for which the device has no room.
    pub fn answer(&mut self, request: TorchRequest, paths: &mut TorchPaths, now: Instant) -> OomAnswer {
        let refused = self.refused.take();
        let number = match request {
            TorchRequest::Block { frees, .. } => self.number_of_block(request, frees, refused),
            TorchRequest::Piece { path, copies_cache, held } => {
                self.alone.note(held);
                self.fruitless = refused.map_or(self.fruitless, |refused| refused.mapped.is_none());
                let alone = match copies_cache {
                    false => Some(self.alone.length()),
                    true => self.fruitless.then_some(TOGETHER),
                };
                self.number_of_piece(path, alone, refused, paths, now)
            }
        };
        match number {
            AttemptNumber::First => {
                self.refused = Some(TorchRefusal { request: Some(request), mapped: None });
                return OomAnswer::FailOnce;
            }
            AttemptNumber::Second => {
                let before = self.spilled.filter(|before| is_within(self.alone.length(), before.first, now));
                if refused.is_some() {
                    let apart = self.alone.apart();
                    let is_again = self.spilled.is_some_and(|spilled| is_within(apart, spilled.last, now));
                    self.alone.has_ended(is_again);
                }
                let first = before.map_or(now, |before| before.first);
                self.spilled = Some(TorchSpill { request, first, last: now });
            }
            AttemptNumber::InDoubt => {}
        }
        OomAnswer::Spill
    }

    fn number_of_block(
        &mut self,
        request: TorchRequest,
        frees: u64,
        refused: Option<TorchRefusal>,
    ) -> AttemptNumber {
        let is_same = |other: &TorchRequest| block(*other) == block(request);
        if self.spilled.is_some_and(|spilled| is_same(&spilled.request)) {
            return AttemptNumber::InDoubt;
        }
        self.spilled = None;
        match refused.and_then(|refused| refused.request).filter(is_same) {
            Some(TorchRequest::Block { frees: before, .. }) => {
                self.spared = if before == frees { FRUITLESS } else { 0 };
                AttemptNumber::Second
            }
            _ if self.spared > 0 => {
                self.spared -= 1;
                AttemptNumber::Second
            }
            _ => AttemptNumber::First,
        }
    }

    fn number_of_piece(
        &self,
        path: u64,
        alone: Option<Duration>,
        refused: Option<TorchRefusal>,
        paths: &mut TorchPaths,
        now: Instant,
    ) -> AttemptNumber {
        // Nothing was mapped, so this request was refused.
        let is_second = refused.is_some_and(|refused| refused.mapped.is_none());
        if is_second || paths.seconds.contains(&path) {
            paths.learn_second(path);
            return AttemptNumber::Second;
        }
        let spilled = |span: Duration, time: fn(TorchSpill) -> Instant| {
            self.spilled.is_some_and(|spilled| is_within(span, time(spilled), now))
        };
        let is_in_doubt = if paths.firsts.contains(&path) {
            // Emptied caches do not bring enough: for a while they are left alone.
            alone.is_some_and(|span| spilled(span, |spilled| spilled.first))
        } else {
            let mapped = refused.and_then(|refused| refused.mapped);
            spilled(TOGETHER, |spilled| spilled.last)
                || mapped.is_some_and(|time| is_within(MAPPING, time, now))
        };
        if is_in_doubt || !paths.learn_first(path) { AttemptNumber::InDoubt } else { AttemptNumber::First }
    }

    /// Is a request refused that was not asked for again?
    #[inline]
    pub fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Is a block short that was not met yet?
    #[inline]
    pub fn is_short(&self) -> bool {
        self.refused.is_some() || self.spilled.is_some()
    }

    /// The thread was given a block.
    pub fn met(&mut self) {
        (self.refused, self.spilled) = (None, None);
    }

    /// The thread was refused a block for good: the next request is a new one, of any size.
    pub fn refused_for_good(&mut self) {
        self.spilled = None;
    }

    /// The next block is refused first, even if the last emptied cache brought memory.
    pub fn spare_none(&mut self) {
        self.spared = 0;
    }

    /// The thread has mapped a piece.
    pub fn mapped(&mut self, now: Instant) {
        if let Some(refused) = &mut self.refused {
            refused.mapped = Some(now);
        }
    }

    /// The thread was refused a piece for another reason than a shortage.
    pub fn refused_otherwise(&mut self, comes_again: bool) {
        self.refused = comes_again.then_some(TorchRefusal { request: None, mapped: None });
    }
}

fn is_within(span: Duration, time: Instant, now: Instant) -> bool {
    now.saturating_duration_since(time) < span
}

/// The paths through PyTorch's allocator by which first and second attempts come.
#[derive(Debug)]
pub struct TorchPaths {
    firsts: Vec<u64>,
    seconds: Vec<u64>,
}

impl Default for TorchPaths {
    fn default() -> Self {
        Self::new()
    }
}

impl TorchPaths {
    const MOST: usize = 64;

    /// No path is known.
    pub const fn new() -> Self {
        Self { firsts: Vec::new(), seconds: Vec::new() }
    }

    /// Learns a path of first attempts; `false` where there are too many to be believed.
    fn learn_first(&mut self, path: u64) -> bool {
        let known = self.firsts.contains(&path);
        if !known && self.firsts.len() < Self::MOST {
            self.firsts.push(path);
        }
        known || self.firsts.contains(&path)
    }

    /// Learns a path of second attempts. If first ones come by it as well, nothing that comes by it
    /// is refused any more.
    fn learn_second(&mut self, path: u64) {
        self.firsts.retain(|first| *first != path);
        if !self.seconds.contains(&path) && self.seconds.len() < Self::MOST {
            self.seconds.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: PyTorch gives up where memory could be had, or its cache is never emptied.
    use super::*;

    fn ask(blocks: &mut TorchAnswers, device: CUdevice, bytes: usize, frees: u64) -> OomAnswer {
        let request = TorchRequest::Block { device, bytes, frees };
        blocks.answer(request, &mut TorchPaths::new(), Instant::now())
    }

    /// The answers to one thread, and the paths that are known.
    struct Pieces(TorchAnswers, TorchPaths);

    impl Pieces {
        const NEW: Self = Self(TorchAnswers::NEW, TorchPaths::new());

        fn answer(&mut self, path: u64, now: Instant) -> OomAnswer {
            self.0.answer(TorchRequest::Piece { path, copies_cache: false, held: 0 }, &mut self.1, now)
        }

        /// The same while live memory moves.
        fn answer_beside_moves(&mut self, path: u64, now: Instant) -> OomAnswer {
            self.0.answer(TorchRequest::Piece { path, copies_cache: true, held: 0 }, &mut self.1, now)
        }
    }

    #[test]
    fn a_blocks_second_attempt_goes_elsewhere() {
        let mut blocks = TorchAnswers::NEW;
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

    /// Hazard: a program catches its error and frees, and the memory that PyTorch caches then is
    /// never asked for again.
    #[test]
    fn after_a_request_that_was_refused_for_good_the_next_one_is_a_first_attempt() {
        let mut blocks = TorchAnswers::NEW;
        let answers = [(); 3].map(|()| ask(&mut blocks, 0, 5, 1));
        assert_eq!(answers, [OomAnswer::FailOnce, OomAnswer::Spill, OomAnswer::Spill]);
        blocks.refused_for_good();
        blocks.spare_none();
        assert_eq!(ask(&mut blocks, 0, 5, 1), OomAnswer::FailOnce);
    }

    #[test]
    fn another_block_is_a_first_attempt() {
        let mut blocks = TorchAnswers::NEW;
        for (device, bytes) in [(0, 5), (0, 6), (1, 6)] {
            assert_eq!(ask(&mut blocks, device, bytes, 0), OomAnswer::FailOnce);
        }
        assert_eq!(ask(&mut blocks, 1, 6, 1), OomAnswer::Spill);
    }

    #[test]
    fn who_had_nothing_to_give_up_is_not_asked_again_for_a_while() {
        let mut blocks = TorchAnswers::NEW;
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
        let (mut pieces, start) = (Pieces::NEW, Instant::now());
        assert_eq!(pieces.answer(FIRST, start), OomAnswer::FailOnce);
        for number in 1..100 {
            assert_eq!(pieces.answer(SECOND, start + number * TOGETHER), OomAnswer::Spill);
        }
        assert_eq!(pieces.answer(FIRST, start + 101 * TOGETHER), OomAnswer::FailOnce, "the next request");
    }

    /// Hazard: after one emptied cache everything goes to the host.
    #[test]
    fn each_request_is_a_first_attempt_where_the_emptied_cache_sufficed() {
        let (mut pieces, start) = (Pieces::NEW, Instant::now());
        for number in 0..10 {
            let now = start + number * TOGETHER / 100;
            assert_eq!(pieces.answer(FIRST, now), OomAnswer::FailOnce);
            pieces.0.mapped(now);
        }
    }

    #[test]
    fn where_emptied_caches_do_not_suffice_they_are_left_alone_for_a_while() {
        let (mut pieces, start) = (Pieces::NEW, Instant::now());
        assert_eq!(pieces.answer(FIRST, start), OomAnswer::FailOnce);
        assert_eq!(pieces.answer(SECOND, start), OomAnswer::Spill);
        for number in 0..5 {
            assert_eq!(pieces.answer(FIRST, start + number * TOGETHER / 5), OomAnswer::Spill);
        }
        assert_eq!(pieces.answer(FIRST, start + TOGETHER), OomAnswer::FailOnce);
    }

    /// Hazard (latency): in each step PyTorch gives up its cache and makes it again.
    #[test]
    fn where_emptied_caches_never_suffice_they_are_left_alone_for_longer_each_time() {
        let (mut pieces, start) = (Pieces::NEW, Instant::now());
        let mut emptied = |seconds: u64| {
            let now = start + Duration::from_secs(seconds);
            let is_first = pieces.answer(FIRST, now) == OomAnswer::FailOnce;
            pieces.answer(SECOND, now);
            is_first
        };
        assert_eq!((0..17).filter(|second| emptied(*second)).count(), 17, "one a second");
        assert_eq!((17..210).filter(|second| emptied(*second)).count(), 4, "after 4, 16, 64 and 64 s");
        assert_eq!((600..617).filter(|second| emptied(*second)).count(), 17, "as at first");
    }

    /// Hazard (latency): memory that PyTorch caches, and that nothing uses, is copied to the host.
    #[test]
    fn while_memory_moves_a_cache_is_emptied_each_time_if_that_brought_memory() {
        let (mut pieces, now) = (Pieces::NEW, Instant::now());
        for _ in 0..5 {
            assert_eq!(pieces.answer_beside_moves(FIRST, now), OomAnswer::FailOnce);
            pieces.0.mapped(now);
            assert_eq!(pieces.answer_beside_moves(SECOND, now), OomAnswer::Spill);
        }
        assert_eq!(pieces.answer_beside_moves(FIRST, now), OomAnswer::FailOnce);
        assert_eq!(pieces.answer_beside_moves(SECOND, now), OomAnswer::Spill, "nothing was mapped");
        assert_eq!(pieces.answer_beside_moves(FIRST, now), OomAnswer::Spill, "it brought nothing");
        assert_eq!(pieces.answer_beside_moves(FIRST, now + TOGETHER), OomAnswer::FailOnce);
    }

    /// Hazard (out of memory): a second attempt that comes by an unknown path is taken for a first
    /// one, and PyTorch gives up.
    #[test]
    fn an_unknown_path_is_not_refused_in_doubt() {
        let (mut pieces, start) = (Pieces::NEW, Instant::now());
        assert_eq!(pieces.answer(FIRST, start), OomAnswer::FailOnce);
        // A part of the second attempt was met and mapped.
        pieces.0.mapped(start);
        assert_eq!(pieces.answer(SECOND, start + MAPPING / 2), OomAnswer::Spill);
        assert_eq!(pieces.answer(OTHER, start + 9 * MAPPING), OomAnswer::FailOnce, "a first attempt");
    }

    #[test]
    fn where_both_attempts_come_by_one_path_it_is_refused_once() {
        let (mut pieces, start) = (Pieces::NEW, Instant::now());
        assert_eq!(pieces.answer(FIRST, start), OomAnswer::FailOnce);
        for number in 0..5 {
            assert_eq!(pieces.answer(FIRST, start + 9 * number * TOGETHER), OomAnswer::Spill);
        }
    }
}
