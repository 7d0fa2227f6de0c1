//! The signature of `wmshim.enable`: an argument for each setting that the library reads, with the
//! words that it takes as `Literal`.

use std::fmt::Write as _;

use super::{Setting, TableLine};

/// The group of settings that the library does not read.
const OF_OTHERS: &str = "Not for the library";

const OPENING: &str = "\"\"\"The settings of ``wmshim.enable``, as types (docs/settings.md).\n
Written by ``cargo xtask settings`` from shim/preload/src/settings/table.rs. Do not edit.\n\"\"\"\n
import os
from typing import Dict, Literal, Optional, Union

Path = Union[str, \"os.PathLike[str]\"]
# Bytes, or a text with a unit, such as 48GiB, or a share, such as 80%.
Size = Union[int, str]\n";

const PURPOSE: &str = "Loads wmshim into this process, before its first use of CUDA. No launcher is needed.

    Children follow: `LD_PRELOAD` and the settings go into `os.environ`. If PyTorch is not imported yet, its allocator is chosen as
    under `wmshim-run`. In a process that runs under wmshim already, settings are checked, and changed before the first CUDA call.
    An argument that is not given keeps the value of its variable.

    Raises TooLate if a driver is loaded already, SettingError for a value that is not understood, FileNotFoundError if the library is
    not there. In these cases this process stays as it was.
";

const BODY: &str = "    given = dict(locals())
    from . import _enable

    _enable.enable({VARIABLES[name]: value for name, value in given.items() if value is not None})\n";

/// The whole module.
pub(super) fn module(lines: &[TableLine]) -> String {
    let settings = of_library(lines);
    let (mut names, mut arguments, mut explained) = (String::new(), String::new(), String::new());
    let (mut sizes, mut switches) = (Vec::new(), Vec::new());
    for setting in &settings {
        let name = setting.variable.trim_start_matches("WMSHIM_").to_lowercase();
        let _ = writeln!(names, "    \"{name}\": \"{}\",", setting.variable);
        let kind = kind(&setting.values);
        let _ = writeln!(arguments, "    {name}: Optional[{kind}] = None,");
        explained += &paragraph(&name, setting);
        match kind.as_str() {
            "Size" => sizes.push(*setting),
            kind if kind.starts_with("Union[bool") => switches.push(*setting),
            _ => {}
        }
    }
    let [sizes, switches] = [sizes, switches].map(|settings| set(&settings));
    format!(
        "{OPENING}\nVARIABLES: Dict[str, str] = {{\n{names}}}\nSIZES = {sizes}\nSWITCHES = {switches}\n\n\n\
         def enable(\n    *,\n{arguments}) -> None:\n    \"\"\"{PURPOSE}\n{explained}    \"\"\"\n{BODY}"
    )
}

fn of_library(lines: &[TableLine]) -> Vec<&Setting> {
    let own = lines.iter().take_while(|line| !matches!(line, TableLine::Heading(text) if text == OF_OTHERS));
    own.filter_map(|line| match line {
        TableLine::Setting(setting) => Some(setting),
        TableLine::Heading(_) => None,
    })
    .collect()
}

/// A set of variables.
fn set(settings: &[&Setting]) -> String {
    let names: String = settings.iter().map(|setting| format!("    \"{}\",\n", setting.variable)).collect();
    format!("{{\n{names}}}")
}

/// The type of an argument, from the values as users read them.
fn kind(values: &str) -> String {
    let words: Vec<_> = words(values).collect();
    let (text, is_switch) = (free_text(values), words.contains(&"on") && words.contains(&"off"));
    let quoted: Vec<_> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match (text, is_switch) {
        (Some(text), _) => text.to_owned(),
        (None, true) => format!("Union[bool, Literal[{}]]", quoted.join(", ")),
        (None, false) => format!("Literal[{}]", quoted.join(", ")),
    }
}

/// The type of values that are more than words.
fn free_text(values: &str) -> Option<&'static str> {
    let starts = |ways: &[&str]| ways.iter().any(|way| values.starts_with(way));
    if starts(&["a path"]) {
        Some("Path")
    } else if starts(&["a size"]) {
        Some("Size")
    } else if values.contains("number") {
        Some("Union[int, str]")
    } else if values.contains("such as") {
        Some("str")
    } else {
        None
    }
}

/// `host, peer, or both as host,peer; off`
fn words(values: &str) -> impl Iterator<Item = &str> {
    let parts = values.split("; ").flat_map(|part| part.split(", "));
    parts.map(|part| part.trim_start_matches("or ").trim_start_matches("both as "))
}

/// What a setting does, wrapped for a comment of Python.
fn paragraph(name: &str, setting: &Setting) -> String {
    let text =
        format!("{name} ({}; default: {}): {}", setting.values, setting.default, unlinked(&setting.purpose));
    let (mut lines, mut line) = (String::new(), String::new());
    for word in text.split_whitespace() {
        if line.len() + word.len() > 115 {
            let _ = writeln!(lines, "    {}", std::mem::take(&mut line));
            line += "   ";
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    format!("{lines}    {line}\n")
}

/// Links as their names.
fn unlinked(text: &str) -> String {
    let mut parts = text.split("](");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain += part.split_once(')').map_or("", |(_, rest)| rest);
    }
    plain.replace('[', "")
}

#[cfg(test)]
mod tests {
    //! Hazard (error handling): a value that the library takes is refused where it is typed, or the
    //! other way round.
    use super::*;

    #[test]
    fn each_form_of_values_has_its_type() {
        for (values, expected) in [
            ("on, off", "Union[bool, Literal[\"on\", \"off\"]]"),
            ("auto, on, off", "Union[bool, Literal[\"auto\", \"on\", \"off\"]]"),
            ("host, peer, or both as host,peer; off", "Literal[\"host\", \"peer\", \"host,peer\", \"off\"]"),
            ("a path, or off", "Path"),
            ("a size with its unit such as 64MiB, or 0", "Size"),
            ("USR1, USR2, the number of a signal, or off", "Union[int, str]"),
            ("a share above 0% such as 1%", "str"),
        ] {
            assert_eq!(kind(values), expected);
        }
    }

    #[test]
    fn a_setting_is_an_argument_with_its_purpose() {
        let setting = |variable: &str| {
            let [values, default, purpose] =
                ["on, off", "off", "Blocks move ([page](x.md#y))."].map(str::to_owned);
            TableLine::Setting(Setting { variable: variable.to_owned(), values, default, purpose })
        };
        let module =
            module(&[setting("WMSHIM_A_B"), TableLine::Heading(OF_OTHERS.to_owned()), setting("WMSHIM_LIB")]);
        assert!(module.contains("    \"a_b\": \"WMSHIM_A_B\",\n}"), "{module}");
        assert!(
            module.contains("    a_b: Optional[Union[bool, Literal[\"on\", \"off\"]]] = None,\n)"),
            "{module}"
        );
        assert!(module.contains("    a_b (on, off; default: off): Blocks move (page).\n"), "{module}");
        assert!(!module.contains("LIB"), "{module}");
    }
}
