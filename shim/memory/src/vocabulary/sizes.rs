//! The sizes of blocks, handles and extents, each with its reason. Thresholds that belong to one
//! policy stand beside it (`policy/tiers`, `policy/keep.rs`).
//!
//! All sizes are bytes. A *class* keeps small blocks away from large ones: one small block that
//! lives long would pin a whole handle that a large request could otherwise be stitched from.

/// Blocks are multiples of this, and so are their addresses: the alignment that the driver's own
/// allocations have.
pub(crate) const UNIT: u64 = 512;

/// Requests below this are small. PyTorch draws the same line, so most programs fall clearly on one
/// side of it.
pub(crate) const SMALL_BELOW: u64 = 1 << 20;

/// Small requests below this are packed apart from the larger ones, which are most of the bytes:
/// between those they would split the free memory into ranges that only they can use.
pub(crate) const TINY_BELOW: u64 = 64 << 10;

/// Requests below this get an extent made for several of them: a block of 1.1 MiB alone in a 2 MiB
/// handle would waste nearly half of it.
pub(crate) const MEDIUM_BELOW: u64 = 16 << 20;

/// The extent that medium requests share, where the device has room for it.
pub(crate) const MEDIUM_EXTENT: u64 = 32 << 20;

/// New handles are at most this part of the memory that the device has left, rounded to the
/// driver's granularity, which is also the least size. Mapping one costs about 20 us at any size,
/// and it is mapped again in each extent that it is stitched into; but the bytes that a block
/// leaves of its last handle are lost to large requests, which must not be missed near the end.
const LEAST_PART: u64 = 1536;
const LEAST_MAX: u64 = 8 << 20;

/// Extents up to this size are made of least handles, larger ones of handles that are larger in
/// proportion.
const LEAST_UP_TO: u64 = 128 << 20;

/// Beyond this size a larger handle saves nothing measurable (1 GiB in 64 MiB handles: under 0.8 ms
/// in all), and it would be the harder to find it wholly free again.
const HANDLE_MAX: u64 = 64 << 20;

/// Freed blocks of this size and more are not cached whole. Which of them lies where would depend
/// on the order in which the cache gave them out, and a program that repeats itself would have to
/// be stitched for anew, at milliseconds a time; 3 µs of bookkeeping are little beside the work on
/// so large a block.
pub(crate) const CACHED_BELOW: u64 = 32 << 20;

/// Free runs that are long enough and that a best-fit search looks at: their bytes may not be
/// ready.
pub(crate) const CANDIDATES: usize = 64;

/// Mappings that the search for a reusable extent looks at. Bounds the time under the lock to about
/// 100 µs.
pub(crate) const WINDOW_VISITS: usize = 4096;

/// Little is left of the device where idle handles and the handles that may still be made are less
/// than this part of the memory held.
pub(crate) const PRESSED_PART: u64 = 16;

/// Requests that, after one found the device full, look at other tiers before they ask the driver
/// again.
pub(crate) const SCARCE_FOR: u32 = 64;

/// A stitch of free handles goes before a free run of an overflow tier when the device's part of it
/// is at least one in this many: a millisecond of mapping is soon repaid where the alternative is
/// read at link speed.
pub(crate) const DEVICE_PART: u64 = 8;

/// A program whose live memory falls below one in this many of the bytes held has come to the end
/// of a period.
pub(crate) const FALLEN: u64 = 8;

/// Late memory is at most one in this many of the bytes held: see `growth`. A recorded program
/// (Llama generate, handles of 2 MiB and more) needed 0.3 % more in its second period than in its
/// first.
pub(crate) const LATE_PART: u64 = 16;

/// Where several streams use the memory, a free of this size and more gets an event of its own:
/// another stream may be ordered behind it then. Where one stream does, no request needs it.
pub(crate) const RECORDED: u64 = 1 << 20;

/// Fences that an order may have outstanding.
pub(crate) const FENCES: usize = 16;

/// Streams whose progress a request without ready memory queries, at 0.1 to 0.3 us each, before it
/// gets new memory.
pub(crate) const QUERIES: usize = 4;

/// Fences of streams that have ended and of threads' own ones that are asked, at 0.1 to 0.3 us
/// each, where another one joins them. More than one, so that they become fewer once the GPU has
/// caught up, and some beside those of streams that stand still.
pub(crate) const POLLED: usize = 4;

/// Segments of a free run, which differ in the points that they wait for.
pub(crate) const SEGMENTS: usize = 8;

/// Views of freed guarded blocks that may stay before events are queried to unmap them.
pub(crate) const GUARDED_VIEWS: usize = 64;

/// Size classes: blocks of one class share extents. A request without a class gets an extent of its
/// own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Class {
    /// As small ones, and apart from them.
    Tiny,
    /// Packed into extents of one handle each.
    Small,
    /// Everything else.
    Large,
}

impl Class {
    /// In the order in which a full device is searched.
    pub(crate) const ALL: [Self; 3] = [Self::Small, Self::Tiny, Self::Large];

    pub(crate) fn of(bytes: u64) -> Self {
        match bytes {
            _ if bytes < TINY_BELOW => Self::Tiny,
            _ if bytes < SMALL_BELOW => Self::Small,
            _ => Self::Large,
        }
    }
}

/// Memory of fewer bytes is small: PyTorch has its small tensors in pieces of 2 MiB.
pub(crate) const SMALL_MEMORY: u64 = 4 << 20;

