//! Finds the next fault: draws random programs that are legal CUDA, runs each on the bare driver and under the library, and
//! holds the library to what the driver does.
//!
//! A program is a plain value, drawn from a seed: allocations and frees in every way that there is, in streams of every kind, with work
//! that writes all of a block or looks at all of it, waits, captures, and gates that hold streams up for as long as the program wants.
//! What makes it legal are the rules of a bare driver and nothing else ([`model`]). So bytes of somebody else's, a wait that does not
//! end, or an answer that the driver would not have given are the allocator's fault. What fails is cut down and printed.
#![allow(clippy::print_stdout, reason = "a program that tells what it found")]

mod bench;
mod calls;
mod child;
mod clock;
mod generate;
mod green;
mod judge;
mod model;
mod outcome;
mod program;
mod random;
mod report;
mod run;
mod world;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};

use crate::bench::Bench;
use crate::generate::Wishes;
use crate::judge::{Judge, Sides, Verdict};
use crate::program::{Program, Rules};
use crate::report::Found;

/// Draws random programs, runs them bare and under the library, and tells them apart.
#[derive(Parser, Debug)]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    /// First seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Programs to draw; default: 500, or no limit with --seconds
    #[arg(long)]
    programs: Option<u64>,
    /// End after so many seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// Run this saved program instead
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Most steps of a program
    #[arg(long, default_value_t = 60)]
    steps: usize,
    /// Devices to use
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    devices: u8,
    /// Which runs to make
    #[arg(long, value_enum, default_value = "both")]
    sides: Sides,
    /// The simulated driver to use instead of the machine's
    #[arg(long, value_name = "LIBRARY")]
    simulated: Option<PathBuf>,
    /// The library under test; default: beside this program, or in ../lib
    #[arg(long)]
    library: Option<PathBuf>,
    /// Let memory be short: only wrong bytes and waits that do not end count
    #[arg(long)]
    scarce: bool,
    /// Memory of a simulated device; default: 16GiB, or 64MiB with --scarce
    #[arg(long)]
    memory: Option<String>,
    /// Use green contexts too, where the driver has them
    #[arg(long)]
    green: bool,
    /// Draw programs that keep no order between streams, to see that they are found
    #[arg(long)]
    lawless: bool,
    /// Draw no gates: no stream is ever held up
    #[arg(long)]
    no_gates: bool,
    /// On the simulated driver, do not look for races
    #[arg(long)]
    no_races: bool,
    /// Draw programs for a driver whose allocations in stream order are no actions of their stream
    #[arg(long)]
    passive_allocations: bool,
    /// The same for frees in stream order
    #[arg(long)]
    passive_frees: bool,
    /// Milliseconds that a step may take
    #[arg(long, default_value_t = 5000)]
    limit: u64,
    /// Programs a process
    #[arg(long, default_value_t = 32)]
    batch: usize,
    /// Go on until so many programs have failed
    #[arg(long, default_value_t = 1)]
    failures: usize,
    /// Leave programs that fail as they were drawn
    #[arg(long)]
    no_shrink: bool,
    /// Print the programs and run nothing
    #[arg(long)]
    print: bool,
    /// One JSON document instead of a text
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Runs programs of standard input, a line each
    #[command(hide = true)]
    Child(child::Arguments),
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(Command::Child(arguments)) = &options.command {
        return ended(child::main(arguments).map(|()| true));
    }
    ended(options.run())
}

/// The exit status: 0 if all is right, 1 if something was found, 2 if it could not be run.
fn ended(outcome: Result<bool, String>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("oracle: {message}");
            ExitCode::from(2)
        }
    }
}

impl Options {
    fn run(&self) -> Result<bool, String> {
        if self.print {
            (0..self.programs.unwrap_or(1)).for_each(|at| print!("{}", self.draw(self.seed + at)));
            return Ok(true);
        }
        let judge = self.judge()?;
        let mut found = Found::default();
        match &self.program {
            Some(file) => {
                let text =
                    std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
                let programs: Vec<Program> =
                    serde_json::from_str(&text).map_err(|error| error.to_string())?;
                self.batch(&judge, &programs, &mut found);
            }
            None => self.draw_all(&judge, &mut found),
        }
        report::summary(&found, self.json);
        Ok(found.failed.is_empty())
    }

