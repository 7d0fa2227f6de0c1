//! Hazard (source drift): a page lacks what the sources have: a variable without a row, a default
//! without a reason, a command without a section.

use std::path::Path;

/// Words of a source between two marks, one a line that has both.
fn between(path: &str, before: &str, after: &str) -> Vec<String> {
    let text = architecture::text(Path::new(path)).expect(path);
    let word = |line: &str| Some(line.split_once(before)?.1.split_once(after)?.0.to_owned());
    text.lines().filter_map(word).collect()
}

fn page(name: &str) -> String {
    architecture::text(Path::new(name)).expect(name)
}

#[test]
fn every_default_has_a_reason() {
    let settings = between("shim/preload/src/settings/table.rs", "        \"WMSHIM_", "\": ");
    assert!(settings.len() > 15, "the rows of `settings!` are not found: {settings:?}");
    // Settings about where and whether the library writes or finds files do not change a program's
    // results.
    let plain = [
        "DRIVER",
        "DISABLE",
        "BROKER",
        "STATS_SOCKET",
        "STATS_DIR",
        "MULTIPATH_MIN",
        "LIB",
        "WHOLEMEMORY_TIMEOUT",
    ];
    let defaults = page("docs/adr/0033-defaults.md");
    for name in settings {
        let reasoned = defaults.contains(&format!("`WMSHIM_{name}")) || plain.contains(&name.as_str());
        assert!(reasoned, "docs/adr/0033-defaults.md lacks WMSHIM_{name}");
    }
}

/// If a variable is read but has no row of `settings!`, the library calls it unknown, and `wmctl
/// run` refuses it.
#[test]
fn every_variable_that_is_read_is_a_setting() {
    let settings = between("shim/preload/src/settings/table.rs", "        \"WMSHIM_", "\": ");
    let product = ["shim", "multipath", "tools/wmctl"];
    let is_product = |path: &Path| product.iter().any(|folder| path.starts_with(folder)) && !is_test(path);
    let files: Vec<_> = architecture::rust_files().filter(|path| is_product(path)).collect();
    let read = files.iter().flat_map(|path| {
        let text = architecture::text(path).unwrap_or_default();
        text.lines().filter_map(variable_read).map(str::to_owned).collect::<Vec<_>>()
    });
    let read: Vec<_> = read.collect();
    assert!(read.iter().any(|name| name == "LIB"), "{read:?}");
    let strange: Vec<_> = read.iter().filter(|name| !settings.contains(name)).collect();
    assert!(strange.is_empty(), "no rows of `settings!`: {strange:?}");
}

fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests")
}

/// `STITCH` of a line that has `var("WMSHIM_STITCH")` or `var_os("WMSHIM_STITCH")`.
fn variable_read(line: &str) -> Option<&str> {
    let rest = line.split_once("var_os(\"WMSHIM_").or_else(|| line.split_once("var(\"WMSHIM_"))?.1;
    Some(rest.split_once('"')?.0)
}

#[test]
fn every_command_has_a_section() {
    let commands = between("tools/wmctl/src/lib.rs", "        WmctlCommand::", "(arguments) =>");
    assert!(commands.len() > 8, "the commands are not found: {commands:?}");
    let page = page("docs/wmctl.md");
    for command in commands.iter().map(|name| kebab(name)) {
        let titled = page.lines().any(|line| line.starts_with("## ") && line.contains(&command));
        assert!(titled || page.contains(&format!("[{command}](")), "docs/wmctl.md lacks `{command}`");
    }
}

/// The command line's name of a command: `BugReport` is `bug-report`.
fn kebab(name: &str) -> String {
    let dash = |(at, c): (usize, char)| if at > 0 && c.is_ascii_uppercase() { "-" } else { "" };
    name.char_indices().map(|it| format!("{}{}", dash(it), it.1.to_ascii_lowercase())).collect()
}

