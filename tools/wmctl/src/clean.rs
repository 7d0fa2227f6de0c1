//! `wmctl clean`: removes the sockets of killed programs from this user's folders.
//!
//! Removed are sockets by the shim's own names that refuse a connection, in a folder that is this
//! user's alone. Nothing else is touched: no file, no folder, no socket that answers, nothing on a
//! file system that other machines share.

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

/// Removes left-over sockets and says which.
///
/// # Errors
/// Only those of printing: a socket that cannot be removed is said.
pub(crate) fn clean(arguments: &CleanArguments) -> Result<()> {
    let (stale, mut problems) = client::left_over();
    let mut removed = Vec::new();
    for endpoint in stale {
        let path = endpoint.socket.display().to_string();
        match if arguments.dry_run { Ok(()) } else { endpoint.remove() } {
            Ok(()) => removed.push(path),
            Err(error) => problems.push(format!("{path} is not removed: {error}")),
        }
    }
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
