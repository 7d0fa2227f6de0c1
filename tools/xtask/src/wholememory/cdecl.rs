//! A function's declaration in C.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::Function;

/// Widest line of a declaration.
const WIDTH: usize = 100;
/// Widest line of a comment.
const COMMENT: usize = 116;

/// Rust's names of C's own types.
const PRIMITIVE: [(&str, &str); 10] = [
    ("c_int", "int"),
    ("c_uint", "unsigned int"),
    ("c_char", "char"),
    ("c_void", "void"),
    ("usize", "size_t"),
    ("i64", "int64_t"),
    // The type that the API has, and not `uint64_t`, which C++ takes for another one.
    ("u64", "unsigned long long"),
    ("f32", "float"),
    ("bool", "bool"),
    ("MemoryContext", "void*"),
];

/// The declaration with its comment and an empty line.
pub(super) fn commented(function: &Function, names: &BTreeMap<String, String>) -> Result<String> {
    let first = function.text.first().context("a comment")?;
    let collective = function.marks.iter().any(|mark| mark.starts_with("Collective"));
    let text = if collective { format!("{first} Collective.") } else { first.clone() };
    let lines = wrapped(&text, COMMENT - 6);
    let comment = lines.join("\n * ");
    Ok(format!("/* {comment} */\n{}\n\n", declaration(function, names)?))
}

/// The declaration.
pub(super) fn declaration(function: &Function, names: &BTreeMap<String, String>) -> Result<String> {
    let result = function.result.as_deref().map_or(Ok("void".to_owned()), |kind| c_type(kind, names))?;
    let parameter = |(name, kind, default): &(String, String, Option<String>)| {
        let default = default.as_deref().map(|value| format!(" WHOLEMEMORY_DEFAULT({})", c_value(value)));
        Ok(format!("{} {name}{}", c_type(kind, names)?, default.unwrap_or_default()))
    };
    let each = function.parameters.iter().map(parameter).collect::<Result<Vec<_>>>()?;
    let parameters = if each.is_empty() { "void".to_owned() } else { each.join(", ") };
    let head = format!("{result} {}(", function.name);
    if head.len() + parameters.len() + 2 <= WIDTH {
        return Ok(format!("{head}{parameters});"));
    }
    let mut lines = vec![String::new()];
    for (at, each) in each.iter().enumerate() {
        let each =
            if at + 1 == function.parameters.len() { format!("{each});") } else { format!("{each}, ") };
        if lines.last().is_some_and(|line| 4 + line.len() + each.trim_end().len() > WIDTH) {
            lines.push(String::new());
        }
        lines.last_mut().expect("never empty").push_str(&each);
    }
    let lines: Vec<_> = lines.iter().map(|line| format!("    {}", line.trim_end())).collect();
    Ok(format!("{head}\n{}", lines.join("\n")))
}

/// `*const *mut Thing` → `thing_t* const*`.
fn c_type(rust: &str, names: &BTreeMap<String, String>) -> Result<String> {
    let (mut rest, mut pointers) = (rust, Vec::new());
    loop {
        if let Some(inner) = rest.strip_prefix("*const ") {
            (rest, _) = (inner, pointers.push(true));
        } else if let Some(inner) = rest.strip_prefix("*mut ") {
            (rest, _) = (inner, pointers.push(false));
        } else {
            break;
        }
    }
    let known = PRIMITIVE.iter().find(|(name, _)| *name == rest).map(|(_, c)| (*c).to_owned());
    let base = known.or_else(|| names.get(rest).cloned());
    let base = base.with_context(|| format!("{rest} has no name in C"))?;
    // Its declaration, which may be CUDA's own, is of a structure alone.
    let base = if base == "cudaDeviceProp" { format!("struct {base}") } else { base };
    // The innermost pointer says whether the value is constant, the next one whether that is.
    let mut c = base;
    for (depth, constant) in pointers.iter().rev().enumerate() {
        c = match (constant, depth) {
            (true, 0) => format!("const {c}*"),
            (true, _) => format!("{c} const*"),
            (false, _) => format!("{c}*"),
        };
    }
    Ok(c)
}

fn c_value(rust: &str) -> &str {
    if rust == "null" { "NULL" } else { rust }
}

/// Lines of at most so many characters.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("never empty");
        if line.is_empty() {
            line.push_str(word);
        } else if line.len() + 1 + word.len() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    //! Hazard: a parameter of another type than the library's.
    use super::*;

    #[test]
    fn types_are_cs() {
        let names = BTreeMap::from([("TensorHandle".to_owned(), "wholememory_tensor_t".to_owned())]);
        for (rust, c) in [
            ("c_int", "int"),
            ("*const c_char", "const char*"),
            ("*mut *const c_char", "const char**"),
            ("*const *const c_char", "const char* const*"),
            ("*mut TensorHandle", "wholememory_tensor_t*"),
            ("MemoryContext", "void*"),
        ] {
            assert_eq!(c_type(rust, &names).unwrap(), c);
        }
        assert!(c_type("*mut Unknown", &names).unwrap_err().to_string().contains("Unknown has no name"));
    }
}
