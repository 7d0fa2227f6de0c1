//! `wmctl completions` and `wmctl man`: the command line in the forms of shells and of `man`, made
//! from its definition, so that they never lag behind it.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;
use serde_json::json;

use crate::output;

/// Arguments of `wmctl completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionArguments {
    /// The shell that reads them
    shell: Shell,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `wmctl man`.
#[derive(Debug, clap::Args)]
pub(crate) struct ManArguments {
    /// The folder to write into, such as /usr/local/share/man/man1
    folder: PathBuf,
    /// Print the files as JSON
    #[arg(long)]
    json: bool,
}

/// Prints what the shell is to read.
///
/// # Errors
/// A closed pipe.
pub(crate) fn completions(arguments: &CompletionArguments, mut command: Command) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "wmctl", &mut text);
    let text = String::from_utf8(text).context("completions are text")?;
    if arguments.json {
        let shell = arguments.shell.to_string();
        return output::print_json(&json!({ "schema": "wmctl-completions/1", "shell": shell, "text": text }));
    }
    output::print(&text)
}

/// Writes one page a command.
///
/// # Errors
/// A folder that cannot be made or written.
pub(crate) fn man(arguments: &ManArguments, command: Command) -> Result<()> {
    let folder = &arguments.folder;
    let written = std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder));
    written.with_context(|| format!("the pages cannot be written into {}", folder.display()))?;
    if arguments.json {
        return output::print_json(
            &json!({ "schema": "wmctl-man/1", "folder": folder.display().to_string() }),
        );
    }
    output::print(&format!("man -M {} wmctl\n", folder.parent().unwrap_or(folder).display()))
}
