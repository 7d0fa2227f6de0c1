//! Turns at GPUs: which process gives way when two of them together need more memory than a GPU
//! has. Pure: no clock, no socket, no driver.
//!
//! | module | one idea |
//! |---|---|
//! | [`message`] | what a member and the broker tell each other |
//! | [`TurnTable`] | all members and their asks: the rules |
//! | `limits` | times |
//! | `ask` | one ask that is being served: what is missing, and which members give it |
//! | `member` | one member, as the broker knows it |
//! | [`pace`] | a member's own decision: the moment at which it gives way |
//!
//! A member is a process with memory on some GPUs. It asks when a call of its program needs memory
//! that is away or that the GPU has no room for. Asks are served in the order in which they came;
//! two that share no GPU are served at the same time. The member that launched least recently gives
//! way first, and no member gives more than is missing.

mod ask;
mod limits;
mod member;
pub mod message;
pub mod pace;
mod table;

pub use limits::{HEARTBEAT, LONGEST, LONGEST_TURN, PATIENCE, TURN};
pub use member::MemberNumber;
pub use table::TurnTable;
