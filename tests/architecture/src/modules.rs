//! The imports between the files of a crate, from their text: `use` declarations and paths from
//! `crate`, `super`, or a module's own child.
//!
//! An import of a name that a module only re-exports is an import of the file that declares it.
//! Tests inside the files do not count; a declaration of a child module alone is no import.

use std::collections::BTreeMap;
use std::path::Path;

use crate::edges::Edges;

type Segments = Vec<String>;

/// The files of a crate, each with its imports and its re-exports by name.
struct Modules {
    imports: BTreeMap<Segments, Vec<Segments>>,
    exports: BTreeMap<(Segments, String), Segments>,
}

/// The imports between the files below `folder`. A file is named by its path there, a folder's
/// `mod.rs` by the folder's.
pub fn files(folder: &str) -> Edges {
    let below = |path: &Path| {
        let text = whole(&crate::text(path)?, |name| crate::text(&path.with_file_name(name)));
        Some((path.strip_prefix(folder).ok()?.to_owned(), text))
    };
    from_texts(crate::rust_files().filter_map(|path| below(&path)).map(|(path, text)| (module(&path), text)))
}

/// A file with the texts of those that it includes: their paths are its own.
fn whole(text: &str, read: impl Fn(&str) -> Option<String>) -> String {
    let included = |line: &str| read(line.strip_prefix("include!(\"")?.strip_suffix("\");")?);
    text.lines().map(|line| included(line).unwrap_or_else(|| line.to_owned()) + "\n").collect()
}

/// The files in one folder of a crate, and their imports of each other; the folder takes the place
/// of the crate's root.
pub fn within(folder: &str, files: &Edges) -> Edges {
    let inside = |name: &String| name.strip_prefix(folder)?.strip_prefix('/').map(str::to_owned);
    let edges = files.iter().filter_map(|(importer, imported)| {
        Some((inside(importer)?, imported.iter().filter_map(inside).collect()))
    });
    edges.collect()
}

/// The same between the folders and files that lie in the crate's root.
pub fn layers(files: &Edges) -> Edges {
    let top = |name: &str| name.split('/').next().unwrap_or_default().to_owned();
    let mut layers = Edges::new();
    for (importer, imported) in files {
        let others = imported.iter().map(|name| top(name)).filter(|name| *name != top(importer));
        layers.entry(top(importer)).or_default().extend(others);
    }
    layers
}

fn module(path: &Path) -> Segments {
    let path = path.with_extension("");
    let mut segments: Segments = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    segments.pop_if(|last| matches!(last.as_str(), "mod" | "lib" | "main"));
    segments
}

fn from_texts(texts: impl Iterator<Item = (Segments, String)>) -> Edges {
    let mut modules = Modules { imports: BTreeMap::new(), exports: BTreeMap::new() };
    for (module, text) in texts {
        let (imports, exports) = paths(&text);
        let named =
            exports.into_iter().filter_map(|path| Some(((module.clone(), path.last()?.clone()), path)));
        modules.exports.extend(named);
        modules.imports.insert(module, imports);
    }
    let root = Segments::new();
    let mut edges = Edges::new();
    for (module, imports) in modules.imports.iter().filter(|(module, _)| **module != root) {
        let found = imports.iter().filter_map(|path| modules.resolve(module, path));
        let others = found.filter(|other| other != module && *other != root).map(|other| other.join("/"));
        edges.entry(module.join("/")).or_default().extend(others);
    }
    edges
}

impl Modules {
    /// The module that declares the target of a path in `module`; `None` for another crate's.
    fn resolve(&self, module: &[String], path: &[String]) -> Option<Segments> {
        let whole = self.absolute(module, path)?;
        let known = (0..=whole.len()).rev().find(|length| self.imports.contains_key(&whole[..*length]))?;
        let (found, rest) = whole.split_at(known);
        let export = rest.first().and_then(|name| self.exports.get(&(found.to_vec(), name.clone())));
        export.and_then(|path| self.resolve(found, path)).or_else(|| Some(found.to_vec()))
    }

    fn absolute(&self, module: &[String], path: &[String]) -> Option<Segments> {
        let supers = path.iter().take_while(|segment| *segment == "super").count();
        let (base, rest) = match path.first()?.as_str() {
            "crate" => (&[][..], &path[1..]),
            "super" => (&module[..module.len().checked_sub(supers)?], &path[supers..]),
            first => {
                let child = [module, &[first.to_owned()]].concat();
                self.imports.contains_key(&child).then_some((module, path))?
            }
        };
        Some([base, rest].concat())
    }
}

