//! Opens a CUDA driver by path, calls it, and puts its memory calls behind one trait.
//!
//! * [`gpu`]: the contract between memory policy and mechanism.

pub mod gpu;

pub use gpu::{Event, Gpu, Handle, StreamId, Tier};
