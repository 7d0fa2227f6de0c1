//! Hazard (privilege boundary): another user prepared the sockets and answers that `wmctl` reads:
//! a foreign folder, a peer that trickles, floods or never accepts, terminal control codes, files
//! that only look like sockets.

mod support;

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use support::{Scratch, answers, stderr, stdout, wmctl};

/// More than one whole exchange may take; less than any of these peers would make it take.
const LIMIT: Duration = Duration::from_secs(60);

/// A peer at `<pid>.sock` that does this with each connection.
fn peer(scratch: &Scratch, pid: u32, serve: impl Fn(UnixStream) + Send + Sync + Clone + 'static) {
    let listener = UnixListener::bind(scratch.path().join(format!("{pid}.sock"))).expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
}

fn stats(scratch: &Scratch, arguments: &[&str]) -> Output {
    let begin = Instant::now();
    let output = wmctl(scratch).arg("stats").args(arguments).output().expect("ran");
    assert!(begin.elapsed() < LIMIT, "{:?}", begin.elapsed());
    output
}

#[test]
fn one_deadline_holds_for_the_whole_answer() {
    let scratch = Scratch::new("trickle");
    peer(&scratch, 41, |mut stream| {
        while stream.write_all(b" ").is_ok() {
            thread::sleep(Duration::from_millis(100));
        }
    });
    let output = stats(&scratch, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no whole answer within 5 s"), "{}", stderr(&output));
}

#[test]
fn a_peer_that_never_accepts_costs_no_more_than_a_silent_one() {
    let scratch = Scratch::new("backlog");
    let listener = UnixListener::bind(scratch.path().join("41.sock")).expect("bound");
    // SAFETY: plain system call on a descriptor of ours.
    assert_eq!(unsafe { libc::listen(std::os::fd::AsRawFd::as_raw_fd(&listener), 0) }, 0);
    let waiting = thread::spawn({
        let path = scratch.path().join("41.sock");
        move || [(); 3].map(|()| socket_that_waits(&path))
    });
    let held = waiting.join().expect("connected as far as it goes");
    let output = stats(&scratch, &["41"]);
    assert!(stderr(&output).contains("its queue is full"), "{}", stderr(&output));
    drop((held, listener));
}

/// A connection that does not block: one that is queued, or refused because the queue is full.
fn socket_that_waits(path: &Path) -> rustix::fd::OwnedFd {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None).expect("a socket");
    let _ = connect(&socket, &SocketAddrUnix::new(path).expect("an address"));
    socket
}

/// 256 MiB would be kept without a limit; the answer ends at 8.
#[test]
fn an_answer_without_end_is_not_kept() {
    let scratch = Scratch::new("flood");
    let (sender, taken) = mpsc::channel();
    let sender = std::sync::Arc::new(std::sync::Mutex::new(sender));
    peer(&scratch, 41, move |stream| flood(stream, &sender.lock().expect("one at a time")));
    let output = stats(&scratch, &[]);
    assert!(stderr(&output).contains("longer than 8 MiB"), "{}", stderr(&output));
    let most = taken.iter().take(2).max().expect("connections");
    assert!(most < 64 << 20, "{most} bytes were taken");
}

/// Sends until the peer stops reading, and returns the bytes that were read.
fn flood(mut stream: UnixStream, taken: &Sender<usize>) {
    let (chunk, mut sent) = ([b'x'; 1 << 16], 0);
    while sent < 256 << 20 && stream.write_all(&chunk).is_ok() {
        sent += chunk.len();
    }
    let _ = taken.send(sent);
}

/// An attacker's answer: moves of the cursor, a title, false line ends, figures that are no
/// numbers.
fn nasty() -> Value {
    let mut answer = answers(41);
    answer["stats"]["program"] =
        json!(format!("\x1b[2J\x1b]0;owned\x07evil\n\u{9b}31m\u{202e}{}", "x".repeat(300)));
    answer["stats"]["uptime_s"] = json!(-1e308);
    answer["stats"]["devices"][0]["utilization"] = json!(1e300);
    answer["stats"]["devices"][0]["counters"]["\x1b[31mred"] = json!(1);
    answer["stats"]["fail_open"]["reasons"][0]["reason"] = json!("\x1b[5mblink");
    answer["config"]["settings"]["WMSHIM_DRIVER"] = json!("/a\x1b[2J");
    answer
}

