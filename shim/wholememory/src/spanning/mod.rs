//! How rows pass between islands: which rank sends what to which other one, in which step. Values,
//! and the resources of one rank.
//!
//! A rank asks, of each other island, the rank with its own number there (its *server*): that one
//! reaches all rows of its island. All ranks first tell each other their counts, in one message
//! with a description of the call. Then numbers and rows pass in steps, so that what they need of
//! memory is bounded and known when memory is made: no rank runs out of it in the middle of an
//! operation.
//!
//! * [`rails`]: which rank serves which. * [`slots`]: which gradients pass. * [`record`]: the
//!   first message. * [`repeats`] and [`claiming`]: when a row that is wanted several times, by
//!   one rank or by several of an island, crosses once. * [`steps`]: what passes, and which
//!   kernels run, step by step. * [`opening`]: the memory of that message. [`fabric`]: a rank's
//!   stream, events and buffers. [`network`]: its connections, and their loss. [`meeting`]: their
//!   begin. [`watch`]: what sees that a rank is lost. [`flags`]: what the host and kernels tell
//!   each other of it. [`exit`]: rows that are under way when the process ends.

pub mod claiming;
mod exit;
pub mod fabric;
#[allow(unsafe_code, reason = "pinned memory is written and read")]
mod flags;
pub mod gpu;
pub mod meeting;
mod memory;
mod network;
#[allow(unsafe_code, reason = "pinned memory is written and read")]
pub mod opening;
pub mod rails;
pub mod record;
pub mod repeats;
pub mod slots;
pub mod steps;
mod watch;
