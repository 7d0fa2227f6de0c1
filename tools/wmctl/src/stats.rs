//! `wmctl stats` and `wmctl dump`: what programs under the shim hold and do.
//!
//! Without a process id: the one program that runs, or a list of them all. The schema is `docs/statistics.md`'s; what
//! is absent (an older shim) is shown as such, what is unknown (a newer one) is in `--json` only.

mod render;

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::client::{self, Endpoint, Found};
use crate::output;

/// Arguments of `wmctl stats`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The process; without it the only one, or a list of all
    pid: Option<u32>,
    /// Show it again every SECONDS until the program ends
    #[arg(long, value_name = "SECONDS", value_parser = interval)]
    watch: Option<Duration>,
    /// Show the blocks that are live instead
    #[arg(long, conflicts_with = "config")]
    blocks: bool,
    /// Show the settings in force instead
    #[arg(long)]
    config: bool,
    /// Ask at this socket (a program started with WMSHIM_STATS_SOCKET)
    #[arg(long, value_name = "PATH", conflicts_with = "pid")]
    socket: Option<PathBuf>,
    /// Print JSON, as the program sent it
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
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "give seconds, such as 1 or 0.5".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(interval) if interval >= Duration::from_millis(10) => Ok(interval),
        _ => Err("give 0.01 seconds or more".to_owned()),
    }
}

impl Arguments {
    fn request(&self) -> &'static str {
        match (self.blocks, self.config) {
            (true, _) => "blocks",
            (_, true) => "config",
            _ => "stats",
        }
    }

    fn text(&self, answer: &Value) -> String {
        match self.request() {
            "blocks" => render::blocks(answer),
            "config" => render::config(answer),
            _ => render::stats(answer),
        }
    }
}

/// Shows statistics, once or repeatedly.
///
/// # Errors
/// No program, or none that answers.
pub(crate) fn stats(arguments: &Arguments) -> Result<()> {
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

/// Shows one process or all. Returns how many answered.
fn show(arguments: &Arguments) -> Result<usize> {
    let endpoint = match (&arguments.socket, arguments.pid) {
        (Some(socket), _) => Some(Endpoint { pid: 0, socket: socket.clone() }),
        (_, Some(pid)) => Some(client::of_process(pid)?),
        _ => None,
    };
    match endpoint {
        Some(endpoint) => show_one(arguments, &endpoint),
        None => show_found(arguments, client::find()),
    }
}

fn show_found(arguments: &Arguments, mut found: Found) -> Result<usize> {
    report_stale(&found);
    match found.alive.len() {
        0 => bail!("{}", client::none_found()),
        1 => show_one(arguments, &found.alive.remove(0)),
        _ => show_all(arguments, &found.alive),
    }
}

fn report_stale(found: &Found) {
    for endpoint in &found.stale {
        eprintln!("wmctl: {} is left over from a process that ended; skipped", endpoint.socket.display());
    }
}

fn show_one(arguments: &Arguments, endpoint: &Endpoint) -> Result<usize> {
    let answer = client::ask(&endpoint.socket, arguments.request())?;
    if arguments.json {
        output::print_json(&answer)?;
    } else {
        output::print(&arguments.text(&answer))?;
    }
    Ok(1)
}

fn show_all(arguments: &Arguments, endpoints: &[Endpoint]) -> Result<usize> {
    if !arguments.json && arguments.request() != "stats" {
        let pids: Vec<_> = endpoints.iter().map(|endpoint| endpoint.pid.to_string()).collect();
        bail!("several programs run under the shim; name one: {}", pids.join(", "));
    }
    let answers =
        endpoints.iter().map(|endpoint| (endpoint, client::ask(&endpoint.socket, arguments.request())));
    let answers: Vec<_> = answers.collect();
    if arguments.json {
        output::print_json(&answers.iter().map(|(endpoint, answer)| described(endpoint, answer)).collect())?;
    } else {
        output::print(&render::list(&answers))?;
    }
    Ok(answers.len())
}

fn described(endpoint: &Endpoint, answer: &Result<Value>) -> Value {
    match answer {
        Ok(answer) => json!({ "pid": endpoint.pid, "socket": endpoint.socket, "answer": answer }),
        Err(error) => {
            json!({ "pid": endpoint.pid, "socket": endpoint.socket, "error": format!("{error:#}") })
        }
    }
}

/// Has a process write a dump, and prints where.
///
/// # Errors
/// No such process, or it cannot write.
pub(crate) fn dump(arguments: &DumpArguments) -> Result<()> {
    let answer = client::ask(&client::of_process(arguments.pid)?.socket, "dump")?;
    if arguments.json {
        return output::print_json(&answer);
    }
    let path = answer.get("path").and_then(Value::as_str).context("the program named no file")?;
    output::print(&format!("{path}\n"))
}

/// The text of a `stats` answer: what `wmctl run --stats` prints at the end.
pub(crate) fn text(answer: &Value) -> String {
    render::stats(answer)
}

/// A driver's version number as people write it: 13000 is CUDA 13.0.
pub(crate) fn cuda(version: i32) -> String {
    render::cuda(u64::try_from(version).unwrap_or(0))
}
