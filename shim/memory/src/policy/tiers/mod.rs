//! Which parts of which blocks lie on the device where not all of them fit: our policy, as a plain
//! value.
//!
//! It is told of allocations, launches, frees and quiescent points, and answers with moves; it
//! makes none itself, and knows no driver. [`TierPlacer`] is the whole of it; `bench tiers`
//! compares it with others.
//!
//! | module | one idea |
//! |---|---|
//! | [`residency`] | the bytes of each block on the device, in chunks |
//! | [`repetition`] | a program that repeats itself: its place one period ago, and so its next events |
//! | [`horizon`] | the next events, turned into the blocks that have to leave and to come |
//! | [`stop_list`] | the blocks that move one way at a stop |
//! | [`order`] | which block leaves first |
//! | [`arrangement`] | blocks that change places once, by how often they are used |
//! | [`groups`] | blocks that launches use as one |
//! | [`keys`] | the names of live blocks, as small numbers |
//! | [`placer`] | all of them together |
//!
//! Words: *leave* and *come* are moves from the device to the host and back. A move is made at a
//! stop, where nothing is in flight: at the host's own waits, or at one that the mover makes.
//!
//! Invariants: the device never holds more than its capacity; a block that was freed is never
//! moved.

mod arrangement;
mod groups;
mod horizon;
mod keys;
mod order;
mod placer;
mod repetition;
mod residency;
mod stop_list;

pub use placer::{Placement, TierPlacer, TierSettings};
pub use residency::{CHUNK, TierMove, chunks_below};
