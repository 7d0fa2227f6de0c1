//! `wmctl stats` and `wmctl dump`: the memory and the calls of programs under the shim.
//!
//! Without a process id it shows the one program that runs, or a list of all programs. Answers are
//! read as the types of `wm-schema`, which give an older library's missing fields their defaults.
//! `--json` passes answers on as they came. It has one shape for no, one and many programs, so that
//! a script does not fail when a second job starts.

mod asked;
mod blocks;
mod render;

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::client::{self, Endpoint, FoundSockets, IdentityReader};
use crate::{human, output, screen};
use asked::AskedProgram;

/// Arguments of `wmctl stats`.
#[derive(Debug, clap::Args)]
pub(crate) struct StatsArguments {
    /// The process; without it the only one, or a list of all
    pid: Option<u32>,
    /// Show it again every SECONDS until the program ends
    #[arg(long, value_name = "SECONDS", value_parser = interval)]
    watch: Option<Duration>,
    /// Show the blocks that are live, and the memory that the program made itself, instead
    #[arg(long, conflicts_with = "config")]
    blocks: bool,
    /// Show the settings in force instead
    #[arg(long)]
    config: bool,
    /// Query this socket (of a program started with WMSHIM_STATS_SOCKET)
    #[arg(long, value_name = "PATH", conflicts_with = "pid")]
    socket: Option<PathBuf>,
    /// Leave the arguments of programs out: they may have secrets
    #[arg(long)]
    no_args: bool,
    /// Print JSON: a list of programs, each with its answer as it sent it
    #[arg(long)]
    json: bool,
}

/// Arguments of `wmctl dump`.
#[derive(Debug, clap::Args)]
pub(crate) struct DumpArguments {
    /// The process
    pid: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A time between two looks, as a command line says it.
pub(crate) fn interval(text: &str) -> Result<Duration> {
    let seconds: f64 = text.parse().ok().context("give seconds, such as 1 or 0.5")?;
    let interval = Duration::try_from_secs_f64(seconds).ok();
    interval.filter(|interval| *interval >= Duration::from_millis(10)).context("give 0.01 seconds or more")
}

impl StatsArguments {
    fn request(&self) -> &'static str {
        match (self.blocks, self.config) {
            (true, _) => "blocks",
            (_, true) => "config",
            _ => "stats",
        }
    }

    /// Output that is renewed in place is cut to the terminal.
    fn print(&self, text: &str) -> Result<()> {
        if self.watch.is_some() { output::print(&screen::cut(text)) } else { output::print(text) }
    }

    fn text(&self, answer: &Value) -> Result<String> {
        Ok(match self.request() {
            "blocks" => blocks::table(&client::parsed(answer)?),
            "config" => render::config(&client::parsed(answer)?),
            _ => render::stats(&client::parsed(answer)?),
        })
    }
}

/// Shows statistics, once or repeatedly.
///
/// # Errors
/// No program, or none that answers.
pub(crate) fn stats(arguments: &StatsArguments) -> Result<()> {
    let Some(interval) = arguments.watch else { return show(arguments).map(|_| ()) };
    let mut shown = show(arguments)?;
    loop {
        thread::sleep(interval);
        if output::is_terminal() {
            output::print("\x1b[H\x1b[2J")?;
        }
        match show(arguments) {
            Ok(count) => shown = count,
            // The program that was watched is gone: the end of the watch, and no error.
            Err(_) if shown == 1 => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Shows one process or all. Returns how many there are.
fn show(arguments: &StatsArguments) -> Result<usize> {
    let found = chosen(arguments);
    if let (true, Err(_)) = (arguments.json, &found) {
        output::print_json(&document(&[]))?;
    }
    let endpoints = found?;
    let mut identities = IdentityReader::new(arguments.no_args);
    let answers = client::ask_all(&endpoints, arguments.request());
    let program = |(endpoint, answer): (&Endpoint, Result<Value>)| AskedProgram {
        pid: endpoint.pid,
        socket: endpoint.socket.clone(),
        identity: identities.of(endpoint.pid),
        answer,
    };
    let answers: Vec<AskedProgram> = endpoints.iter().zip(answers).map(program).collect();
    if arguments.json {
        output::print_json(&document(&answers))?;
        return single(answers).map(|_| endpoints.len());
    }
    if answers.len() == 1 {
        let answer = single(answers)?.unwrap_or_default();
        arguments.print(&arguments.text(&answer)?)?;
    } else {
        arguments.print(&render::list(&answers))?;
    }
    Ok(endpoints.len())
}

/// The programs that are meant.
fn chosen(arguments: &StatsArguments) -> Result<Vec<Endpoint>> {
    match (&arguments.socket, arguments.pid) {
        (Some(socket), _) => Ok(vec![Endpoint::at(socket)?]),
        (_, Some(pid)) => Ok(vec![client::of_process(pid)?]),
        _ => all(arguments, client::find()),
    }
}

fn all(arguments: &StatsArguments, found: FoundSockets) -> Result<Vec<Endpoint>> {
    report(&found);
    let pids: Vec<_> = found.alive.iter().map(|endpoint| endpoint.pid.to_string()).collect();
    match pids.len() {
        0 => bail!("{}", client::none_found()),
        2.. if !arguments.json && arguments.request() != "stats" => {
            bail!("several programs run under the shim; name one: {}", pids.join(", "))
        }
        _ => Ok(found.alive),
    }
}

/// Prints stale sockets and problems on stderr.
fn report(found: &FoundSockets) {
    for problem in found.problems.iter().chain(&found.closed_line()) {
        eprintln!("wmctl: {}", human::shown(problem));
    }
    match found.stale.len() {
        0 => {}
        1 => eprintln!(
            "wmctl: {} is left over from a program that was killed; `wmctl clean` removes it",
            human::shown(&found.stale[0].socket.display().to_string())
        ),
        count => eprintln!(
            "wmctl: {count} sockets are left over from programs that were killed; `wmctl clean` removes them"
        ),
    }
}

/// The answer of an only program; its silence is then the command's error.
fn single(mut answers: Vec<AskedProgram>) -> Result<Option<Value>> {
    if answers.len() == 1 { answers.remove(0).answer.map(Some) } else { Ok(None) }
}

/// One shape for none, one and many.
fn document(answers: &[AskedProgram]) -> Value {
    let processes: Vec<_> = answers.iter().map(AskedProgram::document).collect();
    json!({ "schema": "wmctl-stats/1", "processes": processes })
}

/// Has a process write a dump, and prints where.
///
/// # Errors
/// No such process, or it cannot write.
pub(crate) fn dump(arguments: &DumpArguments) -> Result<()> {
    let endpoint = client::of_process(arguments.pid)?;
    let answer = client::ask(&endpoint, "dump")?;
    let path = answer.get("path").and_then(Value::as_str).context("the program named no file")?;
    let path = endpoint.seen_from_here(path).display().to_string();
    if arguments.json {
        return output::print_json(&json!({ "schema": "wmctl-dump/1", "pid": arguments.pid, "path": path }));
    }
    output::print(&format!("{}\n", human::shown(&path)))
}

/// The text of a `stats` answer, which `wmctl run --stats` prints at the end.
///
/// # Errors
/// An answer of another form.
pub(crate) fn text(answer: &Value) -> Result<String> {
    Ok(render::stats(&client::parsed(answer)?))
}

/// A driver's version number as people write it: 13000 is CUDA 13.0.
pub(crate) fn cuda(version: i32) -> String {
    render::cuda(version)
}

#[cfg(test)]
mod tests;
