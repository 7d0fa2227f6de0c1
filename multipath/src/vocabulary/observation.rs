//! The times of a split copy: a timer of `transfer` measures them, and `topology` learns from them.

use wm_abi::CUdevice;

use crate::vocabulary::copy::LinkDirection;

/// The times of a copy. Seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// The device that the copy went to or came from.
    pub target: CUdevice,
    /// The direction.
    pub direction: LinkDirection,
    /// Time of the direct share.
    pub direct: f64,
    /// How much later the relays' shares ended.
    pub late: f64,
}
