//! `wmctl bench`: measures this machine with the shim's own parts, in one run, so that its figures can be compared.

mod comparison;
mod copy;
mod links;
mod machine;
mod moves;
mod own;
mod ranks;
mod rows;
mod shapes;
mod shares;
mod wholememory;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// Arguments of `wmctl bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Copies between host and a GPU: plain, over several links, and what all links carry at once
    Copy(copy::CopyArguments),
    /// One process a GPU: all copying at once, and one alone
    Ranks(ranks::RanksArguments),
    /// Moves of live memory between a GPU and the host, and whether it is what it was
    Moves(moves::MovesArguments),
    /// Memory that two blocks share for a while, and whether nobody can write it
    Shares(shares::SharesArguments),
    /// WholeMemory's gather, scatter and training, on any number of GPUs
    #[command(name = "wholememory")]
    WholeMemory(wholememory::WholeMemoryArguments),
}

/// Runs a benchmark.
///
/// # Errors
/// No driver, or one that refuses what the measurement needs.
pub(crate) fn bench(arguments: &BenchArguments) -> Result<ExitCode> {
    match &arguments.what {
        What::Copy(arguments) => copy::copy(arguments),
        What::Ranks(arguments) => ranks::ranks(arguments),
        What::Moves(arguments) => moves::moves(arguments),
        What::Shares(arguments) => shares::shares(arguments),
        What::WholeMemory(arguments) => wholememory::wholememory(arguments),
    }?;
    Ok(ExitCode::SUCCESS)
}
