//! Runs every case in a process of its own, with a time limit.
//!
//! The program executes itself with `--case NAME`. On its standard output that process writes each
//! answer at once, one JSON line an [`Observation`], and at last its [`Record`]. Every other end is
//! the case's failure: a signal, a time-out, a line that the driver wrote to the program's standard
//! output (which a library must never do).

use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::case::{Case, Halt, Observation, Outcome, Record};
use crate::cases::Row;
use crate::driver::{Driver, Lookup};

/// The parameters of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The program that answers `--case NAME`.
    pub program: PathBuf,
    /// The driver library: a path, or a name for the loader.
    pub driver: String,
    /// How functions are found.
    pub lookup: Lookup,
    /// The longest that one case may take.
    pub limit: Duration,
    /// How many cases run at a time.
    pub threads: usize,
}

/// A case that has been run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Finished {
    /// The case's name.
    pub case: String,
    /// Its results.
    #[serde(flatten)]
    pub record: Record,
    /// How long its process lived.
    pub milliseconds: u64,
    /// The end of its standard error.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stderr: String,
}

/// Runs `rows`, `plan.threads` at a time, and those that must be alone after them; calls `report`
/// as each finishes. The result has the order of `rows`.
pub fn run(plan: &Plan, rows: &[&Row], report: impl Fn(&Finished) + Sync) -> Vec<Finished> {
    let finished = Mutex::new(Vec::new());
    let finish = |position: usize| {
        let result = run_one(plan, rows[position]);
        report(&result);
        finished.lock().unwrap_or_else(PoisonError::into_inner).push((position, result));
    };
    let (alone, together): (Vec<usize>, Vec<usize>) =
        (0..rows.len()).partition(|&position| rows[position].is_alone());
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(&position) = together.get(next.fetch_add(1, Ordering::Relaxed)) {
            finish(position);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..plan.threads.max(1) {
            scope.spawn(work);
        }
    });
    alone.into_iter().for_each(finish);
    let mut finished = finished.into_inner().unwrap_or_else(PoisonError::into_inner);
    finished.sort_by_key(|(position, _)| *position);
    finished.into_iter().map(|(_, result)| result).collect()
}

fn run_one(plan: &Plan, row: &Row) -> Finished {
    let begun = Instant::now();
    let (record, stderr) = match start(plan, row.name) {
        Ok(child) => observe(child, plan.limit),
        Err(error) => (judge(&Ending::Unknown(error), ""), String::new()),
    };
    let milliseconds = begun.elapsed().as_millis() as u64;
    Finished { case: row.name.to_owned(), record, milliseconds, stderr: tail(&stderr) }
}

