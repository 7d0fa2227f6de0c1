//! A program that a test pauses and resumes: see `c/paused.c`.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::conversation::Conversation;
use crate::{Host, Scratch, c, driver, host, places};

/// Longer than anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(120);

fn text(path: &Path) -> String {
    path.to_str().expect("a readable path").to_owned()
}

/// The program, compiled.
pub fn program(scratch: &Scratch) -> PathBuf {
    let include = c::flag("-I", &places::workspace("shim/preload/include"));
    c::program(scratch, "paused", &[&include, &text(&places::shim())])
}

/// The program with arguments, under the library on the simulated driver.
pub fn paused(scratch: &Scratch, arguments: &[&str], variables: &[(&str, &str)]) -> Host {
    let image = text(&places::workspace("kernels/compiled/diagnostics.ptx"));
    let host = Host::shimmed(program(scratch), scratch, &driver::simulated(scratch));
    let host = host.args([image.as_str()]).args(arguments);
    variables.iter().fold(host, |host, (name, value)| host.env(name, value))
}

/// `paused serve`, which obeys a word at a time.
#[derive(Debug)]
pub struct Served {
    conversation: Conversation,
    /// Its socket.
    pub socket: PathBuf,
}

impl Served {
    /// Starts it with these variables.
    pub fn start(scratch: &Scratch, variables: &[(&str, &str)]) -> Self {
        let conversation = Conversation::start(paused(scratch, &["serve"], variables));
        let socket = scratch.path().join("stats").join(format!("{}.sock", conversation.id()));
        Self { conversation, socket }
    }

    /// Sends it words. The answer is read with [`hear`](Self::hear).
    pub fn tell(&mut self, words: &str) {
        self.conversation.tell(words);
    }

    /// Its answer.
    pub fn hear(&mut self) -> String {
        self.conversation.hear()
    }

    /// Sends it words, and returns its answer.
    pub fn say(&mut self, words: &str) -> i64 {
        self.tell(words);
        let answer = self.hear();
        answer.parse().unwrap_or_else(|_| panic!("{words}: {answer:?}"))
    }

    /// Its statistics.
    pub fn stats(&mut self) -> Value {
        self.tell("stats");
        serde_json::from_str(&self.hear()).expect("JSON")
    }

    /// Its state, and the bytes that are on the device and on the host.
    pub fn place(&mut self) -> (String, u64, u64) {
        let stats = self.stats();
        let on =
            |tier: &str| stats["devices"][0]["memory"][tier]["live_bytes"].as_u64().expect("bytes") >> 20;
        (stats["pause"]["state"].as_str().unwrap_or("off").to_owned(), on("device"), on("host"))
    }

    /// The answer of the socket.
    pub fn ask(&self, request: &str) -> Value {
        ask(&self.socket, request)
    }

    /// Asks through the socket, and waits until nothing is under way.
    pub fn request(&self, request: &str) -> Value {
        let begin = Instant::now();
        let mut answer = self.ask(request);
        while matches!(answer["pause"]["state"].as_str(), Some("pausing" | "resuming")) {
            assert!(begin.elapsed() < PATIENCE, "{answer}");
            std::thread::sleep(Duration::from_millis(2));
            answer = self.ask("pause_state");
        }
        answer
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(mut self) {
        self.conversation.kill();
    }

    /// Has the socket make a change, in steps, for ten seconds at most. Returns the last answer.
    pub fn change(&self, request: &str) -> Value {
        let begin = Instant::now();
        loop {
            let made = self.ask(request);
            if made["goes_on"] != true || begin.elapsed() > Duration::from_secs(10) {
                return made;
            }
        }
    }

    /// Bytes of each block on the device and on the host, in MiB, by address.
    pub fn blocks(&self) -> Vec<(u64, u64)> {
        let answer = self.ask("blocks");
        let blocks = answer["devices"][0]["blocks"].as_array().expect("a list");
        let on = |block: &Value, tier: &str| block["tiers"][tier].as_u64().expect("bytes") >> 20;
        blocks.iter().map(|block| (on(block, "device"), on(block, "host"))).collect()
    }

    /// Ends it. Returns what it has said.
    pub fn end(mut self) -> String {
        self.tell("exit");
        let output = self.conversation.end();
        assert!(output.status.success(), "{}", host::said(&output));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

/// The answer of a program at a socket.
pub fn ask(socket: &Path, request: &str) -> Value {
    let mut stream = UnixStream::connect(socket).expect("the socket answers");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    writeln!(stream, "{request}").expect("the endpoint listens");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("an answer");
    serde_json::from_str(&line).expect("JSON")
}
