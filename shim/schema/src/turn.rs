//! The turns of a process at GPUs that it shares with others.

use serde::{Deserialize, Serialize};

/// A process that takes turns (`WMSHIM_SHARE=turns`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnStats {
    /// `running`, `asked` while its turn goes on though another process waits, `giving way`, `away`
    /// when its memory is, `waiting` for its turn, or `coming`.
    pub state: String,
    /// There is a broker. Without one, memory that has no room lies on the host.
    pub has_broker: bool,
    /// Times that it asked for room.
    pub asks: u64,
    /// Times that it gave way.
    pub gave_way: u64,
    /// Bytes that it gave to the driver the last time.
    pub given_bytes: u64,
    /// The last ask was answered after so many seconds.
    pub wait_s: f64,
    /// The longest of them.
    pub longest_wait_s: f64,
}

impl TurnStats {
    /// The state of a process that has its turn, and nothing to do for others.
    pub const RUNNING: &'static str = "running";

    /// Does the process run, and no other one wait for it?
    #[must_use]
    pub fn runs(&self) -> bool {
        matches!(self.state.as_str(), "" | Self::RUNNING)
    }
}
