//! What an interposer must survive, one test a hazard.
//!
//! The library under test is used as users use it: a file, preloaded into a program that knows
//! nothing of it. So every test starts host programs and looks at them from outside. The programs
//! are small, in C, and compiled when the test runs ([`c`]); the driver behind the shim is the
//! simulated one, or one of a few lines made for the hazard ([`driver`]). [`host`] starts a program
//! in a clean environment and ends it when it hangs.

pub mod c;
pub mod driver;
pub mod elf;
pub mod host;
pub mod matrix;
pub mod places;
pub mod resident;
pub mod scratch;
pub mod sharers;
pub mod shim;
pub mod skip;

pub use host::{Host, Outcome};
pub use scratch::Scratch;
pub use skip::skip;
