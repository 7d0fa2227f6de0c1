//! Hazard (deadlock): a list or a command waits for a program of which the driver has taken the
//! rest, or the program is left locked. Hazard (wrong result): its bytes change meanwhile.

mod support;

use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use hazards::paused::Served;
use support::{stderr, stdout, wmctl};

/// An answer takes less, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program that can be paused, on a simulated machine with checkpoints.
struct Taken {
    scratch: hazards::Scratch,
    program: Served,
    pid: String,
}

impl Taken {
    fn start() -> Self {
        let scratch = hazards::Scratch::new();
        let folder = scratch.folder("checkpoints");
        let places = [("WMSHIM_PAUSE", "on"), ("SIMCUDA_CHECKPOINTS", text(&folder))];
        let mut program = Served::start(&scratch, &places);
        assert_eq!((program.say("block 8"), program.say("block 4")), (1, 2));
        let pid = program.socket.file_stem().and_then(|name| name.to_str()).expect("a number").to_owned();
        Self { scratch, program, pid }
    }

    /// `wmctl` with the simulated driver, and with these variables.
    fn run_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        let own = support::Scratch::new("deep");
        let mut command = wmctl(&own);
        command.args(arguments).env("WMSHIM_STATS_DIR", self.program.socket.parent().expect("a folder"));
        command.env("WMSHIM_DRIVER", self.scratch.path().join("driver"));
        command.env("SIMCUDA_CHECKPOINTS", self.scratch.path().join("checkpoints"));
        variables.iter().for_each(|(name, value)| _ = command.env(name, value));
        command.output().expect("it ran")
    }

    fn said(&self, arguments: &[&str]) -> String {
        let output = self.run_with(arguments, &[]);
        assert!(output.status.success(), "{arguments:?}: {}{}", stdout(&output), stderr(&output));
        stdout(&output)
    }

    fn refused(&self, arguments: &[&str], variables: &[(&str, &str)]) -> String {
        let output = self.run_with(arguments, variables);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", stdout(&output));
        stderr(&output)
    }

    /// Resumes it, and looks at its bytes.
    fn comes_back(self) {
        self.comes_back_with(12);
    }

    fn comes_back_with(mut self, mib: u64) {
        let text = self.said(&["resume", &self.pid]);
        assert!(text.contains(&format!("runs: {mib}.0 MiB back in ")), "{text}");
        assert_eq!(self.program.place(), ("running".to_owned(), mib, 0));
        self.program.say("touch");
        assert_eq!((self.program.say("join"), self.program.say("check")), (0, 1));
        assert_eq!(self.said(&["resume", &self.pid]), format!("process {} runs\n", self.pid));
        self.program.end();
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a readable path")
}

#[test]
fn a_program_is_taken_whole_and_comes_back() {
    let mut taken = Taken::start();
    let pid = taken.pid.clone();
    let text = taken.said(&["pause", "--deep", &pid]);
    assert!(
        text.starts_with(&format!("process {pid} is deep: 12.0 MiB to memory that is not pinned in ")),
        "{text}"
    );
    let begin = Instant::now();
    assert!(taken.said(&["top", "--once"]).contains("(deep)"));
    assert!(taken.said(&["stats"]).contains("deep"));
    assert!(taken.said(&["stats", &pid]).contains("\ndeep: 12.0 MiB to memory that is not pinned in "));
    assert_eq!(taken.said(&["pause", &pid]), format!("process {pid} is deep already\n"));
    assert_eq!(taken.said(&["pause", "--deep", &pid]), format!("process {pid} is deep already\n"));
    for change in ["trim", "detach"] {
        let why = taken.refused(&[change, &pid], &[]);
        assert!(why.contains("wmctl resume"), "{change}: {why}");
    }
    assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
    // Its calls wait, also those that a pause alone does not hold up.
    taken.program.say("touch");
    taken.program.tell("check");
    taken.program.socket.metadata().expect("it lives");
    let text = taken.said(&["resume", &pid]);
    assert!(text.contains("runs: 12.0 MiB back in "), "{text}");
    taken.program.hear();
    assert_eq!((taken.program.say("join"), taken.program.say("check")), (0, 1));
    taken.comes_back_again();
}

