//! The process in which programs run: it reads them, a line each, and answers each with a line.

use std::io::BufRead;
use std::time::Duration;

use anyhow::Result;

use crate::cores;
use crate::program::Program;
use crate::run;
use crate::running::Marks;
use crate::world::World;

/// How programs are run.
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
    /// Say that the machine has so many cores
    #[arg(long, default_value_t = 0)]
    cores: usize,
    /// Milliseconds that a step may take
    #[arg(long, default_value_t = 5000)]
    limit: u64,
}

/// Runs what standard input says.
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
    for line in std::io::stdin().lock().lines() {
        let program: Program = serde_json::from_str(&line?)?;
        run::run(&world, &program, &mut marks, limit)?.hand_over();
    }
    Ok(())
}

/// An interrupt at the terminal is for the process that judges: a run that it ended would look as
/// if it had died.
fn leave_interrupts() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: installs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Handlers make this a program that serves faults, whose pageable copies are the driver's. Rust's
/// tell of a stack overflow, the simulated driver's, which its first kernel brings, of a kernel's
/// bad access: that ends the process then.
fn leave_faults() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: the default disposition.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}
