//! Hazard (wrong result): bytes change while processes take turns at a GPU. Hazard (deadlock): a
//! process waits for one that is stopped, has died or is in its exit. Hazard (latency): one of
//! two that launch all the time never runs. Hazard (silent degradation): memory lies on the host
//! although another process is idle on the device.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command};
use std::time::{Duration, Instant};

use hazards::{Host, Scratch, c, driver, host, places};
use serde_json::{Value, json};

/// Longest wait for anything that must happen, on a busy machine.
const SOON: Duration = Duration::from_secs(120);

/// A machine with one GPU of 128 MiB.
struct Machine {
    scratch: Scratch,
    driver: PathBuf,
    program: PathBuf,
}

impl Machine {
    fn new() -> Self {
        let scratch = Scratch::new();
        let include = c::flag("-I", &places::workspace("shim/preload/include"));
        let shim = places::shim();
        let program = c::program(&scratch, "turns", &[&include, shim.to_str().expect("a readable path")]);
        Self { driver: driver::simulated(&scratch), scratch, program }
    }

    fn start(&self, variables: &[(&str, &str)]) -> Program {
        let host = Host::shimmed(&self.program, &self.scratch, &self.driver)
            .args([places::workspace("kernels/compiled/diagnostics.ptx")])
            .env("WMSHIM_BROKER", places::broker())
            .env("WMSHIM_SHARE", "turns")
            .env("WMSHIM_HEADROOM", "0")
            .env("SIMCUDA_MEMORY", "128MiB")
            .env("SIMCUDA_RACES", "1")
            .env("SIMCUDA_SHARED", self.scratch.path().join("machine"));
        let host = variables.iter().fold(host, |host, (name, value)| host.env(name, value));
        let mut child = host.start();
        let words = child.stdin.take().expect("a pipe");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let socket = self.scratch.path().join("stats").join(format!("{}.sock", child.id()));
        Program { child: Some(child), words, answers, socket }
    }

    /// Programs with so many MiB in blocks of 8 MiB, which know each other.
    fn with(&self, sizes: &[u64]) -> Vec<Program> {
        let mut programs: Vec<Program> = sizes.iter().map(|_| self.start(&[])).collect();
        programs.iter_mut().zip(sizes).for_each(|(program, size)| program.has(*size));
        programs
    }

    /// Processes of the broker.
    fn brokers(&self) -> Vec<u32> {
        let folder = self.scratch.path().join("stats");
        let folder = folder.to_str().expect("a readable path");
        let is_broker = |process: &u32| {
            let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
            words.iter().any(|word| word.ends_with("wmshimd")) && words.iter().any(|word| word == folder)
        };
        let entries = std::fs::read_dir("/proc").expect("processes").flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.filter(is_broker).collect()
    }
}

struct Program {
    child: Option<Child>,
    words: ChildStdin,
    answers: BufReader<ChildStdout>,
    socket: PathBuf,
}

impl Program {
    fn tell(&mut self, words: &str) {
        writeln!(self.words, "{words}").expect("the program listens");
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the program answers");
        line.trim().to_owned()
    }

    fn say(&mut self, words: &str) -> i64 {
        self.tell(words);
        let answer = self.hear();
        answer.parse().unwrap_or_else(|_| panic!("{words}: {answer:?}"))
    }

    fn has(&mut self, mib: u64) {
        for _ in 0..mib / 8 {
            assert!(self.say("block 8") > 0);
        }
        until("there is a broker", || self.turn()["has_broker"] == true);
    }

    fn once(&mut self) -> Duration {
        let milliseconds = self.say("once");
        Duration::from_millis(milliseconds.try_into().expect("all words are right"))
    }

    fn stats(&mut self) -> Value {
        self.tell("stats");
        serde_json::from_str(&self.hear()).expect("JSON")
    }

    fn turn(&mut self) -> Value {
        self.stats()["turn"].clone()
    }

    /// MiB on the device and on the host.
    fn place(&mut self) -> (u64, u64) {
        let stats = self.stats();
        let on =
            |tier: &str| stats["devices"][0]["memory"][tier]["live_bytes"].as_u64().expect("bytes") >> 20;
        (on("device"), on("host"))
    }

    /// The answer of its socket.
    fn ask(&self, request: &str) -> Value {
        let mut stream = UnixStream::connect(&self.socket).expect("the socket answers");
        stream.set_read_timeout(Some(SOON)).expect("a limit");
        writeln!(stream, "{request}").expect("the endpoint listens");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("an answer");
        serde_json::from_str(&line).expect("JSON")
    }

