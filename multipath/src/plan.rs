//! Which paths a copy takes and how it is cut. Pure: the same question gets the same answer.
//!
//! An asynchronous copy is cut before it starts, by the rates that its paths were measured to have together: whoever
//! enqueues and returns cannot look who is faster. Relays' shares lie at the end of the range and are rounded down to
//! whole pieces, so what estimates get wrong falls to the direct path, which needs no help to finish.
//!
//! Invariants: the direct share and the relays' shares partition the range; no piece is larger than a staging slot;
//! below the threshold, or without a relay that pays, the plan is the plain copy.

use wm_abi::CUdevice;

use crate::topology::Path;
use crate::work::Piece;

/// Which way a copy goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Host to device.
    In,
    /// Device to host.
    Out,
}

/// What the host end of a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostMemory {
    /// Page-locked: the devices reach it by themselves.
    Pinned,
    /// Ordinary memory: it passes through pinned buffers of ours.
    Pageable,
}

/// Size of a staging slot, bytes: the largest piece.
pub const SLOT: usize = 8 << 20;
/// Slots of a pipeline: one fills while the other drains.
pub const SLOTS: usize = 2;
/// Pipelines through one relay at most: 64 MiB of staging.
pub const LANES: usize = 4;
/// Smallest piece that is worth the six driver calls it takes, bytes.
pub const SMALLEST_PIECE: usize = 1 << 20;
/// Pieces a relay should get at least: with fewer, filling the pipeline costs more than it brings.
const PIECES: usize = 4;
/// Piece of a pageable copy, bytes: as much as stays in a core's cache between two passes.
pub const BOUNCE: usize = 2 << 20;

/// One relay's part of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// The relay.
    pub relay: CUdevice,
    /// Its part.
    pub part: Piece,
}

/// A copy, cut up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// The direct path's part: the head of the range.
    pub direct: Piece,
    /// The relays' parts, in the order of their offsets.
    pub shares: Vec<Share>,
    /// Largest piece of a relay's part.
    pub piece: usize,
}

/// What is done with a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// The plain copy.
    Direct,
    /// Several paths.
    Split(Split),
}

/// Cuts a copy of `bytes` for `paths`, the first of which is the direct one.
pub fn split(bytes: usize, threshold: usize, paths: &[Path]) -> Plan {
    let Some((direct, relays)) = paths.split_first() else { return Plan::Direct };
    if bytes < threshold || relays.is_empty() || direct.rate <= 0.0 {
        return Plan::Direct;
    }
    let piece = piece(bytes, paths.len());
    let shares = shares(bytes, piece, paths, relays);
    let head = shares.first().map_or(bytes, |share| share.part.offset);
    if head == bytes {
        return Plan::Direct;
    }
    Plan::Split(Split { direct: Piece { offset: 0, bytes: head }, shares, piece })
}

/// Large enough to cost few calls, small enough that every path gets several.
fn piece(bytes: usize, paths: usize) -> usize {
    let wanted = bytes / (paths * PIECES);
    wanted.clamp(SMALLEST_PIECE, SLOT).next_power_of_two().min(SLOT)
}

/// Relays' parts, the last relay's at the end of the range.
fn shares(bytes: usize, piece: usize, paths: &[Path], relays: &[Path]) -> Vec<Share> {
    let total: f64 = paths.iter().map(|path| path.rate).sum();
    let mut end = bytes;
    let mut shares = Vec::with_capacity(relays.len());
    for path in relays.iter().rev() {
        let wanted = (bytes as f64 * path.rate / total) as usize / piece * piece;
        let part = wanted.min(end);
        if part > 0 {
            end -= part;
            shares.push(Share { relay: path.device, part: Piece { offset: end, bytes: part } });
        }
    }
    shares.reverse();
    shares
}

/// The pieces of a part, in order.
pub fn pieces(part: Piece, largest: usize) -> impl Iterator<Item = Piece> {
    let largest = largest.max(1);
    (part.offset..part.end())
        .step_by(largest)
        .map(move |offset| Piece { offset, bytes: largest.min(part.end() - offset) })
}

/// From how many bytes on several paths beat one: where the time they save exceeds what setting them up costs.
///
/// `fixed` is that cost in seconds, as calibration measured it. The margin of two keeps a copy at the threshold from
/// losing on a busy machine.
pub fn threshold(direct: f64, together: f64, fixed: f64) -> usize {
    const MARGIN: f64 = 2.0;
    let saved_per_byte = 1.0 / direct - 1.0 / together;
    if saved_per_byte.is_nan() || saved_per_byte <= 0.0 {
        return usize::MAX;
    }
    ((MARGIN * fixed / saved_per_byte) as usize).max(LEAST)
}

/// No copy below this is ever cut, bytes.
pub const LEAST: usize = 4 << 20;

/// Threads of a pageable copy for each path: `cores` of the machine, shared by rate. The direct path gets the first.
///
/// One thread moves some 5 to 10 GB/s; a path is fed by as many as make up its rate, within [`LANES`] for a relay.
pub fn fillers(cores: usize, paths: &[Path]) -> Vec<usize> {
    const BYTES_PER_SECOND: f64 = 6e9;
    const MOST: usize = 10;
    let mut left = cores.saturating_sub(1).max(1);
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
