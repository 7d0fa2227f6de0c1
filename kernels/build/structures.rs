//! Parses the structures that kernels take by value.
//!
//! A structure that has `///` lines above it is plain data. Its fields stand first, one a line: a
//! pointer, a scalar or such a structure, with a comment behind it or none. Functions and constants
//! may follow. Each field is at the next multiple of its alignment, in C++ as in Rust.

use crate::declarations::{self, ValueDeclaration};

/// Size and alignment in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ValueLayout {
    pub(crate) size: usize,
    pub(crate) alignment: usize,
}

impl ValueLayout {
    pub(crate) fn of_scalar(size: usize) -> Self {
        Self { size, alignment: size }
    }
}

/// One structure.
#[derive(Debug)]
pub(crate) struct StructureDeclaration {
    pub(crate) name: String,
    /// The comment above it, one entry a line.
    pub(crate) documentation: Vec<String>,
    pub(crate) fields: Vec<FieldDeclaration>,
    pub(crate) layout: ValueLayout,
}

/// One field of a structure.
#[derive(Debug)]
pub(crate) struct FieldDeclaration {
    pub(crate) value: ValueDeclaration,
    /// The comment behind it, or nothing.
    pub(crate) comment: String,
    /// In bytes from the structure's start.
    pub(crate) offset: usize,
}

/// The structures of an image, each behind those that it contains.
#[derive(Debug, Default)]
pub(crate) struct Structures(pub(crate) Vec<StructureDeclaration>);

impl Structures {
    pub(crate) fn get(&self, name: &str) -> Option<&StructureDeclaration> {
        self.0.iter().find(|structure| structure.name == name)
    }

    /// Adds those of a source file, in order.
    pub(crate) fn parse(&mut self, source: &str) -> Result<(), String> {
        for (at, _) in source.match_indices("\nstruct ") {
            let Some(documentation) = declarations::documentation(&source[..at + 1]) else { continue };
            let (name, body) = source[at + "\nstruct ".len()..].split_once(" {\n").unwrap_or_default();
            let (fields, layout) = self.fields(body).map_err(|why| format!("struct {name}: {why}"))?;
            if !is_plain(name) || self.get(name).is_some() {
                return Err(format!("struct {name}: a structure has a name of its own, and no base"));
            }
            self.0.push(StructureDeclaration { name: name.to_owned(), documentation, fields, layout });
        }
        Ok(())
    }

    fn fields(&self, body: &str) -> Result<(Vec<FieldDeclaration>, ValueLayout), String> {
        let (mut fields, mut layout) = (Vec::new(), ValueLayout { size: 0, alignment: 1 });
        let mut lines = body.lines().map(str::trim).peekable();
        while let Some(line) = lines.next_if(|line| !line.is_empty() && *line != "};") {
            let (text, comment) = line.split_once(';').ok_or(format!("`{line}` is no field"))?;
            let field = |why| format!("field `{text}`: {why}");
            let value = declarations::value(text, self).map_err(field)?;
            let comment = comment.trim();
            let has_own_line = comment.is_empty() || comment.starts_with("//");
            if !has_own_line || !is_plain(&value.name) || value.c_type.contains(',') {
                return Err(field("a field is a type and a name, on a line of its own".to_owned()));
            }
            let offset = layout.size.next_multiple_of(value.layout.alignment);
            layout.size = offset + value.layout.size;
            layout.alignment = layout.alignment.max(value.layout.alignment);
            let comment = comment.trim_start_matches("//").trim().to_owned();
            fields.push(FieldDeclaration { value, comment, offset });
        }
        if fields.is_empty() {
            return Err("its first line is no field".to_owned());
        }
        functions_only(lines)?;
        layout.size = layout.size.next_multiple_of(layout.alignment);
        Ok((fields, layout))
    }
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Checks that no field stands among the lines up to the structure's end.
fn functions_only<'a>(lines: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let mut depth = 0;
    for line in lines {
        if depth == 0 {
            if line == "};" {
                return Ok(());
            }
            let known = ["//", "#pragma", "template <", "static constexpr ", "__device__ "];
            if !line.is_empty() && !known.into_iter().any(|start| line.starts_with(start)) {
                return Err(format!("`{line}` stands behind the fields, and is no function"));
            }
        }
        depth += line.matches(['{', '(']).count();
        depth = depth.checked_sub(line.matches(['}', ')']).count()).ok_or("its braces do not match")?;
    }
    Err("it has no end".to_owned())
}