impl Taken {
    /// Once more, from a process that runs.
    fn comes_back_again(self) {
        self.said(&["pause", "--deep", &self.pid]);
        self.comes_back();
    }
}

/// It stays paused, as it would without `--deep`, and no call is locked.
#[test]
fn what_the_driver_refuses_is_an_error_and_the_program_stays_paused() {
    for failing in ["cuCheckpointProcessLock:1", "cuCheckpointProcessCheckpoint:1"] {
        let taken = Taken::start();
        let why = taken.refused(&["pause", "--deep", &taken.pid], &[("SIMCUDA_FAIL", failing)]);
        assert!(why.contains("the driver has not taken the rest: cuCheckpointProcess"), "{why}");
        assert!(taken.said(&["top", "--once"]).contains("(paused)"), "{failing}");
        taken.comes_back();
    }
}

#[test]
fn what_the_driver_does_not_give_back_can_be_asked_for_again() {
    for failing in ["cuCheckpointProcessRestore:1", "cuCheckpointProcessUnlock:1"] {
        let taken = Taken::start();
        taken.said(&["pause", "--deep", &taken.pid]);
        let why = taken.refused(&["resume", &taken.pid], &[("SIMCUDA_FAIL", failing)]);
        assert!(why.contains(failing.split(':').next().expect("a name")), "{why}");
        assert!(taken.said(&["top", "--once"]).contains("(deep)"), "{failing}");
        taken.comes_back();
    }
}

/// Hazard (process crash): the driver loses a process that has memory of `cuMemCreate` on the host.
#[test]
fn a_program_with_pinned_memory_of_the_host_is_not_taken() {
    let taken = Taken::start();
    for _ in 0..2 {
        let why = taken.refused(&["pause", "--deep", "--to", "host", &taken.pid], &[]);
        assert!(why.contains("it is paused, but not deep: ") && why.contains("--to host"), "{why}");
        assert!(taken.said(&["top", "--once"]).contains("(paused)"));
    }
    taken.comes_back();
    // What it keeps on the host after that goes before the driver looks. Memory of its own is
    // nowhere while it is paused.
    let mut taken = Taken::start();
    taken.program.say("piece");
    taken.said(&["pause", &taken.pid]);
    taken.said(&["resume", &taken.pid]);
    taken.said(&["pause", "--deep", &taken.pid]);
    taken.comes_back_with(20);
}

#[test]
fn a_driver_that_has_no_checkpoints_is_said_before_anything_is_paused() {
    let mut taken = Taken::start();
    let other = hazards::Scratch::new();
    let old = hazards::driver::small(&other);
    let why = taken.refused(&["pause", "--deep", &taken.pid], &[("WMSHIM_DRIVER", text(&old))]);
    assert!(why.contains("driver 570"), "{why}");
    assert_eq!(taken.program.place(), ("running".to_owned(), 12, 0));
    taken.program.end();
}

/// A client that is killed in between leaves a program that says `deep`, whether it is or not.
#[test]
fn a_program_that_was_told_and_not_taken_comes_back() {
    let mut taken = Taken::start();
    let answer = taken.program.ask("pause_deep");
    assert!(answer["pause"]["is_deep"] == false && answer["pause"]["problem"].is_string(), "{answer}");
    let answer = taken.program.request(r#"{"request":"pause","to":"memory"}"#);
    assert_eq!(answer["pause"]["state"], "paused");
    assert_eq!(taken.program.ask("pause_deep")["pause"]["is_deep"], true);
    // A plain resume would wait for the driver, so it is refused.
    let answer = taken.program.ask("resume");
    assert!(answer["pause"]["problem"].as_str().is_some_and(|why| why.contains("wmctl resume")), "{answer}");
    assert!(taken.program.say("resume") > 0, "the program's own too");
    taken.comes_back();
}
