//! `wmctl clean`: removes the sockets and the black boxes of killed programs from this user's
//! folders.
//!
//! Removed are sockets by the shim's own names that refuse a connection, and black boxes of
//! processes that are gone, in a folder that is this user's alone. Nothing else is touched: no
//! other file, no folder, no socket that answers, nothing on a file system that other machines
//! share.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;

use crate::{client, human, output};

/// Arguments of `wmctl clean`.
#[derive(Debug, clap::Args)]
pub(crate) struct CleanArguments {
    /// Say what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Removes left-over sockets and boxes, and says which.
///
/// # Errors
/// Only those of printing: one that cannot be removed is said.
pub(crate) fn clean(arguments: &CleanArguments) -> Result<()> {
    let (stale, mut problems) = client::left_over();
    let mut removed = Vec::new();
    let mut remove = |path: PathBuf, remove: &dyn Fn() -> std::io::Result<()>| {
        let path = path.display().to_string();
        match if arguments.dry_run { Ok(()) } else { remove() } {
            Ok(()) => removed.push(path),
            Err(error) => problems.push(format!("{path} is not removed: {error}")),
        }
    };
    let boxes = client::own_boxes();
    stale.iter().for_each(|endpoint| remove(endpoint.socket.clone(), &|| endpoint.remove()));
    boxes.dead.iter().for_each(|dead| remove(dead.path.clone(), &|| dead.remove()));
    boxes.unread.iter().for_each(|file| remove(file.path(), &|| file.remove()));
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
