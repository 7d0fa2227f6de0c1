//! `cargo xtask demo`: one ordinary CUDA program twice, bare and under the shim.
//!
//! The program (tests/demo) outgrows the device, so the bare run must fail, and its failure is shown; under the shim it
//! must end well, and what the shim did is printed. Where there is a GPU the real driver serves both runs, else the
//! simulated one with 2 GiB. On a real GPU a neighbour process holds most of the memory: the program then runs out for
//! real, within seconds instead of minutes.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::step;

/// Device files of a GPU: desktop and server, WSL, Jetson.
const DEVICE_FILES: [&str; 3] = ["/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl-gpu"];
/// Where drivers are when the loader's cache does not say.
const DIRECTORIES: [&str; 5] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
];

/// Which driver serves the runs.
enum Driver {
    Real,
    Simulated(PathBuf),
}

/// Builds, runs the program bare and under the shim, and fails unless the first run fails and the second succeeds.
pub(crate) fn run(gib: u64) -> Result<()> {
    let packages = ["--package", "wmshim", "--package", "simcuda", "--package", "wmctl", "--package", "demo"];
    let mut build = step::cargo(&["build"]);
    build.args(packages);
    step::run("build", build)?;
    let folder = crate::target()?.join("debug");
    let driver = Driver::choose(&folder)?;
    let neighbour = driver.neighbour(&folder, gib)?;
    bare(&driver, &folder)?;
    under_the_shim(&driver, &folder)?;
    neighbour.map_or(Ok(()), dismiss)
}

fn bare(driver: &Driver, folder: &Path) -> Result<()> {
    title("The program alone");
    let mut program = Command::new(folder.join("demo"));
    driver.serve(&mut program);
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

fn under_the_shim(driver: &Driver, folder: &Path) -> Result<()> {
    title("The same program under the shim");
    let mut program = Command::new(folder.join("wmctl"));
    program.args(["run", "--stats", "--"]).arg(folder.join("demo"));
    driver.serve(&mut program);
    if let Driver::Simulated(library) = driver {
        program.env("WMSHIM_DRIVER", library);
    }
    let status = program.status().context("cannot start wmctl")?;
    if !status.success() {
        bail!("the program failed under the shim ({status})");
    }
    println!("\nThe program that ran out of memory alone held 1.5 times that memory under the shim.");
    Ok(())
}

impl Driver {
    fn choose(folder: &Path) -> Result<Self> {
        if let Some(path) = real() {
            println!("\nA GPU is there: the driver is {}.", path.display());
            return Ok(Self::Real);
        }
        println!("\nNo GPU here: the driver is the simulated one, with one device of 2 GiB.");
        Ok(Self::Simulated(simulated(folder)?))
    }

    /// Sets what a program needs to find this driver as `libcuda.so.1`. A real one is found without help.
    fn serve(&self, program: &mut Command) {
        if let Self::Simulated(library) = self {
            let mut path: OsString = library.parent().unwrap_or(Path::new("/")).into();
            if let Some(rest) = std::env::var_os("LD_LIBRARY_PATH") {
                path.push(":");
                path.push(rest);
            }
            program.env("LD_LIBRARY_PATH", path).env("SIMCUDA_DEVICES", "1").env("SIMCUDA_MEMORY", "2GiB");
        }
    }

    /// On a real GPU: starts the process that holds all but `gib`, and waits until it does.
    fn neighbour(&self, folder: &Path, gib: u64) -> Result<Option<Child>> {
        let Self::Real = self else { return Ok(None) };
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
}

/// Ends the neighbour by closing its standard input.
fn dismiss(mut neighbour: Child) -> Result<()> {
    drop(neighbour.stdin.take());
    neighbour.wait().context("the neighbour")?;
    Ok(())
}

/// The real driver: a device file, and the library in the loader's cache or a usual directory.
fn real() -> Option<PathBuf> {
    DEVICE_FILES.iter().find(|file| Path::new(file).exists())?;
    let directories = DIRECTORIES.iter().map(|folder| Path::new(folder).join("libcuda.so.1"));
    cached().into_iter().chain(directories).find(|path| path.exists())
}

/// What `ldconfig -p` says: `libcuda.so.1 (libc6,x86-64) => /path`.
fn cached() -> Option<PathBuf> {
    let listing = step::output(step::command("/sbin/ldconfig", &["-p"])).ok()?;
    let line = listing.lines().find(|line| line.trim_start().starts_with("libcuda.so.1 "))?;
    Some(line.split_once("=> ")?.1.trim().into())
}

/// The simulated driver under the name that programs look for.
fn simulated(folder: &Path) -> Result<PathBuf> {
    let named = folder.join("sim/libcuda.so.1");
    fs::create_dir_all(folder.join("sim"))?;
    let _absent_the_first_time = fs::remove_file(&named);
    symlink("../libsimcuda.so", &named).with_context(|| named.display().to_string())?;
    Ok(named)
}

fn title(text: &str) {
    println!("\n{text}\n{}", "-".repeat(text.len()));
}
