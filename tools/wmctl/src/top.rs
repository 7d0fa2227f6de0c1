//! `wmctl top`: what all programs under the shim hold, and what they copy now, again and again.
//!
//! A line is a process on a device; a second table has copies by path. A rate is the difference of two readings, so the
//! first table appears after one interval. A program that does not answer is shown without figures; one that has ended is
//! gone.

mod reading;
mod render;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::{client, output, screen};
use reading::Reading;

/// Arguments of `wmctl top`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Time between two tables
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = crate::stats::interval)]
    interval: Duration,
    /// Show one table and end
    #[arg(long)]
    once: bool,
    /// Print JSON, one line a table
    #[arg(long)]
    json: bool,
}

/// Shows tables until it is interrupted, or one.
///
/// # Errors
/// A closed pipe; with `--once`, no program at all.
pub(crate) fn top(arguments: &Arguments) -> Result<()> {
    let mut before = read();
    loop {
        thread::sleep(arguments.interval);
        let now = read();
        if arguments.once && now.processes.is_empty() {
            bail!("{}", client::none_found());
        }
        show(&now.since(&before), arguments)?;
        if arguments.once {
            return Ok(());
        }
        before = now;
    }
}

fn show(change: &reading::Change, arguments: &Arguments) -> Result<()> {
    if arguments.json {
        return output::print(&output::escaped(&format!("{}\n", serde_json::to_string(change)?)));
    }
    let table = render::table(change);
    if output::is_terminal() && !arguments.once {
        return output::print(&format!("\x1b[H\x1b[2J{}", screen::cut(&table)));
    }
    output::print(&table)
}

/// Asks all programs at once: one that is stopped delays a table by no more than the patience for one.
fn read() -> Reading {
    let found = client::find().alive;
    let answers = client::ask_all(&found, "stats").into_iter().map(Result::ok);
    let processes = found.iter().map(|endpoint| endpoint.pid).zip(answers);
    Reading { at: Instant::now(), processes: processes.collect() }
}
