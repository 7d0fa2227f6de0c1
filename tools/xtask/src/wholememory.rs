//! `cargo xtask wholememory`: the declarations of functions in WholeMemory's C headers, and the
//! page of its C API, from the Rust functions that C calls.
//!
//! The sources (`exports!` in shim/wholememory/src/capi) are Rust, but regular: a function is its
//! comment, a name, parameters, a result and a body, indented by four; a comment of one line names
//! the header and the group of the functions below it. The first words of a type's comment are its
//! name in C. A function of another form would be missed, so functions are counted a second way,
//! and a difference is an error.
//!
//! The region of the functions is written; the rest of a header, and of the page, is kept.

mod cdecl;
mod page;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use regex::Regex;

use crate::generate;

const CAPI: &str = "shim/wholememory/src/capi";
pub(crate) const HEADERS: &str = "shim/wholegraph/include/wholememory";
const PAGE: &str = "docs/wholememory-c-api.md";

/// Files of functions, in the order of the page.
const FILES: [&str; 12] = [
    "communicators",
    "reasons",
    "memories",
    "files",
    "descriptions",
    "tensors",
    "operations",
    "embeddings",
    "graphs",
    "random",
    "properties",
    "process",
];

/// Other files of types.
const TYPES: [&str; 3] = ["capi/names", "vocabulary/description", "environment"];

/// The edges of a region that is written.
const EDGES: [&str; 2] = ["Functions: written by", "End of the functions."];

/// A function that C calls.
#[derive(Debug)]
struct Function {
    name: String,
    /// A header, such as `embedding.h`.
    header: String,
    group: String,
    /// Paragraphs of its comment.
    text: Vec<String>,
    /// What a caller must know, one sentence or two each: `Collective`, `Stream`, `Errors`.
    marks: Vec<String>,
    /// Name, Rust type and default of each parameter.
    parameters: Vec<(String, String, Option<String>)>,
    result: Option<String>,
}

/// Writes the regions, or with `check` fails when one is out of date.
pub(crate) fn run(check: bool) -> Result<()> {
    let functions = functions()?;
    let names = c_names()?;
    let declared = declarations(&functions, &names)?;
    for (header, text) in &declared {
        settle(crate::root().join(HEADERS).join(header), &format!("\n{text}"), check)?;
    }
    settle(crate::root().join(PAGE), &page::sections(&functions, &names)?, check)
}

/// All functions, in the order of [`FILES`].
fn functions() -> Result<Vec<Function>> {
    let mut found = Vec::new();
    for file in FILES {
        let path = format!("{CAPI}/{file}.rs");
        let source = fs::read_to_string(crate::root().join(&path)).with_context(|| path.clone())?;
        found.extend(parse(&source).with_context(|| path.clone())?);
    }
    Ok(found)
}

/// The functions of a source.
fn parse(source: &str) -> Result<Vec<Function>> {
    let body = source.split_once("\nexports! {\n").and_then(|(_, rest)| rest.split_once("\n}\n"));
    let body = body.context("no `exports!` in it")?.0;
    let form = Regex::new(concat!(
        r"(?m)^    // (?<header>\w+\.h): (?<group>.+?)\.$|",
        r"(?<doc>(?:^    ///.*\n)+)^    fn (?<name>\w+)\((?<parameters>[^()]*)\)(?: -> (?<result>.+?))? \{$",
    ))?;
    let (mut found, mut place) = (Vec::new(), None);
    for part in form.captures_iter(body) {
        if let Some(header) = part.name("header") {
            place = Some((header.as_str().to_owned(), part["group"].to_owned()));
            continue;
        }
        let name = part["name"].to_owned();
        let (header, group) = place.clone().with_context(|| format!("{name}: no header above it"))?;
        let (text, marks) = paragraphs(&part["doc"]);
        let known = marks.iter().any(|mark| mark.starts_with("Errors: ") || mark.starts_with("On failure: "));
        ensure!(known, "{name}: its comment does not end with `* Errors:` or `* On failure:`");
        let parameters = parameters(&part["parameters"]).with_context(|| name.clone())?;
        let result = part.name("result").map(|result| result.as_str().to_owned());
        found.push(Function { name, header, group, text, marks, parameters, result });
    }
    let there = body.lines().filter(|line| line.starts_with("    fn ")).count();
    ensure!(found.len() == there, "{there} functions, of which {} were understood", found.len());
    Ok(found)
}

