//! `cargo xtask schema`: docs/schema.md from the types of `shim/schema`, so that what a process tells is documented where it is.
//!
//! The sources are Rust, but regular: a struct is a comment, its attributes, its name, and fields of one line, each below its comment.
//! A field of another form would be missed, so fields are counted a second way, and a difference is an error.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, bail};
use regex::Regex;

use crate::generate;

const FOLDER: &str = "shim/schema/src";
const PAGE: &str = "docs/schema.md";

/// Files, in the order of the page, with their headings.
const FILES: [(&str, &str); 3] =
    [("stats", "`stats` and `final`"), ("blocks", "`blocks`"), ("config", "`config`")];

const OPENING: &str = "# What a process tells\n
<!-- Written by `cargo xtask schema` from shim/schema/src. Do not edit. -->\n
The answers of the [statistics endpoint](statistics.md), field by field. Within one version fields are only added: ignore what you do not know,
and expect that what is marked *optional* is absent. A field that changes its meaning or goes makes a new version. Sizes are bytes; times carry
their unit in their name. `[]` is a list.\n";

/// Writes the page, or with `check` fails when it is out of date.
pub(crate) fn run(check: bool) -> Result<()> {
    let mut text = OPENING.to_owned();
    for (name, heading) in FILES {
        let path = format!("{FOLDER}/{name}.rs");
        let source = fs::read_to_string(crate::root().join(&path)).with_context(|| path.clone())?;
        write!(text, "\n## {heading}\n{}", tables(&source).context(path)?)?;
    }
    generate::settle(crate::root().join(PAGE), &text, check, "schema")
}

/// A table for each struct of a source.
fn tables(source: &str) -> Result<String> {
    let structs = Regex::new(
        r"(?s)/// (?<purpose>[^\n]*)\n(?:#\[[^\n]*\]\n)*pub struct (?<name>\w+) \{\n(?<body>.*?)\n\}",
    )?;
    let fields =
        Regex::new(r"(?m)^ +/// (?<purpose>.*)\n(?: +#\[.*\]\n)*^ +pub (?<name>\w+): (?<type>.*),$")?;
    let (mut text, mut found) = (String::new(), 0);
    for part in structs.captures_iter(source) {
        write!(text, "\n### {}\n\n{}\n\n| field | | |\n|---|---|---|\n", &part["name"], &part["purpose"])?;
        for field in fields.captures_iter(&part["body"]) {
            found += 1;
            writeln!(text, "| `{}` | {} | {} |", &field["name"], kind(&field["type"]), &field["purpose"])?;
        }
    }
    let there =
        source.lines().filter(|line| line.trim_start().starts_with("pub ") && line.ends_with(',')).count();
    if found != there {
        bail!("{there} fields, of which {found} were understood: each needs a comment of one line above it");
    }
    Ok(text)
}

/// A Rust type as readers of JSON know it.
fn kind(name: &str) -> String {
    let inside = |prefix: &str| name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix('>'));
    match name {
        "String" => "text".to_owned(),
        "u64" | "u32" | "i32" | "usize" => "number".to_owned(),
        "f64" => "fraction".to_owned(),
        _ => match (inside("Vec<"), inside("Option<"), inside("BTreeMap<String, ")) {
            (Some(item), ..) => format!("{}[]", kind(item)),
            (_, Some(value), _) => format!("{} or null", kind(value)),
            (.., Some(value)) => format!("object of {}", kind(value)),
            _ => format!("[{name}](#{})", name.to_lowercase()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "
/// A thing.
#[derive(Debug)]
#[serde(default)]
pub struct Thing {
    /// How many.
    #[serde(skip)]
    pub count: u64,
    /// Parts of it.
    pub parts: Vec<Part>,
}
";

    #[test]
    fn a_table_has_a_line_for_every_field() {
        let text = tables(SOURCE).unwrap();
        assert!(text.contains("### Thing\n\nA thing.\n"));
        assert!(
            text.contains("| `count` | number | How many. |\n| `parts` | [Part](#part)[] | Parts of it. |\n")
        );
    }

    #[test]
    fn a_field_of_another_form_is_an_error() {
        let source = SOURCE.replace("    /// Parts of it.\n", "");
        assert!(tables(&source).unwrap_err().to_string().contains("2 fields, of which 1"));
    }
}
