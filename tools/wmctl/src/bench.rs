//! `wmctl bench`: measures this machine with the shim's own parts, so that the figures of one run
//! can be compared.
//!
//! `tools/bench` has the instruments for developers; it uses the public modules here.

pub mod comparison;
mod copy;
pub mod links;
pub mod machine;
mod own;
pub mod prepared;
mod rows;

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
}

/// Runs a benchmark.
///
/// # Errors
/// No driver, or one that refuses a call of the measurement.
pub(crate) fn bench(arguments: &BenchArguments) -> Result<ExitCode> {
    let What::Copy(arguments) = &arguments.what;
    copy::copy(arguments)?;
    Ok(ExitCode::SUCCESS)
}
