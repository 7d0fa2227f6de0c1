//! `wmctl run`: starts a program with the shim in front of the driver.
//!
//! Two variables do it. `LD_PRELOAD` gets the library's absolute path in front of what was there; it then answers for
//! `libcuda.so.1`. `LD_LIBRARY_PATH` gets the drop-in folder, where the library lies under the driver's own names: that
//! catches children of launchers that drop `LD_PRELOAD`. What was set is said on stderr. The program then replaces this
//! process, so that its process id, signals and exit code are its own; `--stats` keeps this process as its parent.

mod follow;
mod signals;

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Result, anyhow};
use serde_json::json;

use crate::client;
use crate::shim;

/// Arguments of `wmctl run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Print the program's statistics to stderr when it has ended
    #[arg(long)]
    stats: bool,
    /// Set a variable for the program, such as WMSHIM_DEVICE_LIMIT=48GiB
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// Do not say what is set
    #[arg(long, short)]
    quiet: bool,
    /// Say what is set, and print statistics, as JSON
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Arguments {
    /// A variable as the program will see it.
    fn variable(&self, name: &str) -> Option<OsString> {
        let set = self.set.iter().rev().find(|(set, _)| set == name);
        set.map_or_else(|| std::env::var_os(name), |(_, value)| Some(value.into()))
    }
}

fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE, such as WMSHIM_DEVICE_LIMIT=48GiB".to_owned()),
    }
}

/// Runs the program. Returns only with `--stats`, with the program's exit code.
///
/// # Errors
/// No library, or a program that cannot be started.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let variables = variables(arguments, &shim::find()?);
    if !arguments.quiet {
        announce(arguments, &variables);
    }
    let mut command = Command::new(&arguments.command[0]);
    command.args(&arguments.command[1..]).envs(variables);
    if arguments.stats {
        let places = client::directories_of(&|name| arguments.variable(name));
        return follow::follow(command, &places, arguments.json)
            .map_err(|error| explain(&arguments.command[0], error));
    }
    Err(explain(&arguments.command[0], command.exec().into()))
}

/// What is set for the program, in the order in which it is announced.
fn variables(arguments: &Arguments, library: &Path) -> Vec<(OsString, OsString)> {
    let mut variables = vec![("LD_PRELOAD".into(), before(library, "LD_PRELOAD"))];
    if let Some(folder) = shim::dropin(library) {
        variables.push(("LD_LIBRARY_PATH".into(), before(&folder, "LD_LIBRARY_PATH")));
    }
    variables.extend(arguments.set.iter().map(|(name, value)| (name.into(), value.into())));
    variables
}

/// A path in front of what the variable holds already, once.
fn before(path: &Path, variable: &str) -> OsString {
    let old = std::env::var_os(variable).unwrap_or_default();
    let is_first = std::env::split_paths(&old).next().as_deref() == Some(path);
    let mut value = path.as_os_str().to_owned();
    if is_first {
        return old;
    }
    if !old.is_empty() {
        value.push(":");
        value.push(old);
    }
    value
}

fn announce(arguments: &Arguments, variables: &[(OsString, OsString)]) {
    let pairs = variables.iter().map(|(name, value)| (name.to_string_lossy(), value.to_string_lossy()));
    if arguments.json {
        let set: serde_json::Map<_, _> =
            pairs.map(|(name, value)| (name.into_owned(), value.into())).collect();
        eprintln!("{}", json!({ "schema": "wmctl-run/1", "set": set }));
    } else {
        let set: Vec<_> = pairs.map(|(name, value)| format!("{name}={value}")).collect();
        eprintln!("wmctl: {}", set.join(" "));
    }
}

/// Why the program did not start, with the remedy.
fn explain(program: &OsStr, error: anyhow::Error) -> anyhow::Error {
    let program = program.to_string_lossy();
    match error.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
        Some(ErrorKind::NotFound) if program.contains('/') => {
            anyhow!(
                "{program}: there is no such file, or the interpreter that its first line names is missing"
            )
        }
        Some(ErrorKind::NotFound) => {
            anyhow!("{program}: no such command in PATH; give its path, or correct the name")
        }
        Some(ErrorKind::PermissionDenied) => {
            anyhow!("{program}: not executable; `chmod +x` it, or name its interpreter (python {program})")
        }
        _ => error.context(format!("cannot start {program}")),
    }
}
