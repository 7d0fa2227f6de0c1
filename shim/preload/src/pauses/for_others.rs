//! What is asked of a process by others that take turns with it at a GPU.

use wm_abi::CUdevice;

use super::devices::rest_of;
use super::outcome::{PauseError, PauseEvents, TurnState};
use super::{PausedParts, Pauses};

impl Pauses {
    /// Other subsystems hear of pauses. To be called before the first one.
    pub(crate) fn tell(&self, events: PauseEvents) {
        let _is_first = self.events.set(events);
    }

    /// Another process needs so many bytes of some devices: as much leaves, and calls wait until
    /// the process is resumed. Of a process that has given way already more leaves; of one that is
    /// paused because it was asked for nothing does.
    ///
    /// # Errors
    /// As [`Pauses::pause_to`].
    pub(crate) fn give_way(parts: PausedParts, bytes: Vec<(CUdevice, u64)>) -> Result<(), PauseError> {
        parts.ask(|book| book.ask_way(bytes))
    }

    /// How the process stands.
    pub(crate) fn turn_state(&self) -> TurnState {
        let book = self.lock();
        TurnState {
            phase: book.course.phase,
            is_for_others: book.is_for_others,
            is_working: book.course.is_under_way(),
            has_rest: book.course.has_rest,
        }
    }

    /// Bytes that have left a device and not come back.
    pub(crate) fn away_bytes(&self, device: CUdevice) -> u64 {
        let left = self.lock().left.clone();
        rest_of(left.iter().filter(|left| left.device == device))
    }
}
