//! `wmctl hooks`: the driver functions that the shim intercepts.
//!
//! The list is the library's own (`wmshim_hooks_json`), made from the table that its hooks are
//! compiled from, so it cannot differ from the library's behaviour.

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::shim::{self, Library};
use crate::table::TextTable;
use crate::{output, screen};

/// Arguments of `wmctl hooks`.
#[derive(Debug, clap::Args)]
pub(crate) struct HooksArguments {
    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print a table in Markdown
    #[arg(long)]
    markdown: bool,
}

#[derive(Debug, Deserialize)]
struct Hook {
    symbol: String,
    handler: String,
    switch: String,
    purpose: String,
}

/// Prints the list.
///
/// # Errors
/// No library, or one that does not know its hooks.
pub(crate) fn hooks(arguments: &HooksArguments) -> Result<()> {
    let path = shim::find()?;
    let text = Library::open(&path)?.text(c"wmshim_hooks_json").with_context(|| {
        format!("{} is another version than this wmctl; install both together", path.display())
    })?;
    let value: Value = serde_json::from_str(&text).context("the library's list of hooks")?;
    if arguments.json {
        return output::print_json(&serde_json::json!({ "schema": "wmctl-hooks/1", "hooks": value }));
    }
    let mut hooks: Vec<Hook> = serde_json::from_value(value).context("the library's list of hooks")?;
    hooks.sort_by(|a, b| a.symbol.cmp(&b.symbol));
    output::print(&if arguments.markdown { markdown(&hooks) } else { plain(&hooks) })
}

/// All columns, where they have room; on a narrower terminal without the handlers, whose names are
/// the sources'.
fn plain(hooks: &[Hook]) -> String {
    let whole = table(hooks);
    let widest = whole.lines().map(|line| line.chars().count()).max();
    match screen::size() {
        Some((columns, _)) if widest > Some(columns) => screen::folded(&narrow(hooks)),
        _ => whole,
    }
}

fn narrow(hooks: &[Hook]) -> String {
    let mut table = TextTable::new(&["FUNCTION", "OFF BY", "WHAT FOR"]);
    hooks.iter().for_each(|hook| table.row([&hook.symbol, &hook.switch, &hook.purpose].map(Clone::clone)));
    format!("{table}\n{} of the driver's functions are intercepted; all others are forwarded.\n", hooks.len())
}

fn table(hooks: &[Hook]) -> String {
    let mut table = TextTable::new(&["FUNCTION", "HANDLER", "OFF BY", "WHAT FOR"]);
    for hook in hooks {
        table.row([&hook.symbol, &hook.handler, &hook.switch, &hook.purpose].map(Clone::clone));
    }
    format!("{table}\n{} of the driver's functions are intercepted; all others are forwarded.\n", hooks.len())
}

fn markdown(hooks: &[Hook]) -> String {
    let rows = hooks.iter().map(|hook| {
        let Hook { symbol, handler, switch, purpose } = hook;
        format!("| `{symbol}` | `{handler}` | `{switch}` | {} |\n", purpose.replace('|', "\\|"))
    });
    format!("| function | handler | off by | what for |\n|---|---|---|---|\n{}", rows.collect::<String>())
}
