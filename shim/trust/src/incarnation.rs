//! Which process has a number, and which program it executes.
//!
//! A number is given again when its process has ended; the time of the start tells the two apart. A
//! process that executes another program keeps number and time, and gets another stack. The kernel
//! tells all of it in one line, `/proc/PID/stat`.

use std::fs;

/// A process while it executes one program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incarnation {
    /// When it started, in ticks since the machine's start.
    pub started: u64,
    /// Where its stack begins; 0 for a process that the kernel does not let this one look into.
    pub stack: u64,
    /// A signal or a debugger has stopped it.
    pub is_stopped: bool,
    /// It has ended, and its parent has not asked for its code yet.
    pub is_ended: bool,
}

impl Incarnation {
    /// The process with a number, or `self`. `None`: there is none.
    #[must_use]
    pub fn of(process: &str) -> Option<Self> {
        let line = fs::read(format!("/proc/{process}/stat")).ok()?;
        Self::parse(&String::from_utf8_lossy(&line))
    }

    /// The name in the second field may hold anything, parentheses too.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.rsplit_once(')')?.1.split_ascii_whitespace();
        let state = fields.next()?;
        // Fields 22 and 28 of the line; the state was the third.
        let started = fields.nth(18)?.parse().ok()?;
        let stack = fields.nth(5)?.parse().ok()?;
        let (is_stopped, is_ended) = (matches!(state, "T" | "t"), matches!(state, "Z" | "X" | "x"));
        Some(Self { started, stack, is_stopped, is_ended })
    }

    /// Is it the one with these marks? A stack that is not known counts as the same.
    #[must_use]
    pub fn is(&self, started: u64, stack: u64) -> bool {
        !self.is_ended && self.started == started && (self.stack == stack || self.stack == 0 || stack == 0)
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): a number that was given again, or a program that was executed,
    //! counts as the one before.
    use super::*;

    #[test]
    fn this_process_is_itself_until_it_executes_another_program() {
        let own = Incarnation::of("self").expect("this process");
        assert!(own.is(own.started, own.stack) && own.started > 0 && own.stack > 0);
        assert!(!own.is(own.started + 1, own.stack) && !own.is(own.started, own.stack + 8));
        assert_eq!(Incarnation::of(&std::process::id().to_string()), Some(own));
        assert_eq!(Incarnation::of("no-process"), None);
    }

    #[test]
    fn a_name_may_hold_anything() {
        let rest: Vec<String> = (4..40).map(|field| field.to_string()).collect();
        let line = |state: &str| format!("7 (a) T 9 (b)) {state} {}", rest.join(" "));
        let parsed = Incarnation::parse(&line("T")).expect("a line");
        assert_eq!((parsed.started, parsed.stack, parsed.is_stopped, parsed.is_ended), (22, 28, true, false));
        assert!(!Incarnation::parse(&line("Z")).expect("a line").is(22, 28), "it has ended");
        assert_eq!(Incarnation::parse("7 (a) R 1 2 3"), None);
    }
}
