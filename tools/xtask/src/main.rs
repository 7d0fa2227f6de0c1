//! Developer commands of the workspace: what is generated, checked and packaged goes through here.
//!
//! `cargo run -p xtask -- --help` lists them. Nothing here runs in a user's process.
#![allow(clippy::print_stdout, reason = "a command line tool")]

mod generate;
mod headers;
mod table;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Generates, checks and packages wmshim")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Rebuild shim/abi/data/driver.tsv from symbol lists and CUDA headers (a new CUDA release)
    ImportHeaders {
        /// Folder with cuda.h, cudaGL.h, cudaEGL.h, cudaVDPAU.h (PyPI's nvidia-cuda-runtime has them)
        include: PathBuf,
        /// Files with one exported symbol a line
        #[arg(required = true)]
        symbols: Vec<PathBuf>,
    },
    /// Write the Rust files that are generated from shim/abi/data/driver.tsv
    Generate {
        /// Write nothing; fail when a checked-in file is not what would be written
        #[arg(long)]
        check: bool,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::ImportHeaders { include, symbols } => headers::import(&include, &symbols),
        Command::Generate { check } => generate::run(check),
    }
}

/// The workspace's root folder.
fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
