//! `cargo xtask stress`: the program of tools/stress in many runs, each with another seed, in turn
//! over the situations in which memory is short in another way.
//!
//! After them come random programs whose runs bare and under the library are compared
//! (tools/oracle), and processes that end at random moments (tests/hazards).
//!
//! By default as many operations as the simulated driver makes in about an hour; on a GPU they take
//! less. Each run is one line, with the library's own books checked after it. The first run that
//! finds something ends the task, with the command that repeats it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::driver::TestDriver;
use crate::step;

/// The runs, and their time.
#[derive(clap::Args)]
pub(crate) struct StressArguments {
    /// Operations of all runs together
    #[arg(long, default_value_t = 15_000_000)]
    operations: u64,
    /// Stop after so many minutes, also with fewer operations
    #[arg(long)]
    minutes: Option<u64>,
    /// Operations a run
    #[arg(long, default_value_t = 100_000)]
    run: u64,
    /// Minutes of random programs, bare and under the library, after the runs
    #[arg(long, default_value_t = 15)]
    oracle: u64,
    /// Processes that end at random moments, after those, in each of three situations
    #[arg(long, default_value_t = 2000)]
    exits: u64,
    /// Seed of the first run; each later one has the next
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Build with optimisations
    #[arg(long)]
    release: bool,
}

/// A way in which memory is short.
struct Situation {
    name: &'static str,
    arguments: &'static [&'static str],
    settings: &'static [(&'static str, &'static str)],
    devices: usize,
}

const SITUATIONS: [Situation; 5] = [
    Situation { name: "room on the host", arguments: &["--peak", "1.4"], settings: &[], devices: 1 },
    Situation {
        name: "half the device",
        arguments: &["--peak", "1.4"],
        settings: &[("WMSHIM_DEVICE_LIMIT", "50%")],
        devices: 1,
    },
    Situation {
        name: "no room elsewhere",
        arguments: &["--threads", "32", "--streams", "8", "--peak", "1.1"],
        settings: &[("WMSHIM_OVERFLOW", "off")],
        devices: 1,
    },
    Situation {
        name: "two devices",
        arguments: &["--devices", "2", "--peak", "1.3"],
        settings: &[],
        devices: 2,
    },
    Situation {
        name: "two devices that lend",
        arguments: &["--devices", "2", "--part", "16", "--peak", "1.3"],
        settings: &[("WMSHIM_OVERFLOW", "peer,host"), ("WMSHIM_DEVICE_LIMIT", "60%")],
        devices: 2,
    },
];

/// Builds, and runs until enough was done or something was found.
pub(crate) fn run(arguments: &StressArguments) -> Result<()> {
    let folder = build(arguments.release)?;
    let driver = TestDriver::choose(&folder)?;
    let devices = if matches!(driver, TestDriver::Real) { 1 } else { 2 };
    let situations: Vec<_> = SITUATIONS.iter().filter(|situation| situation.devices <= devices).collect();
    let limit = arguments.minutes.map_or(Duration::MAX, |minutes| Duration::from_secs(60 * minutes));
    let (start, mut done, mut checked) = (Instant::now(), 0, 0);
    for (seed, situation) in (arguments.seed..).zip(situations.iter().cycle()) {
        if done >= arguments.operations || start.elapsed() >= limit {
            break;
        }
        let found = once(&folder, &driver, situation, seed, arguments.run)?;
        (done, checked) = (done + found.operations, checked + found.checked);
        found.show(situation, seed);
    }
    let (minutes, gib) = (start.elapsed().as_secs_f64() / 60.0, checked >> 30);
    println!("\n{done} operations in {minutes:.1} minutes, {gib} GiB checked: every mark was its owner's.");
    oracle(&folder, &driver, arguments)?;
    exits(&driver, arguments)
}

/// Ends of processes at random moments, on the simulated driver: more of them than the test has by
/// itself. On GPUs that is `tests/workloads/exits.py`.
fn exits(driver: &TestDriver, arguments: &StressArguments) -> Result<()> {
    if matches!(driver, TestDriver::Real) || arguments.exits == 0 {
        return Ok(());
    }
    step::run("build", step::cargo(&["build", "--workspace"]))?;
    let mut test = step::cargo(&["test", "--package", "hazards", "--test", "exits"]);
    test.env("HAZARD_EXITS", arguments.exits.to_string()).env("HAZARD_SEED", arguments.seed.to_string());
    step::run("exits", test)
}

/// Ways in which random programs are drawn; each gets its share of the time.
const PROGRAMS: [&[&str]; 4] = [&[], &["--devices", "2"], &["--devices", "2", "--no-gates"], &["--scarce"]];
/// A real device may be the only one, and has too much memory to be short of it.
const PROGRAMS_OF_A_GPU: [&[&str]; 2] = [&[], &["--green"]];

/// Compares random programs bare and under the library.
fn oracle(folder: &Path, driver: &TestDriver, arguments: &StressArguments) -> Result<()> {
    let ways = if matches!(driver, TestDriver::Real) { &PROGRAMS_OF_A_GPU[..] } else { &PROGRAMS[..] };
    let seconds = (60 * arguments.oracle / ways.len() as u64).to_string();
    for way in ways.iter().filter(|_| arguments.oracle > 0) {
        let mut command = Command::new(folder.join("oracle"));
        command.args(["--seconds", &seconds, "--seed", &arguments.seed.to_string()]).args(*way);
        if let TestDriver::Simulated(library) = driver {
            command.arg("--simulated").arg(library);
        }
        step::run("random programs", command)?;
    }
    Ok(())
}

