//! The answer to `pause`, `resume` and `pause_state`: whether a process is paused, and where its
//! bytes lie; and its turns, if others pause it.

use serde::{Deserialize, Serialize};

/// The answer to `pause`, `resume` and `pause_state`. All answer at once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PauseAnswer {
    /// `wmshim-pause/1`.
    pub schema: String,
    /// The process.
    pub pid: u32,
    /// Its state.
    pub pause: PauseStats,
}

impl PauseAnswer {
    /// The version of this answer.
    pub const SCHEMA: &'static str = "wmshim-pause/1";
}

/// A process that can be paused.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PauseStats {
    /// `off` if it cannot be paused, `running`, `pausing`, `paused` or `resuming`.
    pub state: String,
    /// Calls of the program wait for it to be resumed.
    pub is_awaited: bool,
    /// The driver has taken the rest of the paused process, or is about to (`wmctl pause --deep`).
    pub is_deep: bool,
    /// Pauses that succeeded, so far.
    pub pauses: u64,
    /// The last pause took so many seconds while calls waited; host memory was made before.
    pub pause_s: f64,
    /// The last resume took so many seconds.
    pub resume_s: f64,
    /// Bytes that left the device in the last pause.
    pub out_bytes: u64,
    /// Those of them that were not copied, because the host still had them.
    pub clean_bytes: u64,
    /// Those of them that lie in files, or in memory that is not pinned.
    pub file_bytes: u64,
    /// Bytes of which the copy is one that other processes use, too.
    pub common_bytes: u64,
    /// The last pause put them there into memory.
    pub is_in_memory: bool,
    /// While files are written or read: bytes so far.
    pub done_bytes: u64,
    /// The same, of all.
    pub whole_bytes: u64,
    /// Bytes that came back in the last resume.
    pub in_bytes: u64,
    /// Bytes that it left on the host, since the device had no room.
    pub left_bytes: u64,
    /// Bytes that stayed on the device in the last pause.
    pub stayed_bytes: u64,
    /// The same by reason.
    pub stayed: Vec<StayedBytes>,
    /// Why the last pause failed; null if it did not.
    pub problem: Option<String>,
    /// Host memory for the next pause.
    pub arena: ArenaStats,
}

/// Host memory that lies ready for a pause.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ArenaStats {
    /// Bytes that are pinned and unused, copies of an earlier pause included.
    pub bytes: u64,
    /// Bytes that it lacked when it was filled last.
    pub lacking_bytes: u64,
    /// It is being filled.
    pub is_filling: bool,
    /// The host had no room for what it lacks.
    pub is_full: bool,
}

impl PauseStats {
    /// Do the process's calls go on, as if it could not be paused?
    #[must_use]
    pub fn runs(&self) -> bool {
        matches!(self.state.as_str(), "" | "off" | "running")
    }

    /// The state in a word.
    #[must_use]
    pub fn word(&self) -> &str {
        if self.is_deep { "deep" } else { self.state.as_str() }
    }
}

/// Memory that stays on the device in a pause.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StayedBytes {
    /// In words.
    pub reason: String,
    /// How much.
    pub bytes: u64,
}

/// A process that takes turns (`WMSHIM_SHARE=turns`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnStats {
    /// `running`, or `asked` if another process waits for its turn to end; `giving way`; `away`
    /// when its memory is; `waiting` for its turn; `coming`; `paused` if an operator has paused it.
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