    fn pid(&self) -> i32 {
        self.child.as_ref().expect("it has not ended").id() as i32
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a signal to a process that this test has started and not waited for.
        assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0);
    }

    fn kill(mut self) {
        self.signal(libc::SIGKILL);
        self.child.take().expect("it has not ended").wait().expect("it ends");
    }

    fn end(mut self) -> String {
        self.tell("exit");
        let output = host::watched(self.child.take().expect("it has not ended"));
        assert!(output.status.success(), "{}", host::said(&output));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !happened() {
        assert!(Instant::now() < end, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The one that runs has all of its memory on the device. Of the other one as much stays as fits.
#[test]
fn two_that_do_not_fit_take_turns_and_no_more_moves_than_has_to() {
    let machine = Machine::new();
    let mut programs = machine.with(&[96, 96]);
    for _ in 0..10 {
        for index in [0, 1] {
            programs[index].once();
            assert_eq!(programs[index].place(), (96, 0), "{}", programs[index].turn());
            let (on_device, on_host) = programs[1 - index].place();
            assert!(on_device + on_host == 96 && on_host >= 64, "{on_device} and {on_host} MiB");
            assert!(on_host <= 80, "{on_host} MiB have left for 64");
        }
    }
    for mut program in programs {
        let turn = program.turn();
        assert!(turn["gave_way"].as_u64() >= Some(9) && turn["asks"].as_u64() >= Some(9), "{turn}");
        assert_eq!(program.say("check"), 1);
        assert_eq!(program.end(), "");
    }
}

#[test]
fn two_that_fit_do_not_give_way() {
    let machine = Machine::new();
    let mut programs = machine.with(&[56, 56]);
    for _ in 0..3 {
        for program in &mut programs {
            program.once();
        }
    }
    for program in &mut programs {
        assert_eq!(program.place(), (56, 0));
        let turn = program.turn();
        assert!(turn["asks"] == 0 && turn["gave_way"] == 0 && turn["state"] == "running", "{turn}");
    }
}

/// The one that launched least recently gives way, and a third one is left alone.
#[test]
fn the_one_that_launched_least_recently_gives_way() {
    let machine = Machine::new();
    let mut programs = machine.with(&[40, 40, 40]);
    programs[0].once();
    programs[2].once();
    // 8 MiB are free, and 32 more are needed.
    programs[0].has(40);
    assert_eq!(programs[0].place(), (80, 0));
    assert_eq!((programs[2].place(), programs[2].turn()["gave_way"].as_u64()), ((40, 0), Some(0)));
    let (on_device, on_host) = programs[1].place();
    assert!(on_host >= 32 && on_device + on_host == 40, "{on_device} and {on_host} MiB");
    programs[1].once();
    assert_eq!(programs[1].place(), (40, 0));
    assert!(programs.iter_mut().all(|program| program.say("check") == 1));
}

#[test]
fn two_that_launch_all_the_time_alternate() {
    let machine = Machine::new();
    let mut programs = machine.with(&[96, 96]);
    programs.iter_mut().for_each(|program| assert_eq!(program.say("work"), 0));
    let mut before = [0, 0];
    for _ in 0..4 {
        for index in [0, 1] {
            until("both work", || programs[index].say("count") > before[index] + 1);
        }
        before = [0, 1].map(|index| programs[index].say("count"));
    }
    // The one that is away when it is to halt needs another turn.
    programs.iter_mut().for_each(|program| program.tell("halt"));
    for mut program in programs {
        assert_eq!(program.hear(), "1", "all words were right");
        let turn = program.turn();
        assert!(turn["asks"].as_u64() >= Some(2), "{turn}");
    }
}

/// Each wants memory that the other one holds, while it gives way itself.
#[test]
fn two_that_grow_at_the_same_time_both_get_their_memory() {
    let machine = Machine::new();
    let mut programs = machine.with(&[8, 8]);
    for _ in 0..11 {
        programs.iter_mut().for_each(|program| program.tell("block 8"));
        assert!(
            programs.iter_mut().all(|program| program.hear().parse::<i64>().is_ok_and(|count| count > 0))
        );
    }
    for index in [0, 1] {
        programs[index].once();
        assert_eq!(programs[index].place(), (96, 0), "{}", programs[index].turn());
    }
    assert!(programs.iter_mut().all(|program| program.say("check") == 1));
    let longest =
        programs.iter_mut().map(|program| program.turn()["longest_wait_s"].as_f64().expect("seconds"));
    assert!(longest.fold(0.0, f64::max) < 20.0, "a wait ended by its deadline alone");
}

#[test]
fn one_that_is_killed_leaves_the_device_to_the_other() {
    let machine = Machine::new();
    let mut programs = machine.with(&[96, 96]);
    let (mut other, killed) = (programs.remove(0), programs.remove(0));
    assert_eq!(other.say("work"), 0);
    until("it works", || other.say("count") > 3);
    killed.kill();
    let count = other.say("count");
    until("it goes on", || other.say("count") > count + 3);
    assert_eq!((other.say("halt"), other.place()), (1, (96, 0)));
}

/// A process that is stopped with its memory on the device costs a deadline, once. The other one
/// goes on with memory on the host.
#[test]
fn one_that_is_stopped_costs_a_deadline_and_goes_on_later() {
    let machine = Machine::new();
    let mut programs = machine.with(&[96, 96]);
    programs[0].once();
    programs[0].signal(libc::SIGSTOP);
    let begin = Instant::now();
    programs[1].once();
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    let (on_device, on_host) = programs[1].place();
    assert!(on_host >= 32 && on_device + on_host == 96, "{on_device} and {on_host} MiB");
    programs[0].signal(libc::SIGCONT);
    programs[0].once();
    assert_eq!(programs[0].place(), (96, 0));
    until("the other one has its memory back", || {
        programs[1].once();
        programs[1].place() == (96, 0)
    });
    assert!(programs.iter_mut().all(|program| program.say("check") == 1));
}

/// Without a broker all goes on, with memory on the host; then there is a new broker, and turns
/// again.
#[test]
fn when_the_broker_is_killed_all_go_on() {
    let machine = Machine::new();
    let mut programs = machine.with(&[96, 96]);
    for _ in 0..2 {
        programs.iter_mut().for_each(|program| assert_eq!(program.say("work"), 0));
        until("both work", || programs.iter_mut().all(|program| program.say("count") > 1));
        let brokers = machine.brokers();
        assert!(!brokers.is_empty(), "there is a broker");
        for broker in brokers {
            Command::new("kill").args(["-KILL", &broker.to_string()]).status().expect("kill runs");
        }
        let before: Vec<_> = programs.iter_mut().map(|program| program.say("count")).collect();
        for (program, before) in programs.iter_mut().zip(before) {
            until("it goes on", || program.say("count") > before + 2);
        }
        programs.iter_mut().for_each(|program| program.tell("halt"));
        assert!(programs.iter_mut().all(|program| program.hear() == "1"));
        until("there is a broker", || {
            programs.iter_mut().all(|program| program.turn()["has_broker"] == true)
        });
    }
    for index in [0, 1, 0, 1] {
        programs[index].once();
    }
    assert!(programs.iter_mut().all(|program| program.say("check") == 1));
}

/// A broker that is stopped is one that does not answer.
#[test]
fn when_the_broker_is_stopped_all_go_on() {
    let machine = Machine::new();
    let mut programs = machine.with(&[96, 96]);
    programs[0].once();
    let brokers = machine.brokers();
    let signal = |name: &str| {
        for broker in &brokers {
            Command::new("kill").args([name, &broker.to_string()]).status().expect("kill runs");
        }
    };
    signal("-STOP");
    let begin = Instant::now();
    programs[1].once();
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    signal("-CONT");
    programs[0].once();
    assert!(programs.iter_mut().all(|program| program.say("check") == 1));
}

/// A pause that is refused changes nothing, and keeps no call for long. The other one goes on with
/// memory on the host.
#[test]
fn one_that_cannot_be_paused_keeps_its_memory() {
    for migrate in ["off", "auto"] {
        let machine = Machine::new();
        let mut programs = [(); 2].map(|()| machine.start(&[("WMSHIM_MIGRATE", migrate)]));
        programs.iter_mut().for_each(|program| program.has(96));
        programs[0].once();
        assert_eq!(programs[0].say("hold"), 0);
        programs[1].tell("once");
        let mut longest = Duration::ZERO;
        until("the pause is refused", || {
            longest = longest.max(programs[0].once());
            let problem = &programs[0].stats()["pause"]["problem"];
            problem.as_str().is_some_and(|why| why.contains("waits for the host"))
        });
        assert!(longest < Duration::from_secs(6), "{longest:?}");
        assert!(programs[1].hear().parse::<i64>().is_ok_and(|milliseconds| milliseconds >= 0));
        assert_eq!(programs[0].place(), (96, 0));
        assert_eq!(programs[0].say("release"), 0);
        until("the other one has its memory back", || {
            programs[1].once();
            programs[1].place() == (96, 0)
        });
        assert!(programs.iter_mut().all(|program| program.say("check") == 1));
    }
}

/// It waits for the operator, and not for its turn.
#[test]
fn one_that_an_operator_has_paused_takes_no_turn() {
    let machine = Machine::new();
    let mut programs = machine.with(&[96, 96]);
    programs[0].ask("pause");
    until("it is paused", || programs[0].ask("pause_state")["pause"]["state"] == "paused");
    assert_eq!(programs[0].place(), (0, 96), "all leaves");
    programs[0].tell("once");
    until("its call waits", || programs[0].ask("pause_state")["pause"]["is_awaited"] == true);
    programs[1].once();
    assert_eq!(programs[1].place(), (96, 0));
    let turn = programs[0].ask("stats")["turn"].clone();
    assert_eq!(turn["state"], "paused");
    programs[0].ask("resume");
    assert!(
        programs[0].hear().parse::<i64>().is_ok_and(|milliseconds| milliseconds >= 0),
        "all words are right"
    );
    until("it has its memory back", || {
        programs[0].once();
        programs[0].place() == (96, 0)
    });
    assert!(programs.iter_mut().all(|program| program.say("check") == 1));
}

/// The same for a pause to files. Memory of one that gave way stays on the host, though.
#[test]
fn one_that_an_operator_has_paused_to_files_takes_no_turn() {
    let machine = Machine::new();
    let pause = json!({ "request": "pause", "to": machine.scratch.folder("away") }).to_string();
    let mut programs = machine.with(&[96, 96]);
    assert!(programs[0].place().1 > 0, "it gave way");
    for in_files in [0, 96 << 20] {
        programs[0].ask(&pause);
        until("all is away", || {
            let pause = programs[0].ask("pause_state")["pause"].clone();
            pause["state"] == "paused" && pause["file_bytes"] == in_files && programs[0].place().0 == 0
        });
        programs[0].tell("once");
        until("its call waits", || programs[0].ask("pause_state")["pause"]["is_awaited"] == true);
        programs[1].once();
        assert_eq!(programs[1].place(), (96, 0));
        assert_eq!(programs[0].ask("stats")["turn"]["state"], "paused");
        programs[0].ask("resume");
        assert!(programs[0].hear().parse::<i64>().is_ok_and(|milliseconds| milliseconds >= 0));
        until("it has its memory back", || {
            programs[0].once();
            programs[0].place() == (96, 0)
        });
    }
    // The next pause for another process is not to files.
    programs[1].once();
    assert!(programs[0].place().1 > 0);
    assert!(programs.iter_mut().all(|program| program.say("check") == 1));
}

/// One that is detached while it is away has its memory back with its next call.
#[test]
fn one_that_is_detached_while_it_is_away_asks_all_the_same() {
    let machine = Machine::new();
    let mut programs = machine.with(&[96, 96]);
    assert!(programs[0].place().1 > 0, "it gave way");
    let made = programs[0].ask("detach");
    assert_eq!(made["detached"], true, "{made}");
    assert!(programs[0].once() < Duration::from_secs(20), "not by the thread's next look");
    assert!(programs.iter_mut().all(|program| program.say("check") == 1));
}

/// Hazard (wrong result): a move fails in the middle of a turn.
#[test]
fn calls_of_the_driver_that_fail_lose_no_byte() {
    for failing in
        ["cuMemcpyDtoDAsync:9", "cuMemUnmap:5", "cuMemMap:70", "cuMemCreate:60", "cuMemSetAccess:75"]
    {
        let machine = Machine::new();
        let mut programs = [machine.start(&[("SIMCUDA_FAIL", failing)]), machine.start(&[])];
        programs.iter_mut().for_each(|program| program.has(96));
        for _ in 0..3 {
            programs.iter_mut().for_each(|program| assert!(program.once() < SOON, "{failing}"));
        }
        assert!(programs.iter_mut().all(|program| program.say("check") == 1), "{failing}");
    }
}

/// Neither a child nor an exit waits for a turn.
#[test]
fn children_and_exits_of_a_process_that_is_away_wait_for_no_turn() {
    let machine = Machine::new();
    let mut programs = machine.with(&[96, 96]);
    programs[1].once();
    until("the first one is away", || programs[0].turn()["state"] == "away");
    let begin = Instant::now();
    assert!(programs[0].say("fork") >= 0);
    programs.remove(0).end();
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    assert_eq!(programs[0].say("check"), 1);
}

/// Nothing of it is in a process without the setting.
#[test]
fn without_the_setting_there_is_no_broker() {
    let machine = Machine::new();
    let mut program = machine.start(&[("WMSHIM_SHARE", "off")]);
    assert_eq!(program.say("block 8"), 1);
    program.once();
    assert_eq!(program.turn(), Value::Null);
    assert_eq!(machine.brokers(), Vec::<u32>::new());
    let threads = std::fs::read_dir(format!("/proc/{}/task", program.pid())).expect("threads").flatten();
    let names = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    assert!(!names.into_iter().any(|name| name.trim() == "wmshim-turns"));
}
