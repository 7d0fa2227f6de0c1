//! `wmctl top`: the memory and the current copies of all programs under the shim, renewed in place.
//!
//! A line is a process on a device; a second table has copies by path. A rate is the difference of
//! two readings, so the first table appears after one interval. Figures are read from the programs'
//! black boxes; a program without one that does not answer is shown without figures; one that has
//! ended is gone. At a terminal, keys end it and choose
//! the sort key.

mod keys;
mod reading;
mod render;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::client::{self, IdentityReader};
use crate::{output, programs, screen, stats};
use keys::Keys;
use reading::{By, Change, ProgramFigures, Sample};

/// Arguments of `wmctl top`.
#[derive(Debug, clap::Args)]
pub(crate) struct TopArguments {
    /// Time between two tables
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = stats::interval)]
    interval: Duration,
    /// What comes first: the most of it, or the lowest PID
    #[arg(long, value_name = "COLUMN", default_value = "pid")]
    sort: By,
    /// Show one table and end
    #[arg(long)]
    once: bool,
    /// Leave the arguments of programs out: they may have secrets
    #[arg(long)]
    no_args: bool,
    /// Print JSON, one line a table
    #[arg(long)]
    json: bool,
}

/// Shows tables until it is interrupted, or one.
///
/// # Errors
/// A closed pipe; with `--once`, no program at all.
pub(crate) fn top(arguments: &TopArguments) -> Result<()> {
    let mut screen = Screen::new(arguments);
    let mut finder = programs::Finder::default();
    let mut before = read(&mut finder);
    while screen.pause(arguments.interval)? {
        let now = read(&mut finder);
        if arguments.once && now.processes.is_empty() {
            bail!("{}", client::none_found());
        }
        screen.show_new(now.since(&before))?;
        if arguments.once {
            break;
        }
        before = now;
    }
    Ok(())
}

/// The output, its options and the last reading.
struct Screen {
    json: bool,
    /// Each table takes the place of the last.
    in_place: bool,
    sort: By,
    keys: Option<Keys>,
    identities: IdentityReader,
    last: Option<Change>,
}

impl Screen {
    fn new(arguments: &TopArguments) -> Self {
        let in_place = output::is_terminal() && !arguments.once && !arguments.json;
        let keys = in_place.then(Keys::open).flatten();
        let identities = IdentityReader::new(arguments.no_args);
        Self { json: arguments.json, in_place, sort: arguments.sort, keys, identities, last: None }
    }

    /// Waits for the interval and obeys keys meanwhile. `false`: a key ends the program.
    fn pause(&mut self, interval: Duration) -> Result<bool> {
        if self.keys.is_none() {
            thread::sleep(interval);
            return Ok(true);
        }
        let deadline = Instant::now() + interval;
        while let Some(key) = self.keys.as_ref().and_then(|keys| keys.next(deadline)) {
            if key == b'q' {
                return Ok(false);
            }
            self.sort = By::of_key(key).unwrap_or(self.sort);
            if let Some(last) = self.last.take() {
                self.show(last)?;
            }
        }
        Ok(true)
    }

    fn show_new(&mut self, mut change: Change) -> Result<()> {
        change.identify(|pid| self.identities.of(pid));
        self.show(change)
    }

    fn show(&mut self, mut change: Change) -> Result<()> {
        change.sort(self.sort);
        output::print(&self.text(&change)?)?;
        self.last = Some(change);
        Ok(())
    }

    fn text(&self, change: &Change) -> Result<String> {
        if self.json {
            return Ok(output::escaped(&format!("{}\n", serde_json::to_string(change)?)));
        }
        let table = render::table(change);
        if !self.in_place {
            return Ok(table);
        }
        let legend = self.keys.as_ref().map(|_| render::legend(self.sort)).unwrap_or_default();
        Ok(format!("\x1b[H\x1b[2J{}", screen::cut(&format!("{legend}{table}"))))
    }
}

/// Reads all programs' black boxes.
fn read(finder: &mut programs::Finder) -> Sample {
    let found = finder.find();
    let figures = programs::figures(&found.running);
    let program = |(program, figures): (&programs::Program, Result<programs::ToldFigures>)| {
        let stats = figures.ok().map(|told| told.stats);
        (program.pid, ProgramFigures { is_stopped: program.is_stopped, stats })
    };
    let processes = found.running.iter().zip(figures).map(program).collect();
    Sample { at: Instant::now(), processes, closed: client::closed_line(found.closed) }
}
