//! Turns at GPUs: which process gives way when two of them together need more memory than a GPU
//! has. Pure: no clock, no socket, no driver.
//!
//! | module | one idea |
//! |---|---|
//! | [`message`] | what a member and the broker tell each other |
//! | [`TurnTable`] | all members and their asks: the rules |
//! | `ask` | one ask that is being served: what is missing, and which members give it |
//! | `member` | one member, as the broker knows it |
//! | [`pace`] | a member's own decision: the moment at which it gives way |
//!
//! A member is a process with memory on some GPUs. It asks when a call of its program needs memory
//! that is away or that the GPU has no room for. Asks are served in the order in which they came;
//! two that share no GPU are served at the same time. The member that launched least recently gives
//! way first, and no member gives more than is missing.

mod ask;
mod member;
pub mod message;
pub mod pace;
mod table;

pub use member::MemberNumber;
pub use table::TurnTable;

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
const FRESH: Duration = Duration::from_millis(5);
