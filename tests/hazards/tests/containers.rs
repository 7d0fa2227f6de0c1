//! Hazard (wrong documentation): a command of docs/containers.md does not run, or its table says what
//! is not so. Hazard (wrong report): programs in containers are in no list, or a list that lacks some
//! looks whole.
//!
//! The tests are skipped where podman cannot start a container.

use std::fs;

use hazards::places;
use hazards::podman::{Contained, IMAGE, Node};
use serde_json::Value;

/// The command lines of the page, without comments; a line that ends with `\` goes on.
fn commands() -> Vec<String> {
    let page = fs::read_to_string(places::workspace("docs/containers.md")).expect("the page");
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let lines = blocks.map(|block| block.replace("\\\n", " "));
    let lines = lines.flat_map(|block| block.lines().map(str::to_owned).collect::<Vec<_>>());
    lines.filter(|line| !line.starts_with('#')).map(|line| line.replace("IMAGE", IMAGE)).collect()
}

/// The programs that root sees on the node: each with its container and its blocks of 8 MiB.
fn seen(node: &Node) -> Vec<(Option<String>, u64)> {
    let list: Value = serde_json::from_str(&node.output("wmctl stats --json")).expect("JSON");
    let programs = list["processes"].as_array().expect("a list").iter();
    let ours = programs.filter(|one| one.to_string().contains("train.py"));
    ours.map(|one| {
        let memory = &one["answer"]["devices"][0]["memory"];
        let bytes = |tier: &str| memory[tier]["live_bytes"].as_u64().expect("bytes");
        let container = one["identity"]["container_id"].as_str().map(str::to_owned);
        (container, (bytes("device") + bytes("host")) >> 23)
    })
    .collect()
}

#[test]
fn the_pages_commands_run_and_the_host_sees_their_programs() {
    let Some(node) = Node::start() else { return };
    let mut count = 0;
    for command in commands() {
        eprintln!("{command}");
        if !command.contains("python3 train.py") {
            node.output(&command);
            continue;
        }
        let program = Contained::start(node.command(&command));
        assert_eq!(program.line, "held 12");
        let text = node.output("wmctl stats");
        assert!(text.contains(", 1 inside)"), "{command}: {text}");
        let seen = seen(&node);
        assert!(matches!(&seen[..], [(Some(_), 12)]), "{command}: {seen:?}");
        eprintln!("{}", program.end());
        count += 1;
    }
    assert!(count > 3, "{count}");
}
