//! Every size that decides a policy, with its reason. Nothing elsewhere in the crate has a number of its own.
//!
//! All sizes are bytes. A *class* keeps small blocks away from large ones: one small block that lives long would pin a
//! whole handle that a large request could otherwise be stitched from.

/// Blocks are multiples of this, and so are their addresses: the alignment that the driver's own allocations have.
pub(crate) const UNIT: u64 = 512;

/// Requests below this are small. PyTorch draws the same line, so most programs fall clearly on one side of it.
pub(crate) const SMALL_BELOW: u64 = 1 << 20;

/// Requests below this get an extent made for several of them: a block of 1.1 MiB alone in a 2 MiB handle would waste
/// nearly half of it.
pub(crate) const MEDIUM_BELOW: u64 = 16 << 20;

/// The extent that medium requests share, where the device has room for it.
pub(crate) const MEDIUM_EXTENT: u64 = 32 << 20;

/// A new fine handle is at most this part of the extent it is made for: what a block's end leaves unused in its last
/// handle stays below 2 % of the block.
const FINE_PART: u64 = 64;

/// The same for a coarse handle, and the size below which it does not go. Every mapping costs some 20 us, however large it is,
/// and a handle is mapped again wherever it is stitched in: coarse handles make a quarter of the calls.
const COARSE_PART: u64 = 16;
const COARSE_LEAST: u64 = 8 << 20;

/// Handles are coarse while the device has at least this much left, and this many times as much as is reserved: what they
/// waste is not missed then, and what is made of them is a small part of all by the time the device is full.
const PLENTY: u64 = 4 << 30;
const PLENTY_TIMES: u64 = 2;

/// Beyond this size a larger handle saves nothing measurable (1 GiB in 64 MiB handles: under 0.8 ms in all), and it
/// would be the harder to find it wholly free again.
const HANDLE_MAX: u64 = 64 << 20;

/// Freed blocks of this size and more are not cached whole. Which of them lies where would depend on the order in which
/// the cache gave them out, and a program that repeats itself would have to be stitched for anew, at milliseconds a time; 3 µs
/// of bookkeeping are little beside the work on so large a block.
pub(crate) const CACHED_BELOW: u64 = 32 << 20;

/// Free runs that a best-fit search looks at before it takes the first that needs an event.
pub(crate) const CANDIDATES: usize = 64;

/// Mappings that the search for a reusable extent looks at. Bounds the time under the lock to about 100 µs.
pub(crate) const WINDOW_VISITS: usize = 4096;

/// Requests that, after one found the device full, look at other tiers before they ask the driver again.
pub(crate) const SCARCE_FOR: u32 = 64;

/// A stitch of free handles goes before a free run of an overflow tier when the device's part of it is at least one
/// in this many: a millisecond of mapping is soon repaid where the alternative is read at link speed.
pub(crate) const DEVICE_PART: u64 = 8;

/// Device memory that a program may leave unused, waiting for the device, before an allocation without a stream waits too.
pub(crate) const UNUSED: u64 = 1 << 30;

/// Fences that may be outstanding before a miss asks the driver about the oldest ones.
pub(crate) const FENCES: usize = 32;

/// How many of them it asks about.
pub(crate) const SWEEP: usize = 8;

/// Views that guarded blocks have left and that may stay before the GPU is asked whether it is done with them.
pub(crate) const GUARDED_VIEWS: usize = 64;

/// What a request is packed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Class {
    /// Packed into extents of one handle each.
    Small,
    /// Everything else.
    Large,
    /// Alone in an extent, at its end, with nothing mapped behind it: see `guard`.
    Guarded,
}

impl Class {
    pub(crate) fn of(bytes: u64) -> Self {
        if bytes < SMALL_BELOW { Self::Small } else { Self::Large }
    }
}

/// `bytes` rounded up to a multiple of `unit`, a power of two; `None` on overflow.
pub(crate) fn round_up(bytes: u64, unit: u64) -> Option<u64> {
    Some(bytes.checked_add(unit - 1)? & !(unit - 1))
}

/// `bytes` rounded down to a multiple of `unit`, a power of two.
pub(crate) fn round_down(bytes: u64, unit: u64) -> u64 {
    bytes & !(unit - 1)
}

/// How large new handles are: to save calls, or to save memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grain {
    Coarse,
    Fine,
}

impl Grain {
    /// For a device with `left` bytes more to be had beside the `reserved` ones.
    pub(crate) fn of(left: u64, reserved: u64) -> Self {
        let plenty = reserved.saturating_mul(PLENTY_TIMES).max(PLENTY);
        if left >= plenty { Self::Coarse } else { Self::Fine }
    }

    fn part_and_least(self) -> (u64, u64) {
        match self {
            Self::Coarse => (COARSE_PART, COARSE_LEAST),
            Self::Fine => (FINE_PART, 0),
        }
    }

    /// Size of the handles that an extent of `extent` bytes is made from: few and large where the request is large, the
    /// driver's granularity where a fine one must be split.
    pub(crate) fn handle_bytes(self, extent: u64, granularity: u64) -> u64 {
        let (part, least) = self.part_and_least();
        let least = least.max(granularity);
        granularity << ((extent / part).clamp(least, HANDLE_MAX.max(least)) / granularity).ilog2()
    }

    /// The handles that make up `bytes` new bytes of an extent of `extent`: equal ones, the last trimmed.
    pub(crate) fn handles(self, bytes: u64, extent: u64, granularity: u64) -> impl Iterator<Item = u64> {
        let each = self.handle_bytes(extent, granularity);
        (0..bytes).step_by(each as usize).map(move |offset| each.min(bytes - offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn sizes(grain: Grain) -> [u64; 8] {
        [2, 64, 127, 128, 256, 1024, 4096, 65536].map(|mib| grain.handle_bytes(mib * MIB, 2 * MIB) / MIB)
    }

    #[test]
    fn handles_grow_with_the_extent_and_stay_a_small_part_of_it() {
        assert_eq!(sizes(Grain::Fine), [2, 2, 2, 2, 4, 16, 64, 64]);
        assert_eq!(sizes(Grain::Coarse), [8, 8, 8, 8, 16, 64, 64, 64]);
    }

    #[test]
    fn handles_cover_exactly_what_was_asked() {
        let handles: Vec<u64> = Grain::Fine.handles(70 * MIB, 1024 * MIB, 2 * MIB).collect();
        assert_eq!(handles, [16 * MIB, 16 * MIB, 16 * MIB, 16 * MIB, 6 * MIB]);
        assert_eq!(Grain::Coarse.handles(2 * MIB, 2 * MIB, 2 * MIB).collect::<Vec<_>>(), [2 * MIB]);
    }

    #[test]
    fn handles_are_coarse_until_a_third_of_a_large_device_is_used() {
        let first_fine = |gib: u64| {
            (0..=gib).find(|reserved| Grain::of((gib - reserved) << 30, reserved << 30) == Grain::Fine)
        };
        assert_eq!([3, 4, 6, 96].map(first_fine), [Some(0), Some(1), Some(3), Some(33)]);
    }

    #[test]
    fn rounding_refuses_what_does_not_fit_an_address() {
        assert_eq!(round_up(1, UNIT), Some(512));
        assert_eq!(round_up(u64::MAX, UNIT), None);
    }
}
