//! Hazard (source drift): a command on a page does not work as it is pasted, or prints something
//! else.
//!
//! Each command of the pages runs in one shell a page, beside a program under the library, on the
//! simulated driver. A command is a line of a block `sh`, or one behind `$ ` with its output below.
//! Of that output the lines without figures, paths and `...` are looked for in what the command
//! prints.

mod support;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use hazards::places;
use support::Scratch;

const PAGES: [&str; 7] = [
    "README.md",
    "docs/how-to.md",
    "docs/monitoring.md",
    "docs/operations.md",
    "docs/pause.md",
    "docs/tutorial.md",
    "docs/wmctl.md",
];

/// Commands that do not run here, by their beginning, and the reason.
const NOT_RUN: [(&str, &str); 11] = [
    ("tar -xzf wmshim-", "needs a release: tools/xtask/src/release/tests.rs"),
    ("wmshim-0.1.0/install.sh", "the same"),
    ("~/.local/bin/wmctl", "the same"),
    ("unset WMSHIM_DRIVER", "what comes after it is for a GPU"),
    ("pip install ", "needs the wheel: tools/python/tests/test_wheel.py"),
    ("podman run ", "needs an image with Python"),
    ("wmctl export --listen", "serves until it is ended: tools/wmctl/tests/export.rs"),
    ("wmctl code libgemm.so", "needs a library with kernels: tools/wmctl/tests/code.rs"),
    ("wmctl diff before.trace.gz", "needs two recordings: tools/wmctl/tests/report.rs"),
    ("wmctl replay --trace tests/traces/gpt_varlen", "takes seconds: tests/replay"),
    (
        "WMSHIM_DRIVER=sim wmshim-run python -m wmshim.demo",
        "holds memory for a minute, as the program beside does",
    ),
];

/// Commands that end with code 1, and the reason.
const FAILS: [(&str, &str); 1] =
    [("WMSHIM_OVERFLOW=off wmshim-run", "the program runs out of memory, as the page wants")];

/// Commands that run; the page shows the output of another situation.
const ELSEWHERE: [(&str, &str, &str); 3] = [
    ("docs/wmctl.md", "wmctl stats", "beside two programs: tools/wmctl/tests/stats.rs"),
    ("docs/wmctl.md", "wmctl doctor", "without a driver: tools/wmctl/tests/doctor.rs"),
    ("docs/wmctl.md", "wmctl dedup", "beside programs that share: tools/wmctl/tests/dedup.rs"),
];

/// What a page says in place of the reader's own things.
const PLACEHOLDERS: [(&str, &str); 6] = [
    ("17096", "$PID"),
    ("PROGRAM", "python train.py"),
    ("/etc/cdi/", "~/"),
    ("/var/lib/node_exporter", "~"),
    ("./program", "python train.py"),
    ("python -m wmshim.demo &", "python -m wmshim.demo --seconds 0 &"),
];

/// A command, and the output that the page shows.
#[derive(Debug, PartialEq)]
struct Shown {
    command: String,
    output: Vec<String>,
}

/// The commands of a page's blocks.
fn commands(page: &str) -> Vec<Shown> {
    let mut found: Vec<Shown> = Vec::new();
    for (number, block) in page.split("```").enumerate() {
        let Some((language, text)) = block.split_once('\n').filter(|_| number % 2 == 1) else { continue };
        let is_script = language == "sh";
        let mut last = None;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            match line.strip_prefix("$ ").or(is_script.then_some(line)) {
                Some(command) => {
                    last = Some(found.len());
                    found.push(Shown { command: command.to_owned(), output: Vec::new() });
                }
                None => last.iter().for_each(|last| found[*last].output.push(line.trim().to_owned())),
            }
        }
    }
    found
}

/// Is this a line that every run prints?
fn is_fixed(line: &str) -> bool {
    let is_figure = line.contains("...") || line.contains('/') || line.chars().any(|c| c.is_ascii_digit());
    !is_figure && !line.contains("GPU ") && line.chars().any(char::is_alphabetic)
}

