//! Hazard (source drift): a command of docs/containers.md does not run, or its table says what is
//! not so. Hazard (wrong report): programs in containers are in no list, or a list that lacks some
//! looks whole.
//!
//! The tests are skipped where podman cannot start a container.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use hazards::places;
use hazards::podman::{Contained, ContainerNode, IMAGE};
use serde_json::Value;

const MOUNT: &str = "-v /opt/wmshim:/opt/wmshim:ro";
const PRELOAD: &str = "-e LD_PRELOAD=/opt/wmshim/lib/libwmshim.so";

/// A command line that runs the program in a container, by preload.
fn train(options: &str) -> String {
    format!("podman run --rm {MOUNT} {PRELOAD} {options} {IMAGE} python3 train.py")
}

/// The command lines of the page, without comments; a line that ends with `\` goes on.
fn commands() -> Vec<String> {
    let page = fs::read_to_string(places::workspace("docs/containers.md")).expect("the page");
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let lines = blocks.map(|block| block.replace("\\\n", " "));
    let lines = lines.flat_map(|block| block.lines().map(str::to_owned).collect::<Vec<_>>());
    lines.filter(|line| !line.starts_with('#')).map(|line| line.replace("IMAGE", IMAGE)).collect()
}

/// A program of these tests that a list has.
#[derive(Debug)]
struct Seen {
    pid: u64,
    user: String,
    container: Option<String>,
    blocks: u64,
}

/// Those of a node that root's list has.
fn seen_on(node: &ContainerNode) -> Vec<Seen> {
    of_node(node, seen(&node.output("wmctl stats --json")))
}

fn of_node(node: &ContainerNode, listed: Vec<Seen>) -> Vec<Seen> {
    listed.into_iter().filter(|one| node.has(one.pid)).collect()
}

/// Those that `wmctl stats --json` lists.
fn seen(list: &str) -> Vec<Seen> {
    let list: Value = serde_json::from_str(list).unwrap_or_else(|_| panic!("{list}"));
    let programs = list["processes"].as_array().expect("a list").iter();
    let ours = programs.filter(|one| one.to_string().contains("train.py"));
    ours.map(|one| {
        let (identity, memory) = (&one["identity"], &one["answer"]["devices"][0]["memory"]);
        let bytes = |tier: &str| memory[tier]["live_bytes"].as_u64().expect("bytes");
        Seen {
            pid: one["pid"].as_u64().expect("a number"),
            user: identity["user"].as_str().expect("a user").to_owned(),
            container: identity["container_id"].as_str().map(str::to_owned),
            blocks: (bytes("device") + bytes("host")) >> 23,
        }
    })
    .collect()
}

fn text(mut command: Command) -> [String; 2] {
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {}", hazards::said(&output));
    [output.stdout, output.stderr].map(|text| String::from_utf8(text).expect("text"))
}

#[test]
fn the_pages_commands_run_and_the_host_sees_their_programs() {
    let Some(node) = ContainerNode::start() else { return };
    let mut count = 0;
    for command in commands() {
        if !command.contains("python3 train.py") {
            node.output(&command);
            continue;
        }
        let program = Contained::start(node.command(&command));
        assert_eq!(program.line, "held 12", "{command}");
        let listed = seen_on(&node);
        let [Seen { pid, container: Some(_), blocks: 12, .. }] = &listed[..] else {
            panic!("{command}: {listed:?}");
        };
        let alone = node.output(&format!("wmctl stats {pid}"));
        assert!(alone.contains(&format!("(process {pid}, 1 inside)")), "{command}: {alone}");
        let dump = node.output(&format!("wmctl dump {pid}"));
        assert!(fs::metadata(dump.trim()).is_ok(), "{command}: {dump}");
        program.end();
        count += 1;
    }
    assert!(count > 4, "{count}");
    // What Slurm runs before each task has the path of this page, too.
    let said = node.output("LD_PRELOAD=/usr/lib/other.so examples/slurm/taskprolog");
    assert_eq!(said, "export LD_PRELOAD=/opt/wmshim/lib/libwmshim.so:/usr/lib/other.so\n");
}

