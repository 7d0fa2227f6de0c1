//! An ordinary CUDA program that outgrows its GPU.
//!
//! It opens `libcuda.so.1` by name, as every CUDA program does, and knows nothing of wmshim: no
//! symbol, no variable, no link. It fills the device with blocks of mixed sizes, frees every other
//! one, asks for blocks that fit no single hole, goes on until it holds more than the device has,
//! and then reads every byte back. Without the shim the driver ends it with out of memory; under
//! the shim it runs to its end.
//!
//! On a large GPU that takes long, so a second instance (`--leave 8`) can be the neighbour that
//! holds the rest of the device: then this program meets a device with 8 GiB free, and really runs
//! out of it.
#![allow(clippy::print_stdout, reason = "a program that tells what it does")]

mod account;
mod blocks;
mod driver;
mod steps;

use std::process::ExitCode;

use clap::Parser;

use crate::driver::{Driver, Failure};

/// Fragments and exceeds the memory of a GPU, and checks every byte.
#[derive(Parser)]
struct Arguments {
    /// The device's ordinal
    #[arg(long, default_value_t = 0)]
    device: i32,
    /// How much to hold at the end, as a multiple of the memory that is free at the start
    #[arg(long, default_value_t = 1.5)]
    exceed: f64,
    /// Be a neighbour instead: hold all device memory but this many GiB until standard input ends
    #[arg(long, value_name = "GIB")]
    leave: Option<u64>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            println!("\n  {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let driver = Driver::open()?;
    let device = driver.start(arguments.device)?;
    match arguments.leave {
        Some(gib) => steps::neighbour(&driver, gib << 30),
        None => steps::outgrow(&driver, &device, arguments.exceed),
    }
}
