//! `cargo xtask hooks`: docs/hooks.md from the table of hooks, so that what is intercepted is documented where it is.
//!
//! The table (shim/preload/src/hooks/table.rs) is Rust, but regular: a row is one of two forms, a comment heads a group.
//! A row of another form would be missed, so functions are counted a second way, and a difference is an error.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, bail};
use regex::{Captures, Regex};

use crate::generate;

const TABLE: &str = "shim/preload/src/hooks/table.rs";
const PAGE: &str = "docs/hooks.md";

const OPENING: &str = "# Intercepted functions\n
<!-- Written by `cargo xtask hooks` from shim/preload/src/hooks/table.rs. Do not edit. -->\n
Every other function of the driver is forwarded by one jump. `WMSHIM_DISABLE=1` turns all of these off; the column \"off
by\" names the setting that turns off a row alone. A per-thread-stream twin (`_ptsz`, `_ptds`) and each version of a
function is a row of its own. `wmctl hooks` prints the same table for the library at hand. With `WMSHIM_MIGRATE=on` every function
that submits work passes a gate first, hooked or not (`shim/preload/src/hooks/gated.rs`).\n";

const RETRIED: &str = "\n## Made again after out of memory\n
These are the driver's own calls. When one returns out of memory, unused memory of ours is given back and the call is made again; with
`WMSHIM_MIGRATE=on`, blocks leave the device at last. The driver needs device memory for itself, and cannot ask us for it.\n
| function | why it needs memory |\n|---|---|\n";

/// Writes the page, or with `check` fails when it is out of date.
pub(crate) fn run(check: bool) -> Result<()> {
    let table = fs::read_to_string(crate::root().join(TABLE)).context(TABLE)?;
    generate::settle(crate::root().join(PAGE), &page(&table)?, check, "hooks")
}

fn page(table: &str) -> Result<String> {
    let (served, retried) = table.split_once("retry {").context("the table has no part `retry`")?;
    let text = format!("{OPENING}{}{RETRIED}{}", serve(served)?, retry(retried)?);
    let (found, named) = (text.matches("\n| `cu").count(), functions(table));
    if found != named {
        bail!("{TABLE} names {named} functions, of which {found} were understood");
    }
    Ok(text)
}

/// Every function is named on a line that begins with its name.
fn functions(table: &str) -> usize {
    let lines = table.lines().map(str::trim).filter(|line| line.starts_with("cu"));
    lines.map(|line| names(line).count()).sum()
}

fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// `name, name => handler, Switch, "purpose";` under `// Heading.`
fn serve(text: &str) -> Result<String> {
    let row = Regex::new(
        r#"(?m)^ *// (?<heading>.+?)\.?$|(?<names>\w[\w,\s]*?)\s*=>\s*(?<handler>[\w:]+?)(?:::<.*>)?, (?<switch>\w+), "(?<purpose>.*)";"#,
    )?;
    let body = text.split_once("serve {").context("the table has no part `serve`")?.1;
    let mut page = String::new();
    for found in row.captures_iter(body) {
        match found.name("heading") {
            Some(heading) => {
                write!(
                    page,
                    "\n## {}\n\n| function | handler | off by | what for |\n|---|---|---|---|\n",
                    heading.as_str()
                )?;
            }
            None => page += &served(&found)?,
        }
    }
    Ok(page)
}

/// The lines of one row: one for each function.
fn served(row: &Captures<'_>) -> Result<String> {
    let (handler, switch, purpose) = (&row["handler"], switch(row)?, &row["purpose"]);
    let line = |name| format!("| `{name}` | `{handler}` | {switch} | {purpose} |\n");
    Ok(names(&row["names"]).map(line).collect())
}

/// The settings that turn a row off, for `Switch` of `hooks/mod.rs`.
fn switch(row: &Captures<'_>) -> Result<&'static str> {
    Ok(match &row["switch"] {
        "Always" => "",
        "Memory" => "`WMSHIM_STITCH=off`",
        "Lifetimes" | "Copies" => "`WMSHIM_STITCH=off` with `WMSHIM_MULTIPATH=off`",
        other => bail!("{TABLE}: no setting is known for `{other}`"),
    })
}

/// `name, name => "purpose";`
fn retry(text: &str) -> Result<String> {
    let row = Regex::new(r#"(?<names>\w[\w,\s]*?)\s*=>\s*"(?<purpose>.*)";"#)?;
    let lines = |row: Captures<'_>| -> String {
        names(&row["names"]).map(|name| format!("| `{name}` | {} |\n", &row["purpose"])).collect()
    };
    Ok(row.captures_iter(text).map(lines).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_checked_in_is_current() {
        run(true).unwrap();
    }

    const TABLE: &str = r#"
hooks! {
    serve {
        // Device memory: given.
        cuMemAlloc_v2
            => allocate::mem_alloc, Memory, "serves memory";
        cuMemcpyHtoD_v2,
        cuMemcpyHtoD_v2_ptds
            => copies::memcpy_htod::<NullStream>, Always, "counted";
    }
    retry {
        cuModuleLoad, cuModuleLoadData
            => "loading code";
    }
}"#;

    #[test]
    fn a_page_has_a_line_for_every_function() {
        let page = page(TABLE).unwrap();
        assert!(page.contains("## Device memory: given\n"));
        assert!(
            page.contains(
                "| `cuMemAlloc_v2` | `allocate::mem_alloc` | `WMSHIM_STITCH=off` | serves memory |"
            )
        );
        assert!(page.contains("| `cuMemcpyHtoD_v2` | `copies::memcpy_htod` |  | counted |"));
        assert!(page.contains("| `cuMemcpyHtoD_v2_ptds` | `copies::memcpy_htod` |  | counted |"));
        assert!(page.contains("| `cuModuleLoad` | loading code |\n| `cuModuleLoadData` | loading code |"));
    }

    #[test]
    fn a_switch_that_is_not_known_is_an_error() {
        let table = TABLE.replace("Always", "Sometimes");
        assert!(page(&table).unwrap_err().to_string().contains("`Sometimes`"));
    }

    #[test]
    fn a_row_of_another_form_is_an_error() {
        let table = TABLE.replace("copies::memcpy_htod::<NullStream>, Always, ", "");
        assert!(page(&table).unwrap_err().to_string().contains("names 5 functions, of which 3"));
    }
}
