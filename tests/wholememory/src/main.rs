//! Tests WholeMemory's C API: scenarios that every rank plays, with ranks that are threads or
//! processes.
//!
//! It runs on the simulated driver and on GPUs; ranks take devices in turn, so there may be more
//! ranks than devices. A scenario's faults are printed by rank, and the exit code is 1.

#![allow(clippy::print_stdout, reason = "a program that says what it found")]

mod api;
mod environment;
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
    /// Deal the ranks to so many islands, as if they were on different machines; ranks are
    /// processes
    #[arg(long, default_value_t = 1, conflicts_with = "threads")]
    islands: usize,
    /// Start a rank by this command, in which `{}` stands for the number of its island, such as
    /// `nsenter --net=/run/netns/m{}`: then islands are machines, and ranks do not say where they
    /// are
    #[arg(long)]
    enter: Option<String>,
    /// Play only scenarios whose name has this in it
    #[arg(long, default_value = "")]
    filter: String,
    /// The library under test
    #[arg(long)]
    library: PathBuf,
    /// The driver to open first; default: `libcuda.so.1` as the loader finds it
    #[arg(long)]
    driver: Option<PathBuf>,
    /// Let a call of one rank's fail on the simulated driver: `RANK:RULE`, such as `1:cuMemMap:2`;
    /// ranks are processes
    #[arg(long, conflicts_with = "threads")]
    fault: Option<Fault>,
    /// List the scenarios that would be played
    #[arg(long)]
    list: bool,
    /// Be one rank of a scenario: its name, the unique id and the rank
    #[arg(long, num_args = 3, hide = true)]
    rank: Option<Vec<String>>,
}

/// A call that fails.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    /// The rank whose call fails.
    rank: usize,
    /// The value of `SIMCUDA_FAIL`.
    rule: String,
}

impl std::str::FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rank, rule) = text.split_once(':').ok_or("a rank and a rule, such as 1:cuMemMap:2")?;
        let rank = rank.parse().map_err(|error| format!("{rank}: {error}"))?;
        Ok(Self { rank, rule: rule.to_owned() })
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.list {
        start::chosen(&arguments).iter().for_each(|scenario| println!("{}", scenario.name));
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
