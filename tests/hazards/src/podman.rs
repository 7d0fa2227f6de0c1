//! A node with containers: podman, `/etc` and `/opt` of the test's own, in a namespace of mounts
//! that ends with the test.
//!
//! Commands of the pages run there as they are written. `podman` on the path is a script that adds
//! what such a machine has and a test must bring: a driver, a program `train.py`, and the machine's
//! own `/usr` as the contents of the image.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};

use crate::host::{said, watched};
use crate::{Scratch, places, shim, skip};

/// The image that stands for the users' own.
pub const IMAGE: &str = "localhost/image";

/// A user that owns nothing else.
const USER: u32 = 65_432;

/// Makes the node's mounts, and keeps them until standard input ends.
const MOUNTS: &str = "set -e; mount -t tmpfs tmpfs /opt; mkdir /opt/wmshim; mount --bind \"$1\" /opt/wmshim; \
    mount --bind \"$2\" /etc; echo ready; read end || true";

/// Podman as the test's machine has it. `$1` is the command.
const PODMAN: &str = r#"#!/bin/sh
command=$1; shift
case $command in
run)
    case "$*" in *--network=*) ;; *) set -- --network=none "$@" ;; esac
    set -- -i -v /usr:/usr:ro -v FOLDER/train.py:/train.py:ro -v FOLDER/dist/sim:/sim:ro \
        -e NODE=FOLDER -e WMSHIM_DRIVER=/sim/libcuda.so.1 -e SIMCUDA_MEMORY=64MiB "$@" ;;
build) set -- --network=none -v /usr:/usr:ro "$@" ;;
esac
store=FOLDER/store-$(id -u)
exec PROGRAM --log-level=error RUNTIME --cgroup-manager=cgroupfs --root "$store/data" --runroot "$store/run" \
    --tmpdir "$store/tmp" "$command" "$@"
"#;

/// The node.
#[derive(Debug)]
pub struct ContainerNode {
    scratch: Scratch,
    holder: Child,
}

/// A program in a container, that holds its memory until it is ended.
#[derive(Debug)]
pub struct Contained {
    child: Child,
    input: Option<ChildStdin>,
    /// Its first line.
    pub line: String,
}

impl ContainerNode {
    /// `None`: a container cannot run here, and the test is skipped.
    ///
    /// # Panics
    /// If the node's files cannot be made.
    pub fn start() -> Option<Self> {
        // SAFETY: a plain question.
        if unsafe { libc::geteuid() } != 0 {
            skip("needs root");
            return None;
        }
        let Some(podman) = program("podman") else {
            skip("needs podman");
            return None;
        };
        let scratch = Scratch::new();
        fs::set_permissions(scratch.path(), Permissions::from_mode(0o755)).expect("its mode");
        let (dist, etc) = (distribution(&scratch), etc(&scratch));
        write_podman(&scratch, &podman);
        let mut holder = Command::new("unshare");
        holder.args(["-m", "sh", "-c", MOUNTS, "sh"]).args([&dist, &etc]);
        let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(holder.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
        let node = Self { scratch, holder };
        if line != "ready\n" {
            skip("needs mount namespaces");
            return None;
        }
        let image = node.command(&node.import());
        let tried = node.command(&format!("podman run --rm {IMAGE} true"));
        if [image, tried].into_iter().all(|mut command| succeeds(&mut command)) {
            return Some(node);
        }
        skip("needs podman that can start a container");
        None
    }

    /// The node's scratch folder, which containers may mount.
    pub fn path(&self) -> &Path {
        self.scratch.path()
    }

    /// Is a process a program of this node's containers? Other tests run beside this one.
    pub fn has(&self, pid: u64) -> bool {
        let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        String::from_utf8_lossy(&variables).contains(&format!("NODE={}\0", self.path().display()))
    }

    /// The command that makes the image.
    pub fn import(&self) -> String {
        format!("podman import {}/image.tar {IMAGE}", self.path().display())
    }

    /// A command line of root's on the node.
    pub fn command(&self, line: &str) -> Command {
        self.entered(&["sh", "-c", line])
    }

    /// A command line of another user's on the node.
    pub fn command_of_user(&self, line: &str) -> Command {
        let user = USER.to_string();
        let mut command = self.entered(&[
            "setpriv",
            "--reuid",
            &user,
            "--regid",
            &user,
            "--clear-groups",
            "sh",
            "-c",
            line,
        ]);
        command.env("HOME", self.path().join("home")).env("XDG_RUNTIME_DIR", self.path().join("home/run"));
        command
    }

    fn entered(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.id())).arg("--");
        command.args(["sh", "-c", "cd \"$0\" && exec \"$@\""]).arg(self.path()).args(words);
        for (name, _) in std::env::vars_os() {
            let ours = ["WMSHIM_", "SIMCUDA_", "LD_", "XDG_", "TMPDIR"];
            if ours.iter().any(|start| name.as_encoded_bytes().starts_with(start.as_bytes())) {
                command.env_remove(name);
            }
        }
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:/opt/wmshim/bin:{path}", self.path().join("bin").display()));
        command
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs a command line of root's to its end.
    ///
    /// # Panics
    /// If it cannot be started, or hangs.
    pub fn run(&self, line: &str) -> Output {
        watched(self.command(line).spawn().expect("it starts"))
    }

