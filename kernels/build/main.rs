//! Build script: checks that the committed GPU images are current, writes the kernel tables,
//! compiles for the CPU.
//!
//! No network and no CUDA toolkit: the images come from `cargo xtask kernels`.
//!
//! A folder of `cuda/` is an image: its `.cu` files become one GPU module and one table of kernels.
//! The declarations in those files are the only list of kernels there is.
#![allow(clippy::print_stdout, reason = "that is how a build script talks to cargo")]

#[cfg(feature = "cpu")]
mod cpu;
mod declarations;
mod manifest;
mod rust;
mod sources;
mod structures;

use std::path::{Path, PathBuf};

fn main() {
    for path in ["build", "cuda", "compiled", "tools"] {
        println!("cargo:rerun-if-changed={path}");
    }
    if let Err(message) = run(Path::new(env!("CARGO_MANIFEST_DIR"))) {
        println!("cargo:warning={message}");
        eprintln!("error: {message}");
        std::process::exit(1);
    }
}

fn run(root: &Path) -> Result<(), String> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: run through cargo")?);
    manifest::check(root)?;
    let images = sources::read(root)?;
    sources::write(&out.join("images.rs"), &rust::images(&images))?;
    #[cfg(feature = "cpu")]
    cpu::build(root, &out, &images)?;
    Ok(())
}