    fn wishes(&self) -> Wishes {
        // Where memory is short, an allocation may be refused, and what builds on it or its free is not there.
        let allocation_is_action = !self.passive_allocations && !self.scarce;
        let (lawless, free_is_action) = (self.lawless, !self.passive_frees && !self.scarce);
        let rules = Rules { allocation_is_action, free_is_action, lawless };
        let devices = usize::from(self.devices);
        Wishes {
            devices,
            steps: self.steps.clamp(4, 600),
            rules,
            green: self.green,
            gates: !self.no_gates,
            scarce: self.scarce,
        }
    }

    fn draw(&self, seed: u64) -> Program {
        generate::program(seed, &self.wishes())
    }

    fn judge(&self) -> Result<Judge, String> {
        let memory = if self.scarce { "64MiB" } else { "16GiB" };
        let bench = Bench {
            simulated: self.simulated.clone(),
            library: self.library.clone().map_or_else(library, Ok)?,
            devices: usize::from(self.devices),
            limit: Duration::from_millis(self.limit),
            memory: self.memory.clone().unwrap_or_else(|| memory.to_owned()),
            races: !self.no_races,
            delays: self.seed,
        };
        Ok(Judge { bench, scarce: self.scarce, sides: self.sides })
    }

    fn draw_all(&self, judge: &Judge, found: &mut Found) {
        let limit = self.programs.unwrap_or(if self.seconds.is_some() { u64::MAX } else { 500 });
        let (start, mut said) = (Instant::now(), Instant::now());
        let mut seed = self.seed;
        while found.programs < limit && found.failed.len() < self.failures {
            if self.seconds.is_some_and(|seconds| start.elapsed().as_secs() >= seconds) {
                return;
            }
            let count = (limit - found.programs).min(self.batch as u64);
            let programs: Vec<Program> = (seed..seed + count).map(|seed| self.draw(seed)).collect();
            seed += count;
            self.batch(judge, &programs, found);
            if said.elapsed() > Duration::from_secs(10) {
                said = Instant::now();
                report::progress(found, start.elapsed());
            }
        }
    }

    fn batch(&self, judge: &Judge, programs: &[Program], found: &mut Found) {
        let verdicts = judge.judge(programs);
        programs.iter().for_each(|program| found.count(program));
        // A process that ended took what came before with it.
        let mut first = 0;
        for (at, verdict) in verdicts.into_iter().enumerate() {
            let ended = verdict.ends_a_process();
            match verdict {
                Verdict::Right { checked, refused } => found.add(checked, refused),
                Verdict::Open => found.open += 1,
                _ if found.failed.len() >= self.failures => {}
                verdict => self.failed(judge, &programs[first..=at], verdict, found),
            }
            first = if ended { at + 1 } else { first };
        }
    }

    /// A program that failed after others is run alone. If it fails again it is cut down, else with the others.
    fn failed(&self, judge: &Judge, case: &[Program], verdict: Verdict, found: &mut Found) {
        let alone = &case[case.len() - 1..];
        eprintln!("oracle: seed {} fails: {}", alone[0].seed, verdict.name());
        let repeats = [alone, case].into_iter().find(|case| judge.fails(case, &verdict));
        let small = match repeats {
            Some(case) if !self.no_shrink => judge.shrink(case, &verdict),
            _ => repeats.unwrap_or(alone).to_vec(),
        };
        // What is told is how the small one fails.
        let last = judge.judge(&small).pop().filter(|last| last.is_like(&verdict));
        found.fail(small, last.unwrap_or(verdict), repeats.is_some());
    }
}

/// The library as it is built, or as it is installed.
fn library() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let folder = program.parent().unwrap_or(&program);
    let places = [folder.join("libwmshim.so"), folder.join("../lib/libwmshim.so")];
    places
        .into_iter()
        .find(|place| place.exists())
        .ok_or("libwmshim.so is not there; name it with --library".into())
}

/// Counts by name.
type Counts = BTreeMap<&'static str, u64>;
