//! Measures the latency of memory calls as a program sees them: bare, or under the shim when
//! preloaded.
//!
//! Four figures: a call that does nothing (`cuCtxGetDevice`, the price of a trampoline), an
//! allocation in stream order that is answered from a pool, its free, and a copy of 4 KiB without a
//! wait, which no setting splits. Each thread has its own stream and context current; a call is
//! timed on its own, so the clock's cost (some 25 ns) is in every figure, bare and shimmed alike.
#![allow(clippy::print_stdout, reason = "a command line tool")]

mod driver;
mod fan;
mod launches;
mod pollution;

use std::sync::Barrier;
use std::time::Instant;

use clap::Parser;
use driver::{Driver, Failure, Kind, Thread};
use pollution::Pollution;
use serde_json::json;

/// Times memory calls of the CUDA driver.
#[derive(Parser)]
struct Options {
    /// Threads, each with a stream of its own
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Rounds a thread
    #[arg(long, default_value_t = 20_000)]
    rounds: usize,
    /// Bytes of a block
    #[arg(long, default_value_t = 1 << 20)]
    bytes: usize,
    /// Blocks a thread holds at once
    #[arg(long, default_value_t = 4)]
    held: usize,
    /// In which streams
    #[arg(long, value_enum, default_value = "non-blocking")]
    streams: Kind,
    /// Instead, time an allocation while STREAMS other streams hold freed blocks, and wait
    /// for the host
    #[arg(long, value_name = "STREAMS")]
    fan: Option<usize>,
    /// Instead, time launches of a kernel with three parameters that use BLOCKS blocks in turn
    #[arg(long, value_name = "BLOCKS")]
    launches: Option<usize>,
    /// KiB of data and code that run through the caches before each call, as a program does between
    /// two calls
    #[arg(long, default_value_t = 0)]
    between: usize,
    /// One JSON document instead of a table
    #[arg(long)]
    json: bool,
}

/// Durations in nanoseconds of one kind of call.
#[derive(Default)]
struct Samples(Vec<u64>);

impl Samples {
    fn time<T>(&mut self, between: &Pollution, call: impl FnOnce() -> T) -> T {
        between.spread();
        let start = Instant::now();
        let result = call();
        self.0.push(start.elapsed().as_nanos() as u64);
        result
    }

    /// The value below which `share` of the samples lie.
    fn quantile(&mut self, share: f64) -> u64 {
        self.0.sort_unstable();
        let last = self.0.len().saturating_sub(1);
        self.0.get((last as f64 * share) as usize).copied().unwrap_or(0)
    }
}

/// The times of one thread: nothing, allocation, free, copy.
type Figures = [Samples; 4];

fn main() -> Result<(), Failure> {
    let options = Options::parse();
    let driver = Driver::open()?;
    if let Some(streams) = options.fan {
        return fan(&driver, &options, streams);
    }
    if let Some(blocks) = options.launches {
        return launches(&driver, &options, blocks);
    }
    let barrier = Barrier::new(options.threads);
    let mut sum = Figures::default();
    for figures in in_threads(&options, || measure(&driver, &options, &barrier)) {
        sum.iter_mut().zip(figures?).for_each(|(all, one)| all.0.extend(one.0));
    }
    show(&options, &mut sum);
    Ok(())
}

fn fan(driver: &Driver, options: &Options, streams: usize) -> Result<(), Failure> {
    driver.enter()?;
    let samples = fan::measure(driver, streams, options.bytes, options.rounds.min(1000))?;
    // The first rounds load memory and code.
    let mut samples = Samples(samples.into_iter().skip(100).collect());
    let (p50, p99) = (samples.quantile(0.5), samples.quantile(0.99));
    if options.json {
        println!("{}", json!({ "streams": streams, "bytes": options.bytes, "p50_ns": p50, "p99_ns": p99 }));
    } else {
        println!("alloc beside {streams} held streams {p50:>8} {p99:>8} {:>9}", samples.0.len());
    }
    Ok(())
}

fn launches(driver: &Driver, options: &Options, blocks: usize) -> Result<(), Failure> {
    driver.enter()?;
    let samples = launches::measure(driver, blocks, options.bytes, options.rounds)?;
    // The first rounds load memory and code.
    let mut samples = Samples(samples.into_iter().skip(options.rounds / 10).collect());
    let (least, p50) = (samples.quantile(0.0), samples.quantile(0.5));
    if options.json {
        println!("{}", json!({ "blocks": blocks, "bytes": options.bytes, "least_ns": least, "p50_ns": p50 }));
    } else {
        println!("launch, {blocks} blocks of {} bytes: least {least} ns, p50 {p50} ns", options.bytes);
    }
    Ok(())
}

fn in_threads<T: Send>(options: &Options, body: impl Fn() -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..options.threads).map(|_| scope.spawn(&body)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a measuring thread does not panic")).collect()
    })
}

fn measure(driver: &Driver, options: &Options, barrier: &Barrier) -> Result<Figures, Failure> {
    let thread = driver.thread(options.streams)?;
    let between = Pollution::new(options.between << 10)?;
    // Warm: the pool has the memory, the code is in the caches.
    round(&thread, &between, options, options.rounds / 10 + 1, &mut Figures::default())?;
    barrier.wait();
    let mut figures = Figures::default();
    round(&thread, &between, options, options.rounds, &mut figures)?;
    barrier.wait();
    Ok(figures)
}

fn round(
    thread: &Thread,
    between: &Pollution,
    options: &Options,
    rounds: usize,
    figures: &mut Figures,
) -> Result<(), Failure> {
    let [nothing, allocation, free, copy] = figures;
    for _ in 0..rounds.div_ceil(options.held) {
        nothing.time(between, || thread.nothing())?;
        let blocks: Result<Vec<_>, _> =
            (0..options.held).map(|_| allocation.time(between, || thread.allocate(options.bytes))).collect();
        for block in blocks? {
            free.time(between, || thread.free(block))?;
        }
        copy.time(between, || thread.copy())?;
        thread.wait()?;
    }
    Ok(())
}

fn show(options: &Options, figures: &mut Figures) {
    let names = ["no-op", "alloc", "free", "copy"];
    let rows = names
        .iter()
        .zip(figures)
        .map(|(name, samples)| (*name, samples.quantile(0.5), samples.quantile(0.99), samples.0.len()));
    if options.json {
        let rows: serde_json::Map<_, _> = rows
            .map(|(name, p50, p99, count)| {
                (name.to_owned(), json!({ "p50_ns": p50, "p99_ns": p99, "count": count }))
            })
            .collect();
        println!("{}", json!({ "threads": options.threads, "bytes": options.bytes, "calls": rows }));
        return;
    }
    println!(
        "{:8} {:>8} {:>8} {:>9}   {} threads, {} bytes",
        "call", "p50 ns", "p99 ns", "calls", options.threads, options.bytes
    );
    for (name, p50, p99, count) in rows {
        println!("{name:8} {p50:>8} {p99:>8} {count:>9}");
    }
}
