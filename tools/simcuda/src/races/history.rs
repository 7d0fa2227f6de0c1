//! The last accesses of bytes, for the message of a race: which threads asked for them, and when.

use std::collections::VecDeque;
use std::time::Instant;

use super::{Placed, Stamp, told};

/// How many accesses and removals are remembered.
const KEPT: usize = 4096;

/// How many of those of the same bytes are told.
const TOLD: usize = 6;

/// What was asked for last, the latest at the end.
#[derive(Debug)]
pub(super) struct History(VecDeque<Entry>);

/// An access or a removal, and the thread that asked for it.
#[derive(Debug)]
struct Entry {
    at: Instant,
    thread: String,
    what: String,
    placed: Placed,
}

impl History {
    pub(super) const NONE: Self = Self(VecDeque::new());

    /// The calling thread asks for a piece of work with this access.
    pub(super) fn note_work(&mut self, stamp: &Stamp, placed: &Placed) {
        let what = format!("{}, work {} of lane {}", told(&placed.access), stamp.number, stamp.lane);
        self.note(what, placed);
    }

    /// The calling thread removes memory at once.
    pub(super) fn note_removal(&mut self, how: &str, placed: &Placed) {
        self.note(format!("{how} at {:#x}", placed.access.range.start), placed);
    }

    fn note(&mut self, what: String, placed: &Placed) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        let (at, thread) = (Instant::now(), calling_thread());
        self.0.push_back(Entry { at, thread, what, placed: placed.clone() });
    }

    /// The last entries of these bytes, a line each, the oldest first.
    pub(super) fn of(&self, bytes: &Placed) -> Vec<String> {
        let same = self.0.iter().rev().filter(|entry| entry.placed.shares(bytes)).take(TOLD);
        let line = |entry: &Entry| {
            let ago = entry.at.elapsed().as_secs_f64() * 1e3;
            format!("{ago:.3} ms ago, {}: {}", entry.thread, entry.what)
        };
        let mut lines: Vec<String> = same.map(line).collect();
        lines.reverse();
        lines
    }
}

/// The kernel's number of the calling thread, and its name.
fn calling_thread() -> String {
    let mut name = [0_u8; 16];
    // SAFETY: the kernel writes 16 bytes at most, the last one 0.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    // SAFETY: a system call without arguments.
    let number = unsafe { libc::gettid() };
    format!("thread {number} ({})", String::from_utf8_lossy(name))
}