    /// The standard output of a command line of root's that succeeds.
    ///
    /// # Panics
    /// If it does not succeed.
    pub fn output(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {}", said(&output));
        String::from_utf8(output.stdout).expect("text")
    }
}

impl Drop for ContainerNode {
    fn drop(&mut self) {
        // A process of podman's stays and keeps the user's namespace.
        if self.path().join(format!("store-{USER}/data")).exists() {
            let _ends_it = self.command_of_user("podman system migrate").output();
        }
        drop(self.holder.stdin.take());
        let _ended_with_its_input = self.holder.wait();
    }
}

impl Contained {
    /// Starts a program that prints a line when it holds its memory.
    ///
    /// # Panics
    /// If it prints none.
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("text");
        let input = child.stdin.take();
        if line.is_empty() {
            panic!("{command:?}: {}", said(&watched(child)));
        }
        Self { child, input, line: line.trim_end().to_owned() }
    }

    /// Ends it, and returns its error output.
    ///
    /// # Panics
    /// If it does not end well.
    pub fn end(mut self) -> String {
        drop(self.input.take());
        let output = watched(self.child);
        assert!(output.status.success(), "{}", said(&output));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

fn succeeds(command: &mut Command) -> bool {
    let output = command.output().expect("it starts");
    if !output.status.success() {
        eprintln!("{}", said(&output));
    }
    output.status.success()
}

/// The path of a program.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// `dist/` as the pages have it in `/opt/wmshim`, with what is built here.
fn distribution(scratch: &Scratch) -> PathBuf {
    let library = shim::installed(scratch);
    let dist = scratch.folder("dist");
    fs::rename(library.parent().expect("a folder"), dist.join("lib")).expect("moved");
    fs::rename(shim::drop_in(scratch), dist.join("dropin")).expect("moved");
    fs::copy(places::wmctl(), scratch.folder("dist/bin").join("wmctl")).expect("copied");
    fs::copy(places::simulated_driver(), scratch.folder("dist/sim").join("libcuda.so.1")).expect("copied");
    let examples = scratch.folder("examples");
    let folders = ["examples/containers", "examples/slurm"].map(places::workspace);
    let copied = Command::new("cp").arg("-a").args(folders).arg(examples).status();
    assert!(copied.expect("cp").success());
    fs::copy(places::source("python/train.py"), scratch.path().join("train.py")).expect("copied");
    dist
}

/// The machine's `/etc` with a user that has numbers for containers, and an image of folders.
fn etc(scratch: &Scratch) -> PathBuf {
    let etc = scratch.path().join("etc");
    assert!(
        Command::new("cp").arg("-a").args(["/etc".as_ref(), etc.as_path()]).status().expect("cp").success()
    );
    let lines = [
        ("passwd", format!("wmtest:x:{USER}:{USER}::/:/bin/sh\n")),
        ("group", format!("wmtest:x:{USER}:\n")),
    ];
    let numbers = ["subuid", "subgid"].map(|file| (file, "wmtest:300000:65536\n".to_owned()));
    for (file, line) in lines.into_iter().chain(numbers) {
        let before = fs::read_to_string(etc.join(file)).unwrap_or_default();
        fs::write(etc.join(file), before + &line).expect("written");
    }
    let _the_machines_own = fs::remove_file(etc.join("wmshim.toml"));
    fs::create_dir_all(etc.join("cdi")).expect("a folder");
    for folder in ["home/run", &format!("store-{USER}")] {
        chown(scratch.folder(folder), Some(USER), Some(USER)).expect("root gives folders away");
    }
    chown(scratch.path().join("home"), Some(USER), Some(USER)).expect("root gives folders away");
    fs::set_permissions(scratch.path().join("home/run"), Permissions::from_mode(0o700)).expect("its mode");
    let image = scratch.folder("image");
    for folder in ["usr", "etc", "proc", "dev", "sys", "run", "var", "opt", "tmp"] {
        fs::create_dir(image.join(folder)).expect("a folder");
    }
    fs::set_permissions(image.join("tmp"), Permissions::from_mode(0o1777)).expect("its mode");
    for link in ["bin", "lib", "lib64", "sbin"] {
        symlink(format!("usr/{link}"), image.join(link)).expect("a link");
    }
    let mut packed = Command::new("tar");
    packed.arg("-cf").arg(scratch.path().join("image.tar")).arg("-C").arg(image).arg(".");
    assert!(packed.status().expect("tar").success());
    etc
}

fn write_podman(scratch: &Scratch, podman: &Path) {
    let runtime = if may_raise_limits() {
        String::new()
    } else {
        format!("--runtime {}", places::source("python/runc_without_rlimits.py").display())
    };
    let script = PODMAN.replace("FOLDER", &scratch.path().display().to_string());
    let script = script.replace("PROGRAM", &podman.display().to_string()).replace("RUNTIME", &runtime);
    let file = scratch.folder("bin").join("podman");
    fs::write(&file, script).expect("written");
    fs::set_permissions(&file, Permissions::from_mode(0o755)).expect("its mode");
}

/// Has this process `CAP_SYS_RESOURCE`?
fn may_raise_limits() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or_default();
    u64::from_str_radix(line.trim(), 16).is_ok_and(|capabilities| capabilities & 1 << 24 != 0)
}
