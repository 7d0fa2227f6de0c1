//! What a program is, in the words of people and of the systems that started it: its user, its
//! command line, its container, its pod, its job.
//!
//! The kernel reports it (`/proc/PID`), and not the program, which could say anything. A program
//! may still choose its own command line and its variables.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde::Serialize;

use super::groups;
use super::processes::{self, RunningProcess};

/// A program's identity; a part that cannot be read is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ProcessIdentity {
    /// Its user's name, or number where there is no name.
    pub(crate) user: Option<String>,
    /// Its command line: the file name of the program, and its arguments.
    pub(crate) command: Vec<String>,
    /// Its number in its own container.
    pub(crate) pid_inside: Option<u32>,
    pub(crate) container_id: Option<String>,
    pub(crate) pod_uid: Option<String>,
    pub(crate) slurm_job_id: Option<String>,
}

/// Reads identities, and asks for each user's name once: a directory server may have to be asked.
#[derive(Debug)]
pub(crate) struct IdentityReader {
    users: HashMap<u32, String>,
    /// Arguments are left out: they may have secrets.
    hides_arguments: bool,
}

impl IdentityReader {
    pub(crate) fn new(hides_arguments: bool) -> Self {
        Self { users: HashMap::new(), hides_arguments }
    }

    /// The identity of a process; nothing is known of one that has ended.
    pub(crate) fn of(&mut self, pid: u32) -> ProcessIdentity {
        let folder = Path::new("/proc").join(pid.to_string());
        let read = |name: &str| fs::read(folder.join(name)).unwrap_or_default();
        let mut command = words(&read("cmdline"));
        if self.hides_arguments {
            command.truncate(1);
        }
        let groups = groups::names(&String::from_utf8_lossy(&read("cgroup")));
        let process = processes::running(pid);
        let variable = |name: &str| {
            let value = process.as_ref().and_then(|process| process.variable(name))?;
            value.into_string().ok().filter(|value| !value.is_empty())
        };
        ProcessIdentity {
            user: processes::user_of(pid).map(|user| self.name(user)),
            command,
            pid_inside: process.as_ref().map(RunningProcess::number_inside).filter(|inside| *inside != pid),
            container_id: groups.container_id,
            pod_uid: groups.pod_uid,
            slurm_job_id: groups.slurm_job_id.or_else(|| variable("SLURM_JOB_ID")),
        }
    }

    fn name(&mut self, user: u32) -> String {
        let name = || {
            let found = uzers::get_user_by_uid(user);
            found.map_or_else(|| user.to_string(), |found| found.name().to_string_lossy().into_owned())
        };
        self.users.entry(user).or_insert_with(name).clone()
    }
}

/// The words of a command line, the first without its folder.
fn words(line: &[u8]) -> Vec<String> {
    let mut words: Vec<String> =
        line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    // The line ends with a zero byte.
    words.pop();
    if let Some(first) = words.first_mut() {
        *first = first.rsplit('/').next().unwrap_or_default().to_owned();
    }
    words
}

impl ProcessIdentity {
    /// The command line for a table; the program's own word where the kernel has none.
    pub(crate) fn command_or(&self, program: &str) -> String {
        if self.command.is_empty() { program.to_owned() } else { self.command.join(" ") }
    }

    /// A short name, for labels: the script or module of an interpreter, else the program's file.
    pub(crate) fn program_or(&self, program: &str) -> String {
        let file = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let Some((first, arguments)) = self.command.split_first() else { return program.to_owned() };
        if !first.starts_with("python") {
            return first.clone();
        }
        let module = arguments.windows(2).find(|pair| pair[0] == "-m").map(|pair| pair[1].clone());
        let script = arguments.iter().find(|argument| !argument.starts_with('-')).map(|path| file(path));
        // `-c CODE` has neither.
        let has_code =
            arguments.iter().take_while(|argument| argument.starts_with('-')).any(|one| one == "-c");
        if has_code { first.clone() } else { module.or(script).unwrap_or_else(|| first.clone()) }
    }

    /// The beginning of the container's id, as container engines show it.
    pub(crate) fn container(&self) -> Option<&str> {
        self.container_id.as_deref().map(|id| id.get(..12).unwrap_or(id))
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): a program is taken for another one.
    use std::process::Command;

    use super::*;

    #[test]
    fn a_child_is_known_by_its_command_and_its_job() {
        let mut child =
            Command::new("/bin/sleep").arg("100").env("SLURM_JOB_ID", "77").spawn().expect("sleep");
        let identity = loop {
            let identity = IdentityReader::new(false).of(child.id());
            // Until its exec the child is a copy of this process.
            if identity.command.first().is_some_and(|name| name == "sleep") {
                break identity;
            }
            std::thread::yield_now();
        };
        let hidden = IdentityReader::new(true).of(child.id());
        child.kill().expect("alive");
        child.wait().expect("ended");
        assert_eq!(
            (identity.command_or("-").as_str(), identity.slurm_job_id.as_deref()),
            ("sleep 100", Some("77"))
        );
        assert_eq!(hidden.command, ["sleep"]);
        assert!(identity.user.is_some_and(|user| !user.is_empty()));
    }

    #[test]
    fn an_interpreters_script_is_the_program() {
        let program = |line: &[u8]| {
            ProcessIdentity { command: words(line), ..ProcessIdentity::default() }.program_or("x")
        };
        assert_eq!(program(b"/usr/bin/python3.11\0-u\0/home/a/train.py\0--lr\x003\0"), "train.py");
        assert_eq!(program(b"python\0-m\0torch.distributed.run\0a.py\0"), "torch.distributed.run");
        assert_eq!(program(b"python3\0-c\0import a\0"), "python3");
        assert_eq!(program(b"python3\0"), "python3");
        assert_eq!(program(b"/opt/solve\0input\0"), "solve");
        assert_eq!(program(b""), "x");
    }

    #[test]
    fn words_are_split_at_zero_bytes_and_may_be_any_bytes() {
        assert_eq!(words(b"/usr/bin/python3\0-c\0\0a b\xff\0"), ["python3", "-c", "", "a b\u{fffd}"]);
        assert_eq!(words(b""), [] as [&str; 0]);
        assert_eq!(ProcessIdentity::default().command_or("python3"), "python3");
    }
}
