//! Finds the next fault: draws random programs that are legal CUDA, runs each on the bare driver
//! and under the library, and compares the library's run with the driver's.
//!
//! A program is a plain value, drawn from a seed: allocations and frees with every call, in streams
//! of every kind, with work that writes or checks a whole block, waits, captures, and gates that
//! hold streams for as long as the program wants. A program is legal by the rules of a bare driver
//! alone ([`model`]). So another block's bytes, a wait that does not end, or an answer that the
//! driver would not have given are the allocator's fault. A program that fails is shrunk and
//! printed.
#![allow(clippy::print_stdout, reason = "a program that tells what it found")]

mod advice;
mod bench;
mod calls;
mod child;
mod clock;
mod cores;
mod crew;
mod end;
mod generate;
mod host;
mod judge;
mod killed;
mod mapped;
mod model;
mod moves;
mod outcome;
mod partners;
mod pauses;
mod process;
mod program;
mod relays;
mod report;
mod run;
mod running;
mod shrink;
mod told;
mod turns;
mod used;
mod world;

use std::io::{self, ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};

use crate::bench::{Bench, Limits};
use crate::crew::{Care, Stretch, Supply, Worker};
use crate::end::End;
use crate::generate::Wishes;
use crate::judge::{Judge, Sides};
use crate::killed::Killer;
use crate::program::{Program, Rules};
use crate::relays::Machines;
use crate::report::Found;
use crate::told::Told;
use crate::turns::TurnMachine;

/// Draws random programs, runs them bare and under the library, and tells them apart.
#[derive(Parser, Debug)]
#[command(args_override_self = true)]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    /// First seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Programs to draw; default: 500, or no limit with --seconds
    #[arg(long)]
    programs: Option<u64>,
    /// Start no program after this many seconds, and end soon after
    #[arg(long)]
    seconds: Option<u64>,
    /// Programs that run side by side, each in processes of its own; default: 1 on the simulated
    /// driver, 2 on a real one, where more delay each other
    #[arg(long)]
    jobs: Option<usize>,
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
    /// Draw memory that programs make themselves, by cuMemCreate
    #[arg(long)]
    mapped: bool,
    /// Draw copies between blocks and pinned and pageable memory of the host's, large enough for
    /// the library's threads
    #[arg(long)]
    copies: bool,
    /// The same, and let the library take them over the links of other devices; it is an error if
    /// it takes none
    #[arg(long)]
    relays: bool,
    /// On the simulated driver, let calls fail that the library makes: with --relays those on a
    /// sibling, with --moves or --pauses those that move memory. Programs of --mapped make these
    /// calls themselves
    #[arg(long, conflicts_with = "mapped")]
    failing: bool,
    /// Let the library move memory: one program a process, in half of the device memory that it
    /// needs; it is an error if nothing moves
    #[arg(long, conflicts_with_all = ["copies", "relays", "scarce", "green"])]
    moves: bool,
    /// Pause and resume the library's process at random: one program a process; it is an error
    /// if nothing moves
    #[arg(long, conflicts_with_all = ["copies", "relays", "scarce", "green", "timed"])]
    pauses: bool,
    /// On the simulated driver, let the library's processes of several programs take turns at one
    /// GPU, beside programs that are killed, and a broker that is; it is an error if none has to
    /// ask for its turn
    #[arg(long, requires = "simulated")]
    #[arg(conflicts_with_all = ["copies", "relays", "scarce", "green", "timed", "moves", "partners"])]
    turns: bool,
    /// As --moves, on a quiet machine: a call that takes 20 ms longer than on the driver alone
    /// counts
    #[arg(long, requires = "moves")]
    timed: bool,
    /// With --moves, let a thread limit, trim, detach and attach the process at random moments
    #[arg(long, requires = "moves", conflicts_with = "timed")]
    limits: bool,
    /// With --moves or --pauses on the simulated driver, let other processes take the device's
    /// memory, and kill them at random moments
    #[arg(long, requires = "simulated")]
    partners: bool,
    /// Draw programs that keep no order between streams, to check that they are found
    #[arg(long)]
    lawless: bool,
    /// Draw no gates: no stream is ever held
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
    /// Milliseconds that a step may take; one that takes longer under the library is tried again
    /// with more
    #[arg(long, default_value_t = 5000)]
    limit: u64,
    /// The same for the driver alone; default: --limit, on a real driver 2000 at most
    #[arg(long)]
    bare_limit: Option<u64>,
    /// Programs a process; default: 32 on the simulated driver, 6 with --failing, 256 on a real one
    #[arg(long)]
    batch: Option<u64>,
    /// Programs that a stream serves, and a context that is not primary; default: 1 on the
    /// simulated driver, 64 on a real one
    #[arg(long)]
    lives: Option<u32>,
    /// Go on until this many programs have failed
    #[arg(long, default_value_t = 1)]
    failures: usize,
    /// Leave programs that fail as they were drawn
    #[arg(long)]
    no_shrink: bool,
    /// Seconds to shrink a program
    #[arg(long, default_value_t = 60)]
    shrink_seconds: u64,
    /// Print the programs and run nothing; with --json one a line, as input of `oracle child`
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
    /// Takes memory beside a process of the library's, until it is killed
    #[command(hide = true)]
    Partner(partners::Arguments),
}