#[test]
fn a_root_that_cannot_be_written_another_user_and_a_small_limit() {
    let Some(node) = ContainerNode::start() else { return };
    for (options, has_socket) in [
        ("--user 1234", true),
        ("--read-only --read-only-tmpfs=false", false),
        ("--read-only --tmpfs /tmp --user 1234", true),
    ] {
        let program = Contained::start(node.command(&train(options)));
        assert_eq!(program.line, "held 12", "{options}");
        let listed = seen_on(&node);
        assert!(matches!(&listed[..], [Seen { blocks: 12, .. }]), "{options}: {listed:?}");
        let lines = program.end();
        assert_eq!(!lines.contains("no socket"), has_socket, "{options}: {lines}");
    }
    for limit in ["512m", "1g"] {
        let program = Contained::start(node.command(&train(&format!("-m {limit}"))));
        assert_eq!(program.line, "held 4", "nothing goes to the host");
        assert!(
            program.end().contains("the container's memory limit of "),
            "the out-of-memory line says why"
        );
        let doctor =
            format!("podman run --rm {MOUNT} -m {limit} {IMAGE} /opt/wmshim/bin/wmctl doctor --json");
        let report: Value = serde_json::from_str(&node.output(&doctor)).expect("JSON");
        assert_eq!(report["host"]["usable_bytes"], 0);
        let said = "only 0 B of host memory can take what overflows: the container may have ";
        assert!(report["findings"].to_string().contains(said), "{}", report["findings"]);
    }
}

#[test]
fn every_program_is_seen_from_outside_or_missed_with_a_line() {
    let Some(node) = ContainerNode::start() else { return };
    text(node.command_of_user(&node.import()));
    let rootless = train("").replace("/opt/wmshim:ro", "/opt/wmshim:ro -e HOME=/");
    let programs = [
        node.command(&train("--name j1")),
        node.command(&train("--user 1234")),
        node.command(&train("--uidmap 0:200000:2000")),
        node.command_of_user(&rootless),
    ]
    .map(Contained::start);
    assert_eq!(programs.each_ref().map(|program| program.line.as_str()), ["held 12"; 4]);
    let mut users: Vec<_> = seen_on(&node).into_iter().map(|one| (one.user, one.blocks)).collect();
    users.sort();
    let expected = ["1234", "200000", "root", "wmtest"].map(|user| (user.to_owned(), 12));
    assert_eq!(users, expected, "the host's root sees all");
    let [list, _] = text(node.command_of_user("wmctl stats --json"));
    assert!(matches!(&seen(&list)[..], [Seen { user, blocks: 12, .. }] if user == "wmtest"), "{list}");
    let own = |options: &str, command: &str| {
        node.command(&format!("podman run --rm {MOUNT} {options} {IMAGE} /opt/wmshim/bin/{command}"))
    };
    let exporter = ExporterPod::read();
    let [list, _] = text(own(&exporter.options, "wmctl stats --json"));
    assert_eq!(of_node(&node, seen(&list)).len(), 4, "the exporter's pod sees all: {list}");
    let [figures, _] = text(own(&exporter.options, &exporter.command));
    let up = |one: &str| {
        one.starts_with("wmshim_up{") && one.contains("program=\"train.py\"") && one.ends_with(" 1")
    };
    assert!(figures.lines().filter(|line| up(line)).count() >= 4, "{figures}");
    let [list, said] = text(own("--pid=container:j1", "wmctl stats --json"));
    assert!(matches!(&seen(&list)[..], [Seen { pid: 1, blocks: 12, .. }]), "{list} {said}");
    // The same without the capability, which a default container lacks.
    let output = own("--pid=host", "wmctl stats --json").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    let line =
        said.lines().find(|line| line.ends_with(" could not be looked into: CAP_SYS_PTRACE is missing"));
    let count: usize = line.and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or(0);
    assert!(count >= 4, "{said}");
    programs.into_iter().for_each(|program| drop(program.end()));
}

