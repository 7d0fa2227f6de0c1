//! Programs that hold the same bytes and obey commands (`c/shared.c`), and their broker.

use std::fs;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::conversation::Conversation;
use crate::{Host, Scratch, c, driver, places};

/// Bytes in the unit of the programs' words.
pub const MIB: u64 = 1 << 20;
/// A chunk, in MiB.
pub const CHUNK: u64 = 2;
/// Milliseconds until all is shared, on a busy machine.
pub const PATIENCE: u64 = 120_000;
/// Longest wait until the broker sees that a program has ended.
pub const SOON: Duration = Duration::from_secs(120);

/// A folder with its broker, and the program.
#[derive(Debug)]
pub struct Stage {
    scratch: Scratch,
    driver: PathBuf,
    program: PathBuf,
}

impl Stage {
    /// A folder of its own, without a broker yet.
    #[allow(clippy::new_without_default, reason = "compiling is no default")]
    pub fn new() -> Self {
        let scratch = Scratch::new();
        let include = c::flag("-I", &places::workspace("shim/preload/include"));
        let shim = places::shim();
        let program = c::program(&scratch, "shared", &[&include, shim.to_str().expect("a readable path")]);
        let driver = driver::simulated(&scratch);
        Self { scratch, driver, program }
    }

    /// A program that shares.
    pub fn start(&self) -> Sharer {
        self.start_with(&[])
    }

    /// The user's cache folder, for programs.
    pub fn cache(&self) -> PathBuf {
        self.scratch.folder("cache")
    }

    /// The folder of the programs' sockets, made before any of them starts.
    pub fn sockets(&self) -> PathBuf {
        let folder = self.scratch.folder("stats");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("the mode can be set");
        folder
    }

    /// A program that shares, with more variables.
    pub fn start_with(&self, variables: &[(&str, &str)]) -> Sharer {
        let host = Host::shimmed(&self.program, &self.scratch, &self.driver)
            .args([places::workspace("kernels/compiled/diagnostics.ptx")])
            .env("WMSHIM_BROKER", places::broker())
            .env("WMSHIM_DEDUP", "on")
            .env("WMSHIM_DEDUP_SHARE", "50%")
            .env("XDG_CACHE_HOME", self.cache())
            .env("SIMCUDA_RACES", "1")
            .env("SIMCUDA_SEED", "5");
        let host = variables.iter().fold(host, |host, (name, value)| host.env(name, value));
        let mut sharer = Sharer { conversation: Conversation::start(host) };
        assert_eq!(sharer.hear(), "ready");
        sharer
    }

    /// This many programs that have loaded these blocks: number, seed, MiB.
    pub fn loaded<const COUNT: usize>(&self, blocks: &[(usize, u64, u64)]) -> [Sharer; COUNT] {
        let mut sharers = [(); COUNT].map(|()| self.start());
        sharers.iter_mut().for_each(|sharer| sharer.load(blocks));
        sharers
    }

    /// The broker's report; `None` if there is no broker.
    pub fn broker(&self) -> Option<Value> {
        let statistics = self.scratch.path().join("stats");
        let host = Host::bare(places::wmctl()).args(["dedup", "--json"]).env("WMSHIM_STATS_DIR", statistics);
        let report: Value = serde_json::from_str(host.run().expect_success()).expect("JSON");
        assert_eq!(
            report["problems"],
            Value::Array(Vec::new()),
            "else one that was not understood would look empty"
        );
        report["brokers"].as_array().expect("a list").first().cloned()
    }

    /// Pauses a program, to the host or to files in a folder. Returns its statistics.
    pub fn pause(&self, sharer: &Sharer, folder: Option<&Path>) -> Value {
        let to = folder.map(|folder| ["--to", folder.to_str().expect("a readable path")]);
        self.wmctl("pause", sharer, to.as_ref().map_or(&[], |to| &to[..]));
        self.stats(sharer)
    }

    /// The statistics of a program, also of one that is paused.
    pub fn stats(&self, sharer: &Sharer) -> Value {
        let answer = self.wmctl("stats", sharer, &[]);
        answer["processes"][0]["answer"].clone()
    }

    /// Lets a paused program go on.
    pub fn resume(&self, sharer: &Sharer) {
        self.wmctl("resume", sharer, &[]);
    }

    /// Sends a program a command of `wmctl`. Returns whether it was carried out.
    pub fn carries_out(&self, command: &str, sharer: &Sharer, more: &[&str]) -> bool {
        self.command(command, sharer, more).run().status.success()
    }

    /// Pauses all programs at the same time.
    pub fn pause_all(&self) {
        let host = Host::bare(places::wmctl()).args(["pause", "shared"]);
        host.env("WMSHIM_STATS_DIR", self.scratch.path().join("stats")).run().expect_success();
    }

    fn wmctl(&self, command: &str, sharer: &Sharer, more: &[&str]) -> Value {
        let outcome = self.command(command, sharer, more).run();
        serde_json::from_str(outcome.expect_success()).expect("JSON")
    }

    fn command(&self, command: &str, sharer: &Sharer, more: &[&str]) -> Host {
        let host = Host::bare(places::wmctl()).args([command, &sharer.id().to_string()]);
        host.args(more).args(["--json"]).env("WMSHIM_STATS_DIR", self.scratch.path().join("stats"))
    }

