//! A process that runs programs one after another, seen from outside.
//!
//! Invariants: it has at most one program at a time; a run that crashes or hangs is its last; it
//! does not outlive its owner.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::bench::{Bench, Side};
use crate::end::End;
use crate::outcome::{Outcome, Run, Stay};
use crate::partners::Partners;
use crate::program::Program;

/// A running process.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    words: Option<JoinHandle<String>>,
    /// How long it may be silent. It limits the time of each step itself.
    patience: Duration,
    _partners: Option<Partners>,
}

/// How often the deadline of the whole run is checked.
const GLANCE: Duration = Duration::from_millis(100);

impl Process {
    /// A process that runs programs, this one first.
    pub(crate) fn start(bench: &Bench, side: Side, first: &Program) -> Result<Self> {
        let mut command = bench.command(side, first);
        let partners = bench.partners(side, &mut command, first);
        let mut child = command.spawn()?;
        let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (output, errors) = output.zip(errors).context("no pipe")?;
        let words = Some(std::thread::spawn(move || last_words(errors)));
        let patience = bench.limits.of(side) * 8 + Duration::from_secs(30);
        Ok(Self { child, input, lines: lines(output), words, patience, _partners: partners })
    }

    /// Lets it begin a program.
    pub(crate) fn feed(&mut self, program: &Program) {
        let line = serde_json::to_string(program).unwrap_or_default();
        // A process that has ended reads no more: its missing answer shows that.
        let _fed = self.input.as_mut().map(|input| writeln!(input, "{line}").and_then(|()| input.flush()));
    }

    /// Runs a program, until a time at most.
    pub(crate) fn run(&mut self, program: &Program, end: End) -> Run {
        self.feed(program);
        let begin = Instant::now();
        loop {
            match self.lines.recv_timeout(GLANCE) {
                Ok(line) => match serde_json::from_str(&line) {
                    Ok(outcome) => return Run::Over(outcome),
                    Err(_) => continue,
                },
                Err(RecvTimeoutError::Disconnected) => return self.died(),
                Err(RecvTimeoutError::Timeout) if end.is_over() => return Run::Cut,
                Err(RecvTimeoutError::Timeout) if begin.elapsed() > self.patience => {
                    return silent(program.seed);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn died(&mut self) -> Run {
        let ended = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        let words = self.words.take().and_then(|words| words.join().ok()).unwrap_or_default();
        Run::Died(format!("{ended}{words}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.input.take());
        // It may have ended before.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// The lines of a process, as they arrive.
fn lines(output: ChildStdout) -> Receiver<String> {
    let (heard, lines) = mpsc::channel();
    std::thread::spawn(move || {
        BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| heard.send(line))
    });
    lines
}

/// It hangs where no step limit applies: while a program's contexts and streams are made.
fn silent(seed: u64) -> Run {
    let place = "before the first step, or between two".to_owned();
    let stay = Stay { step: None, place, for_good: true };
    Run::Over(Outcome { seed, hang: Some(stay), ..Outcome::default() })
}

/// Lines of standard error that are told. A race has up to seven.
const LAST_WORDS: usize = 12;

/// The end of a process's standard error.
fn last_words(mut errors: ChildStderr) -> String {
    let mut bytes = Vec::new();
    let _whole = errors.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().rev().take(LAST_WORDS).collect();
    lines.into_iter().rev().map(|line| format!("\n    {line}")).collect()
}