fn main() -> ExitCode {
    let options = Options::parse();
    ended(match &options.command {
        Some(Command::Child(arguments)) => child::main(arguments).map(|()| true),
        Some(Command::Partner(arguments)) => partners::main(arguments).map(|()| true),
        None => options.run(),
    })
}

/// The exit status: 0 if all is right, 1 for a fault, 2 if the run failed.
fn ended(outcome: Result<bool>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("oracle: {error:#}");
            ExitCode::from(2)
        }
    }
}

impl Options {
    fn run(&self) -> Result<bool> {
        if self.print {
            return self.print_all().map(|()| true);
        }
        let judge = self.judge()?;
        end::listen_for_interrupts();
        if self.relays && self.sides != Sides::Bare {
            judge.try_library().context("no copy can be relayed")?;
        }
        let supply = self.supply()?;
        let mut found = Found::new();
        let killer = self.turns.then(|| Killer::start(&judge.bench, self.some_seeds(), self.wishes()));
        self.judge_all(&judge, &supply, &mut found);
        drop(killer);
        report::summary(&found, self.json);
        let expects = self.relays && self.sides != Sides::Bare && self.program.is_none();
        if expects && found.failed.is_empty() && found.programs > 0 && found.relayed.is_empty() {
            bail!("no copy of any program was relayed: nothing is said about relays");
        }
        let expects = self.turns && self.sides != Sides::Bare && self.program.is_none();
        if expects && found.failed.is_empty() && found.programs > 0 && found.asks == 0 {
            bail!("no program had to ask for its turn: nothing is said about turns");
        }
        let expects = (self.moves || self.pauses) && self.sides != Sides::Bare && self.program.is_none();
        if expects && found.failed.is_empty() && found.programs > 0 && found.moved == 0 {
            bail!("no memory of any program moved: nothing is said about moves");
        }
        Ok(found.failed.is_empty())
    }

    /// A reader that has seen enough, such as `head`, ends it.
    fn print_all(&self) -> Result<()> {
        let mut out = io::stdout().lock();
        for at in 0..self.programs.unwrap_or(1) {
            let program = self.draw(self.seed + at);
            let text = if self.json { serde_json::to_string(&program)? + "\n" } else { program.to_string() };
            match out.write_all(text.as_bytes()) {
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
                written => written?,
            }
        }
        Ok(())
    }

    /// The programs to run.
    fn supply(&self) -> Result<Supply> {
        let end = End::after(self.seconds.map(Duration::from_secs));
        let Some(file) = &self.program else {
            let count = self.programs.unwrap_or(if self.seconds.is_some() { u64::MAX } else { 500 });
            // A relay that has failed is unused for seconds; in the next process it fails again.
            let usual = if self.failing { 6 } else { 32 };
            let batch = self.batch.unwrap_or(if self.simulated.is_some() { usual } else { 256 });
            // A program may pin memory for the rest of its process, and each has its own limit.
            let batch = if self.moves_memory() { 1 } else { batch };
            let share = count.div_ceil(self.jobs() as u64);
            let seeds = self.seed..self.seed.saturating_add(count);
            return Ok(Supply::new(Stretch::Drawn(seeds), batch.min(share), self.failures, end));
        };
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let programs: Vec<Program> = serde_json::from_str(&text)?;
        Ok(Supply::new(Stretch::Saved(programs), 1, self.failures, end))
    }

    fn jobs(&self) -> usize {
        let usual = if self.turns { turns::JOBS } else { 1 };
        self.jobs.unwrap_or(if self.simulated.is_some() { usual } else { 2 }).clamp(1, 64)
    }

