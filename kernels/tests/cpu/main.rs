//! Hazard: the simulated driver runs these kernels in place of a GPU. A wrong result here would be
//! blamed on the shim, a crash here would end the test that wanted to see an error code, and a
//! barrier that is none would hide a race.
//!
//! Each kernel is held against a plain Rust reference, over sizes and block shapes that leave
//! partial warps and idle threads.

mod concurrency;
mod configuration;
mod cooperation;
mod dedup;
mod elementwise;
mod fault;
mod measure;
mod moves;
mod ownership;
mod pattern;
mod support;
mod waiting;
mod wholememory;
