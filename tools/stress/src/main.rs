//! Looks for two owners of one block of device memory.
//!
//! Many threads share many streams. Each draws operations at random: it allocates and frees in
//! every way there is, marks blocks as its own with kernels that write all of them, checks the
//! marks with kernels that read all of them, copies, hands blocks to other streams and threads,
//! waits, and destroys streams with work under way. All of it is legal CUDA, ordered by events and
//! nothing else. So a mark that is not the owner's is the allocator's fault: memory was given to
//! two, or too early.
//!
//! Under a driver alone the driver's allocator is tested, under wmshim that of wmshim; the program
//! knows neither. It ends with 0 if every byte that was to be checked was checked and right, and
//! everything could be freed.
#![allow(clippy::print_stdout, reason = "a program that tells what it found")]

mod block;
mod budget;
mod driver;
mod operations;
mod place;
mod random;
mod report;
mod tally;
mod worker;
mod world;

use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use clap::Parser;
use wm_driver::Api;

use crate::budget::Wish;
use crate::driver::{Driver, Failure, Result};
use crate::place::Place;
use crate::worker::Worker;
use crate::world::World;

/// Stamps and verifies device memory from many threads and streams.
#[derive(Parser, Debug)]
struct Options {
    /// Threads; they share the streams
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u8).range(1..=250))]
    threads: u8,
    /// Streams a device, the default stream among them
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u8).range(2..))]
    streams: u8,
    /// Devices, from the first on
    #[arg(long, default_value_t = 1)]
    devices: usize,
    /// End after this number of operations, all threads together; default: 100,000, or no limit
    /// with --seconds
    #[arg(long)]
    operations: Option<u64>,
    /// End after so many seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// What is drawn, and how it is ordered among threads that wait for nothing
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Device memory to reckon with, in MiB; default: what the driver says is free
    #[arg(long, value_name = "MIB")]
    memory: Option<u64>,
    /// Share of that memory to hold where a phase of the run fills it
    #[arg(long, default_value_t = 0.9)]
    pressure: f64,
    /// Share of that memory to hold at the peak; above 1 only where the allocator can go beyond the
    /// device
    #[arg(long, default_value_t = 1.0)]
    peak: f64,
    /// Operations a phase
    #[arg(long, default_value_t = 4096)]
    phase: u64,
    /// Most blocks are at most a so-many-th of the memory
    #[arg(long, default_value_t = 64)]
    part: u64,
    /// Seconds between lines on standard error; 0 for none
    #[arg(long, default_value_t = 10)]
    progress: u64,
    /// Write into another thread's block once in MARKS marks, to see that the checks find it
    #[arg(long, value_name = "MARKS")]
    sabotage: Option<usize>,
    /// One JSON document instead of a table
    #[arg(long)]
    json: bool,
}

impl Options {
    fn operations(&self) -> u64 {
        self.operations.unwrap_or(if self.seconds.is_some() { u64::MAX } else { 100_000 })
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    match prepare(&options).and_then(|world| run(&options, &world)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("stress: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn prepare(options: &Options) -> Result<World> {
    let driver = Driver::open()?;
    let there = driver.device_count()? as usize;
    if !(1..=there).contains(&options.devices) {
        return Err(Failure::of(format!("--devices {}: the driver has {there}", options.devices)));
    }
    let (streams, memory) = (usize::from(options.streams), options.memory.map(|mib| mib << 20));
    let place = |ordinal| Place::new(&driver, ordinal as i32, streams, memory);
    let places = (0..options.devices).map(place).collect::<Result<Vec<_>>>()?;
    let wish = Wish { pressure: options.pressure, peak: options.peak, phase: options.phase };
    let mut world = World::new(driver, places, wish, options.part.max(1), options.seed);
    (world.sabotage, world.operations) = (options.sabotage, options.operations());
    Ok(world)
}

/// Runs all threads to their end, then gives the verdict.
fn run(options: &Options, world: &World) -> Result {
    let start = Instant::now();
    let (ended, watch) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        for number in 0..usize::from(options.threads) {
            let ended = ended.clone();
            scope.spawn(move || {
                Worker::new(world, number).map_or_else(|failure| world.fail(failure), Worker::run);
                drop(ended);
            });
        }
        drop(ended);
        oversee(options, world, start, &watch);
    });
    let outcome = finish(world);
    report::summary(options, world, start.elapsed(), &outcome);
    outcome
}

/// Until all threads have ended: looks at the ledgers, ends the run when it is time, says how far
/// it is.
fn oversee(options: &Options, world: &World, start: Instant, watch: &mpsc::Receiver<()>) {
    const LOOK: Duration = Duration::from_millis(20);
    let mut said = start;
    while watch.recv_timeout(LOOK) == Err(mpsc::RecvTimeoutError::Timeout) {
        world.check().unwrap_or_else(|failure| world.fail(failure));
        if options.seconds.is_some_and(|seconds| start.elapsed().as_secs() >= seconds) {
            world.end();
        }
        if options.progress > 0 && said.elapsed().as_secs() >= options.progress {
            said = Instant::now();
            report::progress(world, start.elapsed());
        }
    }
}

/// Frees the blocks that no thread took over, and checks the driver's figures and the ledgers.
fn finish(world: &World) -> Result {
    world.verdict()?;
    Worker::new(world, usize::from(u8::MAX))?.inherit()?;
    world.places.iter().try_for_each(|place| place.settle(&world.driver))?;
    world.verdict()
}
