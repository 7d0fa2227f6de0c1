//! Runs programs in processes of their own, bare or under the library, many in one process.
//!
//! A process that dies or stays ends with the program that it was at; the next one begins in a new process.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use crate::outcome::{Outcome, Run};
use crate::program::Program;

/// What allocates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Bare,
    Library,
}

/// What programs run on.
#[derive(Debug, Clone)]
pub(crate) struct Bench {
    /// The simulated driver; none for the machine's own.
    pub(crate) simulated: Option<PathBuf>,
    pub(crate) library: PathBuf,
    pub(crate) devices: usize,
    /// Longest time of a step.
    pub(crate) limit: Duration,
    /// Memory of a simulated device.
    pub(crate) memory: String,
    pub(crate) races: bool,
    /// Seed of a simulated device's delays.
    pub(crate) delays: u64,
}

impl Bench {
    /// Runs programs one after another.
    pub(crate) fn run(&self, side: Side, programs: &[Program]) -> Vec<Run> {
        let mut runs = Vec::new();
        while runs.len() < programs.len() {
            let some = self.process(side, &programs[runs.len()..]);
            runs.extend(some);
        }
        runs
    }

    /// Runs programs until one of them is the last that a process can run: at least one.
    fn process(&self, side: Side, programs: &[Program]) -> Vec<Run> {
        let spawned = self.command(side).spawn().map_err(|error| Run::Died(format!("cannot start: {error}")));
        let mut child = match spawned {
            Ok(child) => child,
            Err(run) => return vec![run],
        };
        let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(input), Some(output), Some(errors)) = (input, output, errors) else { return Vec::new() };
        std::thread::scope(|scope| {
            scope.spawn(move || feed(input, programs));
            let words = scope.spawn(move || last_words(errors));
            let mut runs = self.listen(output, programs.len(), &mut child);
            let ended = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
            let words = words.join().unwrap_or_default();
            let stayed = matches!(runs.last(), Some(Run::Over(Outcome { hang: Some(_), .. })));
            if runs.len() < programs.len() && !stayed {
                runs.push(Run::Died(format!("{ended}{words}")));
            }
            runs
        })
    }

    /// Outcomes as they come. A process that says nothing for too long is ended.
    fn listen(&self, output: ChildStdout, count: usize, child: &mut Child) -> Vec<Run> {
        let (heard, lines) = mpsc::channel();
        let listener = std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| heard.send(line))
        });
        let (mut runs, patience) = (Vec::new(), self.limit * 4 + Duration::from_secs(20));
        while runs.len() < count {
            match lines.recv_timeout(patience) {
                Ok(line) => runs.extend(serde_json::from_str(&line).map(Run::Over)),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    // It may have ended meanwhile.
                    let _ended = child.kill();
                    break;
                }
            }
        }
        drop(lines);
        let _over = listener.join();
        runs
    }

    fn command(&self, side: Side) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap_or_else(|_| "oracle".into()));
        let (devices, limit) = (self.devices.to_string(), self.limit.as_millis().to_string());
        command.args(["child", "--devices", &devices, "--limit", &limit]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Streams that share a queue of a real device hold each other up.
        command.env("CUDA_DEVICE_MAX_CONNECTIONS", "32");
        if let Some(driver) = &self.simulated {
            let delays = self.delays.to_string();
            let races = if self.races { "1" } else { "0" };
            command.envs([("SIMCUDA_DEVICES", "2"), ("SIMCUDA_MEMORY", &self.memory)]);
            command.envs([
                ("SIMCUDA_SEED", delays.as_str()),
                ("SIMCUDA_RACES", races),
                ("SIMCUDA_QUIET", "1"),
            ]);
            command.env("WMSHIM_DRIVER", driver);
        }
        match (side, &self.simulated) {
            (Side::Bare, Some(driver)) => {
                command.arg("--open").arg(driver);
            }
            (Side::Bare, None) => {}
            (Side::Library, _) => {
                command.env("LD_PRELOAD", &self.library);
            }
        }
        command
    }
}

fn feed(mut input: ChildStdin, programs: &[Program]) {
    for program in programs {
        let line = serde_json::to_string(program).unwrap_or_default();
        // A process that has ended reads no more: its end is noted elsewhere.
        if writeln!(input, "{line}").is_err() {
            return;
        }
    }
}

/// The end of what a process says on standard error.
fn last_words(mut errors: ChildStderr) -> String {
    let mut bytes = Vec::new();
    let _whole = errors.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().rev().take(6).collect();
    lines.into_iter().rev().map(|line| format!("\n    {line}")).collect()
}
