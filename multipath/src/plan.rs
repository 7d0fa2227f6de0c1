//! The paths of a copy, and how it is split. Pure: the same question gets the same answer.
//!
//! An asynchronous copy is split before it starts, by the rates that its paths were measured to
//! have together: the caller enqueues and returns, so it cannot see which path is faster. All paths
//! shall end at once. A relay starts later than the direct path ([`Costs`]), so its share is the
//! number of bytes that it carries in the rest of the copy's time. Relays' shares lie at the end of
//! the range and are rounded down: the direct path, which depends on no relay, carries the
//! remainder.
//!
//! Invariants: the direct share and the relays' shares partition the range; no chunk is larger than
//! a staging slot; below the threshold, or without a relay that pays, the plan is the plain copy.

use wm_abi::CUdevice;

use crate::vocabulary::chunk::Chunk;
use crate::vocabulary::copy::LinkDirection;
use crate::vocabulary::path::{Costs, Path};
use crate::vocabulary::sizes::{EDGE, GRAIN, LANES, SLOT, SMALLEST_CHUNK};

/// One relay's part of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayShare {
    /// The relay.
    pub relay: CUdevice,
    /// Its part.
    pub part: Chunk,
}

/// A copy that is split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// The direct path's part: the head of the range.
    pub direct: Chunk,
    /// The relays' parts, in the order of their offsets.
    pub shares: Vec<RelayShare>,
}

impl Split {
    /// The same for pipelines through these relays: several pipelines through one relay divide its
    /// part.
    pub fn over(&self, lanes: &[CUdevice]) -> Self {
        let divided = |share: &RelayShare| {
            let count = lanes.iter().filter(|relay| **relay == share.relay).count().max(1);
            let each = (share.part.bytes / count).next_multiple_of(GRAIN);
            let (relay, end) = (share.relay, share.part.end());
            let part = move |offset| Chunk { offset, bytes: each.min(end - offset) };
            (share.part.offset..end)
                .step_by(each.max(1))
                .map(move |offset| RelayShare { relay, part: part(offset) })
        };
        Self { direct: self.direct, shares: self.shares.iter().flat_map(divided).collect() }
    }
}

/// The plan for a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyPlan {
    /// The plain copy.
    Direct,
    /// Several paths.
    Split(Split),
}

/// Splits a copy of `bytes` for `paths`, the first of which is the direct one.
pub fn split(bytes: usize, threshold: usize, paths: &[Path], costs: &Costs) -> CopyPlan {
    let Some((direct, relays)) = paths.split_first() else { return CopyPlan::Direct };
    if bytes < threshold || direct.rate <= 0.0 {
        return CopyPlan::Direct;
    }
    let wanted = wanted(bytes, direct, relays, costs);
    let shares = shares(bytes, relays, &wanted);
    let head = shares.first().map_or(bytes, |share| share.part.offset);
    if head == bytes {
        return CopyPlan::Direct;
    }
    CopyPlan::Split(Split { direct: Chunk { offset: 0, bytes: head }, shares })
}

/// Bytes of each relay, so that all end at once. Relays with too few bytes are left out, the last
/// one first.
fn wanted(bytes: usize, direct: &Path, relays: &[Path], costs: &Costs) -> Vec<usize> {
    let late = |index: usize| costs.lag + index as f64 * costs.step;
    let lost: f64 = relays.iter().enumerate().map(|(index, relay)| relay.rate * late(index)).sum();
    let rate: f64 = direct.rate + relays.iter().map(|relay| relay.rate).sum::<f64>();
    let time = (bytes as f64 + lost) / rate;
    let share = |(index, relay): (usize, &Path)| (relay.rate * (time - late(index))).max(0.0) as usize;
    let wanted: Vec<usize> =
        relays.iter().enumerate().map(share).map(|bytes| bytes / GRAIN * GRAIN).collect();
    match relays.split_last() {
        Some((_, fewer)) if wanted.iter().any(|bytes| *bytes < SMALLEST_CHUNK) => {
            self::wanted(bytes, direct, fewer, costs)
        }
        _ => wanted,
    }
}

/// Relays' parts, the last relay's at the end of the range.
fn shares(bytes: usize, relays: &[Path], wanted: &[usize]) -> Vec<RelayShare> {
    let mut end = bytes;
    let part = |(relay, wanted): (&Path, &usize)| {
        let bytes = *wanted.min(&end);
        end -= bytes;
        RelayShare { relay: relay.device, part: Chunk { offset: end, bytes } }
    };
    let mut shares: Vec<_> = relays.iter().zip(wanted).rev().map(part).collect();
    shares.reverse();
    shares
}

/// The chunks of a relay's part, in order: as few as `largest` and slots allow, since each takes
/// six driver calls, and a short one where nothing overlaps its second hop.
pub fn chunks(part: Chunk, direction: LinkDirection, largest: usize) -> impl Iterator<Item = Chunk> {
    let edge = if part.bytes > 2 * EDGE { EDGE } else { 0 };
    let bulk = part.bytes - edge;
    let largest = largest.clamp(GRAIN, SLOT);
    let each = bulk.div_ceil(bulk.div_ceil(largest).max(1)).next_multiple_of(GRAIN).max(GRAIN);
    let start = part.offset + if direction == LinkDirection::Out { edge } else { 0 };
    let (head, end) = (Chunk { offset: part.offset, bytes: start - part.offset }, start + bulk);
    let tail = Chunk { offset: end, bytes: part.end() - end };
    let step = move |offset| Chunk { offset, bytes: each.min(end - offset) };
    let bulk = (start..end).step_by(each).map(step);
    std::iter::once(head).chain(bulk).chain([tail]).filter(|chunk| chunk.bytes > 0)
}

/// The size in bytes from which several paths beat one: the time that they save exceeds the cost of
/// setting them up.
///
/// `fixed` is that cost in seconds, as calibration measured it. The margin of two keeps a copy at
/// the threshold from losing on a busy machine.
pub fn threshold(direct: f64, together: f64, fixed: f64) -> usize {
    const MARGIN: f64 = 2.0;
    let saved_per_byte = 1.0 / direct - 1.0 / together;
    if saved_per_byte.is_nan() || saved_per_byte <= 0.0 {
        return usize::MAX;
    }
    ((MARGIN * fixed / saved_per_byte) as usize).max(LEAST_SPLIT)
}

/// No smaller copy is ever split, bytes.
pub const LEAST_SPLIT: usize = 4 << 20;

/// Workers of a pageable copy for each path: `threads` in all, shared by rate. The direct path gets
/// the first.
///
/// One thread moves some 5 to 10 GB/s. A path gets as many workers as reach its rate, within
/// [`LANES`] for a relay.
pub fn fillers(threads: usize, paths: &[Path]) -> Vec<usize> {
    const BYTES_PER_SECOND: f64 = 6e9;
    const MOST: usize = 10;
    let mut left = threads.max(1);
    let wanted = |index: usize, path: &Path| {
        let most = if index == 0 { MOST } else { LANES };
        ((path.rate / BYTES_PER_SECOND).ceil() as usize).clamp(1, most)
    };
    let take = |(index, path): (usize, &Path)| {
        let count = wanted(index, path).min(left);
        left -= count;
        count
    };
    paths.iter().enumerate().map(take).collect()
}