/// The pod of examples/monitoring/daemonset.yaml, as podman's arguments.
struct ExporterPod {
    options: String,
    command: String,
}

impl ExporterPod {
    /// Every line about rights is one of these, so that no other right is needed.
    fn read() -> Self {
        let file = places::workspace("examples/monitoring/daemonset.yaml");
        let text = fs::read_to_string(file).expect("the DaemonSet");
        let value = |name: &str| {
            let lines = text.lines().map(str::trim).filter_map(|line| line.strip_prefix(name));
            lines.map(str::trim).collect::<Vec<_>>()
        };
        assert_eq!(value("hostPID:"), ["true"]);
        assert_eq!(value("runAsUser:"), ["0"]);
        assert_eq!(value("capabilities:"), ["{add: [SYS_PTRACE]}"]);
        assert_eq!(value("allowPrivilegeEscalation:"), ["false"]);
        assert!(!text.contains("privileged:") && !text.contains("hostPath"));
        let command = value("command:")[0].trim_matches(['[', ']']).replace([',', '"'], "");
        // One answer on standard output; the page on the port has the same.
        let command =
            command.strip_suffix(" --listen 0.0.0.0:9835").expect("the exporter's command").to_owned();
        let options = "--pid=host --user 0 --cap-add SYS_PTRACE --security-opt no-new-privileges";
        Self { options: options.to_owned(), command }
    }
}

/// Memory that is passed on between containers, by the ways of docs/operations.md.
#[test]
fn handles_open_where_the_containers_share_a_folder_or_a_network() {
    let Some(node) = ContainerNode::start() else { return };
    let folder = node.path().join("shared");
    fs::create_dir(&folder)
        .and_then(|()| fs::set_permissions(&folder, Permissions::from_mode(0o700)))
        .expect("made");
    let folder = format!("-v {}:/shared -e WMSHIM_STATS_DIR=/shared", folder.display());
    for (options, code) in [(folder.as_str(), 0), ("--network=host", 0), ("", 400)] {
        let exporter = Contained::start(node.command(&(train(options) + " share")));
        let handle = exporter.line.strip_prefix("code 0 ").expect("a handle");
        let opener = Contained::start(node.command(&(train(options) + " open " + handle)));
        assert_eq!(opener.line, format!("code {code}"), "{options}");
        let said = opener.end();
        assert_eq!(said.contains("set WMSHIM_STATS_DIR to a folder that both see"), code != 0, "{said}");
        exporter.end();
    }
}

/// The node's ceiling in containers that the library is mounted into.
#[test]
fn the_nodes_ceiling_holds_in_containers() {
    let Some(node) = ContainerNode::start() else { return };
    let file = fs::read_to_string(places::workspace("examples/containers/wmshim.toml")).expect("the example");
    let file = file.replace("\"45%\"", "\"16MiB\"").replace("256GiB", "8MiB");
    fs::write(node.path().join("etc/wmshim.toml"), file).expect("written");
    node.output("wmctl cdi > /etc/cdi/wmshim.json");
    let by_device = format!("podman run --rm --device wmshim.dev/memory=all {IMAGE} python3 train.py");
    let asks_for_more =
        by_device.replace("--rm", "--rm -e WMSHIM_DEVICE_LIMIT=off -e WMSHIM_HEADROOM=100GiB");
    text(node.command_of_user(&node.import()));
    let by_mount = train("-v /etc/wmshim.toml:/etc/wmshim.toml:ro");
    let programs = [node.command(&by_device), node.command(&asks_for_more), node.command_of_user(&by_mount)];
    for program in programs {
        let program = Contained::start(program);
        assert_eq!(program.line, "held 3");
        let said = program.end();
        assert!(!said.contains("it has no effect"), "{said}");
    }
}
