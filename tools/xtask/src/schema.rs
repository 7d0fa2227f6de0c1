//! `cargo xtask schema`: docs/schema.md and the Python package's types from the types of
//! `shim/schema`, so that a process's statistics are documented at their types, and checked where
//! they are used.
//!
//! The sources are Rust, but regular: a struct is a comment, its attributes, its name, and fields
//! of one line, each below its comment. A field of another form would be missed, so fields are
//! counted a second way, and a difference is an error.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, bail};
use regex::{Captures, Regex};

use crate::generate;

const FOLDER: &str = "shim/schema/src";
const PAGE: &str = "docs/schema.md";
const PYTHON: &str = "tools/python/wmshim/_schema.py";

/// Files, in the order of the page, with their headings.
const FILES: [(&str, &str); 7] = [
    ("stats", "`stats` and `final`"),
    ("blocks", "`blocks`"),
    ("config", "`config`"),
    ("pause", "`pause`, `resume` and `pause_state`"),
    ("change", "`limit`, `trim`, `detach` and `attach`"),
    ("out_of_memory", "Out of memory"),
    ("profile", "A profile"),
];

const OPENING: &str = "# The statistics of a process\n
<!-- Written by `cargo xtask schema` from shim/schema/src. Do not edit. -->\n
The answers of the [statistics endpoint](wmctl.md#statistics-of-a-process), field by field. Within one version
fields are only added: ignore unknown fields, and expect that a field marked *optional* may be absent. A field that
changes its meaning or is removed makes a new version. Sizes are bytes; times have their unit in their name. `[]` is a
list.\n";

const PYTHON_OPENING: &str =
    "\"\"\"The statistics of a process, as types (docs/schema.md). Fields of an older library may be absent.\n
Written by ``cargo xtask schema`` from shim/schema/src. Do not edit.\n\"\"\"\n
from typing import Dict, List, Optional, TypedDict\n";

/// A struct of a source.
struct Struct {
    name: String,
    purpose: String,
    fields: Vec<Field>,
}

struct Field {
    name: String,
    kind: String,
    purpose: String,
}

/// Writes both, or with `check` fails when one is out of date.
pub(crate) fn run(check: bool) -> Result<()> {
    let (mut page, mut all) = (OPENING.to_owned(), Vec::new());
    for (name, heading) in FILES {
        let path = format!("{FOLDER}/{name}.rs");
        let source = fs::read_to_string(crate::root().join(&path)).with_context(|| path.clone())?;
        let structs = structs(&source).context(path)?;
        write!(page, "\n## {heading}\n{}", tables(&structs)?)?;
        all.extend(structs);
    }
    generate::settle(crate::root().join(PAGE), &page, check, "schema")?;
    generate::settle(crate::root().join(PYTHON), &classes(&all)?, check, "schema")
}

/// The declarations of a source.
fn structs(source: &str) -> Result<Vec<Struct>> {
    let structs = Regex::new(
        r"(?s)(?<purpose>(?:/// [^\n]*\n)+)(?:#\[[^\n]*\]\n)*pub struct (?<name>\w+) \{\n(?<body>.*?)\n\}",
    )?;
    let fields =
        Regex::new(r"(?m)(?<purpose>(?:^ +/// .*\n)+)(?: +#\[.*\]\n)*^ +pub (?<name>\w+): (?<type>.*),$")?;
    let mut found = Vec::new();
    for part in structs.captures_iter(source) {
        let field = |field: Captures<'_>| Field {
            name: field["name"].to_owned(),
            kind: field["type"].to_owned(),
            purpose: sentence(&field["purpose"]),
        };
        found.push(Struct {
            name: part["name"].to_owned(),
            purpose: sentence(&part["purpose"]),
            fields: fields.captures_iter(&part["body"]).map(field).collect(),
        });
    }
    let understood: usize = found.iter().map(|found| found.fields.len()).sum();
    let there =
        source.lines().filter(|line| line.trim_start().starts_with("pub ") && line.ends_with(',')).count();
    if understood != there {
        bail!("{there} fields, of which {understood} were understood: each needs a comment above it");
    }
    Ok(found)
}

/// The text of a comment, whose lines are wrapped in the source and not on the page.
fn sentence(comment: &str) -> String {
    let lines = comment.lines().map(|line| line.trim_start().trim_start_matches("/// "));
    lines.collect::<Vec<_>>().join(" ")
}

