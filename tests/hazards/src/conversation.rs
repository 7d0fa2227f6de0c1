//! A program that obeys commands from its standard input, a line each, and answers with a line.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Output};

use crate::{Host, host};

/// The program, until it has ended. Dropped, it is killed: a failed test leaves no process behind.
#[derive(Debug)]
pub struct Conversation {
    child: Option<Child>,
    /// Closed, it ends the program.
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    id: u32,
}

impl Conversation {
    /// Starts a program.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(host: Host) -> Self {
        let mut child = host.start();
        let (commands, answers) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        Self { id: child.id(), child: Some(child), commands, answers: BufReader::new(answers) }
    }

    /// The process.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Sends a command. The answer is read with [`hear`](Self::hear).
    ///
    /// # Panics
    /// If the program has ended.
    pub fn tell(&mut self, command: &str) {
        writeln!(self.commands.as_mut().expect("not ended"), "{command}").expect("the program listens");
    }

    /// Its answer.
    ///
    /// # Panics
    /// If it ended instead, with its error output.
    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("a pipe can be read");
        if line.is_empty() {
            let ended = host::watched(self.child.take().expect("not ended"));
            panic!("{:?}:\n{}", ended.status, String::from_utf8_lossy(&ended.stderr));
        }
        line.trim().to_owned()
    }

    /// Sends a command, and returns the answer.
    pub fn say(&mut self, command: &str) -> String {
        self.tell(command);
        self.hear()
    }

    /// Sends a command whose answer is `done`.
    ///
    /// # Panics
    /// If it is another one.
    #[track_caller]
    pub fn obey(&mut self, command: &str) {
        assert_eq!(self.say(command), "done", "{command}");
    }

    /// Sends no more commands, and waits for the end.
    pub fn end(&mut self) -> Output {
        self.commands = None;
        host::watched(self.child.take().expect("not ended"))
    }

    /// Sends a signal, and waits for the end.
    ///
    /// # Panics
    /// If it cannot be sent.
    pub fn end_by(&mut self, signal: i32) -> Output {
        let child = self.child.take().expect("not ended");
        // SAFETY: plain system call; the process is a child of this one, and not yet waited for.
        assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, signal) }, 0);
        host::watched(child)
    }

    /// Kills it, and waits until it is gone.
    ///
    /// # Panics
    /// If it has ended.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("not ended");
        child.kill().expect("it can be killed");
        child.wait().expect("it can be waited for");
    }

    /// Has its end not been waited for?
    pub fn goes_on(&self) -> bool {
        self.child.is_some()
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
