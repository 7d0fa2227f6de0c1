//! Starts a host program and observes it from outside.
//!
//! The program gets a clean environment: none of the developer's own shim, simulator or PyTorch
//! settings, and not the library path that Cargo sets for tests. A program that does not end is
//! killed with all its children, and that fails the test: a hang is the commonest failure of an
//! interposer.

use std::ffi::OsStr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::{Scratch, shim};

/// Long enough for a loaded machine, short enough that the test run distinguishes a hang from
/// slowness.
const PATIENCE: Duration = Duration::from_secs(300);

/// Prefixes of variables that would make a test depend on the environment that starts it.
const FOREIGN: [&str; 7] = ["WMSHIM_", "SIMCUDA_", "PYTORCH_", "CUDA_", "LD_", "XDG_RUNTIME_DIR", "HAZARD_"];

/// A host program that is about to be started.
#[derive(Debug)]
pub struct Host(Command);

/// The results of a host program.
#[derive(Debug)]
pub struct Outcome {
    /// Its exit status.
    pub status: ExitStatus,
    /// All of its standard output.
    pub stdout: String,
    /// All of its standard error.
    pub stderr: String,
    /// The time from start to end.
    pub took: Duration,
}

impl Host {
    /// The program as it is, without the shim.
    pub fn bare(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        let ours = |name: &OsStr| FOREIGN.iter().any(|f| name.as_encoded_bytes().starts_with(f.as_bytes()));
        std::env::vars_os().map(|(name, _)| name).filter(|name| ours(name)).for_each(|name| {
            command.env_remove(name);
        });
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        Self(command)
    }

    /// The program with the shim preloaded and this driver behind it. Statistics stay in the
    /// scratch folder.
    pub fn shimmed(program: impl AsRef<OsStr>, scratch: &Scratch, driver: &Path) -> Self {
        let statistics = scratch.path().join("stats");
        Self::bare(program)
            .env("LD_PRELOAD", shim::alone(scratch))
            .env("WMSHIM_DRIVER", driver)
            .env("WMSHIM_STATS_DIR", statistics)
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.0.args(arguments);
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.0.env(name, value);
        self
    }

    /// Leaves a variable out.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.0.env_remove(name);
        self
    }

    /// The folder that the program starts in.
    #[must_use]
    pub fn within(mut self, folder: &Path) -> Self {
        self.0.current_dir(folder);
        self
    }

    /// The program's standard input. Default: empty.
    #[must_use]
    pub fn stdin(mut self, from: impl Into<Stdio>) -> Self {
        self.0.stdin(from);
        self
    }

    /// The program's error output, if it does not go to the outcome.
    #[must_use]
    pub fn stderr(mut self, to: impl Into<Stdio>) -> Self {
        self.0.stderr(to);
        self
    }

    /// Gives the program a pipe for standard input, for tests that talk to it.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(mut self) -> Child {
        self.0.stdin(Stdio::piped());
        self.0.spawn().expect("the host program can be started")
    }

    /// Runs it to its end.
    ///
    /// # Panics
    /// If it cannot be started, or hangs.
    pub fn run(mut self) -> Outcome {
        let begin = Instant::now();
        let child = self.0.spawn().expect("the host program can be started");
        let output = watched(child);
        Outcome {
            status: output.status,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            took: begin.elapsed(),
        }
    }
}

/// Waits for a program and its output; kills its whole process group when patience ends.
///
/// # Panics
/// If the program hangs.
pub fn watched(child: Child) -> std::process::Output {
    let group = -(child.id() as libc::pid_t);
    let (ended, watch) = mpsc::channel::<()>();
    let guard = std::thread::spawn(move || {
        let hangs = watch.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout);
        if hangs {
            // SAFETY: plain system call; the group is the child's own.
            unsafe { libc::kill(group, libc::SIGKILL) };
        }
        hangs
    });
    let output = child.wait_with_output().expect("a child can be waited for");
    drop(ended);
    let hung = guard.join().expect("the guard does not panic");
    assert!(!hung, "hangs; it had written:\n{}", String::from_utf8_lossy(&output.stderr));
    output
}

impl Outcome {
    /// Standard output of a program that must have succeeded.
    ///
    /// # Panics
    /// If it did not.
    pub fn expect_success(&self) -> &str {
        assert!(
            self.status.success(),
            "ended with {:?} (signal {:?}):\n{}{}",
            self.status.code(),
            self.status.signal(),
            self.stdout,
            self.stderr
        );
        self.stdout.trim_end()
    }

    /// The shim's own lines on standard error, without their mark.
    pub fn log(&self) -> Vec<&str> {
        self.stderr.lines().filter(|line| line.starts_with("wmshim[")).collect()
    }
}

/// The status of a program that has ended, and all that it has printed.
pub fn said(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{}\n{out}\n{err}", output.status)
}
