//! A sign of life on stderr while a replay takes long: one line that renews itself, on a terminal
//! only.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::human;

/// Often enough to be seen moving.
const INTERVAL: Duration = Duration::from_millis(200);

/// The current task, and the time at which it was last shown.
#[derive(Debug)]
pub(crate) struct Progress {
    terminal: bool,
    state: Mutex<ProgressState>,
}

#[derive(Debug)]
struct ProgressState {
    what: String,
    next: Instant,
    shown: bool,
}

impl Progress {
    /// Shows nothing before the first interval is over: short work needs no sign.
    pub(crate) fn new() -> Self {
        let state = ProgressState { what: String::new(), next: Instant::now() + INTERVAL, shown: false };
        Self { terminal: std::io::stderr().is_terminal(), state: Mutex::new(state) }
    }

    /// Names the task of the following reports.
    pub(crate) fn begin(&self, what: String) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).what = what;
    }

    /// `done` of `total` events are played.
    pub(crate) fn show(&self, done: u64, total: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.terminal || Instant::now() < state.next {
            return;
        }
        state.next = Instant::now() + INTERVAL;
        state.shown = true;
        let share = 100 * done / total.max(1);
        write(&format!("\r\x1b[K{}: {share} % of {} events", state.what, human::count(total)));
    }

    /// Takes the line away.
    pub(crate) fn clear(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut state.shown) {
            write("\r\x1b[K");
        }
    }
}

/// A terminal that has gone away is no reason to stop.
fn write(text: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}
