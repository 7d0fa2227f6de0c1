//! A host program that runs while a test observes it: it obeys one word at a time, see
//! `c/resident.c`.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use crate::conversation::Conversation;
use crate::{Host, Scratch, c, driver};

/// The program, and the folder of its statistics.
#[derive(Debug)]
pub struct Resident {
    conversation: Conversation,
    statistics: PathBuf,
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
        let host = environment.iter().fold(host, |host, (name, value)| host.env(name, value));
        Self { conversation: Conversation::start(host), statistics: scratch.path().join("stats") }
    }

    /// Sends a word and waits until the program has obeyed. Returns the id of the program's own
    /// child, 0 without one.
    ///
    /// # Panics
    /// If the program has ended.
    pub fn say(&mut self, word: &str) -> u32 {
        let answer = self.conversation.say(word);
        answer.strip_prefix("done ").expect("the program answers").parse().expect("an id")
    }

    /// Sends the last word and waits for the end. Returns the program's error output.
    ///
    /// # Panics
    /// If it ends with an error.
    pub fn end(mut self, word: &str) -> String {
        self.conversation.tell(word);
        let output = self.conversation.end();
        assert!(output.status.success(), "{:?}", output.status);
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Sends a signal, and waits until it has ended the process. Returns the signal that ended it.
    ///
    /// # Panics
    /// If it cannot be sent.
    pub fn end_by(mut self, signal: i32) -> Option<i32> {
        self.conversation.end_by(signal).status.signal()
    }

    /// The process.
    pub fn id(&self) -> u32 {
        self.conversation.id()
    }

    /// The path of its socket, while there is one.
    pub fn socket(&self) -> PathBuf {
        self.statistics.join(format!("{}.sock", self.id()))
    }

    /// The folder of sockets and dumps.
    pub fn statistics(&self) -> &Path {
        &self.statistics
    }
}
