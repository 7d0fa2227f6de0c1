//! The hazards that an interposer must survive, one test each.
//!
//! The library under test is used as by its users: a file, preloaded into a program that does not
//! know it. So every test starts host programs and observes them from outside. The programs are
//! small, in C, and compiled when the test runs ([`c`]); the driver behind the shim is the
//! simulated one, or one of a few lines made for the hazard ([`driver`]). [`host`] starts a program
//! in a clean environment and ends it if it hangs.

pub mod c;
pub mod conversation;
pub mod driver;
pub mod elf;
pub mod host;
pub mod limited;
pub mod matrix;
pub mod pace;
pub mod paused;
pub mod places;
pub mod podman;
pub mod processor;
pub mod resident;
pub mod scratch;
pub mod sharers;
pub mod shim;
pub mod skip;
pub mod turns;

pub use host::{Host, Outcome, said};
pub use scratch::Scratch;
pub use skip::skip;
