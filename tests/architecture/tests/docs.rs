//! Guards against pages that lack what the sources have: a default without a reason, a command without a section.

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
    let settings = between("shim/preload/src/settings/mod.rs", "        \"WMSHIM_", "\": ");
    assert!(settings.len() > 15, "the rows of `settings!` are not found: {settings:?}");
    // Where and whether something is written or found is no choice of what a program gets.
    let plain = ["DRIVER", "DISABLE", "STATS_SOCKET", "STATS_DIR", "MULTIPATH_MIN", "LIB"];
    let defaults = page("docs/defaults.md");
    for name in settings {
        let reasoned = defaults.contains(&format!("`WMSHIM_{name}")) || plain.contains(&name.as_str());
        assert!(reasoned, "docs/defaults.md lacks WMSHIM_{name}");
    }
}

#[test]
fn every_command_has_a_section() {
    let commands = between("tools/wmctl/src/main.rs", "        WmctlCommand::", "(arguments) =>");
    assert!(commands.len() > 8, "the commands are not found: {commands:?}");
    let page = page("docs/wmctl.md");
    for command in commands.iter().map(|name| name.to_lowercase()) {
        let titled = page.lines().any(|line| line.starts_with("## ") && line.contains(&command));
        assert!(titled || page.contains(&format!("[{command}](")), "docs/wmctl.md lacks `{command}`");
    }
}

#[test]
fn the_licence_is_there_in_full() {
    let text = page("LICENSE");
    assert!(text.contains("Apache License") && text.contains("END OF TERMS AND CONDITIONS"));
}