    fn moves_memory(&self) -> bool {
        self.moves || self.pauses || self.turns
    }

    /// Seeds of the programs to run, of some if they are many.
    fn some_seeds(&self) -> Vec<u64> {
        (0..self.programs.unwrap_or(500).clamp(1, 1000)).map(|at| self.seed.saturating_add(at)).collect()
    }

    /// Lets workers judge all programs, and collects their messages.
    fn judge_all(&self, judge: &Judge, supply: &Supply, found: &mut Found) {
        let (told, heard) = mpsc::channel();
        let care = Care { shrink: !self.no_shrink, time: Duration::from_secs(self.shrink_seconds) };
        std::thread::scope(|scope| {
            for _ in 0..self.jobs() {
                let worker = Worker { judge, supply, wishes: self.wishes(), care, told: told.clone() };
                scope.spawn(move || worker.work());
            }
            drop(told);
            hear(&heard, found);
        });
    }

    fn wishes(&self) -> Wishes {
        // If memory is scarce, an allocation may be refused, and then its dependants and its free
        // are missing.
        let allocation_is_action = !self.passive_allocations && !self.scarce;
        let (lawless, free_is_action) = (self.lawless, !self.passive_frees && !self.scarce);
        let rules = Rules { allocation_is_action, free_is_action, short: self.scarce, lawless };
        let devices = usize::from(self.devices);
        Wishes {
            devices,
            steps: self.steps.clamp(4, 600),
            rules,
            green: self.green,
            gates: !self.no_gates,
            scarce: self.scarce,
            copies: self.copies || self.relays,
            sibling: self.relays,
            held_copies: self.simulated.is_some(),
            mapped: self.mapped,
            moves: self.moves_memory(),
        }
    }

    fn draw(&self, seed: u64) -> Program {
        generate::program(seed, &self.wishes())
    }

    fn judge(&self) -> Result<Judge> {
        let memory = if self.scarce { "64MiB" } else { "16GiB" };
        let library = self.library.clone().map_or_else(library, Ok)?;
        let machine = || TurnMachine::new(&library, self.jobs(), &self.some_seeds(), &self.wishes());
        let turns = self.turns.then(machine).transpose()?.map(Arc::new);
        let bench = Bench {
            simulated: self.simulated.clone(),
            library,
            turns,
            devices: usize::from(self.devices),
            lives: self.lives.unwrap_or(if self.simulated.is_some() { 1 } else { 64 }),
            limits: self.limits(),
            memory: self.memory.clone().unwrap_or_else(|| memory.to_owned()),
            races: !self.no_races,
            delays: self.seed,
            copies: self.copies,
            failing: self.failing,
            partners: self.partners && (self.moves || self.pauses),
            moves: self.moves,
            pauses: self.pauses,
            limits_change: self.limits,
            timed: self.timed,
            relays: self.relays.then(|| Arc::new(Machines::new())),
        };
        // Runs in flight at the deadline get a little more time, so that few are lost.
        let end = End::after(self.seconds.map(|seconds| Duration::from_millis(seconds * 1080 + 1000)));
        Ok(Judge { bench, scarce: self.scarce, sides: self.sides, end })
    }

    /// A program that hangs on a real driver alone is left open: a longer wait finds nothing there,
    /// and costs time. Steps take milliseconds.
    fn limits(&self) -> Limits {
        let most = if self.simulated.is_some() { u64::MAX } else { 2000 };
        let bare = self.bare_limit.unwrap_or(self.limit.min(most));
        Limits { bare: Duration::from_millis(bare), library: Duration::from_millis(self.limit) }
    }
}

/// Collects messages of workers until all of them are done, and reports the progress from time to
/// time.
fn hear(heard: &Receiver<Told>, found: &mut Found) {
    let mut said = Instant::now();
    loop {
        match heard.recv_timeout(report::OFTEN.saturating_sub(said.elapsed())) {
            Ok(told) => found.hear(told),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if said.elapsed() >= report::OFTEN {
            said = Instant::now();
            report::progress(found);
        }
    }
}

/// The library beside this program, as built, or in ../lib, as installed.
fn library() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let folder = program.parent().unwrap_or(&program);
    let places = [folder.join("libwmshim.so"), folder.join("../lib/libwmshim.so")];
    let found = places.into_iter().find(|place| place.exists());
    found.context("libwmshim.so is not there; name it with --library")
}
