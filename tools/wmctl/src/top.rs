//! `wmctl top`: the memory and the current copies of all programs under the shim, renewed in place.
//!
//! At a terminal it is a screen with a line a device and its programs below, which keys scroll,
//! sort and filter ([`session`]). Elsewhere, and with `--once` or `--json`, tables follow each
//! other. Figures are read from the programs' black boxes; a program without one that does not
//! answer is shown without figures; one that has ended is gone. A rate is the difference of two
//! readings.

mod column;
mod draw;
mod history;
mod keys;
mod lines;
mod reader;
mod reading;
mod render;
mod session;
mod terminal;
mod used;
mod view;

use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::{client, output, screen, stats};
use column::Column;
use reader::ProgramReader;
use reading::Change;
use terminal::Terminal;

/// Arguments of `wmctl top`.
#[derive(Debug, clap::Args)]
pub(crate) struct TopArguments {
    /// Time between two tables [default: 1]; with --once, the time for which copies are counted
    #[arg(long, value_name = "SECONDS", value_parser = stats::interval)]
    interval: Option<Duration>,
    /// What comes first: the most of it, or the lowest PID
    #[arg(long, value_name = "COLUMN", default_value = "pid")]
    sort: Column,
    /// Show one table at once and end
    #[arg(long)]
    once: bool,
    /// Leave the arguments of programs out: they may have secrets
    #[arg(long)]
    no_args: bool,
    /// Print JSON, one line a table
    #[arg(long)]
    json: bool,
}

impl TopArguments {
    fn interval(&self) -> Duration {
        self.interval.unwrap_or(Duration::from_secs(1))
    }

    fn show(&self, mut change: Change) -> Result<()> {
        column::sort(&mut change.processes, self.sort);
        if self.json {
            return output::print(&output::escaped(&format!("{}\n", serde_json::to_string(&change)?)));
        }
        output::print(&render::table(&change))
    }
}

/// Shows tables until it is interrupted, or one.
///
/// # Errors
/// A closed pipe; with `--once`, no program at all.
pub(crate) fn top(arguments: &TopArguments) -> Result<()> {
    let interval = arguments.interval();
    let is_screen = !arguments.json && !arguments.once && screen::size().is_some();
    if let Some(terminal) = is_screen.then(Terminal::open).flatten() {
        return session::run(&terminal, arguments.no_args, arguments.sort, interval);
    }
    let mut reader = ProgramReader::new(arguments.no_args, client::PATIENCE);
    if arguments.once {
        return once(arguments, &mut reader);
    }
    reader.next();
    loop {
        thread::sleep(interval);
        arguments.show(reader.next())?;
    }
}

/// One table. Copies are counted if there is a time for it.
fn once(arguments: &TopArguments, reader: &mut ProgramReader) -> Result<()> {
    let mut change = reader.next();
    if let Some(interval) = arguments.interval {
        thread::sleep(interval);
        change = reader.next();
    }
    if change.processes.is_empty() {
        bail!("{}", client::none_found());
    }
    arguments.show(change)
}

#[cfg(test)]
mod tests;
