//! `wmctl run`: starts a program with the shim in front of the driver.
//!
//! Two variables do it. `LD_PRELOAD` gets the library's absolute path in front of its old value;
//! it then answers for `libcuda.so.1`. `LD_LIBRARY_PATH` gets the drop-in folder, where the library
//! lies under the driver's own names: that catches children of launchers that drop `LD_PRELOAD`.
//! The settings are printed on stderr. The program then replaces this process, so that its process
//! id, signals and exit code are its own; `--stats` keeps this process as its parent.
//!
//! A user at a terminal can correct a command line. So here an unknown setting is an error, as is a
//! program that the library cannot get into; the library itself goes on with the default instead.

mod follow;
mod program;
mod signals;

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Result;
use clap::builder::{OsStringValueParser, TypedValueParser};
use serde_json::json;

use crate::layout::{self, Layout};
use crate::output::Coded;
use crate::shim::{self, Library};
use crate::{human, output};
use program::ProgramCheck;

/// Arguments of `wmctl run`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArguments {
    /// Print the program's statistics to stderr when it has ended
    #[arg(long)]
    stats: bool,
    /// Set a variable for the program, such as WMSHIM_DEVICE_LIMIT=48GiB
    #[arg(long, value_name = "NAME=VALUE", value_parser = OsStringValueParser::new().try_map(assignment))]
    set: Vec<(OsString, OsString)>,
    /// Start it paused: what needs the GPU waits until `wmctl resume`
    #[arg(long)]
    paused: bool,
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

impl RunArguments {
    /// A variable as the program will see it.
    fn variable(&self, name: &str) -> Option<OsString> {
        let set = self.set.iter().rev().find(|(set, _)| set == name);
        set.map_or_else(|| std::env::var_os(name), |(_, value)| Some(value.clone()))
    }
}

pub(crate) fn assignment(text: OsString) -> Result<(OsString, OsString), &'static str> {
    let bytes = text.as_bytes();
    match bytes.iter().position(|byte| *byte == b'=') {
        Some(end) if end > 0 => {
            let [name, value] =
                [&bytes[..end], &bytes[end + 1..]].map(|part| OsStr::from_bytes(part).to_owned());
            Ok((name, value))
        }
        _ => Err("write NAME=VALUE, such as WMSHIM_DEVICE_LIMIT=48GiB"),
    }
}

/// Runs the program. Returns only with `--stats`, with the program's exit code.
///
/// # Errors
/// No library, a setting that it does not understand, or a program that cannot be started.
pub(crate) fn run(arguments: &RunArguments) -> Result<ExitCode> {
    refuse_options(&arguments.command, &std::env::args_os().collect::<Vec<_>>())?;
    let library = shim::find()?;
    let layout = layout::of(&library)?;
    let variables = variables(arguments, &layout);
    check_settings(&library, &variables)?;
    check_program(arguments)?;
    if !arguments.quiet {
        announce(arguments, &variables);
    }
    if let Err(why) = &layout.dropin {
        let why = human::shown(&format!("{why:#}"));
        eprintln!(
            "wmctl: no drop-in folder ({why}): children that are started without LD_PRELOAD run without wmshim"
        );
    }
    let mut command = Command::new(&arguments.command[0]);
    command.args(&arguments.command[1..]).envs(variables);
    if arguments.stats {
        let followed = follow::follow(command, &|name| arguments.variable(name), arguments.json);
        return followed.map_err(|error| explain(&arguments.command[0], error));
    }
    Err(explain(&arguments.command[0], command.exec().into()))
}

/// An option that is none of ours would be started as a program: a typing error, unless `--` stands
/// before it.
fn refuse_options(command: &[OsString], line: &[OsString]) -> Result<()> {
    let before = line.len().checked_sub(command.len() + 1).map(|at| &line[at]);
    if !command[0].as_bytes().starts_with(b"-") || before.is_some_and(|word| word == "--") {
        return Ok(());
    }
    let option = command[0].to_string_lossy();
    Err(coded(
        2,
        format!(
            "{option} is no option of `wmctl run`: `wmctl run --help` lists them; a program of that name stands behind --"
        ),
    ))
}

