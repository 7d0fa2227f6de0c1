//! `wmctl clean`: removes the sockets and the black boxes of killed programs, and old files of an
//! out-of-memory, from this user's folders.
//!
//! Removed are sockets by the shim's own names that refuse a connection, black boxes of processes
//! that are gone, and files of an out-of-memory that such processes wrote a day ago or earlier, in
//! a folder that is this user's alone. Nothing else is touched: no other file, no folder, no socket
//! that answers, nothing on a file system that other machines share.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use crate::{client, human, output};

/// Files of an out-of-memory stay for a day, to be read.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Arguments of `wmctl clean`.
#[derive(Debug, clap::Args)]
pub(crate) struct CleanArguments {
    /// Say what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Remove files of an out-of-memory of any age, and not only those older than a day
    #[arg(long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Removes left-over sockets, boxes and files of an out-of-memory, and says which.
///
/// # Errors
/// Only those of printing: one that cannot be removed is said.
pub(crate) fn clean(arguments: &CleanArguments) -> Result<()> {
    let age = if arguments.all { Duration::ZERO } else { KEPT };
    let client::LeftOver { sockets, refusals, mut problems } = client::left_over(age);
    let mut removed = Vec::new();
    let mut remove = |path: PathBuf, remove: &dyn Fn() -> std::io::Result<()>| {
        let path = path.display().to_string();
        match if arguments.dry_run { Ok(()) } else { remove() } {
            Ok(()) => removed.push(path),
            Err(error) => problems.push(format!("{path} is not removed: {error}")),
        }
    };
    let boxes = client::own_boxes();
    sockets.iter().for_each(|endpoint| remove(endpoint.socket.clone(), &|| endpoint.remove()));
    boxes.dead.iter().for_each(|dead| remove(dead.path.clone(), &|| dead.remove()));
    boxes.unread.iter().chain(&refusals).for_each(|file| remove(file.path(), &|| file.remove()));
    if arguments.json {
        let (dry, schema) = (arguments.dry_run, "wmctl-clean/1");
        let report = json!({ "schema": schema, "dry_run": dry, "removed": removed, "problems": problems });
        return output::print_json(&report);
    }
    problems.iter().for_each(|problem| eprintln!("wmctl: {}", human::shown(problem)));
    output::print(&text(&removed, arguments.dry_run))
}

fn text(removed: &[String], dry_run: bool) -> String {
    if removed.is_empty() {
        return "nothing is left over\n".to_owned();
    }
    let verb = if dry_run { "would remove" } else { "removed" };
    removed.iter().map(|path| format!("{verb} {}\n", human::shown(path))).collect()
}
