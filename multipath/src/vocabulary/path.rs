//! A path that part of a copy can take, and what taking several costs.

use serde::{Deserialize, Serialize};
use wm_abi::CUdevice;

/// A link that takes part in a copy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Path {
    /// Whose PCIe link it is.
    pub device: CUdevice,
    /// What it is expected to carry beside the others.
    pub rate: f64,
}

/// What cutting up costs, in seconds, as calibration measured it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// The smallest chunk through a relay, from an idle stream until the host knows.
    pub fixed: f64,
    /// How much later than on the direct path the same bytes arrive through a relay.
    pub lag: f64,
    /// The caller's time to start one relay more.
    pub step: f64,
    /// Time to open a context.
    pub open: f64,
}
