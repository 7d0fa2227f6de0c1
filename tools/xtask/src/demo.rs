//! `cargo xtask demo`: one ordinary CUDA program twice, bare and under the shim.
//!
//! The program (tools/demo) outgrows the device, so the bare run must fail, and its failure is
//! shown; under the shim it must end well, and the shim's counters are printed. Where there is a
//! GPU the real driver serves both runs, else the simulated one with 2 GiB. On a real GPU a
//! neighbour process holds most of the memory: the program then runs out for real, within seconds
//! instead of minutes.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::driver::TestDriver;
use crate::step;

/// Builds, runs the program bare and under the shim, and fails unless the first run fails and the
/// second succeeds.
pub(crate) fn run(gib: u64) -> Result<()> {
    let packages = ["--package", "wmshim", "--package", "simcuda", "--package", "wmctl", "--package", "demo"];
    let mut build = step::cargo(&["build"]);
    build.args(packages);
    step::run("build", build)?;
    let folder = crate::target()?.join("debug");
    let driver = TestDriver::choose(&folder)?;
    let neighbour = neighbour(&driver, &folder, gib)?;
    bare(&driver, &folder)?;
    under_the_shim(&driver, &folder)?;
    neighbour.map_or(Ok(()), dismiss)
}

fn bare(driver: &TestDriver, folder: &Path) -> Result<()> {
    title("The program alone");
    let mut program = Command::new(folder.join("demo"));
    driver.serve(&mut program);
    simulate(&mut program);
    let output = program.stderr(Stdio::inherit()).output().context("cannot start the program")?;
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}");
    match output.status.code() {
        Some(1) if said.contains("CUDA_ERROR_OUT_OF_MEMORY") => Ok(()),
        Some(0) => bail!("the program fitted without the shim: there was nothing to show"),
        _ => bail!(
            "without the shim the program must run out of memory, and ended otherwise ({})",
            output.status
        ),
    }
}

fn under_the_shim(driver: &TestDriver, folder: &Path) -> Result<()> {
    title("The same program under the shim");
    let mut program = Command::new(folder.join("wmctl"));
    program.args(["run", "--stats", "--"]).arg(folder.join("demo"));
    driver.serve_behind_the_shim(&mut program);
    simulate(&mut program);
    let status = program.status().context("cannot start wmctl")?;
    if !status.success() {
        bail!("the program failed under the shim ({status})");
    }
    println!("\nThe program that ran out of memory alone held 1.5 times that memory under the shim.");
    Ok(())
}

fn simulate(program: &mut Command) {
    program.env("SIMCUDA_DEVICES", "1").env("SIMCUDA_MEMORY", "2GiB");
}

/// On a real GPU: starts the process that holds all but `gib`, and waits until it does.
fn neighbour(driver: &TestDriver, folder: &Path, gib: u64) -> Result<Option<Child>> {
    let TestDriver::Real = driver else { return Ok(None) };
    let mut program = Command::new(folder.join("demo"));
    program.args(["--leave", &gib.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = program.spawn().context("cannot start the neighbour")?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("piped above")?).read_line(&mut line)?;
    if !line.starts_with("neighbour holds") {
        bail!("the neighbour failed: {}", line.trim());
    }
    println!("So that it is quick, a neighbour process leaves {gib} GiB of the device: {}.", line.trim());
    Ok(Some(child))
}

/// Ends the neighbour by closing its standard input.
fn dismiss(mut neighbour: Child) -> Result<()> {
    drop(neighbour.stdin.take());
    neighbour.wait().context("the neighbour")?;
    Ok(())
}

fn title(text: &str) {
    println!("\n{text}\n{}", "-".repeat(text.len()));
}