fn words(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A home with the programs that an installation has, and a program that runs.
struct Home {
    scratch: Scratch,
    program: Child,
}

impl Home {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let at = |name: &str| scratch.path().join(name);
        for folder in ["bin", "tmp", "stats", ".local/share/bash-completion/completions"] {
            fs::create_dir_all(at(folder)).expect("a folder");
        }
        fs::set_permissions(at("stats"), fs::Permissions::from_mode(0o700)).expect("its own");
        for (name, target) in [("wmctl", places::wmctl()), ("wmshim-run", places::wmctl())] {
            symlink(target, at("bin").join(name)).expect("a link");
        }
        for (name, target) in [("python", "/usr/bin/env"), ("less", "/bin/cat")] {
            let script = format!(
                "#!/bin/sh\nexec {target} {} \"$@\"\n",
                if name == "python" { "python3" } else { "" }
            );
            fs::write(at("bin").join(name), script).expect("written");
            fs::set_permissions(at("bin").join(name), fs::Permissions::from_mode(0o755)).expect("its own");
        }
        let demo = "import wmshim.demo\nwmshim.demo.main(['--seconds', '0'])\n";
        fs::write(at("train.py"), demo).expect("written");
        let mut shell = shell(&scratch);
        let command = "exec wmshim-run -q --set WMSHIM_PAUSE=on python3 -m wmshim.demo --seconds 600";
        let mut program =
            shell.args(["-c", command]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("sh");
        let held = program.stdout.as_mut().map(std::io::BufReader::new).expect("a pipe");
        let mut lines = std::io::BufRead::lines(held);
        assert!(
            lines.any(|line| line.expect("text").starts_with("holding ")),
            "the program holds its memory"
        );
        Self { scratch, program }
    }

    /// Runs the commands one behind the other, as a person does. What each printed, and its code.
    fn run(&self, page: &str, commands: &[String]) -> Vec<(String, String)> {
        let mark = |number: usize| format!("---- {number} ");
        let folder = page.replace('/', "-");
        let mut script =
            format!("PID={}; mkdir {folder} && cp train.py {folder} && cd {folder}\n", self.program.id());
        for (number, command) in commands.iter().enumerate() {
            let mark = mark(number);
            script += &format!("{{ {command}\n}} </dev/null 2>&1\ncode=$?; echo; echo \"{mark}$code\"\n");
        }
        let mut shell = shell(&self.scratch);
        let mut running = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("sh");
        running.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("it reads");
        let output = running.wait_with_output().expect("it ends");
        let mut rest = String::from_utf8_lossy(&output.stdout).into_owned();
        (0..commands.len())
            .map(|number| {
                let (before, after) = rest.split_once(&mark(number)).expect("each command ends");
                let (code, after) = after.split_once('\n').expect("a code");
                let answer = (before.to_owned(), code.to_owned());
                rest = after.to_owned();
                answer
            })
            .collect()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ended = self.program.kill().and_then(|()| self.program.wait());
    }
}

/// A shell in that home, which prints all that its commands print.
fn shell(scratch: &Scratch) -> Command {
    let at = |name: &str| scratch.path().join(name);
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python");
    let path = format!("{}:{}", at("bin").display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("bash");
    for (name, _) in
        std::env::vars().filter(|(name, _)| name.starts_with("WMSHIM_") || name.starts_with("SIMCUDA_"))
    {
        command.env_remove(name);
    }
    command
        .current_dir(scratch.path())
        .env("HOME", scratch.path())
        .env("PATH", path)
        .env("PYTHONPATH", package);
    let folders: [(&str, PathBuf); 3] =
        [("TMPDIR", at("tmp")), ("WMSHIM_STATS_DIR", at("stats")), ("WMSHIM_LIB", places::shim())];
    command
        .envs(folders)
        .env("WMSHIM_DRIVER", "sim")
        .env("SIMCUDA_MEMORY", "256MiB")
        .env_remove("XDG_RUNTIME_DIR")
        .env_remove("XDG_CACHE_HOME");
    command
}

fn pasted(command: &str) -> String {
    PLACEHOLDERS.iter().fold(command.to_owned(), |text, (shown, own)| text.replace(shown, own))
}

#[test]
fn each_command_of_the_pages_works_as_it_is_pasted() {
    let home = Home::new("pages");
    let (mut ran, mut left_out, mut wrong) = (0, Vec::new(), Vec::new());
    for page in PAGES {
        let text = fs::read_to_string(places::workspace(page)).expect(page);
        let reason = |shown: &Shown| NOT_RUN.iter().position(|(begin, _)| shown.command.starts_with(begin));
        let (out, run): (Vec<_>, Vec<_>) = commands(&text)
            .into_iter()
            .partition(|shown| reason(shown).inspect(|reason| left_out.push(*reason)).is_some());
        drop(out);
        let lines: Vec<String> = run.iter().map(|shown| pasted(&shown.command)).collect();
        let answers = home.run(page, &lines);
        ran += run.len();
        for (shown, (printed, code)) in run.iter().zip(answers) {
            let lines: Vec<String> = printed.lines().map(words).collect();
            let is_compared =
                !ELSEWHERE.iter().any(|(of, command, _)| *of == page && *command == shown.command);
            let is_absent = |line: &&String| is_compared && is_fixed(line) && !lines.contains(&words(line));
            let absent: Vec<_> = shown.output.iter().filter(is_absent).collect();
            let fails = FAILS.iter().any(|(begin, _)| shown.command.starts_with(begin));
            if code != if fails { "1" } else { "0" } || !absent.is_empty() {
                wrong.push(format!(
                    "{page}: {}\nends with {code}, lacks {absent:?}:\n{printed}",
                    shown.command
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(ran > 25, "{ran} commands ran");
    let unused: Vec<_> = (0..NOT_RUN.len()).filter(|reason| !left_out.contains(reason)).collect();
    assert!(unused.is_empty(), "no page has these any more: {unused:?} of {NOT_RUN:?}");
}

/// The rules must be able to fail.
#[test]
fn commands_and_their_output_are_seen() {
    let page = "a\n```sh\nx 1\n\ny\n```\n```\n$ z  # why\nNAME  OTHER\n12 b\n```\n```python\nq\n```\n";
    let shown = |command: &str, output: &[&str]| Shown {
        command: command.to_owned(),
        output: output.iter().map(|line| (*line).to_owned()).collect(),
    };
    let expected = [shown("x 1", &[]), shown("y", &[]), shown("z  # why", &["NAME  OTHER", "12 b"])];
    assert_eq!(commands(page), expected);
    assert!(is_fixed("NAME  OTHER") && !is_fixed("12 b") && !is_fixed("a ...") && !is_fixed("|---"));
}
