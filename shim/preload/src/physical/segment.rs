//! A request of PyTorch's that has no room in an expandable segment is refused, however much memory
//! there is.
//!
//! A segment has addresses for 1.125 times the device's memory. A request goes to a segment that
//! has addresses for it, else to a new one, whose end PyTorch does not check: when all of it is
//! filled and the request is not met, PyTorch goes on behind the last block, through a null
//! pointer. Bare that cannot be, for the device is full before. How much is requested is in no
//! call, but what the request does is: it reserves a segment, makes all of its pieces, and then
//! maps them; refused, it comes once more, to that segment if it has room there, else to another
//! one that it reserves.
//!
//! * The piece that would fill a new segment is refused, if no piece of the request was refused
//!   before.
//! * A request that comes again to the segment has room there, so it may fill it.
//! * One that reserves another segment instead fits into none, and gets no piece. Should it be
//!   another request after all, it comes again to the segment that it has then.
//!
//! Invariant: with nothing reserved that is not mapped yet, nothing is refused here. A segment is
//! made, filled and mapped by one thread.

use std::cell::Cell;
use std::sync::Once;

use wm_abi::CUresult;

use crate::process::{callers, streams};

/// A segment in which nothing is mapped yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NewSegment {
    bytes: u64,
    /// The pieces of it that were made since the request began.
    made: u64,
    /// The request was refused a piece, and comes again.
    refused: bool,
    /// No segment has room for the request.
    too_small: bool,
}

impl NewSegment {
    /// `before` is the thread's last segment, if nothing was mapped there.
    fn reserved(bytes: u64, before: Option<Self>) -> Self {
        let too_small = before.is_some_and(|before| before.refused && before.bytes == bytes);
        Self { bytes, made: 0, refused: false, too_small }
    }

    /// May the request turn out to be larger than the segment, once it has this piece?
    fn is_filled_by(&self, piece: u64) -> bool {
        self.too_small || (!self.refused && self.made.saturating_add(piece) >= self.bytes)
    }

    fn made(self, piece: u64) -> Self {
        Self { made: self.made.saturating_add(piece), ..self }
    }

    /// A piece was refused, here or by the driver. `None`: the request does not come again.
    fn refused(self) -> Option<Self> {
        let is_last = self.refused || self.too_small;
        (!is_last).then_some(Self { made: 0, refused: true, ..self })
    }
}

thread_local! {
    static NEW: Cell<Option<NewSegment>> = const { Cell::new(None) };
}

/// The program has reserved addresses.
pub(crate) fn reserved(bytes: u64) {
    if callers::is_torch_itself() {
        NEW.set(Some(NewSegment::reserved(bytes, NEW.get())));
    }
}

/// The program has mapped something, or given addresses back.
#[inline]
pub(crate) fn changed() {
    NEW.set(None);
}

/// Is the piece that is asked for to be refused?
pub(crate) fn refuses(piece: u64) -> bool {
    let refuses = NEW.get().is_some_and(|segment| segment.is_filled_by(piece)) && callers::is_torch_itself();
    if refuses {
        explain();
    }
    refuses
}

/// What the program was answered for a piece. Is it a refusal after which the same request comes
/// again?
#[inline]
pub(crate) fn answered(piece: u64, code: CUresult) -> bool {
    let Some(segment) = NEW.get() else { return false };
    let now = match code {
        CUresult::SUCCESS => Some(segment.made(piece)),
        // While something is captured PyTorch does not come again.
        CUresult::OUT_OF_MEMORY if !streams().capturing() => segment.refused(),
        CUresult::OUT_OF_MEMORY => None,
        // PyTorch asks for another kind of handle.
        _ => Some(segment),
    };
    NEW.set(now);
    code == CUresult::OUT_OF_MEMORY && now.is_some()
}

#[cold]
fn explain() {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        log::warn!(
            "a tensor of more than 1.125 times the device's memory has no room in PyTorch's expandable segments: \
             WMSHIM_TORCH_ALLOCATOR=native lets it go on in host memory"
        );
    });
}

#[cfg(test)]
mod tests {
    //! Hazard: PyTorch goes on behind a segment's end, or is refused what has room there.
    use super::*;

    const SEGMENT: u64 = 5;

    /// How many pieces a request of `size` pieces gets at each of its attempts, if `held` can be
    /// had at all, and whether it then goes on behind the end. It is PyTorch's way: at most what
    /// the segment has is asked for.
    fn attempts(size: u64, held: u64, mut last: Option<NewSegment>) -> (Vec<u64>, Option<NewSegment>) {
        let mut gotten = Vec::new();
        for attempt in 0..2 {
            if attempt == 0 || size > SEGMENT {
                last = Some(NewSegment::reserved(SEGMENT, last));
            }
            let wanted = size.min(SEGMENT);
            let got = (0..wanted)
                .take_while(|made| {
                    let refused = *made >= held || last.is_some_and(|segment| segment.is_filled_by(1));
                    last = last
                        .and_then(|segment| if refused { segment.refused() } else { Some(segment.made(1)) });
                    !refused
                })
                .count() as u64;
            gotten.push(got);
            if got == wanted {
                assert!(size <= SEGMENT, "goes on behind the end");
                return (gotten, None);
            }
        }
        (gotten, last)
    }

    #[test]
    fn what_has_room_is_had_and_nothing_goes_on_behind_the_end() {
        for size in 1..12 {
            for held in 0..12 {
                let (gotten, _) = attempts(size, held, None);
                let is_had = gotten.last() == Some(&size);
                assert_eq!(
                    is_had,
                    size <= held.min(SEGMENT),
                    "{size} pieces where {held} are had: {gotten:?}"
                );
            }
        }
    }

    #[test]
    fn a_request_that_comes_again_to_another_segment_gets_nothing() {
        assert_eq!(attempts(8, 3, None).0, [3, 0]);
        assert_eq!(attempts(8, 9, None).0, [4, 0]);
    }

    #[test]
    fn what_was_refused_before_bears_on_no_later_request() {
        for (size, held) in [(8, 3), (8, 9), (4, 3)] {
            let (_, left) = attempts(size, held, None);
            assert_eq!(attempts(4, 9, left).0, [4], "after {size} pieces where {held} are had");
        }
        // An attempt that was not made again, as where the program gave up between.
        let left = NewSegment::reserved(SEGMENT, None).refused();
        assert_eq!(attempts(4, 9, left).0, [0, 4]);
        assert_eq!(attempts(8, 9, left).0, [0, 4]);
    }
}