/// A table for each struct.
fn tables(structs: &[Struct]) -> Result<String> {
    let mut text = String::new();
    for Struct { name, purpose, fields } in structs {
        write!(text, "\n### {name}\n\n{purpose}\n\n| field | | |\n|---|---|---|\n")?;
        for Field { name, kind, purpose } in fields {
            writeln!(text, "| `{name}` | {} | {purpose} |", json_type(kind))?;
        }
    }
    Ok(text)
}

/// A Python class for each struct, those that others are made of first.
fn classes(structs: &[Struct]) -> Result<String> {
    let mut text = PYTHON_OPENING.to_owned();
    let (mut left, mut known): (Vec<&Struct>, Vec<&str>) = (structs.iter().collect(), Vec::new());
    while !left.is_empty() {
        let needs = |it: &Struct| {
            structs.iter().any(|other| {
                !known.contains(&other.name.as_str())
                    && it.fields.iter().any(|field| names(&field.kind, &other.name))
            })
        };
        let Some(next) = left.iter().position(|it| !needs(it)) else { bail!("structs that need each other") };
        let it = left.remove(next);
        write!(text, "\n\nclass {}(TypedDict, total=False):\n    \"\"\"{}\"\"\"\n\n", it.name, it.purpose)?;
        for field in &it.fields {
            writeln!(text, "    {}: {}", field.name, python_type(&field.kind))?;
        }
        known.push(&it.name);
    }
    Ok(text)
}

/// Does a type name this struct?
fn names(kind: &str, name: &str) -> bool {
    kind.split(|c: char| !c.is_alphanumeric()).any(|word| word == name)
}

/// A Rust type as Python knows it.
fn python_type(name: &str) -> String {
    let inside = |prefix: &str| name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix('>'));
    match name {
        "String" => "str".to_owned(),
        "u64" | "u32" | "i32" => "int".to_owned(),
        "f64" => "float".to_owned(),
        "bool" => "bool".to_owned(),
        _ => match (inside("Vec<"), inside("Option<"), inside("BTreeMap<String, ")) {
            (Some(item), ..) => format!("List[{}]", python_type(item)),
            (_, Some(value), _) => format!("Optional[{}]", python_type(value)),
            (.., Some(value)) => format!("Dict[str, {}]", python_type(value)),
            _ => name.to_owned(),
        },
    }
}

/// A Rust type as readers of JSON know it.
fn json_type(name: &str) -> String {
    let inside = |prefix: &str| name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix('>'));
    match name {
        "String" => "text".to_owned(),
        "u64" | "u32" | "i32" | "usize" => "number".to_owned(),
        "f64" => "fraction".to_owned(),
        "bool" => "true or false".to_owned(),
        _ => match (inside("Vec<"), inside("Option<"), inside("BTreeMap<String, ")) {
            (Some(item), ..) => format!("{}[]", json_type(item)),
            (_, Some(value), _) => format!("{} or null", json_type(value)),
            (.., Some(value)) => format!("object of {}", json_type(value)),
            _ => format!("[{name}](#{})", name.to_lowercase()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_checked_in_is_current() {
        run(true).unwrap();
    }

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
        let text = tables(&structs(SOURCE).unwrap()).unwrap();
        assert!(text.contains("### Thing\n\nA thing.\n"));
        assert!(
            text.contains("| `count` | number | How many. |\n| `parts` | [Part](#part)[] | Parts of it. |\n")
        );
    }

    #[test]
    fn a_class_stands_below_what_it_is_made_of() {
        let source = format!(
            "{SOURCE}\n/// A part.\npub struct Part {{\n    /// Its name.\n    pub name: Option<String>,\n}}\n"
        );
        let text = classes(&structs(&source).unwrap()).unwrap();
        let (part, thing) = (text.find("class Part").unwrap(), text.find("class Thing").unwrap());
        assert!(
            part < thing
                && text.contains("    name: Optional[str]\n")
                && text.contains("    parts: List[Part]\n")
        );
    }

    #[test]
    fn a_wrapped_comment_is_one_sentence() {
        let source = SOURCE.replace("    /// How many.\n", "    /// How many\n    /// there are.\n");
        let text = tables(&structs(&source).unwrap()).unwrap();
        assert!(text.contains("| `count` | number | How many there are. |\n"));
    }

    #[test]
    fn a_field_of_another_form_is_an_error() {
        let source = SOURCE.replace("    /// Parts of it.\n", "");
        assert!(structs(&source).err().unwrap().to_string().contains("2 fields, of which 1"));
    }
}