fn is_clean(text: &str) {
    let bad = |c: &char| (c.is_control() && *c != '\n') || *c == '\u{202e}';
    let found = text.chars().find(bad);
    assert_eq!(found, None, "{text:?}");
    let short = |line: &str| line.starts_with('{') || line.chars().count() < 260;
    assert!(text.lines().all(short), "{text}");
}

#[test]
fn control_characters_of_a_program_do_not_reach_the_terminal() {
    for (first, second) in [(41, None), (41, Some(42))] {
        let scratch = Scratch::new("escapes");
        scratch.serve(first, &nasty());
        second.map(|pid| scratch.serve(pid, &json!({ "stats": { "error": "\x1b[2Jno" } })));
        for arguments in [
            &["stats"][..],
            &["stats", "--json"],
            &["top", "--once", "--interval", "0.02"],
            &["stats", "41", "--config"],
        ] {
            let output = wmctl(&scratch).args(arguments).output().expect("ran");
            is_clean(&stdout(&output));
            is_clean(&stderr(&output));
            assert!(!stdout(&output).contains("inf"), "{}", stdout(&output));
        }
        let text = stdout(&stats(&scratch, &["41"]));
        assert!(text.starts_with("\\x1b[2J\\x1b]0;owned\\x07evil"), "{text}");
    }
}

#[test]
fn a_folder_that_others_may_write_or_that_is_another_users_is_not_looked_into() {
    let scratch = Scratch::new("squat");
    let folder = scratch.path().join("open");
    fs::create_dir(&folder).expect("a folder");
    fs::set_permissions(&folder, Permissions::from_mode(0o777)).expect("open to all");
    let listener = UnixListener::bind(folder.join("41.sock")).expect("bound");
    let output = wmctl(&scratch).env("WMSHIM_STATS_DIR", &folder).arg("stats").output().expect("ran");
    assert!(!output.status.success());
    assert!(stderr(&output).contains("can be written by others (mode 777)"), "{}", stderr(&output));
    let link = scratch.path().join("link");
    symlink(scratch.path(), &link).expect("a link");
    let output = wmctl(&scratch).env("WMSHIM_STATS_DIR", &link).arg("stats").output().expect("ran");
    assert!(stderr(&output).contains("is a symbolic link"), "{}", stderr(&output));
    listener.set_nonblocking(true).expect("a listener");
    assert!(listener.accept().is_err(), "the client connected");
}

/// Needs root, since only root may give a folder away.
#[test]
fn a_folder_of_another_user_in_the_usual_place_is_told() {
    let scratch = Scratch::new("foreign");
    let user = rustix::process::geteuid().as_raw();
    let folder = scratch.path().join(format!("wmshim-{user}"));
    fs::create_dir(&folder).expect("a folder");
    if chown(&folder, Some(12_345), None).is_err() {
        hazards::skip("needs root");
        return;
    }
    let output = wmctl(&scratch).env_remove("WMSHIM_STATS_DIR").arg("stats").output().expect("ran");
    assert!(stderr(&output).contains("belongs to user 12345: not looked into"), "{}", stderr(&output));
}

#[test]
fn a_file_that_is_no_socket_is_called_so() {
    let scratch = Scratch::new("file");
    let output = stats(&scratch, &["--socket", "/etc/passwd"]);
    assert!(stderr(&output).contains("is no socket"), "{}", stderr(&output));
    let output = stats(&scratch, &["--socket", "/no/such/socket"]);
    assert!(stderr(&output).contains("there is no such socket"), "{}", stderr(&output));
}