/// All paths that a file names, and those of them that it re-exports.
fn paths(text: &str) -> (Vec<Segments>, Vec<Segments>) {
    let (mut imports, mut exports) = (Vec::new(), Vec::new());
    let mut rest = String::new();
    let code = code(text);
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        let Some((public, mut tree)) = declaration(line) else {
            rest.extend([line, "\n"]);
            continue;
        };
        while !tree.contains(';') {
            tree.extend(lines.next());
        }
        let all = expand(tree.split(';').next().unwrap_or_default());
        exports.extend(all.iter().filter(|_| public).cloned());
        imports.extend(all);
    }
    imports.extend(inline(&rest));
    (imports, exports)
}

/// Without comments, without the paths of visibilities, and without the tests at its end.
fn code(text: &str) -> String {
    let product = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = product.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.map(|line| without_visibility(line) + "\n").collect()
}

/// `pub(in crate::hooks) fn` limits the callers of the function, and imports nothing.
fn without_visibility(line: &str) -> String {
    let Some((before, rest)) = line.split_once("pub(in ") else { return line.to_owned() };
    let after = rest.split_once(')').map_or("", |(_, after)| after);
    format!("{before}pub{}", without_visibility(after))
}

/// Whether a `use` is public, and the text behind the word.
fn declaration(line: &str) -> Option<(bool, String)> {
    let line = line.trim_start();
    let private = line.strip_prefix("pub").map(|rest| rest.trim_start_matches(|c| c != ' ').trim_start());
    Some((private.is_some(), private.unwrap_or(line).strip_prefix("use ")?.to_owned()))
}

/// `a::{b, c::d}` as its paths.
fn expand(tree: &str) -> Vec<Segments> {
    let Some((before, list)) = tree.split_once('{') else {
        let name = tree.split(" as ").next().unwrap_or_default();
        let segments = name.split("::").map(|part| part.trim().to_owned());
        return vec![segments.filter(|part| !matches!(part.as_str(), "" | "self" | "*")).collect()];
    };
    let list = list.rsplit_once('}').map_or(list, |(list, _)| list);
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in list.chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        match parts.last_mut() {
            Some(part) if c != ',' || depth > 0 => part.push(c),
            _ => parts.push(String::new()),
        }
    }
    let whole =
        parts.iter().filter(|part| !part.trim().is_empty()).map(|part| format!("{before}{}", part.trim()));
    whole.flat_map(|path| expand(&path)).collect()
}

/// Paths outside declarations. Those that begin with neither `crate` nor `super` nor a child of the
/// module resolve to no file.
fn inline(code: &str) -> Vec<Segments> {
    let words = code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    let paths = words.filter(|word| word.contains("::"));
    paths.map(|path| path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect()).collect()
}

#[cfg(test)]
mod tests {
    //! The rules must be able to fail: each way to name another file is found.
    use super::*;

    fn graph(texts: &[(&str, &str)]) -> Vec<String> {
        let texts = texts.iter().map(|(path, text)| (module(Path::new(path)), (*text).to_owned()));
        let edges = from_texts(texts);
        let lines = |(from, to): (&String, &std::collections::BTreeSet<String>)| {
            to.iter().map(|to| format!("{from} -> {to}")).collect::<Vec<_>>()
        };
        edges.iter().flat_map(lines).collect()
    }

    #[test]
    fn every_way_to_import_is_an_edge() {
        let texts = [
            ("a.rs", "use crate::{b::B, c::{C, D as E}};\n"),
            ("b.rs", "fn f() { crate::c::f(); }\n"),
            ("c/mod.rs", "pub(crate) use inner::{C, D};\n"),
            ("c/inner.rs", "use super::super::a::A;\n"),
            ("d/mod.rs", "mod own;\nfn f() { own::f(); std::own::f(); }\n"),
            ("d/own.rs", ""),
        ];
        let expected = ["a -> b", "a -> c/inner", "b -> c", "c -> c/inner", "c/inner -> a", "d -> d/own"];
        assert_eq!(graph(&texts), expected);
    }

    #[test]
    fn a_folder_has_the_edges_inside_it() {
        let edges = crate::edges::parse(&["a".into(), "f -> a".into(), "f/b -> f/c, a".into(), "f/c".into()]);
        assert_eq!(within("f", &edges), crate::edges::parse(&["b -> c".into(), "c".into()]));
    }

    #[test]
    fn what_a_file_includes_is_its_own() {
        let read = |name: &str| (name == "table.rs").then(|| "f => a::f".to_owned());
        assert_eq!(whole("mod a;\ninclude!(\"table.rs\");\n", read), "mod a;\nf => a::f\n");
    }

    #[test]
    fn comments_tests_and_other_crates_are_no_edges() {
        let texts = [
            (
                "a.rs",
                "//! crate::b\npub(in crate::b) fn f() {}\nuse std::fmt; // crate::b\n#[cfg(test)]\nmod tests { use crate::b; }\n",
            ),
            ("b.rs", ""),
        ];
        assert!(graph(&texts).is_empty());
    }
}
