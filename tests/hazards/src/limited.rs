//! A program that a test limits, trims or detaches while it runs: see `c/limited.c`.

use std::io::{BufRead, BufReader, Write};
use std::ops::{Deref, DerefMut};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::conversation::Conversation;
use crate::{Host, Scratch, c, driver, host, places};

const MIB: u64 = 1 << 20;

/// The program, and its socket.
#[derive(Debug)]
pub struct Limited {
    conversation: Conversation,
    socket: PathBuf,
    _scratch: Scratch,
}

/// The sum of an answer's steps.
#[derive(Debug)]
pub struct Made {
    /// The last answer.
    pub last: Value,
    /// Bytes that left the device.
    pub out: u64,
    /// Bytes that came to it.
    pub back: u64,
    /// All steps together.
    pub took: Duration,
}

/// The answer of a program at a socket.
pub fn ask(socket: &Path, request: &Value) -> Value {
    let mut stream = UnixStream::connect(socket).expect("the program listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    writeln!(stream, "{request}").expect("the program reads");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("an answer");
    serde_json::from_str(&line).expect("JSON")
}

impl Made {
    /// A figure of the first device, in bytes.
    pub fn device(&self, name: &str) -> u64 {
        self.last["devices"][0][name].as_u64().unwrap_or_default()
    }

    /// Reasons of what stays.
    pub fn reasons(&self) -> Vec<&str> {
        let stays = self.last["devices"][0]["stays"].as_array().expect("a list");
        stays.iter().map(|one| one["reason"].as_str().expect("words")).collect()
    }
}

impl Limited {
    /// A program that holds 400 MiB of 512.
    pub fn holding(variables: &[(&str, &str)]) -> Self {
        let mut program = Self::start(variables);
        (0..10).for_each(|_| program.obey("take 40"));
        program.expect_right();
        assert!(program.on_device() >= 400 * MIB);
        program
    }

    /// Starts it on a simulated device of 512 MiB.
    pub fn start(variables: &[(&str, &str)]) -> Self {
        Self::start_by(Scratch::new(), &[], variables)
    }

    /// The same, started by other words.
    pub fn start_by(scratch: Scratch, starter: &[String], variables: &[(&str, &str)]) -> Self {
        let text = |path: PathBuf| path.to_str().expect("a readable path").to_owned();
        let include = c::flag("-I", &places::workspace("shim/preload/include"));
        let program = c::program(&scratch, "limited", &[&include, &text(places::shim())]);
        let image = text(places::workspace("kernels/compiled/diagnostics.ptx"));
        let words = [starter, &[text(program), image]].concat();
        let host = Host::shimmed(&words[0], &scratch, &driver::simulated(&scratch));
        let host = host.args(&words[1..]).env("SIMCUDA_RACES", "1").env("SIMCUDA_MEMORY", "512MiB");
        let host = host.env("WMSHIM_HEADROOM", "0");
        let host = variables.iter().fold(host, |host, (name, value)| host.env(name, value));
        let conversation = Conversation::start(host);
        let socket = scratch.path().join("stats").join(format!("{}.sock", conversation.id()));
        let mut started = Self { conversation, socket, _scratch: scratch };
        assert_eq!(started.hear(), "done");
        started
    }

    /// Checks that every byte of its blocks is right.
    #[track_caller]
    pub fn expect_right(&mut self) {
        assert_eq!(self.say("check"), "right");
    }

    /// Sends a request to its socket, and returns the answer.
    pub fn ask(&self, request: &Value) -> Value {
        ask(&self.socket, request)
    }

    /// Makes a change in steps, for ten seconds at most.
    pub fn change(&self, first: &Value, next: &Value) -> Made {
        let begin = Instant::now();
        let mut made = Made { last: self.ask(first), out: 0, back: 0, took: Duration::ZERO };
        loop {
            made.out += made.device("out_bytes");
            made.back += made.device("back_bytes");
            let goes_on = made.last["goes_on"].as_bool().expect("a change");
            if !goes_on || begin.elapsed() > Duration::from_secs(10) {
                made.took = begin.elapsed();
                return made;
            }
            made.last = self.ask(next);
        }
    }

    /// Limits its device memory.
    pub fn limit(&self, bytes: impl Into<Value>) -> Made {
        let request = json!({ "request": "limit", "bytes": bytes.into() });
        self.change(&request, &json!({ "request": "limit" }))
    }

    /// Its statistics.
    pub fn stats(&self) -> Value {
        self.ask(&json!({ "request": "stats" }))
    }

    /// Bytes that the driver has given out of the device.
    pub fn on_device(&self) -> u64 {
        self.stats()["devices"][0]["memory"]["device"]["reserved_bytes"].as_u64().expect("bytes")
    }

    /// Live bytes of a tier.
    pub fn live(&self, tier: &str) -> u64 {
        self.stats()["devices"][0]["memory"][tier]["live_bytes"].as_u64().expect("bytes")
    }

    /// Blocks of the program that the library serves.
    pub fn blocks(&self) -> usize {
        let answer = self.ask(&json!({ "request": "blocks" }));
        answer["devices"][0]["blocks"].as_array().map_or(0, Vec::len)
    }

    /// Turns the features of the library off.
    pub fn detach(&self) -> Made {
        self.change(&json!({ "request": "detach" }), &json!({ "request": "detach" }))
    }

    /// Turns them on again.
    pub fn attach(&self) -> Value {
        self.ask(&json!({ "request": "attach" }))
    }

    /// Ends it. It checks its bytes before.
    pub fn end(mut self) {
        self.tell("end");
        let ended = self.conversation.end();
        assert!(ended.status.success(), "{}", host::said(&ended));
    }
}

impl Deref for Limited {
    type Target = Conversation;

    fn deref(&self) -> &Conversation {
        &self.conversation
    }
}

impl DerefMut for Limited {
    fn deref_mut(&mut self) -> &mut Conversation {
        &mut self.conversation
    }
}
