//! The values of settings about memory that moves.

use wm_memory::KeepCopies;

use super::size::Size;
use super::values::{NotUnderstood, Parsed, is_off, size, switch};

/// May the process be paused?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    /// No call passes the gate for it.
    Off,
    /// And it stays paused until it is resumed.
    On,
    /// And a call that waits resumes it.
    Auto,
    /// As `On`, and it is paused from the first call on.
    Paused,
}

/// Is host memory for a pause made ahead?
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum PauseArena {
    /// On request.
    Off,
    /// For all that could leave.
    Auto,
    /// Up to so much, of the machine's memory.
    AtMost(Size),
}

/// May live memory move between tiers?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Migrate {
    Off,
    /// Where an operator or the program asks for it.
    Asked,
    /// Also where it was measured to be faster than to leave memory in place.
    Auto,
    /// Also where the library finds it useful.
    On,
}

/// Does the process share GPUs with others of the user that want all of their memory?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// Each takes what is free.
    Off,
    /// They take turns.
    Turns,
}

pub(super) fn sharing(text: &str) -> Parsed<Share> {
    match text.to_ascii_lowercase().as_str() {
        "turns" => Ok(Share::Turns),
        off if is_off(off) => Ok(Share::Off),
        _ => Err(NotUnderstood),
    }
}

pub(super) fn pause(text: &str) -> Parsed<Pause> {
    match text.to_ascii_lowercase().as_str() {
        "auto" => Ok(Pause::Auto),
        "paused" => Ok(Pause::Paused),
        other => Ok(if switch(other)? { Pause::On } else { Pause::Off }),
    }
}

pub(super) fn pause_arena(text: &str) -> Parsed<PauseArena> {
    match text.to_ascii_lowercase().as_str() {
        "auto" => Ok(PauseArena::Auto),
        "0" => Ok(PauseArena::Off),
        off if is_off(off) => Ok(PauseArena::Off),
        amount => size(amount).map(PauseArena::AtMost),
    }
}

pub(super) fn migrate(text: &str) -> Parsed<Migrate> {
    match text.to_ascii_lowercase().as_str() {
        "asked" => Ok(Migrate::Asked),
        "auto" => Ok(Migrate::Auto),
        other => Ok(if switch(other)? { Migrate::On } else { Migrate::Off }),
    }
}

pub(super) fn kept_copies(text: &str) -> Parsed<KeepCopies> {
    match text.to_ascii_lowercase().as_str() {
        "auto" => Ok(KeepCopies::Auto),
        other => Ok(if switch(other)? { KeepCopies::On } else { KeepCopies::Off }),
    }
}