/// Paragraphs of a comment, and its list at the end.
fn paragraphs(comment: &str) -> (Vec<String>, Vec<String>) {
    let (mut text, mut marks) = (vec![String::new()], Vec::<String>::new());
    for line in comment.lines().map(|line| line.trim_start().trim_start_matches("///").trim()) {
        match (line.strip_prefix("* "), marks.last_mut()) {
            (Some(mark), _) => marks.push(mark.to_owned()),
            (None, Some(mark)) => join(mark, line),
            (None, None) if line.is_empty() => text.push(String::new()),
            (None, None) => join(text.last_mut().expect("never empty"), line),
        }
    }
    text.retain(|paragraph| !paragraph.is_empty());
    (text, marks)
}

fn join(text: &mut String, line: &str) {
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(line);
}

fn parameters(text: &str) -> Result<Vec<(String, String, Option<String>)>> {
    let each = text.split(',').map(str::trim).filter(|each| !each.is_empty());
    each.map(|each| {
        let (name, rest) = each.split_once(": ").with_context(|| each.to_owned())?;
        let (kind, default) = match rest.split_once(" = ") {
            Some((kind, default)) => (kind, Some(default.to_owned())),
            None => (rest, None),
        };
        Ok((name.trim_start_matches('_').to_owned(), kind.to_owned(), default))
    })
    .collect()
}

/// Names in C of Rust types, from the types' comments.
fn c_names() -> Result<BTreeMap<String, String>> {
    let form = Regex::new(r"(?m)^/// `(?<c>\w+)`.*\n(?:^(?:///|#\[).*\n)*^pub (?:type|struct) (?<rust>\w+)")?;
    let files = TYPES.iter().map(|file| format!("shim/wholememory/src/{file}.rs"));
    let mut names = BTreeMap::new();
    for path in files.chain(FILES.iter().map(|file| format!("{CAPI}/{file}.rs"))) {
        let source = fs::read_to_string(crate::root().join(&path)).with_context(|| path.clone())?;
        names.extend(form.captures_iter(&source).map(|it| (it["rust"].to_owned(), it["c"].to_owned())));
    }
    Ok(names)
}

/// The declarations of each header.
fn declarations(
    functions: &[Function],
    names: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>> {
    let mut headers = BTreeMap::<String, String>::new();
    for function in functions {
        let text = cdecl::commented(function, names).with_context(|| function.name.clone())?;
        headers.entry(function.header.clone()).or_default().push_str(&text);
    }
    Ok(headers)
}

/// Makes the region of a file hold `text`.
fn settle(path: PathBuf, text: &str, check: bool) -> Result<()> {
    let current = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let lines: Vec<_> = current.split_inclusive('\n').collect();
    let edge = |edge: &str| lines.iter().position(|line| line.contains(edge));
    let (Some(first), Some(last)) = (edge(EDGES[0]), edge(EDGES[1])) else {
        bail!("{}: no region for functions", path.display());
    };
    let wanted = [&lines[..=first].concat(), text, &lines[last..].concat()].concat();
    generate::settle(path, &wanted, check, "wholememory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_checked_in_is_current() {
        run(true).unwrap();
    }

    const SOURCE: &str = "
exports! {
    // embedding.h: Rows.
    /// Makes rows. They
    /// are `count`.
    ///
    /// More.
    ///
    /// * Collective.
    /// * Errors: the common
    ///   ones.
    fn make(
        place: *mut TensorHandle, _count: c_int = -1,
    ) -> ErrorCode {
        answer()
    }
}
";

    #[test]
    fn a_function_is_what_its_source_says() {
        let found = parse(SOURCE).unwrap().pop().unwrap();
        assert_eq!((found.header.as_str(), found.group.as_str()), ("embedding.h", "Rows"));
        assert_eq!(found.text, ["Makes rows. They are `count`.", "More."]);
        assert_eq!(found.marks, ["Collective.", "Errors: the common ones."]);
        let count = ("count".to_owned(), "c_int".to_owned(), Some("-1".to_owned()));
        assert_eq!((found.parameters.len(), &found.parameters[1]), (2, &count));
        let declared = cdecl::commented(&found, &c_names().unwrap()).unwrap();
        let wanted = "/* Makes rows. They are `count`. Collective. */\nwholememory_error_code_t make(\n    \
            wholememory_tensor_t* place, int count WHOLEMEMORY_DEFAULT(-1));\n\n";
        assert!(declared.replace("\n    ", "").contains(&wanted.replace("\n    ", "")), "{declared}");
    }

    #[test]
    fn a_function_of_another_form_is_an_error() {
        let source = SOURCE.replace("    /// Makes rows. They\n", "    // Makes rows. They\n");
        let broken = source.replace("    ///", "    //");
        assert!(parse(&broken).unwrap_err().to_string().contains("1 functions, of which 0"));
        let silent = SOURCE.replace("* Errors: the common", "* Nothing: the common");
        assert!(parse(&silent).unwrap_err().to_string().contains("make: its comment"));
    }
}
