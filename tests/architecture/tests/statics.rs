//! Hazard (source drift): state of a subsystem in a static of its own, which no test can build
//! twice. Each static of the library has a row with its reason in the decision record.

use std::collections::BTreeSet;
use std::path::Path;

const RECORD: &str = "docs/adr/0034-subsystems-as-values.md";
const SOURCES: &str = "shim/preload/src";

/// Reasons that keep a static.
const KINDS: [&str; 6] = ["hot", "trampoline", "thread", "constant", "handler", "instance"];

/// A static's file and name. One of a macro has the name that the macro gives it.
type Place = (String, String);

/// The rows of the record's table: `| file | statics, separated by commas | kind | why |`.
fn rows(record: &str) -> Vec<(Place, String)> {
    let table = record.split("<!-- statics -->").nth(1).expect("the record has the table");
    let lines = table.lines().skip_while(|line| !line.starts_with('|')).skip(2);
    let cells = lines.take_while(|line| line.starts_with('|')).map(|line| line.split('|').map(str::trim));
    let row = |cells: Vec<&str>| {
        let (file, kind) = (cells[1].trim_matches('`').to_owned(), cells[3].to_owned());
        let names = cells[2].split(", ").map(|name| name.trim_matches('`').to_owned());
        names.map(|name| ((file.clone(), name), kind.clone())).collect::<Vec<_>>()
    };
    cells.flat_map(|cells| row(cells.collect())).collect()
}

/// The name of the static that a line declares.
fn declared(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("static ")?;
    let is_keyword = before.is_empty() || before.ends_with([' ', '(']);
    let name = after.trim_start_matches("mut ").split_once(':')?.0;
    let is_name = name.chars().all(|c| c.is_alphanumeric() || "_$".contains(c));
    (is_keyword && is_name && !before.contains("//")).then_some(name)
}

/// Statics of the product: unit tests and their helpers are left out.
fn statics(text: &str) -> impl Iterator<Item = &str> {
    text.split("#[cfg(test)]\nmod ").next().unwrap_or(text).lines().filter_map(declared)
}

fn sources() -> BTreeSet<Place> {
    let is_product =
        |path: &Path| !path.ends_with("tests.rs") && !path.iter().any(|part| part.to_str() == Some("tests"));
    let files = architecture::rust_files().filter(|path| path.starts_with(SOURCES) && is_product(path));
    let in_file = |path: std::path::PathBuf| {
        let text = architecture::text(&path).unwrap_or_default();
        let file = path.strip_prefix(SOURCES).expect("a source").display().to_string();
        statics(&text).map(|name| (file.clone(), name.to_owned())).collect::<Vec<_>>()
    };
    files.flat_map(in_file).collect()
}

#[test]
fn each_static_of_the_library_has_a_row_with_its_reason() {
    let record = architecture::text(Path::new(RECORD)).expect(RECORD);
    let rows = rows(&record);
    let listed: BTreeSet<Place> = rows.iter().map(|(place, _)| place.clone()).collect();
    let sources = sources();
    let new: Vec<_> = sources.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&sources).collect();
    let unknown: Vec<_> = rows.iter().filter(|(_, kind)| !KINDS.contains(&kind.as_str())).collect();
    assert!(
        new.is_empty() && gone.is_empty() && unknown.is_empty(),
        "{RECORD}: make the state a field of its subsystem, or add a row\nwithout a row: {new:?}\n\
         without a static: {gone:?}\nof no kind: {unknown:?}"
    );
}

#[test]
fn a_declaration_is_told_from_other_uses_of_the_word() {
    let text = "pub(crate) static GATE: Gate = x;\n    static NEXT: Cell<u8> = y;\n$(pub(super) static $name: T = z;)*\n\
                fn f() -> &'static Gate {\nlet a: &'static str = b;\n/// A static HERE: no.\nuse static_of::A;\n\
                #[cfg(test)]\nmod tests {\n    static MODEL: u8 = 0;\n}";
    assert_eq!(statics(text).collect::<Vec<_>>(), ["GATE", "NEXT", "$name"]);
    let record = "<!-- statics -->\n\n| in | static | kind | why |\n|---|---|---|---|\n| `a.rs` | `A`, `B` | hot | it is |\n\nend";
    let places: Vec<_> =
        rows(record).into_iter().map(|((file, name), kind)| format!("{file} {name} {kind}")).collect();
    assert_eq!(places, ["a.rs A hot", "a.rs B hot"]);
}
