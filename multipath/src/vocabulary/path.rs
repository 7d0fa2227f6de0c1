//! A path that part of a copy can take, and the cost of several paths.

use serde::{Deserialize, Serialize};
use wm_abi::CUdevice;

/// A link that takes part in a copy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Path {
    /// The device whose PCIe link it is.
    pub device: CUdevice,
    /// Its expected rate beside the other paths.
    pub rate: f64,
}

/// The cost of a split, in seconds, as calibration measured it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// The time of the smallest chunk through a relay, from an idle stream until the host sees its
    /// end.
    pub fixed: f64,
    /// How much later than on the direct path the same bytes arrive through a relay.
    pub lag: f64,
    /// The caller's time to start one relay more.
    pub step: f64,
    /// Time to open a context.
    pub open: f64,
}
