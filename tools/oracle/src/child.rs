//! The process in which programs run: it reads one program a line, and writes one outcome a line.

use std::io::BufRead;
use std::time::Duration;

use anyhow::Result;

use crate::advice::Advice;
use crate::cores;
use crate::outcome::Outcome;
use crate::pauses::Pauses;
use crate::program::Program;
use crate::relays::Statistics;
use crate::run;
use crate::running::{Beside, Marks};
use crate::world::World;

/// The options of a process that runs programs.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct Arguments {
    /// The driver to open, by name or path
    #[arg(long, default_value = "libcuda.so.1")]
    open: String,
    /// Devices to use
    #[arg(long, default_value_t = 1)]
    devices: usize,
    /// Programs that a context serves, if it is no primary one
    #[arg(long, default_value_t = 1)]
    lives: u32,
    /// Copies must go through other devices, and it is told which do
    #[arg(long)]
    relays: bool,
    /// It is told which copies threads of the library carried
    #[arg(long)]
    threads: bool,
    /// Blocks are advised about, and it is told how much memory moved
    #[arg(long)]
    moves: bool,
    /// The process is paused and resumed, and it is told how much memory moved
    #[arg(long)]
    pauses: bool,
    /// The process takes turns with others, and it is told how often it has asked for one
    #[arg(long)]
    turns: bool,
    /// The process is limited, trimmed, detached and attached meanwhile
    #[arg(long)]
    limits: bool,
    /// The number of cores that the machine reports
    #[arg(long, default_value_t = 0)]
    cores: usize,
    /// Milliseconds that a step may take
    #[arg(long, default_value_t = 5000)]
    limit: u64,
}

/// Runs the programs of standard input.
pub(crate) fn main(arguments: &Arguments) -> Result<()> {
    leave_interrupts();
    cores::pretend(arguments.cores);
    let mut world = World::open(&arguments.open, arguments.devices, arguments.lives)?;
    if arguments.relays || arguments.threads {
        leave_faults();
        world.tell_of(if arguments.relays { "relay" } else { "threads" })?;
    }
    if arguments.relays {
        world.warm_relays()?;
    }
    let (mut marks, limit) = (Marks::default(), Duration::from_millis(arguments.limit));
    let beside = Beside {
        advice: if arguments.moves { Advice::find(arguments.limits) } else { None },
        pauses: if arguments.pauses { Pauses::find() } else { None },
    };
    let tells = arguments.moves || arguments.pauses || arguments.turns;
    for line in std::io::stdin().lock().lines() {
        let program: Program = serde_json::from_str(&line?)?;
        let outcome = run::run(&world, &program, &mut marks, limit, beside)?;
        let statistics = Statistics::find().filter(|_| tells);
        let (moved, asks) = (statistics.map_or(0, Statistics::moved), statistics.map_or(0, Statistics::asks));
        Outcome { moved, asks, ..outcome }.hand_over();
    }
    Ok(())
}

/// Ignores an interrupt at the terminal, which is for the judging process: a run that it ended
/// would look like a crash.
fn leave_interrupts() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: installs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// With handlers this would be a program that handles faults, whose pageable copies the driver
/// makes. Rust's handlers report a stack overflow. The simulated driver's, which its first kernel
/// installs, report a kernel's bad access: without them that ends the process.
fn leave_faults() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: the default disposition.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}
