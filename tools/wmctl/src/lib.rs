//! `wmctl`: runs programs under wmshim, inspects them while they run, and reports whether a machine
//! is fit for it.
//!
//! Each command is one file or folder. Several commands share [`client`], which talks to a
//! program's statistics endpoint, [`shim`], which finds and opens the library, [`table`] and
//! [`human`], which format text, and [`output`], which prints it. Every command has `--json`. Text
//! is for people and may change; JSON is for programs and has a versioned schema.
//!
//! Exit codes: 0 for success, 1 for an error or a finding that blocks, 2 for a command line that
//! does not parse. `run` ends with the program's own code, with 127 if the program does not exist,
//! and with 126 if it cannot be started.
//!
//! `tools/bench`, which developers use and no user gets, calls the modules that are public here.

pub mod bench;
mod bug_report;
mod cdi;
mod change;
mod clean;
mod client;
mod code;
mod dedup;
mod deep;
mod diff;
mod doctor;
mod export;
mod hooks;
pub mod human;
mod layout;
mod manual;
pub mod output;
mod paths;
mod pause;
mod profile;
mod programs;
mod replay;
mod report;
mod run;
mod screen;
pub mod shim;
mod stats;
pub mod table;
mod target;
mod top;
pub mod trace;

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

/// Run programs under wmshim and look inside them.
#[derive(Parser)]
#[command(version, arg_required_else_help = true, after_help = EXAMPLES)]
struct WmctlArguments {
    #[command(subcommand)]
    command: WmctlCommand,
}

const EXAMPLES: &str = "Examples:
  wmctl doctor                                      is this machine fit, and if not, why
  wmctl run -- python train.py                      run a program under the shim
  wmctl run --set WMSHIM_DEVICE_LIMIT=48GiB -- ./a  the same, with a setting
  wmctl stats                                       what the running programs hold
  wmctl stats 4711 --watch 1                        one of them, every second
  wmctl top                                         all of them, with what they copy now
  wmctl pause 4711                                  give its GPU memory up until `wmctl resume 4711`
  wmctl export --listen                             the same for Prometheus
  wmctl profile p.gz                                which code holds a program's memory
  wmctl replay --trace a.trace.gz --find-capacity   what memory a recorded program needs
  wmctl report 4711 -o report.html                  what one held, as a page for a browser
  wmctl limit 4711 40GiB                            a running program leaves the rest to others
  wmctl detach 4711                                 its new memory is the driver's from now on
  wmctl bench copy                                  copy rates with and without the shim";

#[derive(Subcommand)]
enum WmctlCommand {
    /// Run a program under the shim
    Run(run::RunArguments),
    /// Show what programs under the shim hold and do
    Stats(stats::StatsArguments),
    /// Show what programs under the shim hold and copy, again and again
    Top(top::TopArguments),
    /// Give the figures of all programs to Prometheus
    Export(export::ExportArguments),
    /// Move a program's device memory to the host, and hold its calls until it is resumed
    Pause(pause::PauseArguments),
    /// Bring a paused program's memory back, and let it go on
    Resume(pause::ResumeArguments),
    /// Write a program's statistics, blocks and settings to a file
    Dump(stats::DumpArguments),
    /// Limit the device memory of a running program
    Limit(change::LimitArguments),
    /// Have a running program give its unused device memory to the driver
    Trim(change::ChangeArguments),
    /// Turn the shim's features off in a running program
    Detach(change::ChangeArguments),
    /// Turn them on again
    Attach(change::ChangeArguments),
    /// Show what memory programs share, and what that saves
    Dedup(dedup::DedupArguments),
    /// Show what the kernels of a library or a cubin store through, as their code says
    Code(code::CodeArguments),
    /// Remove sockets that killed programs left
    Clean(clean::CleanArguments),
    /// Check driver, devices, limits and installation, and say what to do
    Doctor(doctor::DoctorArguments),
    /// Print the paths for an LD_PRELOAD or LD_LIBRARY_PATH of your own
    Paths(paths::PathsArguments),
    /// Print wmshim as a device of containers (CDI)
    Cdi(cdi::CdiArguments),
    /// List the driver functions that the shim intercepts
    Hooks(hooks::HooksArguments),
    /// Measure copies between the host and GPUs, and keep what the links carry for the shim
    Bench(bench::BenchArguments),
    /// Show which code holds a program's memory, from a profile or at an out-of-memory
    Profile(profile::ProfileArguments),
    /// Replay a recorded trace: what memory a program needs
    Replay(replay::ReplayArguments),
    /// Write an archive with what a report of a fault needs
    BugReport(bug_report::BugReportArguments),
    /// Show what a program held, as a page for a browser
    Report(report::ReportArguments),
    /// Show what grew between two processes, recordings, profiles or dumps
    Diff(diff::DiffArguments),
    /// Print the completions of this command line for a shell
    Completions(manual::CompletionArguments),
    /// Write the pages of this command line for man
    Man(manual::ManArguments),
}