#[test]
fn stopped_programs_are_asked_at_once_and_called_stopped() {
    let scratch = Scratch::new("stopped");
    let mut children: Vec<_> = (0..3).map(|_| stopped_endpoint(&scratch)).collect();
    let begin = Instant::now();
    let output = stats(&scratch, &[]);
    let took = begin.elapsed();
    for child in &mut children {
        let pid = child.id();
        let expected = format!("process {pid} is stopped; `kill -CONT {pid}`");
        assert!(stdout(&output).contains(&expected), "{expected}\n{}{}", stdout(&output), stderr(&output));
        child.kill().and_then(|()| child.wait()).expect("a child of ours");
    }
    assert!(took < Duration::from_secs(14), "three times five seconds one after the other: {took:?}");
}

/// A process that listens and is then stopped.
fn stopped_endpoint(scratch: &Scratch) -> Child {
    let script = "import os, signal, socket, sys\n\
        s = socket.socket(socket.AF_UNIX); s.bind(f'{sys.argv[1]}/{os.getpid()}.sock'); s.listen(9)\n\
        print('ready', flush=True); os.kill(os.getpid(), signal.SIGSTOP)";
    let mut command = std::process::Command::new("python3");
    command.args(["-c", script]).arg(scratch.path()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("python3");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    child
}

/// A job with a TMPDIR of its own, as batch systems make it; as root, a job of any user.
#[test]
fn a_program_is_found_where_its_own_variables_put_its_socket() {
    let scratch = Scratch::new("elsewhere");
    let folder = scratch.path().join("job");
    fs::create_dir(&folder).expect("a folder");
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).expect("private");
    let mut program = std::process::Command::new("sh");
    program.args(["-c", "echo ready; read line"]).env("WMSHIM_STATS_DIR", &folder);
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("started");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    let pid = child.id();
    let listener = UnixListener::bind(folder.join(format!("{pid}.sock"))).expect("bound");
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut line = String::new();
            let _ = BufReader::new(&stream).read_line(&mut line);
            let _ = writeln!(stream, "{}", answers(pid)["stats"]);
        }
    });
    let output = wmctl(&scratch).args(["stats", &pid.to_string()]).output().expect("ran");
    assert!(stdout(&output).contains(&format!("python3 (process {pid})")), "{}", stderr(&output));
    let output =
        wmctl(&scratch).env_remove("WMSHIM_STATS_DIR").args(["stats", "--json"]).output().expect("ran");
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let listed =
        document["processes"].as_array().expect("a list").iter().any(|process| process["pid"] == pid);
    assert!(listed, "{document:#}");
    drop(child.stdin.take());
    child.wait().expect("ended");
}

/// A user that owns nothing.
const STRANGER: u32 = 65_431;

/// Hazard (privilege boundary): a monitor of root sees root's own programs only, or a user sees
/// those of others.
#[test]
fn root_sees_everybodys_programs_and_others_their_own() {
    let scratch = Scratch::new("everybody");
    let folder = scratch.path().join("job");
    fs::create_dir(&folder).expect("a folder");
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).expect("private");
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o711)).expect("passed through");
    if chown(&folder, Some(STRANGER), None).is_err() {
        hazards::skip("needs root");
        return;
    }
    let script = "import os, socket, sys\n\
        os.umask(0); s = socket.socket(socket.AF_UNIX); s.bind(f'{sys.argv[1]}/{os.getpid()}.sock'); s.listen(9)\n\
        print('ready', flush=True)\n\
        while True:\n\
        \x20   c, _ = s.accept(); c.makefile().readline() and c.sendall(sys.argv[2].encode() + b'\\n'); c.close()";
    let mut command = std::process::Command::new("python3");
    command.args(["-c", script]).arg(&folder).arg(answers(41)["stats"].to_string()).current_dir("/");
    command.env("WMSHIM_STATS_DIR", &folder).stdout(Stdio::piped()).uid(STRANGER);
    let mut child = command.spawn().expect("python3");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    let pid = child.id().to_string();
    let socket = folder.join(format!("{pid}.sock"));
    let asked = |user: u32, whom: &[&str]| {
        let mut command = wmctl(&scratch);
        command.env_remove("WMSHIM_STATS_DIR").arg("stats").args(whom).uid(user);
        command.output().expect("ran")
    };
    let (roots, strangers) = (asked(0, &[&pid]), asked(STRANGER + 1, &[&pid]));
    // A socket that a foreign user has opened to all, and that the command is told to ask.
    fs::set_permissions(&folder, Permissions::from_mode(0o711)).expect("passed through");
    let lured = asked(STRANGER + 1, &["--socket", socket.to_str().expect("UTF-8")]);
    child.kill().and_then(|()| child.wait()).expect("a child of ours");
    assert!(stdout(&roots).contains("python3 (process "), "{}{}", stdout(&roots), stderr(&roots));
    assert!(stderr(&strangers).contains("ask as its user, or as root"), "{}", stderr(&strangers));
    assert!(stderr(&lured).contains("is not to be believed; it was not asked"), "{}", stderr(&lured));
}

