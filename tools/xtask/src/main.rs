//! Developer commands of the workspace: generate, check, test, package.
//!
//! `cargo xtask --help` lists them. Nothing here runs in a user's process.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command line tool")]

mod book;
mod check;
mod demo;
mod dist;
mod driver;
mod elf;
mod exports;
mod generate;
mod hazards;
mod headers;
mod kernels;
mod mutations;
mod pages;
mod rapids;
mod release;
mod schema;
mod settings;
mod step;
mod stress;
mod table;
mod test;
mod toolbox;
mod wholememory;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Generates, checks and packages wmshim")]
struct XtaskArguments {
    #[command(subcommand)]
    command: XtaskCommand,
}

#[derive(Subcommand)]
enum XtaskCommand {
    /// Renew names and parameters in shim/abi/data/driver.tsv from symbol lists and CUDA headers
    ImportHeaders {
        /// Folder with cuda.h, cudaGL.h, cudaEGL.h, cudaVDPAU.h (PyPI's nvidia-cuda-runtime has
        /// them)
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
    /// Compile the CUDA kernels for GPUs into kernels/compiled
    Kernels {
        /// Write nothing; fail when a checked-in output is not what its sources compile to
        #[arg(long)]
        check: bool,
    },
    /// Print which test guards which hazard, by the field's terms
    Hazards {
        /// A term, or a part of one: `race`, `leak`, `use after free`
        term: Option<String>,
    },
    /// Write docs/schema.md from the types of what a process tells
    Schema {
        /// Write nothing; fail when the page is not what would be written
        #[arg(long)]
        check: bool,
    },
    /// Write docs/settings.md from the table of settings
    Settings {
        /// Write nothing; fail when the page is not what would be written
        #[arg(long)]
        check: bool,
    },
    /// Write the functions into WholeMemory's C headers and its page, from the Rust that C calls
    Wholememory {
        /// Write nothing; fail when a file is not what would be written
        #[arg(long)]
        check: bool,
    },
    /// Run RAPIDS' Python layer of WholeMemory, unchanged, over our library without a GPU
    Rapids(rapids::RapidsArguments),
    /// Build everything and run every test
    Test {
        /// Handed to nextest, for example `-p hazards` or a part of a test's name
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        filter: Vec<String>,
    },
    /// Format, lints, generated files, dependencies, exports
    Check,
    /// Fill dist/ with what is shipped
    Dist,
    /// Make all files of a release: wheel, archives, SBOM, notes, checksums; nothing is uploaded
    Release(release::ReleaseArguments),
    /// Make the book of the pages, with a search, in target/book
    Book,
    /// Compare a library's exports with the table of driver functions
    Exports {
        /// Default: the library that `cargo build` made
        library: Option<PathBuf>,
    },
    /// Look for two owners of one block, in many long runs with different seeds
    Stress(stress::StressArguments),
    /// Break one rule of docs/dev/ordering.md at a time, and see whether the oracle finds it (about
    /// an hour)
    Mutations(mutations::MutationsArguments),
    /// Run a program that outgrows its GPU, bare and under the shim
    Demo {
        /// Free device memory that the program is left with on a real GPU, in GiB
        #[arg(long, default_value_t = 8)]
        memory: u64,
    },
}

fn main() -> ExitCode {
    match run(XtaskArguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nerror: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: XtaskCommand) -> Result<()> {
    match command {
        XtaskCommand::ImportHeaders { include, symbols } => headers::import(&include, &symbols),
        XtaskCommand::Generate { check } => generate::run(check),
        XtaskCommand::Kernels { check } => kernels::run(check),
        XtaskCommand::Hazards { term } => hazards::run(term.as_deref()),
        XtaskCommand::Schema { check } => schema::run(check),
        XtaskCommand::Settings { check } => settings::run(check),
        XtaskCommand::Wholememory { check } => wholememory::run(check),
        XtaskCommand::Rapids(arguments) => rapids::run(&arguments),
        XtaskCommand::Test { filter } => test::run(&filter),
        XtaskCommand::Check => check::run(),
        XtaskCommand::Dist => dist::run(),
        XtaskCommand::Book => book::run(),
        XtaskCommand::Release(arguments) => release::run(&arguments),
        XtaskCommand::Exports { library } => exports::check(&library.map_or_else(exports::built, Ok)?),
        XtaskCommand::Stress(arguments) => stress::run(&arguments),
        XtaskCommand::Mutations(arguments) => mutations::run(&arguments),
        XtaskCommand::Demo { memory } => demo::run(memory),
    }
}

/// The workspace's root folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map(Path::to_owned).unwrap_or_default()
}

/// The folder that cargo builds into: this program lies in its `debug` folder.
fn target() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    Ok(program.ancestors().nth(2).context("xtask is not in a target folder")?.to_owned())
}