/// Runs the command that the process was started with.
#[must_use]
pub fn main() -> ExitCode {
    match dispatch(command()) {
        Ok(code) => code,
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wmctl: {}", human::shown(&format!("{error:#}")));
            output::code_of(&error)
        }
    }
}

/// The command line. Started as `wmshim-run`, which the wheel does, it is that of `run`.
fn command() -> WmctlCommand {
    const ALIAS: &str = "wmshim-run";
    let name = std::env::args_os().next().unwrap_or_default();
    if Path::new(&name).file_name() != Some(OsStr::new(ALIAS)) {
        return WmctlArguments::parse().command;
    }
    let command =
        run::RunArguments::augment_args(clap::Command::new(ALIAS).version(env!("CARGO_PKG_VERSION")));
    let matches = command.about("Run a program under wmshim").get_matches();
    let arguments = run::RunArguments::from_arg_matches(&matches);
    WmctlCommand::Run(arguments.unwrap_or_else(|error| error.exit()))
}

fn dispatch(command: WmctlCommand) -> Result<ExitCode> {
    match command {
        WmctlCommand::Run(arguments) => run::run(&arguments),
        WmctlCommand::Stats(arguments) => stats::stats(&arguments).map(|()| ExitCode::SUCCESS),
        WmctlCommand::Top(arguments) => top::top(&arguments).map(|()| ExitCode::SUCCESS),
        WmctlCommand::Export(arguments) => export::export(&arguments).map(|()| ExitCode::SUCCESS),
        WmctlCommand::Dump(arguments) => stats::dump(&arguments).map(|()| ExitCode::SUCCESS),
        WmctlCommand::Pause(arguments) => pause::pause(&arguments),
        WmctlCommand::Resume(arguments) => pause::resume(&arguments),
        WmctlCommand::Limit(arguments) => change::limit(&arguments).map(|()| ExitCode::SUCCESS),
        WmctlCommand::Trim(arguments) => change::trim(&arguments).map(|()| ExitCode::SUCCESS),
        WmctlCommand::Detach(arguments) => change::detach(&arguments).map(|()| ExitCode::SUCCESS),
        WmctlCommand::Attach(arguments) => change::attach(&arguments).map(|()| ExitCode::SUCCESS),
        WmctlCommand::Code(arguments) => code::code(&arguments).map(|()| ExitCode::SUCCESS),
        WmctlCommand::Clean(arguments) => clean::clean(&arguments).map(|()| ExitCode::SUCCESS),
        WmctlCommand::Dedup(arguments) => dedup::dedup(&arguments).map(|()| ExitCode::SUCCESS),
        WmctlCommand::Doctor(arguments) => doctor::doctor(&arguments),
        WmctlCommand::Paths(arguments) => paths::paths(&arguments).map(|()| ExitCode::SUCCESS),
        WmctlCommand::Cdi(arguments) => cdi::cdi(&arguments).map(|()| ExitCode::SUCCESS),
        WmctlCommand::Hooks(arguments) => hooks::hooks(&arguments).map(|()| ExitCode::SUCCESS),
        WmctlCommand::Bench(arguments) => bench::bench(&arguments),
        WmctlCommand::Profile(arguments) => profile::profile(&arguments).map(|()| ExitCode::SUCCESS),
        WmctlCommand::Replay(arguments) => replay::replay(&arguments),
        WmctlCommand::BugReport(arguments) => bug_report::bug_report(&arguments).map(|()| ExitCode::SUCCESS),
        WmctlCommand::Report(arguments) => report::report(&arguments).map(|()| ExitCode::SUCCESS),
        WmctlCommand::Diff(arguments) => diff::diff(&arguments).map(|()| ExitCode::SUCCESS),
        WmctlCommand::Completions(arguments) => {
            manual::completions(&arguments, WmctlArguments::command()).map(|()| ExitCode::SUCCESS)
        }
        WmctlCommand::Man(arguments) => {
            manual::man(&arguments, WmctlArguments::command()).map(|()| ExitCode::SUCCESS)
        }
    }
}
