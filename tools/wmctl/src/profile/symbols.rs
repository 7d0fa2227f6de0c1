//! Names of functions, from the files that they are in.
//!
//! A program under the library records where its code lies, and looks up no names: that takes
//! locks and time. Here the files are opened, each once; a file that has been replaced since, by
//! its build id, names nothing.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSymbol, SymbolKind};

/// Largest file that is read for its symbols.
const LARGEST: u64 = 4 << 30;

/// Functions of files that were asked for.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    files: HashMap<(String, String), FunctionTable>,
}

/// Functions by their first address.
#[derive(Debug, Default)]
struct FunctionTable(Vec<NamedFunction>);

#[derive(Debug)]
struct NamedFunction {
    start: u64,
    /// 0 where the file does not tell.
    size: u64,
    name: String,
}

impl Symbols {
    /// The function at an address in a file, as its language writes it.
    pub(crate) fn function(&mut self, path: &str, build_id: &str, address: u64) -> Option<String> {
        let key = (path.to_owned(), build_id.to_owned());
        let table = self.files.entry(key).or_insert_with(|| FunctionTable::of(Path::new(path), build_id));
        table.name(address).map(readable)
    }
}

impl FunctionTable {
    /// Of a file, or of the debugging information that lies beside it under the same build id.
    fn of(path: &Path, build_id: &str) -> Self {
        let beside = build_id
            .split_at_checked(2)
            .map(|(head, rest)| PathBuf::from(format!("/usr/lib/debug/.build-id/{head}/{rest}.debug")));
        let files = beside.iter().map(PathBuf::as_path).chain([path]);
        let tables = files.filter_map(|file| Self::read(file, build_id));
        tables.max_by_key(|table| table.0.len()).unwrap_or_default()
    }

    fn read(path: &Path, build_id: &str) -> Option<Self> {
        fs::metadata(path).ok().filter(|status| status.is_file() && status.len() <= LARGEST)?;
        let content = fs::read(path).ok()?;
        let file = object::File::parse(&*content).ok()?;
        let own = file.build_id().ok().flatten().unwrap_or_default();
        let own: String = own.iter().map(|byte| format!("{byte:02x}")).collect();
        if own != build_id {
            return None;
        }
        let mut functions: Vec<_> = file
            .symbols()
            .chain(file.dynamic_symbols())
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
            .filter_map(|symbol| {
                let name = symbol.name().ok()?.to_owned();
                Some(NamedFunction { start: symbol.address(), size: symbol.size(), name })
            })
            .collect();
        functions.sort_by_key(|function| function.start);
        Some(Self(functions))
    }

    fn name(&self, address: u64) -> Option<&str> {
        let behind = self.0.partition_point(|function| function.start <= address);
        let last = self.0.get(..behind)?.last()?;
        // Several names may begin at one address, and only some of them have a size.
        let same = self.0[..behind].iter().rev().take_while(|it| it.start == last.start);
        let found = same.max_by_key(|function| function.size)?;
        (found.size == 0 || address < found.start + found.size).then_some(found.name.as_str())
    }
}

/// A name as its language writes it.
fn readable(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    let parsed = cpp_demangle::Symbol::new(name).ok();
    let without_parameters = cpp_demangle::DemangleOptions::default().no_params().no_return_type();
    parsed
        .and_then(|symbol| symbol.demangle_with_options(&without_parameters).ok())
        .unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): memory is said to be held by another function.
    use super::*;

    #[test]
    fn a_function_of_this_program_is_named() {
        let path = std::env::current_exe().expect("a file");
        let content = fs::read(&path).expect("readable");
        let file = object::File::parse(&*content).expect("a program");
        let id: String = file
            .build_id()
            .ok()
            .flatten()
            .unwrap_or_default()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let main = file.symbols().find(|symbol| symbol.name() == Ok("main")).expect("a symbol");
        let (mut symbols, path) = (Symbols::default(), path.display().to_string());
        let inside = main.address() + main.size() - 1;
        assert_eq!(symbols.function(&path, &id, inside).as_deref(), Some("main"));
        assert_eq!(symbols.function(&path, "00", inside), None, "another build");
        assert_eq!(symbols.function("/no/such/file", &id, inside), None);
    }

    #[test]
    fn an_address_behind_a_function_is_in_none() {
        let function = |start, size, name: &str| NamedFunction { start, size, name: name.to_owned() };
        let table = FunctionTable(vec![
            function(10, 5, "a"),
            function(20, 0, "alias"),
            function(20, 4, "b"),
            function(20, 0, "other"),
            function(30, 0, "unsized"),
        ]);
        let names = [9, 10, 14, 15, 20, 23, 24, 30, 1000].map(|address| table.name(address));
        let expected =
            [None, Some("a"), Some("a"), None, Some("b"), Some("b"), None, Some("unsized"), Some("unsized")];
        assert_eq!(names, expected);
        assert_eq!(FunctionTable::default().name(5), None);
    }

    #[test]
    fn names_are_those_of_the_source() {
        assert_eq!(readable("_ZN2at6native5emptyEl"), "at::native::empty");
        assert_eq!(
            readable("_ZN4core3fmt5Write9write_fmt17h1a2b3c4d5e6f7a8bE"),
            "core::fmt::Write::write_fmt"
        );
        assert_eq!(readable("cuMemAlloc_v2"), "cuMemAlloc_v2");
    }
}
