//! Tries WholeMemory's C API: scenarios that every rank plays, with ranks that are threads or processes.
//!
//! On the simulated driver and on GPUs alike; ranks take devices in turn, so there may be more ranks than devices. What a scenario
//! finds wrong is printed by rank, and the exit code is 1.

mod api;
mod rank;
mod scenarios;
mod start;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Tries WholeMemory's C API with ranks that are threads or processes.
#[derive(Parser, Debug, Clone)]
pub(crate) struct Arguments {
    /// How many ranks
    #[arg(long, default_value_t = 2)]
    ranks: usize,
    /// Ranks are threads of one process
    #[arg(long)]
    threads: bool,
    /// Play only scenarios whose name has this in it
    #[arg(long, default_value = "")]
    filter: String,
    /// The library under test
    #[arg(long)]
    library: PathBuf,
    /// The driver to open first; default: `libcuda.so.1` as the loader finds it
    #[arg(long)]
    driver: Option<PathBuf>,
    /// List the scenarios
    #[arg(long)]
    list: bool,
    /// Be one rank of a scenario: its name, the unique id and the rank
    #[arg(long, num_args = 3, hide = true)]
    rank: Option<Vec<String>>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.list {
        scenarios::ALL.iter().for_each(|scenario| println!("{}", scenario.name));
        return ExitCode::SUCCESS;
    }
    let outcome = match &arguments.rank {
        Some(words) => start::be_a_rank(&arguments, words),
        None => start::play_all(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}
