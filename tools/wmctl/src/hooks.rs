//! `wmctl hooks`: the driver functions that the shim intercepts.
//!
//! The list is the library's own (`wmshim_hooks_json`), made from the table that its hooks are compiled from, so it
//! cannot differ from what the library does. `--markdown` makes `docs/hooks.md`.

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::output;
use crate::shim::{self, Library};
use crate::table::Table;

/// Arguments of `wmctl hooks`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print the page docs/hooks.md
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
pub(crate) fn hooks(arguments: &Arguments) -> Result<()> {
    let path = shim::find()?;
    let text = Library::open(&path)?.text(c"wmshim_hooks_json").with_context(|| {
        format!("{} is another version than this wmctl; install both together", path.display())
    })?;
    let value: Value = serde_json::from_str(&text).context("the library's list of hooks")?;
    if arguments.json {
        return output::print_json(&value);
    }
    let mut hooks: Vec<Hook> = serde_json::from_value(value).context("the library's list of hooks")?;
    hooks.sort_by(|a, b| a.symbol.cmp(&b.symbol));
    output::print(&if arguments.markdown { markdown(&hooks) } else { plain(&hooks) })
}

fn plain(hooks: &[Hook]) -> String {
    let mut table = Table::new(&["FUNCTION", "HANDLER", "OFF BY", "PURPOSE"]);
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
    format!(
        "# Intercepted functions\n\n\
         Written by `wmctl hooks --markdown` from the table in `shim/preload/src/hooks/`. Do not edit.\n\n\
         {} functions of the driver are intercepted. All others are forwarded without being looked at.\n\
         `WMSHIM_DISABLE=1` turns every row off; the column names the setting that turns this one off.\n\n\
         | function | handler | off by | purpose |\n|---|---|---|---|\n{}",
        hooks.len(),
        rows.collect::<String>()
    )
}