/// The program's additional variables, in the order in which they are announced.
fn variables(arguments: &RunArguments, layout: &Layout) -> Vec<(OsString, OsString)> {
    let before = |path: &Path, name: &str| before(path, arguments.variable(name));
    let mut variables: Vec<(OsString, OsString)> =
        vec![("LD_PRELOAD".into(), before(&layout.preload, "LD_PRELOAD"))];
    if let Ok(folder) = &layout.dropin {
        variables.push(("LD_LIBRARY_PATH".into(), before(folder, "LD_LIBRARY_PATH")));
    }
    let ours: Vec<_> = variables.iter().map(|(name, _)| name.clone()).collect();
    variables.extend(arguments.set.iter().filter(|(name, _)| !ours.contains(name)).cloned());
    if arguments.paused {
        variables.retain(|(name, _)| name != "WMSHIM_PAUSE");
        variables.push(("WMSHIM_PAUSE".into(), "paused".into()));
    }
    variables
}

/// A path in front of the variable's old value, once.
fn before(path: &Path, old: Option<OsString>) -> OsString {
    let old = old.unwrap_or_default();
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

/// Asks the library for its complaints about the program's settings.
fn check_settings(library: &Path, variables: &[(OsString, OsString)]) -> Result<()> {
    let is_set = |name: &OsString| variables.iter().any(|(set, _)| set == name);
    let inherited = std::env::vars_os().filter(|(name, _)| !is_set(name));
    let environment: Vec<_> = inherited.chain(variables.iter().cloned()).collect();
    let problems = Library::open(library)?.judge_settings(&environment).problems;
    match problems.first() {
        None => Ok(()),
        Some(_) => Err(coded(2, format!("{}; the program was not started", problems.join("; ")))),
    }
}

/// Reports that the library cannot be loaded into this program. The loader would report it in other
/// words, or not at all.
fn check_program(arguments: &RunArguments) -> Result<()> {
    match program::examine(&arguments.command[0], arguments.variable("PATH")) {
        ProgramCheck::Fit => Ok(()),
        ProgramCheck::Bare(sentence) => {
            eprintln!("wmctl: {}", human::shown(&sentence));
            Ok(())
        }
        ProgramCheck::Fails(sentence) => Err(coded(126, sentence)),
    }
}

fn coded(code: u8, sentence: String) -> anyhow::Error {
    Coded { code, sentence }.into()
}

fn announce(arguments: &RunArguments, variables: &[(OsString, OsString)]) {
    let pairs = variables.iter().map(|(name, value)| (name.to_string_lossy(), value.to_string_lossy()));
    if arguments.json {
        let set: serde_json::Map<_, _> =
            pairs.map(|(name, value)| (name.into_owned(), value.into())).collect();
        eprintln!("{}", output::escaped(&json!({ "schema": "wmctl-run/1", "set": set }).to_string()));
    } else {
        let set: Vec<_> = pairs.map(|(name, value)| format!("{name}={value}")).collect();
        eprintln!("wmctl: {}", human::shown(&set.join(" ")));
    }
}

/// Why the program did not start, with the remedy, and the code by which `env` and shells say it.
fn explain(program: &OsStr, error: anyhow::Error) -> anyhow::Error {
    let program = program.to_string_lossy();
    match error.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
        Some(ErrorKind::NotFound) if program.contains('/') => coded(
            127,
            format!(
                "{program}: there is no such file, or the interpreter that its first line names is missing"
            ),
        ),
        Some(ErrorKind::NotFound) => {
            coded(127, format!("{program}: no such command in PATH; give its path, or correct the name"))
        }
        Some(ErrorKind::PermissionDenied) => coded(
            126,
            format!("{program}: not executable; `chmod +x` it, or name its interpreter (python {program})"),
        ),
        Some(_) => coded(126, format!("cannot start {program}: {error:#}")),
        None => error,
    }
}
