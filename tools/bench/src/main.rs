//! `bench`: instruments for developers of wmshim. They measure parts of the shim by themselves, or
//! simulate a placement policy.
//!
//! A user gets `wmctl`, which has the one measurement that the library itself uses
//! (`wmctl bench copy`). `make dist` puts this program into `dist/dev`, for the scripts in
//! `tests/workloads`; it is not in the wheel. It prints text or, with `--json`, JSON.

mod code;
mod managed;
mod moves;
mod ranks;
mod shapes;
mod shares;
mod tiers;
mod wholememory;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use wmctl::{human, output};

/// Measure parts of wmshim.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct BenchArguments {
    #[command(subcommand)]
    instrument: Instrument,
}

#[derive(Subcommand)]
enum Instrument {
    /// One process a GPU: all copying at once, and one alone
    Ranks(ranks::RanksArguments),
    /// Other ways to split large copies over several links
    Shapes(shapes::ShapesArguments),
    /// Moves of live memory between a GPU and the host, with a check of its contents
    Moves(moves::MovesArguments),
    /// Memory that two blocks share for a while, with a check that a write is refused
    Shares(shares::SharesArguments),
    /// Random kernels on a GPU: what the analysis of their code calls read does not change
    Code(code::CodeArguments),
    /// WholeMemory's gather, scatter and training, on any number of GPUs
    #[command(name = "wholememory")]
    WholeMemory(wholememory::WholeMemoryArguments),
    /// Simulate a recorded program on a smaller device, under several placement policies
    Tiers(tiers::TiersArguments),
}

fn main() -> ExitCode {
    match run(&BenchArguments::parse().instrument) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {}", human::shown(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

fn run(instrument: &Instrument) -> Result<()> {
    match instrument {
        Instrument::Ranks(arguments) => ranks::ranks(arguments),
        Instrument::Shapes(arguments) => shapes::shapes(arguments),
        Instrument::Moves(arguments) => moves::moves(arguments),
        Instrument::Shares(arguments) => shares::shares(arguments),
        Instrument::Code(arguments) => code::code(arguments),
        Instrument::WholeMemory(arguments) => wholememory::wholememory(arguments),
        Instrument::Tiers(arguments) => tiers::tiers(arguments),
    }
}