fn build(release: bool) -> Result<PathBuf> {
    let mut build = step::cargo(&["build"]);
    for package in ["wmshim", "simcuda", "wmctl", "stress", "oracle"] {
        build.args(["--package", package]);
    }
    build.args(release.then_some("--release"));
    step::run("build", build)?;
    Ok(crate::target()?.join(if release { "release" } else { "debug" }))
}

/// The figures of a run that found nothing.
struct StressResult {
    operations: u64,
    seconds: f64,
    checked: u64,
    refused: u64,
    overflows: u64,
}

impl StressResult {
    fn show(&self, situation: &Situation, seed: u64) {
        println!(
            "seed {seed:>5}  {:<22} {:>9} operations {:>7.1} s {:>7.1} GiB checked, {} overflows, {} refused",
            situation.name,
            self.operations,
            self.seconds,
            self.checked as f64 / f64::from(1 << 30),
            self.overflows,
            self.refused
        );
    }
}

fn once(
    folder: &Path,
    driver: &TestDriver,
    situation: &Situation,
    seed: u64,
    operations: u64,
) -> Result<StressResult> {
    let mut command = command(folder, driver, situation, seed, operations);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("cannot start wmctl")?;
    let errors = child.stderr.take().context("piped above")?;
    let statistics = pass_on(errors)?;
    let output = child.wait_with_output().context("the run")?;
    if !output.status.success() {
        println!("{}", String::from_utf8_lossy(&output.stdout));
        bail!(
            "seed {seed}, {}: failed ({}). To repeat it:\n{}",
            situation.name,
            output.status,
            shown(&command)
        );
    }
    let summary: Value = serde_json::from_slice(&output.stdout).context("the program's summary")?;
    let overflows = books(&statistics).with_context(|| format!("seed {seed}, {}", situation.name))?;
    let sum = |field| total(&summary["devices"], field);
    Ok(StressResult {
        operations: summary["operations"].as_u64().unwrap_or(0),
        seconds: summary["seconds"].as_f64().unwrap_or(0.0),
        checked: sum("checked_bytes"),
        refused: summary["refused"].as_u64().unwrap_or(0),
        overflows,
    })
}

fn command(folder: &Path, driver: &TestDriver, situation: &Situation, seed: u64, operations: u64) -> Command {
    let (seed, operations) = (seed.to_string(), operations.to_string());
    let mut command = Command::new(folder.join("wmctl"));
    command.args(["run", "--stats", "--json", "--quiet", "--"]).arg(folder.join("stress"));
    command.args(["--json", "--progress", "60", "--seed", &seed, "--operations", &operations]);
    command.args(situation.arguments).envs(situation.settings.iter().copied()).env("WMSHIM_LOG", "error");
    driver.serve_behind_the_shim(&mut command);
    if let TestDriver::Simulated(_) = driver {
        command.envs([
            ("SIMCUDA_SEED", seed.as_str()),
            ("SIMCUDA_MEMORY", "256MiB"),
            ("SIMCUDA_DEVICES", "2"),
        ]);
    }
    command
}

/// Lets the program's lines through, and keeps the document that `wmctl` ends with.
fn pass_on(errors: impl std::io::Read) -> Result<Value> {
    let mut document = Value::Null;
    for line in BufReader::new(errors).lines() {
        let line = line?;
        match serde_json::from_str::<Value>(&line).ok().filter(Value::is_object) {
            Some(value) => document = value,
            None => eprintln!("{line}"),
        }
    }
    Ok(document)
}

/// After a program that gave everything back: do the library's books agree? Returns its overflows.
fn books(statistics: &Value) -> Result<u64> {
    let process = &statistics["processes"][0];
    if process["fail_open"]["count"] != 0 {
        bail!("the shim stepped aside: {}", process["fail_open"]);
    }
    let devices = process["devices"].as_array().context("no statistics")?;
    for device in devices {
        let counters = &device["counters"];
        // A range in which another thread is about to unmap something is given back later, and
        // counted; nothing may be left of it.
        if counters["allocations"] != counters["frees"]
            || device["audit"] != "ok"
            || device["quarantined"] != 0
        {
            bail!("the books do not agree: {device}");
        }
    }
    Ok(devices.iter().filter_map(|device| device["counters"]["overflows"].as_u64()).sum())
}

fn total(rows: &Value, field: &str) -> u64 {
    let rows = rows.as_array().into_iter().flatten();
    rows.filter_map(|row| row[field].as_u64()).sum()
}

/// A command with its variables, for a shell.
fn shown(command: &Command) -> String {
    let variables = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let variables =
        variables.map(|(name, value)| format!("{}={}", name.to_string_lossy(), value.to_string_lossy()));
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words = words.map(|word| word.to_string_lossy().into_owned());
    variables.chain(words).collect::<Vec<_>>().join(" ")
}
