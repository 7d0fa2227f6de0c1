//! `wmctl export`: the figures of all programs for Prometheus.
//!
//! Over HTTP, as a file for node_exporter's textfile collector, or on standard output. Each scrape
//! asks all programs at once. The `wmshim_up` of a program that is stopped or silent is 0; its
//! other figures are those of its black box, if it has one.

mod encode;
mod families;
mod http;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::client::{self, IdentityReader};
use crate::output;
use crate::programs::{self, Finder, Program};
use families::ExportedProgram;

/// How long a program may take to answer a scrape. Prometheus gives up after ten seconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// The file in the folder of the textfile collector.
const FILE: &str = "wmshim.prom";

/// Arguments of `wmctl export`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportArguments {
    /// Serve /metrics over HTTP, at 127.0.0.1:9835 or another address
    #[arg(
        long,
        value_name = "ADDRESS",
        num_args = 0..=1,
        default_missing_value = "127.0.0.1:9835",
        conflicts_with = "textfile"
    )]
    listen: Option<SocketAddr>,
    /// Write wmshim.prom into this folder, for node_exporter's textfile collector
    #[arg(long, value_name = "DIR")]
    textfile: Option<PathBuf>,
    /// Leave process ids out, which make a new series for each run: equal programs are summed up
    #[arg(long)]
    no_pid: bool,
    /// Print JSON
    #[arg(long, conflicts_with_all = ["listen", "textfile"])]
    json: bool,
}

/// Serves, writes or prints the figures.
///
/// # Errors
/// An address that cannot be listened at, a folder that cannot be written, a closed pipe.
pub(crate) fn export(arguments: &ExportArguments) -> Result<()> {
    let text = || encode::text(&families::families(&read(), arguments.no_pid));
    match (arguments.listen, &arguments.textfile) {
        (Some(address), _) => http::serve(address, text),
        (_, Some(folder)) => write(folder, &text()),
        _ if arguments.json => {
            output::print_json(&encode::json(&families::families(&read(), arguments.no_pid)))
        }
        _ => output::print(&text()),
    }
}

/// Asks all programs at once, those excepted that are stopped and cannot answer.
fn read() -> families::Reading {
    let found = Finder::default().find();
    let answers = programs::ask(&found.running, Program::endpoint, PATIENCE);
    let mut identities = IdentityReader::new(false);
    let program = |(program, answer): (&Program, Option<Result<Value>>)| {
        let told = answer.and_then(|answer| client::parsed(&answer.ok()?).ok());
        let (pid, answers) = (program.pid, told.is_some());
        let stats = told.or_else(|| program.black_box());
        ExportedProgram { pid, identity: identities.of(pid), answers, stats }
    };
    let programs = found.running.iter().zip(answers).map(program).collect();
    families::Reading { programs, closed: found.closed as u64 }
}

/// Writes the file whole under another name first: the collector reads at any time.
fn write(folder: &Path, text: &str) -> Result<()> {
    let (file, fresh) = (folder.join(FILE), folder.join(format!(".{FILE}.{}", std::process::id())));
    let written = std::fs::write(&fresh, text).and_then(|()| std::fs::rename(&fresh, &file));
    written.with_context(|| {
        let _none = std::fs::remove_file(&fresh);
        format!("{} cannot be written: give the folder of --collector.textfile.directory", file.display())
    })
}
