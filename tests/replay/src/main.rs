//! `recorded`: a driver-API program whose allocations are known exactly, to be recorded under the
//! shim.
//! It does not know wmshim. On standard output it prints its actions, as `name=count` words that
//! the tests compare with the recording. The first argument chooses its end, or the number of
//! threads and devices.

mod launch;
mod tally;

use std::process::ExitCode;

use tally::{Tally, Walk};
use wm_abi::CUdevice;
use wm_driver::api::{Failed, Named};
use wm_driver::{Api, Table};

/// The call that ended the program, in words.
#[derive(Debug)]
struct Failure(String);

impl From<Failed> for Failure {
    fn from(failed: Failed) -> Self {
        Self(failed.to_string())
    }
}

type Driver = Named<'static>;

/// Steps of a walk: more than a recorder would keep in memory.
const STEPS: u32 = 6000;

fn main() -> ExitCode {
    let mode = std::env::args().nth(1).unwrap_or_default();
    match run(&mode) {
        Ok(tally) => {
            say(&tally);
            ExitCode::SUCCESS
        }
        Err(Failure(sentence)) => {
            eprintln!("recorded: {sentence}");
            ExitCode::FAILURE
        }
    }
}

#[allow(clippy::print_stdout, reason = "the program's report, which the tests read")]
fn say(tally: &Tally) {
    println!("{tally}");
}

fn run(mode: &str) -> Result<Tally, Failure> {
    let table = Table::of_process().map_err(|error| Failure(error.to_string()))?;
    let driver = Named(Box::leak(Box::new(table)));
    driver.init()?;
    enter(driver, 0)?;
    match mode {
        "plain" => walk(driver, 1, STEPS),
        "short" => walk(driver, 1, 100),
        "killed" => killed(driver),
        "forked" => forked(driver),
        "threads" => threads(driver),
        "devices" => devices(driver),
        "launches" => launch::launches(driver).map(|()| Tally::default()),
        _ => Err(Failure("say plain, short, killed, forked, threads, devices or launches".into())),
    }
}

/// Makes a device's primary context current in the thread.
fn enter(driver: Driver, device: CUdevice) -> Result<(), Failure> {
    Ok(driver.ctx_set_current(driver.primary_ctx_retain(device)?)?)
}

fn walk(driver: Driver, seed: u64, steps: u32) -> Result<Tally, Failure> {
    let mut walk = Walk::new(driver, seed)?;
    (0..steps).try_for_each(|_| walk.step())?;
    Ok(walk.end()?)
}

/// Ends like a process that the out-of-memory killer ends: no handler runs.
fn killed(driver: Driver) -> Result<Tally, Failure> {
    let tally = walk(driver, 2, STEPS)?;
    say(&tally);
    // SAFETY: ends this process at once.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    Ok(tally)
}

/// The child of a fork goes on with driver calls, which may fail.
fn forked(driver: Driver) -> Result<Tally, Failure> {
    let before = walk(driver, 3, 100)?;
    // SAFETY: the child calls the driver, which returns an error, and ends by `exit`, as careless
    // programs do.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = walk(driver, 4, 100).is_err();
        std::process::exit(i32::from(!refused));
    }
    let mut status = 0;
    // SAFETY: waits for our own child.
    unsafe { libc::waitpid(child, &mut status, 0) };
    Ok(before + walk(driver, 5, 100)?)
}

fn threads(driver: Driver) -> Result<Tally, Failure> {
    let one = |seed: u64| enter(driver, 0).and_then(|()| walk(driver, seed, STEPS / 4));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (10..14).map(|seed| scope.spawn(move || one(seed))).collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, _>| {
            worker.join().unwrap_or_else(|_| Err(Failure("a thread panicked".into())))
        };
        workers.into_iter().map(join).try_fold(Tally::default(), |sum, tally| Ok(sum + tally?))
    })
}

fn devices(driver: Driver) -> Result<Tally, Failure> {
    let first = walk(driver, 6, 100)?;
    enter(driver, 1)?;
    Ok(first + walk(driver, 7, 100)?)
}