fn start(plan: &Plan, case: &str) -> std::io::Result<Child> {
    let mut command = Command::new(&plan.program);
    command.args(["--case", case, "--driver", &plan.driver, "--lookup", plan.lookup.name()]);
    // A panic's message contains the failure; its place in this suite does not matter.
    command.env("RUST_BACKTRACE", "0");
    // A process group of its own, so that a time-out also ends the processes that the case started.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

fn observe(mut child: Child, limit: Duration) -> (Record, String) {
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let in_time = ended_within(&child, limit);
    kill_group(&child);
    let status = child.wait();
    let stdout = stdout.join().unwrap_or_default();
    let stderr = stderr.join().unwrap_or_default();
    let ending = match status {
        _ if !in_time => Ending::TimedOut(limit),
        Ok(status) => Ending::Ended(status),
        Err(error) => Ending::Unknown(error),
    };
    (judge(&ending, &stdout), stderr)
}

#[derive(Debug)]
enum Ending {
    Ended(ExitStatus),
    TimedOut(Duration),
    Unknown(std::io::Error),
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // An error ends the text: the part before it is still useful.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits until the process has ended, without reaping it; false if `limit` passes first.
fn ended_within(child: &Child, limit: Duration) -> bool {
    // SAFETY: a system call with plain arguments; the descriptor it returns is ours alone.
    let process = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
    let Ok(process @ 0..) = i32::try_from(process) else { return true };
    // SAFETY: a new descriptor without another owner.
    let process = unsafe { OwnedFd::from_raw_fd(process) };
    let mut wanted = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which lives through the call.
    unsafe { libc::poll(&raw mut wanted, 1, limit.as_millis() as i32) == 1 }
}

fn kill_group(child: &Child) {
    // SAFETY: the group was made for this child, which has not been reaped, so its number is not
    // reused. If the whole group has ended already, the call has no effect.
    unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
}

fn judge(ending: &Ending, stdout: &str) -> Record {
    let mut told = Told::default();
    stdout.lines().for_each(|line| told.hear(line));
    let reason = match (ending, &told.record) {
        (Ending::TimedOut(limit), _) => {
            Some(format!("timed out after {} s{}", limit.as_secs(), told.place()))
        }
        (Ending::Unknown(error), _) => Some(format!("cannot wait for the case: {error}")),
        (Ending::Ended(status), _) if status.signal().is_some() => {
            Some(format!("died of signal {}{}", status.signal().unwrap_or_default(), told.place()))
        }
        (Ending::Ended(status), None) => Some(format!("ended ({status}) without a record{}", told.place())),
        (Ending::Ended(_), Some(_)) => None,
    };
    let noise =
        (!told.noise.is_empty()).then(|| format!("something wrote to standard output: {:?}", told.noise));
    let mut record = told.record.unwrap_or_else(|| failed(told.observed));
    for reason in reason.into_iter().chain(noise) {
        record.outcome = Outcome::Failed;
        record.reasons.push(reason);
    }
    record
}

/// The lines on a case's standard output.
#[derive(Debug, Default)]
struct Told {
    observed: Vec<Observation>,
    record: Option<Record>,
    noise: Vec<String>,
}

impl Told {
    fn hear(&mut self, line: &str) {
        if let Ok(observation) = serde_json::from_str(line) {
            self.observed.push(observation);
        } else if let Ok(record) = serde_json::from_str(line) {
            self.record = Some(record);
        } else {
            self.noise.push(line.to_owned());
        }
    }

    fn place(&self) -> String {
        self.observed.last().map_or_else(String::new, |last| format!(", after «{}»", last.label))
    }
}

fn failed(observed: Vec<Observation>) -> Record {
    Record { outcome: Outcome::Failed, reasons: Vec::new(), observed, calls: Vec::new() }
}

fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}

/// Runs one case in this process: the other end of [`run`].
pub fn run_here(row: &Row, driver: &'static Driver, tell: fn(&Observation)) -> Record {
    let mut case = Case::new(driver, tell);
    let verdict = row.unmet_need(driver).and_then(|need| match need {
        Some(need) => Err(Halt::Skipped(need)),
        None => catch_unwind(AssertUnwindSafe(|| (row.run)(&mut case))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(Halt::Failed(text.unwrap_or_else(|| "the case panicked".into())))
        }),
    });
    case.finish(verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).process_group(0);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a shell starts")
    }

    const RECORD: &str = r#"{"outcome":"ok","reasons":[],"observed":[]}"#;

    /// Hazard: a crash counts as a pass.
    #[test]
    fn a_signal_fails_the_case() {
        let (record, _) = observe(shell(&format!("echo '{RECORD}'; kill -SEGV $$")), Duration::from_secs(20));
        assert_eq!(record.outcome, Outcome::Failed);
        assert_eq!(record.reasons, ["died of signal 11"]);
    }

    /// Hazard: after a crash it is unknown how far the case got.
    #[test]
    fn answers_before_a_crash_are_kept() {
        let script = r#"echo '{"label":"last question","value":7}'; kill -SEGV $$"#;
        let (record, _) = observe(shell(script), Duration::from_secs(20));
        assert_eq!(record.reasons, ["died of signal 11, after «last question»"]);
        assert_eq!(record.observed[0].value, 7);
    }

    /// Hazard: a driver that hangs stops the suite, or its children survive.
    #[test]
    fn a_hang_is_ended_with_all_that_the_case_started() {
        let (record, _) = observe(shell("sleep 1000 & wait"), Duration::from_millis(50));
        assert_eq!(record.outcome, Outcome::Failed);
        assert!(record.reasons[0].contains("timed out"));
    }

    /// Hazard: a library writes to a program's standard output.
    #[test]
    fn noise_on_standard_output_fails_the_case() {
        let (record, _) = observe(shell(&format!("echo hello; echo '{RECORD}'")), Duration::from_secs(20));
        assert_eq!(record.outcome, Outcome::Failed);
        let (record, _) = observe(shell(&format!("echo '{RECORD}'")), Duration::from_secs(20));
        assert_eq!(record.outcome, Outcome::Ok);
    }
}
