//! A host program that runs while a test observes it: it obeys one word at a time, see
//! `c/resident.c`.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout};

use crate::{Host, Scratch, c, driver, host};

/// The program, and the folder of its statistics.
#[derive(Debug)]
pub struct Resident {
    child: Option<Child>,
    words: ChildStdin,
    answers: BufReader<ChildStdout>,
    statistics: PathBuf,
    id: u32,
}

impl Resident {
    /// Starts it under the shim on the simulated driver; it has not used the driver yet.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(scratch: &Scratch) -> Self {
        Self::start_with(scratch, &[])
    }

    /// As [`Self::start`], with variables of the environment.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start_with(scratch: &Scratch, environment: &[(&str, &str)]) -> Self {
        let driver = driver::simulated(scratch);
        let program = c::cuda_program(scratch, "resident");
        let host = Host::shimmed(program, scratch, &driver);
        let mut child = environment.iter().fold(host, |host, (name, value)| host.env(name, value)).start();
        let words = child.stdin.take().expect("a pipe");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let id = child.id();
        Self { child: Some(child), words, answers, statistics: scratch.path().join("stats"), id }
    }

    /// Sends a word and waits until the program has obeyed. Returns the id of the program's own
    /// child, 0 without one.
    ///
    /// # Panics
    /// If the program has ended.
    pub fn say(&mut self, word: &str) -> u32 {
        writeln!(self.words, "{word}").expect("the program listens");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the program answers");
        line.trim().strip_prefix("done ").expect("the program answers").parse().expect("an id")
    }

    /// Sends the last word and waits for the end. Returns the program's error output.
    ///
    /// # Panics
    /// If it ends with an error.
    pub fn end(mut self, word: &str) -> String {
        writeln!(self.words, "{word}").expect("the program listens");
        let child = self.child.take().expect("it has not ended");
        let output = host::watched(child);
        assert!(output.status.success(), "{:?}", output.status);
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Sends a signal, and waits until it has ended the process. Returns the signal that ended it.
    ///
    /// # Panics
    /// If it cannot be sent.
    pub fn end_by(mut self, signal: i32) -> Option<i32> {
        let child = self.child.take().expect("it has not ended");
        // SAFETY: plain system call; the process is a child of this one, and not yet waited for.
        assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, signal) }, 0);
        host::watched(child).status.signal()
    }

    /// The process.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The path of its socket, while there is one.
    pub fn socket(&self) -> PathBuf {
        self.statistics.join(format!("{}.sock", self.id))
    }

    /// The folder of sockets and dumps.
    pub fn statistics(&self) -> &Path {
        &self.statistics
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // A failed test must leave no process behind.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
