//! Operations on rows by their numbers, and on graphs. Each operation is some launches in the
//! caller's stream. Within an island no rank waits for another, since each reaches all rows by
//! their addresses; the host waits once where the size of an output must be known.

pub(crate) mod across;
pub(crate) mod around;
pub mod array;
mod claims;
pub mod gathers;
pub mod lookups;
pub(crate) mod moves;
pub mod order;
mod repeats;
pub mod rows;
pub mod sample;
mod sample_across;
pub mod scan;
pub mod scratch;
pub mod self_loops;
pub mod sort;
pub mod test;
pub mod unique;
#[allow(unsafe_code, reason = "memory of the device is copied and filled")]
pub(crate) mod upload;
