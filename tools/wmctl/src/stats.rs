//! `wmctl stats` and `wmctl dump`: the memory and the calls of programs under the shim.
//!
//! Without a process id it shows the one program that runs, or a list of all programs. The list is
//! read from the programs' black boxes and asks none of them; details are questions. Answers are
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

use crate::client::boxes::ReadBox;
use crate::client::{self, Endpoint, IdentityReader};
use crate::programs::{self, FigurePlace, FoundPrograms, Program, ToldFigures};
use crate::{human, output, screen};
use asked::AskedProgram;
pub(crate) use asked::refusal;
pub(crate) use render::{arena, paused};

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
    /// Show programs that ended without an exit, until `wmctl clean` removes what they left
    #[arg(long, conflicts_with_all = ["pid", "watch", "blocks", "config", "socket"])]
    dead: bool,
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

    fn text(&self, pid: Option<u32>, answer: &Value) -> Result<String> {
        Ok(match self.request() {
            "blocks" => blocks::table(&client::parsed(answer)?),
            "config" => render::config(&client::parsed(answer)?),
            _ => render::stats(pid, &client::parsed(answer)?),
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
    let answers = answers(arguments);
    if let (true, Err(_)) = (arguments.json, &answers) {
        output::print_json(&document(&[]))?;
    }
    let mut answers = answers?;
    let mut identities = IdentityReader::new(arguments.no_args);
    let living = answers.iter_mut().filter(|_| !arguments.dead);
    living.for_each(|program| program.identity = identities.of(program.pid));
    let count = answers.len();
    if arguments.json {
        output::print_json(&document(&answers))?;
        return single(answers).map(|_| count);
    }
    if arguments.dead {
        output::print(&render::dead(&answers))?;
    } else if count == 1 {
        // A socket that was named may be of another machine's process.
        let pid = Some(answers[0].pid).filter(|pid| *pid != 0);
        let answer = single(answers)?.unwrap_or_default();
        arguments.print(&arguments.text(pid, &answer)?)?;
    } else {
        arguments.print(&render::list(&answers))?;
    }
    Ok(count)
}

/// The programs that are meant, and their answers.
fn answers(arguments: &StatsArguments) -> Result<Vec<AskedProgram>> {
    match (&arguments.socket, arguments.pid) {
        _ if arguments.dead => dead(),
        (Some(socket), _) => Ok(vec![asked(&Endpoint::at(socket)?, arguments)]),
        (_, Some(pid)) => one(pid, arguments).map(|answer| vec![answer]),
        _ => all(arguments, programs::Finder::default().find()),
    }
}

fn asked(endpoint: &Endpoint, arguments: &StatsArguments) -> AskedProgram {
    let place = FigurePlace::Socket(endpoint.socket.clone());
    AskedProgram::new(endpoint.pid, place, false, client::ask(endpoint, arguments.request()))
}

/// One process in detail. Of one that cannot answer, because it is stopped or has no socket, its
/// black box has the figures.
fn one(pid: u32, arguments: &StatsArguments) -> Result<AskedProgram> {
    let read = client::box_of(pid).filter(|_| arguments.request() == "stats");
    let endpoint = match &read {
        Some(read) if read.is_stopped => {
            eprintln!("wmctl: process {pid} is stopped: these are the figures of its black box");
            None
        }
        Some(_) => client::of_process(pid).ok(),
        None => Some(client::of_process(pid)?),
    };
    match (endpoint, read) {
        (None, Some(read)) => {
            let answer = serde_json::to_value(read.stats(true)).map_err(Into::into);
            Ok(AskedProgram::new(pid, FigurePlace::BlackBox(read.path), read.is_stopped, answer))
        }
        (Some(endpoint), _) => Ok(asked(&endpoint, arguments)),
        (None, None) => bail!("process {pid} has no socket and no black box"),
    }
}

/// All that run. The only one in detail.
fn all(arguments: &StatsArguments, found: FoundPrograms) -> Result<Vec<AskedProgram>> {
    report(&found);
    let pids: Vec<_> = found.running.iter().map(|program| program.pid.to_string()).collect();
    match &found.running[..] {
        [] => bail!("{}", client::none_found()),
        [only] => return only_one(only, arguments).map(|answer| vec![answer]),
        _ if !arguments.json && arguments.request() != "stats" => {
            bail!("several programs run under the shim; name one: {}", pids.join(", "))
        }
        _ if arguments.request() != "stats" => {
            let detailed = |program: &Program| {
                one(program.pid, arguments).unwrap_or_else(|error| from_box(program, Err(error)))
            };
            return Ok(found.running.iter().map(detailed).collect());
        }
        _ => {}
    }
    let figures = programs::figures(&found.running, client::PATIENCE).into_iter();
    let value = |figures: Result<ToldFigures>| {
        figures.and_then(|told| told.answer.map_or_else(|| Ok(serde_json::to_value(&told.stats)?), Ok))
    };
    Ok(found
        .running
        .iter()
        .zip(figures)
        .map(|(program, figures)| from_box(program, value(figures)))
        .collect())
}

/// In detail, if its own variables lead to its socket.
fn only_one(program: &Program, arguments: &StatsArguments) -> Result<AskedProgram> {
    let figures = program.black_box().filter(|_| arguments.request() == "stats");
    match (one(program.pid, arguments), figures) {
        (Err(_), Some(stats)) => Ok(from_box(program, serde_json::to_value(&stats).map_err(Into::into))),
        (answer, _) => answer,
    }
}

fn from_box(program: &Program, answer: Result<Value>) -> AskedProgram {
    AskedProgram::new(program.pid, program.place(), program.is_stopped, answer)
}

/// Those that ended without an exit, in this user's folders.
fn dead() -> Result<Vec<AskedProgram>> {
    let found = client::own_boxes();
    found.problems.iter().for_each(|problem| eprintln!("wmctl: {}", human::shown(problem)));
    if found.dead.is_empty() {
        bail!("no black box of a program that ended without an exit is left");
    }
    let answer = |read: &ReadBox| {
        let answer = serde_json::to_value(read.stats(false)).map_err(Into::into);
        let refused = read.reading.refused.clone();
        AskedProgram {
            refused,
            ..AskedProgram::new(read.pid, FigurePlace::BlackBox(read.path.clone()), false, answer)
        }
    };
    Ok(found.dead.iter().map(answer).collect())
}

/// Prints stale sockets and problems on stderr.
fn report(found: &FoundPrograms) {
    for problem in found.problems.iter().chain(&client::closed_line(found.closed)) {
        eprintln!("wmctl: {}", human::shown(problem));
    }
    match found.dead.len() {
        0 => {}
        1 => eprintln!("wmctl: one program ended without an exit; `wmctl stats --dead` shows its figures"),
        count => eprintln!(
            "wmctl: {count} programs ended without an exit; `wmctl stats --dead` shows their figures"
        ),
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
    Ok(render::stats(None, &client::parsed(answer)?))
}

/// A driver's version number as people write it: 13000 is CUDA 13.0.
pub(crate) fn cuda(version: i32) -> String {
    render::cuda(version)
}

#[cfg(test)]
mod tests;
