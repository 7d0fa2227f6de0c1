//! The CUDA driver's binary interface as data.
//!
//! * [`symbol`]: one zero-sized type for every exported driver function, with its name, its
//!   position in tables of functions and its type. Generated from `data/driver.tsv`, which
//!   describes each function.
//! * handles, structures and constants that those functions take, under NVIDIA's own names.
//!
//! Invariants: nothing here does I/O or links anything; layouts equal those of CUDA 13.5's public
//! headers (held by `tests/layout.rs`); a C enum is an integer here, because a newer driver may
//! return values we have not heard of and an unknown value of a Rust enum is undefined behaviour.
#![allow(
    non_camel_case_types,
    non_snake_case,
    reason = "NVIDIA's names, so that a reader can search for them"
)]

mod constants;
mod handles;
mod resources;
mod result;
mod structures;
pub mod symbol;

pub use constants::*;
pub use handles::*;
pub use resources::*;
pub use result::CUresult;
pub use structures::*;
