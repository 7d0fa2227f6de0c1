//! Hazard (source drift): completions and man pages that lack a command.

mod support;

use std::process::Command;

use support::{Scratch, stderr, stdout, wmctl};

/// The commands that `--help` lists, without `help` itself.
fn commands(scratch: &Scratch) -> Vec<String> {
    let help = stdout(&wmctl(scratch).arg("--help").output().expect("ran"));
    let list = help.split("Commands:\n").nth(1).and_then(|rest| rest.split("\n\n").next()).expect("a list");
    list.lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn each_shell_knows_each_command() {
    let scratch = Scratch::new("completions");
    let commands = commands(&scratch);
    assert!(commands.len() > 10, "{commands:?}");
    for shell in ["bash", "zsh", "fish"] {
        let output = wmctl(&scratch).args(["completions", shell]).output().expect("ran");
        let text = stdout(&output);
        commands.iter().for_each(|command| assert!(text.contains(command), "{shell} lacks {command}"));
    }
    let script = scratch.path().join("wmctl.bash");
    let text = stdout(&wmctl(&scratch).args(["completions", "bash"]).output().expect("ran"));
    std::fs::write(&script, text).expect("written");
    let ask =
        "source $0 && COMP_WORDS=(wmctl sta) COMP_CWORD=1 && _wmctl wmctl sta wmctl && echo ${COMPREPLY[@]}";
    let output = Command::new("bash").args(["-c", ask]).arg(&script).output().expect("bash");
    assert_eq!(stdout(&output), "stats\n", "{}", stderr(&output));
}

#[test]
fn each_command_has_a_page() {
    let scratch = Scratch::new("man");
    let folder = scratch.path().join("man1");
    let place = folder.to_str().expect("a readable path");
    assert!(wmctl(&scratch).args(["man", place]).status().expect("ran").success());
    for command in commands(&scratch) {
        let page = std::fs::read_to_string(folder.join(format!("wmctl-{command}.1")));
        assert!(page.expect("a page").contains(".SH SYNOPSIS"), "{command}");
    }
}
