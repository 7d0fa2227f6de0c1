//! Hazard (wrong report): a program in a user namespace, as rootless containers have, is in no
//! list: its folder has the number that its user has inside, and root, which has no number there,
//! is a stranger to it. Or a list is a part, and looks like the whole.
//!
//! Only root can become other users, so the tests are skipped under other users.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Child, Command, Output};

use hazards::{Host, Scratch, c, driver, places, skip};
use serde_json::Value;

/// A user that owns nothing.
const USER: u32 = 65_432;

/// A program of that user's, which is root in a namespace of its own.
struct Confined {
    scratch: Scratch,
    child: Child,
}

impl Confined {
    /// `None`: it needs root, and a kernel that has user namespaces.
    fn start() -> Option<Self> {
        // SAFETY: a plain question.
        if unsafe { libc::geteuid() } != 0 {
            skip("needs root");
            return None;
        }
        let user = USER.to_string();
        let as_user = ["--reuid", &user, "--regid", &user, "--clear-groups", "unshare", "-Ur"];
        if !Command::new("setpriv").args(as_user).arg("true").status().is_ok_and(|status| status.success()) {
            skip("needs user namespaces");
            return None;
        }
        let scratch = Scratch::new();
        let program = c::cuda_program(&scratch, "seg");
        std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o755)).expect("its mode");
        let own = scratch.folder("own");
        chown(&own, Some(USER), Some(USER)).expect("root gives folders away");
        let host = Host::shimmed("setpriv", &scratch, &driver::simulated(&scratch)).args(as_user);
        let host = host.args([program.as_os_str(), "3".as_ref()]).without("WMSHIM_STATS_DIR");
        let mut child = host.env("TMPDIR", &own).start();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
        assert_eq!(line, "3\n");
        Some(Self { scratch, child })
    }

    /// The program's socket as a path that leads through its own root.
    fn socket(&self) -> PathBuf {
        let folder = self.scratch.path().join("own/wmshim-0");
        let inside = folder.strip_prefix("/").expect("an absolute path");
        let root = PathBuf::from(format!("/proc/{}/root", self.child.id()));
        root.join(inside).join(format!("{}.sock", self.child.id()))
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        let mut said = String::new();
        self.child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        assert!(self.child.wait().expect("it ends").success(), "{said}");
    }
}

/// `wmctl` of a user, perhaps without a capability.
fn wmctl(starter: &[&str], arguments: &[&str]) -> Output {
    let copied = Scratch::new();
    let program = copied.path().join("wmctl");
    std::fs::copy(places::wmctl(), &program).expect("a copy");
    std::fs::set_permissions(copied.path(), PermissionsExt::from_mode(0o755)).expect("its mode");
    let mut command = Command::new(starter[0]);
    command.args(&starter[1..]).arg(program).args(arguments);
    for name in ["WMSHIM_STATS_DIR", "XDG_RUNTIME_DIR", "TMPDIR"] {
        command.env_remove(name);
    }
    command.output().expect("it starts")
}

/// The program's memory on its device, as a list has it; `None`: it is not in the list.
fn live(output: &Output, pid: u32) -> Option<u64> {
    let list: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let found = list["processes"].as_array().expect("a list").iter().find(|one| one["pid"] == pid)?;
    found["answer"]["devices"][0]["memory"]["device"]["live_bytes"].as_u64()
}

/// The processes that could not be looked into.
fn closed(output: &Output) -> u32 {
    let said = String::from_utf8_lossy(&output.stderr);
    let line =
        said.lines().find(|line| line.ends_with("could not be looked into: CAP_SYS_PTRACE is missing"));
    line.map_or(0, |line| line.split(' ').nth(1).and_then(|count| count.parse().ok()).expect("a number"))
}

#[test]
fn root_and_its_user_see_a_program_that_is_root_inside() {
    let Some(program) = Confined::start() else { return };
    let pid = program.child.id();
    let user = USER.to_string();
    for starter in [&["env"][..], &["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"]] {
        assert_eq!(live(&wmctl(starter, &["stats", "--json"]), pid), Some(60 << 20), "{starter:?}");
        assert_eq!(live(&wmctl(starter, &["stats", "--json", &pid.to_string()]), pid), Some(60 << 20));
    }
    let socket = program.socket();
    let named = ["stats", "--json", "--socket", socket.to_str().expect("a readable path")];
    assert_eq!(live(&wmctl(&["setpriv", "--reuid", &user, "--clear-groups"], &named), pid), Some(60 << 20));
    program.end();
}

#[test]
fn a_part_of_the_programs_is_said_to_be_a_part() {
    let Some(program) = Confined::start() else { return };
    let part = wmctl(&["setpriv", "--bounding-set", "-sys_ptrace"], &["stats", "--json"]);
    assert_eq!(live(&part, program.child.id()), None);
    // A container may have processes that its root may not look into either.
    let whole = wmctl(&["env"], &["stats", "--json"]);
    assert!(closed(&part) > closed(&whole), "{}", String::from_utf8_lossy(&part.stderr));
    program.end();
}