    /// Chunks that the broker holds, uses of them, and programs.
    pub fn held(&self) -> (u64, u64, usize) {
        let broker = self.broker().unwrap_or_default();
        let devices = broker["devices"].as_array().cloned().unwrap_or_default();
        let sum = |name: &str| devices.iter().map(|device| device[name].as_u64().expect("a number")).sum();
        (sum("chunks"), sum("leases"), broker["clients"].as_array().map_or(0, Vec::len))
    }

    /// Waits until the broker holds the expected chunks.
    pub fn expect_held(&self, what: &str, expected: impl Fn((u64, u64, usize)) -> bool) {
        let begin = Instant::now();
        while !expected(self.held()) {
            assert!(begin.elapsed() < SOON, "{what}: the broker has {:?}", self.held());
        }
    }

    /// Waits until the copies in host memory have so many MiB together.
    pub fn expect_copies(&self, mib: u64) {
        let begin = Instant::now();
        let held =
            || self.broker().and_then(|broker| broker["copy_bytes"].as_u64()).unwrap_or_default() >> 20;
        while held() != mib {
            assert!(begin.elapsed() < SOON, "the broker knows of {} MiB, not {mib}", held());
        }
    }

    /// Ends the programs, and checks that the broker holds no memory.
    pub fn end(&self, sharers: impl IntoIterator<Item = Sharer>) {
        sharers.into_iter().for_each(Sharer::end);
        self.expect_held("all have ended", |held| held == (0, 0, 0));
    }

    /// Kills the broker, if there is one.
    pub fn kill_broker(&self) {
        let pid = self.broker().and_then(|broker| broker["pid"].as_i64());
        if let Some(pid) = pid.and_then(|pid| i32::try_from(pid).ok()).filter(|pid| *pid > 1) {
            // SAFETY: a plain system call; the process listens in this test's folder, and only this
            // test's programs start one there.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // The broker is no child of this process, and would otherwise run for a minute.
        self.kill_broker();
    }
}

/// A program whose blocks other programs hold too.
#[derive(Debug)]
pub struct Sharer {
    conversation: Conversation,
}

impl Sharer {
    /// Its threads of this name.
    pub fn threads(&self, name: &str) -> usize {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.id())).expect("it runs").flatten();
        let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|of| of.trim() == name).count()
    }

    /// Sends it a command at which it ends with an error. Returns its error output.
    #[track_caller]
    pub fn expect_end(mut self, line: &str) -> String {
        self.tell(line);
        let ended = self.conversation.end();
        assert!(!ended.status.success(), "{line}: it has not failed");
        String::from_utf8_lossy(&ended.stderr).into_owned()
    }

    /// It loads these blocks: number, seed, MiB.
    pub fn load(&mut self, blocks: &[(usize, u64, u64)]) {
        for (block, seed, mib) in blocks {
            self.obey(&format!("load {block} {seed} {mib}"));
        }
    }

    /// Checks that every byte of its blocks is right, by kernels and by copies.
    #[track_caller]
    pub fn expect_right(&mut self, when: &str) {
        assert_eq!(self.say("verify"), "right", "{when}");
    }

    /// The number of the library's calls of a driver function.
    pub fn driver_calls(&mut self, function: &str) -> u64 {
        let stats: Value = serde_json::from_str(&self.say("stats")).expect("JSON");
        let calls = stats["driver_calls"].as_array().expect("a list");
        let call = calls.iter().find(|call| call["name"] == function);
        call.map_or(0, |call| call["count"].as_u64().expect("a number"))
    }

    /// The library's figures about sharing.
    fn figures(&mut self) -> Value {
        let mut stats: Value = serde_json::from_str(&self.say("stats")).expect("JSON");
        stats["dedup"].take()
    }

    /// One of these figures.
    pub fn figure(&mut self, name: &str) -> u64 {
        let figures = self.figures();
        figures[name].as_u64().unwrap_or_else(|| panic!("no {name} in {figures}"))
    }

    /// Ends it.
    pub fn end(mut self) {
        if !self.conversation.goes_on() {
            return;
        }
        let ended = self.conversation.end();
        assert!(ended.status.success(), "{:?}:\n{}", ended.status, String::from_utf8_lossy(&ended.stderr));
    }
}

impl Deref for Sharer {
    type Target = Conversation;

    fn deref(&self) -> &Conversation {
        &self.conversation
    }
}

impl DerefMut for Sharer {
    fn deref_mut(&mut self) -> &mut Conversation {
        &mut self.conversation
    }
}

/// All read at the same time until each has this many MiB from memory that others may hold too.
/// Returns the MiB of each.
pub fn read_until(sharers: &mut [Sharer], mib: u64, milliseconds: u64) -> Vec<u64> {
    sharers.iter_mut().for_each(|sharer| sharer.tell(&format!("share {mib} {milliseconds}")));
    let answers = sharers.iter_mut().map(|sharer| sharer.hear());
    answers.map(|bytes| bytes.parse::<u64>().unwrap_or_else(|_| panic!("{bytes}")) / MIB).collect()
}

/// Waits until each has this many MiB from memory that others may hold too.
#[track_caller]
pub fn share(sharers: &mut [Sharer], mib: u64) {
    let shared = read_until(sharers, mib, PATIENCE);
    if shared.iter().any(|shared| *shared < mib) {
        let figures: Vec<Value> = sharers.iter_mut().map(Sharer::figures).collect();
        panic!("{mib} MiB are equal, shared are {shared:?}: {figures:#?}");
    }
}
