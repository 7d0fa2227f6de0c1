//! Hazard (out of memory): idle memory of this process is not returned to the device for others, or
//! a block stays on the host although the device has become free.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout};
use std::time::{Duration, Instant};

use hazards::{Host, Scratch, c, driver, places};

/// Idle memory is back after five seconds, on a busy machine after twice as long.
const BACK: Duration = Duration::from_secs(10);

/// Two processes on one device of this size.
struct Machine {
    scratch: Scratch,
    driver: PathBuf,
    memory: &'static str,
}

/// A process that stays until its standard input ends.
struct Staying {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Machine {
    fn new(memory: &'static str) -> Self {
        let scratch = Scratch::new();
        Self { driver: driver::simulated(&scratch), scratch, memory }
    }

    fn on(&self, host: Host) -> Host {
        let host = host.env("SIMCUDA_MEMORY", self.memory);
        host.env("SIMCUDA_SHARED", self.scratch.path().join("shared"))
    }

    fn program(&self, source: &str) -> PathBuf {
        c::cuda_program(&self.scratch, source)
    }

    fn shimmed(&self, program: &Path) -> Host {
        self.on(Host::shimmed(program, &self.scratch, &self.driver))
    }

    /// The program with the simulator as its driver, without the library.
    fn bare(&self, program: &Path) -> Host {
        self.on(Host::bare(program).env("LD_LIBRARY_PATH", &self.driver))
    }

    /// Does the program get its memory at once, all of it on the device?
    fn gets(&self, host: Host) -> bool {
        self.on(host).run().expect_success() == "0 0"
    }
}

impl Staying {
    fn start(host: Host) -> Self {
        let mut child = host.start();
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, answers }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("it answers");
        line.trim_end().to_owned()
    }

    fn say(&mut self) -> String {
        self.child.stdin.as_mut().expect("a pipe").write_all(b"x").expect("it listens");
        self.line()
    }

    /// Voluntary switches of the thread with that name, which are its sleeps; `None` if there is no
    /// such thread.
    fn sleeps(&self, name: &str) -> Option<u64> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it runs");
        let read = |file: PathBuf| std::fs::read_to_string(file).unwrap_or_default();
        let task = tasks.flatten().find(|task| read(task.path().join("comm")).trim_end() == name)?;
        let status = read(task.path().join("status"));
        let switches = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        Some(switches.expect("the kernel tells").trim().parse().expect("a number"))
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("it ends").success());
        let mut rest = String::new();
        self.child.stderr.take().expect("a pipe").read_to_string(&mut rest).expect("its words");
        assert_eq!(rest, "");
    }
}

/// The time until that holds.
fn until(mut holds: impl FnMut() -> bool) -> Duration {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < BACK, "not within {BACK:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    begin.elapsed()
}

#[test]
fn what_a_silent_program_used_again_and_again_goes_back_by_itself() {
    for way in ["sync", "mixed"] {
        let machine = Machine::new("16GiB");
        let (idler, want) = (machine.program("idler"), machine.program("want"));
        let mut silent = Staying::start(machine.shimmed(&idler).args([way, "6144"]));
        assert_eq!(silent.line(), "idle", "{way}");
        until(|| machine.gets(machine.bare(&want).args(["14336"])));
        assert!(machine.gets(machine.shimmed(&want).args(["14336"])), "{way}: beside idle memory");
        silent.end();
    }
}

/// Hazard: a thread without work runs, or wakes up without need, while the program runs.
#[test]
fn a_thread_looks_at_idle_memory_while_there_is_some_and_sleeps_then() {
    let machine = Machine::new("16GiB");
    let (idler, want) = (machine.program("idler"), machine.program("want"));
    let mut little = Staying::start(machine.shimmed(&idler).args(["sync", "256"]));
    assert_eq!((little.line().as_str(), little.sleeps("wmshim-idle")), ("idle", None));
    little.end();
    let mut much = Staying::start(machine.shimmed(&idler).args(["sync", "6144"]));
    assert_eq!(much.line(), "idle");
    assert!(much.sleeps("wmshim-idle").is_some());
    until(|| machine.gets(machine.bare(&want).args(["14336"])));
    std::thread::sleep(Duration::from_millis(500));
    let before = much.sleeps("wmshim-idle");
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(much.sleeps("wmshim-idle"), before);
    much.end();
}

/// Hazard: a block that is freed and requested again stays on the host although the device has
/// become free.
#[test]
fn what_is_asked_for_again_lies_on_the_device_once_that_has_room() {
    let machine = Machine::new("2GiB");
    let want = machine.program("want");
    let mut neighbour = Staying::start(machine.bare(&want).args(["1200", "stay"]));
    assert_eq!(neighbour.line(), "0 0");
    // A log line reports that it does not fit; that is no fault.
    let mut late = Staying::start(machine.shimmed(&want).env("WMSHIM_LOG", "error").args(["1200", "stay"]));
    assert!(late.line().starts_with("0 ") && late.say() != "0 0", "it does not fit");
    neighbour.end();
    let mut asked = 0;
    until(|| {
        asked += 1;
        late.say() == "0 0"
    });
    assert!(asked < 20, "asked {asked} times");
    late.end();
}

/// Hazard: near the end of memory PyTorch's unused pages are never released to others.
#[test]
fn pages_that_pytorch_does_not_come_back_for_go_back_by_themselves() {
    let machine = Machine::new("26MiB");
    let text = |path: PathBuf| path.to_str().expect("a readable path").to_owned();
    let library = text(c::library("pages", machine.scratch.folder("libraries").join("libc10_cuda.so"), &[]));
    let paging = c::program(&machine.scratch, "paging", &[&library, &text(places::shim())]);
    let want = machine.program("want");
    let host = machine.shimmed(&paging).args(["9", "idle"]);
    let mut silent = Staying::start(host.env("WMSHIM_HEADROOM", "0MiB").env("WMSHIM_KEEP_IDLE", "0"));
    let report = silent.line();
    let stats: serde_json::Value =
        serde_json::from_str(report.splitn(3, ' ').last().expect("three words")).expect("JSON");
    assert!(stats["devices"][0]["pieces"]["idle_bytes"].as_u64() >= Some(8 << 20), "{report}");
    until(|| machine.gets(machine.bare(&want).args(["8"])));
    silent.end();
}
