//! `cargo xtask settings`: docs/settings.md and the Python signature of `wmshim.enable` from the
//! table of settings, so that a setting is documented at the code that reads it.
//!
//! The table (`settings!` in shim/preload/src/settings/table.rs) is Rust, but regular: a row begins
//! with a comment, the variable, its values and its default, and a comment heads a group. A row of
//! another form would be missed, so variables are counted a second way, and a difference is an
//! error.

mod python;

use std::fs;

use anyhow::{Context, Result, bail};
use regex::Regex;

use crate::generate;

const TABLE: &str = "shim/preload/src/settings/table.rs";
const PAGE: &str = "docs/settings.md";
const PYTHON: &str = "tools/python/wmshim/_settings.py";

const OPENING: &str = "# Settings\n
<!-- Written by `cargo xtask settings` from shim/preload/src/settings/table.rs. Do not edit. -->\n
Each setting is an environment variable. The library reads it at the first CUDA call; `WMSHIM_TORCH_ALLOCATOR`,
`WMSHIM_JAX_ALLOCATOR`, and the effect of others on these allocators, are read when Python starts
([table](operations.md#when-settings-are-read)).

If a value or a variable is unknown, the library prints one line with the valid values and uses the default. `wmctl run`
does not start a program with such a value. `wmctl stats --config PID` shows the settings in force, in a form that can
be set again. [ADR 0033](adr/0033-defaults.md) gives the reason for each default.\n
- A size names its unit: `512MiB`, `32GiB` (B, KiB, MiB, GiB, TiB; KB, MB, GB, TB are powers of 1000), or is a share
  such as `80%`. A number alone is an error, except `0`.
- `off`, `0`, `no`, `false`, `none` turn off a setting that can be off; `on`, `1`, `yes`, `true` turn on one that `on`
  can mean one thing for, such as `WMSHIM_OVERFLOW` (`host`). In `WMSHIM_MULTIPATH`, `0` and `1` are GPUs.
- Paths may have any bytes.\n
The [node's file](containers.md#settings-of-a-node), `/etc/wmshim.toml`, has other defaults and ceilings for all programs
of a machine. A limit that is a variable is the user's own, and `env -u` removes it. Limits and ceilings keep programs
from disturbing each other and are no security boundary.\n";

const COLUMNS: &str = "| variable | values | default | what it does |\n|---|---|---|---|\n";

/// A line of the table.
enum TableLine {
    Heading(String),
    Setting(Setting),
}

/// A setting as users read it.
struct Setting {
    variable: String,
    values: String,
    default: String,
    purpose: String,
}

/// Writes both, or with `check` fails when one is out of date.
pub(crate) fn run(check: bool) -> Result<()> {
    let source = fs::read_to_string(crate::root().join(TABLE)).context(TABLE)?;
    let lines = lines(&source)?;
    generate::settle(crate::root().join(PAGE), &page(&lines), check, "settings")?;
    generate::settle(crate::root().join(PYTHON), &python::module(&lines), check, "settings")
}

fn page(lines: &[TableLine]) -> String {
    let mut page = OPENING.to_owned();
    for line in lines {
        page += &match line {
            TableLine::Heading(heading) => format!("\n## {heading}\n\n{COLUMNS}"),
            TableLine::Setting(Setting { variable, values, default, purpose }) => {
                format!("| `{variable}` | {values} | {default} | {purpose} |\n")
            }
        };
    }
    page
}

/// `/// Purpose.` and `"VARIABLE": "values", "default"` under `// Heading.`
fn lines(source: &str) -> Result<Vec<TableLine>> {
    let table = source.split_once("\nsettings! {\n").and_then(|(_, rest)| rest.split_once("\n}\n"));
    let table = table.context("the table `settings!` is not found")?.0;
    let row = Regex::new(
        r#"(?m)^ *// (?<heading>.+?)\.?$|(?<purpose>(?:^ */// .*\n)+) *"(?<variable>WMSHIM_\w+)": "(?<values>.*)", "(?<default>.*?)";?$"#,
    )?;
    let line = |found: regex::Captures<'_>| match found.name("heading") {
        Some(heading) => TableLine::Heading(heading.as_str().to_owned()),
        None => TableLine::Setting(Setting {
            variable: found["variable"].to_owned(),
            values: found["values"].to_owned(),
            default: found["default"].to_owned(),
            purpose: sentence(&found["purpose"]),
        }),
    };
    let lines: Vec<_> = row.captures_iter(table).map(line).collect();
    let named = table.lines().filter(|line| line.trim_start().starts_with("\"WMSHIM_")).count();
    let found = lines.iter().filter(|line| matches!(line, TableLine::Setting(_))).count();
    if found != named {
        bail!("{TABLE} has {named} variables, of which {found} were understood");
    }
    Ok(lines)
}

/// Lines of a comment as one.
fn sentence(comment: &str) -> String {
    let lines: Vec<_> = comment.lines().map(|line| line.trim().trim_start_matches("/// ")).collect();
    lines.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_checked_in_is_current() {
        run(true).unwrap();
    }

    const SOURCE: &str = r#"
settings! {
    library {
        // Memory.
        /// Serves it. Off: the
        /// driver does.
        "WMSHIM_STITCH": "on, off", "on"
            => stitch: bool = true, switch;
    }
    others {
        // Not for the library.
        /// Where it is.
        "WMSHIM_LIB": "a path", "beside `wmctl`";
    }
}
"#;

    #[test]
    fn a_page_has_a_line_for_every_setting() {
        let page = page(&lines(SOURCE).unwrap());
        assert!(page.contains("\n## Memory\n\n| variable |"));
        assert!(page.contains("| `WMSHIM_STITCH` | on, off | on | Serves it. Off: the driver does. |\n"));
        assert!(page.contains("## Not for the library\n"));
        assert!(page.contains("| `WMSHIM_LIB` | a path | beside `wmctl` | Where it is. |\n"));
    }

    #[test]
    fn a_row_without_a_purpose_is_an_error() {
        let source = SOURCE.replace("/// Where it is.", "");
        assert!(lines(&source).err().unwrap().to_string().contains("has 2 variables, of which 1"));
    }
}
