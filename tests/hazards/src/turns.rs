//! Programs that take turns at one simulated GPU (`c/turns.c`).

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{Host, Scratch, c, driver, host, places};

/// Longest wait for anything that must happen, on a busy machine.
pub const SOON: Duration = Duration::from_secs(120);

/// A machine with one GPU of 128 MiB.
pub struct Machine {
    /// Its files, those of the broker included.
    pub scratch: Scratch,
    driver: PathBuf,
    program: PathBuf,
}

impl Machine {
    /// Compiles the program.
    pub fn made() -> Self {
        let scratch = Scratch::new();
        let include = c::flag("-I", &places::workspace("shim/preload/include"));
        let shim = places::shim();
        let program = c::program(&scratch, "turns", &[&include, shim.to_str().expect("a readable path")]);
        Self { driver: driver::simulated(&scratch), scratch, program }
    }

    /// A program without memory, with these variables.
    pub fn start(&self, variables: &[(&str, &str)]) -> Program {
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
    pub fn with(&self, sizes: &[u64]) -> Vec<Program> {
        let mut programs: Vec<Program> = sizes.iter().map(|_| self.start(&[])).collect();
        programs.iter_mut().zip(sizes).for_each(|(program, size)| program.has(*size));
        programs
    }

    /// Processes of the broker.
    pub fn brokers(&self) -> Vec<u32> {
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

/// One of the programs, which obeys a line at a time.
pub struct Program {
    child: Option<Child>,
    words: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Of its statistics.
    pub socket: PathBuf,
}

impl Program {
    /// A command; its answer is heard later.
    pub fn tell(&mut self, words: &str) {
        writeln!(self.words, "{words}").expect("the program listens");
    }

    /// The next answer.
    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the program answers");
        line.trim().to_owned()
    }

    /// A command, and the number that it answers.
    pub fn say(&mut self, words: &str) -> i64 {
        self.tell(words);
        let answer = self.hear();
        answer.parse().unwrap_or_else(|_| panic!("{words}: {answer:?}"))
    }

    /// Allocates so many MiB, in blocks of 8.
    pub fn has(&mut self, mib: u64) {
        for _ in 0..mib / 8 {
            assert!(self.say("block 8") > 0);
        }
        until("there is a broker", || self.turn()["has_broker"] == true);
    }

    /// The time in which it fills all of its memory and reads it back. All words are right.
    pub fn once(&mut self) -> Duration {
        let milliseconds = self.say("once");
        Duration::from_millis(milliseconds.try_into().expect("all words are right"))
    }

    /// Its statistics.
    pub fn stats(&mut self) -> Value {
        self.tell("stats");
        serde_json::from_str(&self.hear()).expect("JSON")
    }

    /// The part of them that is about turns.
    pub fn turn(&mut self) -> Value {
        self.stats()["turn"].clone()
    }

    /// MiB on the device and on the host.
    pub fn place(&mut self) -> (u64, u64) {
        let stats = self.stats();
        let on =
            |tier: &str| stats["devices"][0]["memory"][tier]["live_bytes"].as_u64().expect("bytes") >> 20;
        (on("device"), on("host"))
    }

    /// The answer of its socket.
    pub fn ask(&self, request: &str) -> Value {
        let mut stream = UnixStream::connect(&self.socket).expect("the socket answers");
        stream.set_read_timeout(Some(SOON)).expect("a limit");
        writeln!(stream, "{request}").expect("the endpoint listens");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("an answer");
        serde_json::from_str(&line).expect("JSON")
    }

    /// Its process.
    pub fn pid(&self) -> i32 {
        self.child.as_ref().expect("it has not ended").id() as i32
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: a signal to a process that this test has started and not waited for.
        assert_eq!(unsafe { libc::kill(self.pid(), signal) }, 0);
    }

    /// Kills it, and waits until it has ended.
    pub fn kill(mut self) {
        self.signal(libc::SIGKILL);
        self.child.take().expect("it has not ended").wait().expect("it ends");
    }

    /// Lets it return, and what it has said on stderr.
    pub fn end(mut self) -> String {
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

/// Waits until something has happened.
pub fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !happened() {
        assert!(Instant::now() < end, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