/// The part of a device's limit that large memory leaves to small memory: at most one in so many,
/// and [`SMALL_ROOM`].
const SMALL_LIMIT_PART: u64 = 64;

/// The same of the headroom, which small memory may use.
const SMALL_HEADROOM_PART: u64 = 8;

/// The same of both in bytes.
const SMALL_ROOM: u64 = 256 << 20;

/// The bytes of a device's limit that large memory leaves to small memory.
pub(crate) fn small_room_in_limit(limit: u64, granularity: u64) -> u64 {
    round_down(SMALL_ROOM.min(limit / SMALL_LIMIT_PART), granularity)
}

/// The bytes of the headroom that are kept from small memory, too.
pub(crate) fn headroom_for_small(headroom: u64, granularity: u64) -> u64 {
    headroom - round_down(SMALL_ROOM.min(headroom / SMALL_HEADROOM_PART), granularity)
}

/// `bytes` rounded up to a multiple of `unit`, a power of two; `None` on overflow.
pub(crate) fn round_up(bytes: u64, unit: u64) -> Option<u64> {
    Some(bytes.checked_add(unit - 1)? & !(unit - 1))
}

/// `bytes` rounded down to a multiple of `unit`, a power of two.
pub(crate) fn round_down(bytes: u64, unit: u64) -> u64 {
    bytes & !(unit - 1)
}

/// The least size of new handles on a device with `left` bytes more to be had.
pub(crate) fn least_handle(left: u64, granularity: u64) -> u64 {
    let part = (left / LEAST_PART).clamp(granularity, LEAST_MAX.max(granularity));
    granularity << (part / granularity).ilog2()
}

/// Size of the handles that an extent of `extent` bytes is made from, a power of two times `least`.
pub(crate) fn handle_bytes(extent: u64, least: u64) -> u64 {
    let times = 1 << (extent / LEAST_UP_TO).max(1).ilog2();
    least.saturating_mul(times).min(HANDLE_MAX.max(least))
}

/// Sizes of the handles that make up `bytes` new bytes: equal ones, the last trimmed.
pub(crate) fn handles_for(bytes: u64, each: u64) -> impl Iterator<Item = u64> {
    (0..bytes).step_by(each as usize).map(move |offset| each.min(bytes - offset))
}

/// A block that may move is made of at least so many handles: part of it can leave.
const MOVABLE_PARTS: u64 = 4;

/// Size of most handles of such a block of `whole` bytes.
pub(crate) fn movable_handle(whole: u64, granularity: u64) -> u64 {
    let part = (whole / MOVABLE_PARTS).max(1);
    (1 << part.ilog2()).clamp(granularity, HANDLE_MAX.max(granularity))
}

/// The same for an extent of `whole` bytes whose blocks may move: sizes are powers of two, and the
/// rest at the end is made of ever smaller ones. Sizes are large, since mapping memory of the host
/// takes 50 us in addition to the time that grows with the size.
pub(crate) fn movable_handles(bytes: u64, whole: u64, granularity: u64) -> impl Iterator<Item = u64> {
    let (mut each, mut left) = (movable_handle(whole, granularity), bytes);
    std::iter::from_fn(move || {
        while each > left && each > granularity {
            each /= 2;
        }
        left = left.checked_sub(each).filter(|_| left > 0)?;
        Some(each)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn sizes(least: u64) -> [u64; 8] {
        [2, 64, 127, 128, 256, 1024, 4096, 65536].map(|mib| handle_bytes(mib * MIB, least * MIB) / MIB)
    }

    #[test]
    fn handles_grow_with_the_extent_and_stay_a_small_part_of_it() {
        assert_eq!(sizes(2), [2, 2, 2, 2, 4, 16, 64, 64]);
        assert_eq!(sizes(8), [8, 8, 8, 8, 16, 64, 64, 64]);
    }

    #[test]
    fn handles_cover_exactly_what_was_asked() {
        let handles: Vec<u64> = handles_for(70 * MIB, handle_bytes(1024 * MIB, 2 * MIB)).collect();
        assert_eq!(handles, [16 * MIB, 16 * MIB, 16 * MIB, 16 * MIB, 6 * MIB]);
        assert_eq!(handles_for(2 * MIB, handle_bytes(2 * MIB, 8 * MIB)).collect::<Vec<_>>(), [2 * MIB]);
    }

    #[test]
    fn handles_of_what_may_move_have_few_sizes() {
        let mib = |bytes, whole| -> Vec<u64> {
            movable_handles(bytes * MIB, whole * MIB, 2 * MIB).map(|bytes| bytes / MIB).collect()
        };
        assert_eq!(mib(136, 136), [32, 32, 32, 32, 8]);
        assert_eq!(mib(70, 136), [32, 32, 4, 2], "a part of it");
        assert_eq!(mib(22, 22), [4, 4, 4, 4, 4, 2]);
        assert_eq!(mib(300, 4096), [64, 64, 64, 64, 32, 8, 4]);
        assert_eq!((mib(2, 2), mib(0, 64)), (vec![2], vec![]));
    }

    #[test]
    fn the_less_a_device_has_left_the_smaller_are_its_handles() {
        let left = [0, 1, 5, 6, 11, 12, 139].map(|gib| least_handle(gib << 30, 2 * MIB) / MIB);
        assert_eq!(left, [2, 2, 2, 4, 4, 8, 8]);
    }

    #[test]
    fn rounding_refuses_what_does_not_fit_an_address() {
        assert_eq!(round_up(1, UNIT), Some(512));
        assert_eq!(round_up(u64::MAX, UNIT), None);
    }
}