/// The handler of `CONTRIBUTING.md` is one of the library, word by word.
#[test]
fn the_example_of_a_handler_is_the_sources() {
    let sources = ["shim/preload/src/hooks/table.rs", "shim/preload/src/hooks/memory/pool.rs"];
    let sources =
        sources.into_iter().chain(["tools/conformance/src/cases/pool.rs"]).map(page).collect::<String>();
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (contributing, sources) = (page("CONTRIBUTING.md"), plain(&sources));
    let blocks = contributing.split("```").skip(1).step_by(2);
    let code =
        blocks.filter_map(|block| block.strip_prefix("rust\n").or_else(|| block.strip_prefix("text\n")));
    let code: Vec<_> = code.map(plain).collect();
    let absent: Vec<_> = code.iter().filter(|block| !sources.contains(block.as_str())).collect();
    assert!(code.len() == 3 && absent.is_empty(), "not in the sources: {absent:?} of {code:?}");
}

#[test]
fn the_licence_is_there_in_full() {
    let text = page("LICENSE");
    assert!(text.contains("Apache License") && text.contains("END OF TERMS AND CONDITIONS"));
}

/// The README is read in two minutes, and ARCHITECTURE.md in one sitting.
#[test]
fn the_first_pages_are_short() {
    let words = page("README.md").split_whitespace().count();
    assert!(words <= 450, "README.md has {words} words, of 450: a page of docs/ has room for more");
    let lines = page("ARCHITECTURE.md").lines().count();
    assert!(lines < 500, "ARCHITECTURE.md has {lines} lines, of 500");
}

/// Every command on a page is one that `wmctl` has.
#[test]
fn every_command_of_wmctl_on_a_page_is_there() {
    let commands = between("tools/wmctl/src/lib.rs", "        WmctlCommand::", "(arguments) =>");
    let commands: Vec<_> = commands.iter().map(|name| name.to_lowercase()).collect();
    let pages =
        architecture::files().into_iter().filter(|path| path.extension().is_some_and(|it| it == "md"));
    let shown = pages.filter(|path| !path.starts_with("docs/adr")).flat_map(|path| {
        let text = architecture::text(&path).unwrap_or_default();
        let words =
            text.split("wmctl ").skip(1).filter_map(|rest| Some(rest.split_whitespace().next()?.to_owned()));
        words.map(|word| (path.display().to_string(), word)).collect::<Vec<_>>()
    });
    let is_command = |word: &str| word.len() > 2 && word.chars().all(|c| c.is_ascii_lowercase());
    let shown: Vec<_> = shown
        .map(|(path, word)| (path, word.trim_end_matches(['`', ',', '.', ';', ':', ')']).to_owned()))
        .collect();
    let unknown: Vec<_> = shown
        .iter()
        .filter(|(_, word)| is_command(word) && !commands.contains(word) && !PROSE.contains(&word.as_str()))
        .collect();
    assert!(shown.len() > 50 && unknown.is_empty(), "wmctl has no such commands: {unknown:?}");
}

/// Words that follow `wmctl` in prose.
const PROSE: [&str; 12] =
    ["and", "are", "finds", "for", "has", "imports", "makes", "reads", "starts", "uses", "with", "where"];

/// A page names tests by `--test NAME`.
#[test]
fn every_test_that_a_page_names_is_there() {
    let files: Vec<String> = architecture::files().iter().map(|path| path.display().to_string()).collect();
    let is_there = |name: &str| {
        [format!("/tests/{name}.rs"), format!("/tests/{name}/main.rs")]
            .iter()
            .any(|end| files.iter().any(|file| file.ends_with(end.as_str())))
    };
    let pages = files.iter().filter(|file| file.ends_with(".md"));
    let named: Vec<String> = pages
        .flat_map(|page| {
            let text = architecture::text(Path::new(page)).unwrap_or_default();
            let names = text.split(" --test ").skip(1).map(|rest| {
                rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect::<String>()
            });
            names.collect::<Vec<_>>()
        })
        .collect();
    let absent: Vec<_> = named.iter().filter(|name| !is_there(name)).collect();
    assert!(named.len() > 4 && absent.is_empty(), "no such tests: {absent:?} of {named:?}");
}
