//! How a copy that was cut up went: what a timer of `transfer` sees, and `topology` learns from.

use wm_abi::CUdevice;

use crate::vocabulary::copy::LinkDirection;

/// How a copy went. Seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observation {
    /// Where it went to or came from.
    pub target: CUdevice,
    /// Which way.
    pub direction: LinkDirection,
    /// Time of the direct share.
    pub direct: f64,
    /// How much later the relays' shares ended.
    pub late: f64,
}
