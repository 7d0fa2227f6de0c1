//! Runs the commands that a task consists of, one line on the terminal each, with the time it took.
//!
//! A step that fails ends the task: its output is above the message, and the message repeats the
//! command so that it can be run by hand.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// A command from words: `command("cargo", &["fmt", "--check"])`, to be run in the workspace's
/// root.
pub(crate) fn command(program: impl AsRef<Path>, arguments: &[&str]) -> Command {
    let mut command = Command::new(program.as_ref());
    command.args(arguments).current_dir(crate::root());
    command
}

/// The cargo that runs this task, so that a step uses the same toolchain.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    command(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()), arguments)
}

/// Builds all that tests need. Fewer packages would choose other features of their dependencies,
/// and later steps would build these again.
pub(crate) fn build() -> Result<()> {
    run("build", cargo(&["build", "--workspace", "--lib", "--bins", "--examples", "--tests"]))
}

/// Runs `command` and fails unless it succeeds. `title` says what the step is for.
pub(crate) fn run(title: &str, mut command: Command) -> Result<()> {
    let shown = shown(&command);
    println!("==> {title}: {shown}");
    let start = Instant::now();
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("{title} failed ({status}): {shown}");
    }
    done(title, start);
    Ok(())
}

/// The same for a step that is not a command.
pub(crate) fn perform(title: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("==> {title}");
    let start = Instant::now();
    work().with_context(|| format!("{title} failed"))?;
    done(title, start);
    Ok(())
}

/// The standard output of a command that must succeed.
pub(crate) fn output(mut command: Command) -> Result<String> {
    let shown = shown(&command);
    let output = command.output().with_context(|| format!("cannot start `{shown}`"))?;
    if !output.status.success() {
        bail!("`{shown}` failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn done(title: &str, start: Instant) {
    println!("    {title}: {:.1} s", start.elapsed().as_secs_f64());
}

fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
