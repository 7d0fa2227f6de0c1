//! Times of turns, equal on both sides.

use std::time::Duration;

/// How long a member that has something to do may say nothing. Members speak more often than that
/// ([`HEARTBEAT`]), so one that is silent is stopped, or starved.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// How often a member speaks that asks, or that was asked.
pub const HEARTBEAT: Duration = Duration::from_millis(300);

/// How long a member may take to give way, from the moment on at which it has to; and one that was
/// let in, to come. It speaks meanwhile.
pub const LONGEST: Duration = Duration::from_secs(60);

/// A turn lasts so many times as long as the moves that it has cost, if the member launches all the
/// time and others ask. So moves take a fifth of the time at most.
pub const TURN: u32 = 4;

/// The longest turn that others wait for.
pub const LONGEST_TURN: Duration = Duration::from_secs(30);

/// A report that is younger says when the member launched last.
pub(super) const FRESH: Duration = Duration::from_millis(5);
