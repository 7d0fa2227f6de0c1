//! The sections of the page: a header each, with its groups and functions.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;
use regex::Regex;

use super::{Function, cdecl};

/// Widest line.
const WIDTH: usize = 120;

/// The sections.
pub(super) fn sections(functions: &[Function], names: &BTreeMap<String, String>) -> Result<String> {
    let default = Regex::new(r"WHOLEMEMORY_DEFAULT\(([^)]*)\)")?;
    let mut page = String::new();
    for (header, group) in groups(functions) {
        write!(page, "\n## {group}\n\n`#include <wholememory/{header}>`\n")?;
        let of_group = functions.iter().filter(|it| (&it.header, &it.group) == (&header, &group));
        for function in of_group {
            write!(page, "\n### {}\n", function.name)?;
            let declaration = cdecl::declaration(function, names)?;
            let declaration = default.replace_all(&declaration, "/* = $1 */");
            write!(page, "\n```c\n{declaration}\n```\n")?;
            for text in &function.text {
                write!(page, "\n{}\n", cdecl::wrapped(text, WIDTH).join("\n"))?;
            }
            page.push('\n');
            for mark in &function.marks {
                writeln!(page, "* {}", cdecl::wrapped(&marked(mark), WIDTH - 2).join("\n  "))?;
            }
        }
    }
    page.push('\n');
    Ok(page)
}

/// Headers with their groups, each once.
fn groups(functions: &[Function]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for function in functions {
        let group = (function.header.clone(), function.group.clone());
        if !found.contains(&group) {
            found.push(group);
        }
    }
    found
}

/// `Errors: none.` with its first word in bold.
fn marked(mark: &str) -> String {
    let end = mark.find([':', '.', ' ']).unwrap_or(mark.len());
    match mark.split_once(": ") {
        Some((head, rest)) if head.len() <= "On failure".len() => format!("**{head}:** {rest}"),
        _ => format!("**{}**{}", &mark[..end], &mark[end..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_mark_is_bold() {
        assert_eq!(marked("Errors: none."), "**Errors:** none.");
        assert_eq!(marked("Collective."), "**Collective**.");
        assert_eq!(marked("Waits until it is: done."), "**Waits** until it is: done.");
    }
}