#[test]
fn clean_removes_sockets_that_refuse_and_nothing_else() {
    let scratch = Scratch::new("clean");
    for name in ["999999998.sock", "999999999.sock", "boot-key.ipc", "mine.sock"] {
        drop(UnixListener::bind(scratch.path().join(name)).expect("bound"));
    }
    for name in ["7.sock", "7-1.json", "notes.ipc"] {
        fs::write(scratch.path().join(name), "precious").expect("a file");
    }
    scratch.serve(41, &answers(41));
    let said = stderr(&stats(&scratch, &["41"]));
    assert_eq!(said, "", "who asks for one program hears of no other");
    assert!(stderr(&stats(&scratch, &[])).contains("2 sockets are left over"), "one line for all of them");
    let dry = wmctl(&scratch).args(["clean", "--dry-run", "--json"]).output().expect("ran");
    let report: Value = serde_json::from_slice(&dry.stdout).expect("JSON");
    assert_eq!(
        (&report["schema"], report["removed"].as_array().map(Vec::len)),
        (&json!("wmctl-clean/1"), Some(3))
    );
    let output = wmctl(&scratch).arg("clean").output().expect("ran");
    assert_eq!(
        stdout(&output).lines().filter(|line| line.starts_with("removed ")).count(),
        3,
        "{}",
        stdout(&output)
    );
    let mut left: Vec<_> =
        fs::read_dir(scratch.path()).expect("the folder").flatten().map(|it| it.file_name()).collect();
    left.sort();
    assert_eq!(left, ["41.sock", "7-1.json", "7.sock", "mine.sock", "notes.ipc"]);
    assert_eq!(stdout(&wmctl(&scratch).arg("clean").output().expect("ran")), "nothing is left over\n");
}

/// Hazard (wrong report): the file of an out-of-memory is gone before it was read.
#[test]
fn clean_removes_old_files_of_an_out_of_memory_by_programs_that_have_ended() {
    let scratch = Scratch::new("refusals");
    let day = Duration::from_secs(24 * 60 * 60);
    let put = |name: &str, age: Duration| {
        let file = fs::File::create(scratch.path().join(name)).expect("a file");
        file.set_modified(SystemTime::now() - age).expect("a time");
    };
    let own = format!("out-of-memory-{}-1.json", std::process::id());
    let names = ["out-of-memory-999999999-1.json", "out-of-memory-999999999-2.json", &own];
    names.iter().zip([day, day / 2, 2 * day]).for_each(|(name, age)| put(name, age));
    let others = ["out-of-memory-notes.json", "out-of-memory-999999999-3.json.bak"];
    others.iter().for_each(|name| put(name, 2 * day));
    let link = scratch.path().join("out-of-memory-999999999-4.json");
    symlink(scratch.path().join(others[0]), &link).expect("a link");
    let clean = |arguments: &[&str]| {
        let output = wmctl(&scratch).arg("clean").args(arguments).output().expect("ran");
        stdout(&output)
            .lines()
            .map(|line| line.rsplit('/').next().unwrap_or(line).to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(clean(&["--dry-run"]), [names[0]]);
    assert_eq!(clean(&[]), [names[0]], "a day is the age");
    assert_eq!(clean(&[]), ["nothing is left over"]);
    assert_eq!(clean(&["--all"]), [names[1]], "any age, and not of a program that runs");
    let left = |name: &str| fs::symlink_metadata(scratch.path().join(name)).is_ok();
    assert!(left(&own) && others.iter().all(|name| left(name)) && fs::symlink_metadata(&link).is_ok());
}
