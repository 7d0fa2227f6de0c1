//! The turns of a process at GPUs that it shares with others.

use serde::{Deserialize, Serialize};

/// A process that takes turns (`WMSHIM_SHARE=turns`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnStats {
    /// `running`, or `asked` if another process waits for its turn to end; `giving way`; `away` when
    /// its memory is; `waiting` for its turn; `coming`; `paused` if an operator has paused it.
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
    /// The state in a word, if the process does not run on for the sake of others.
    #[must_use]
    pub fn halt(&self) -> Option<&str> {
        Some(self.state.as_str())
            .filter(|state| matches!(*state, "giving way" | "away" | "waiting" | "coming"))
    }
}
