//! CUDA kernels, compiled for the GPU and for the CPU.
//!
//! The sources are CUDA C in `cuda/`. A folder there is an *image*: one GPU module with its table
//! of kernels. The GPU code is compiled ahead and committed (`compiled/`, made by `cargo xtask
//! kernels`); the build script refuses to build when it is stale. This crate makes no driver call:
//! it describes kernels, other crates launch them.
//!
//! With the feature `cpu` the same sources are compiled as C++ too, and [`cpu`] runs them on the
//! calling thread.
//!
//! Invariant: a kernel is added by writing it into a `.cu` file, and nowhere else. Tables,
//! arguments, the structures in them and the CPU registry are generated from the declarations
//! there.
#![cfg_attr(not(feature = "cpu"), forbid(unsafe_code))]

use std::ffi::c_void;

use wm_abi::CUdeviceptr;

#[cfg(feature = "cpu")]
pub mod cpu;
pub mod fingerprint;
mod image;
pub mod random;
mod table;

pub use image::{Arguments, Image, Kernel, Parameter};

include!(concat!(env!("OUT_DIR"), "/images.rs"));

/// The word that `wm_fill_pattern_u64` writes at `index` for `seed` (SplitMix64's finaliser over a
/// seeded counter).
pub const fn pattern(seed: u64, index: u64) -> u64 {
    let z = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
