//! Hazard (process lifecycle): the program notices the broker's start: by a signal, a child, a mask
//! or a descriptor.
//!
//! The broker is the one that a build of the workspace puts beside this program.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use wm_dedup::client::{BrokerHome, Client};

#[path = "../../../../../dedup/tests/support/stage.rs"]
mod stage;

use stage::Stage;

use super::start;

/// `SIGCHLD` signals that the program got.
static TOLD: AtomicUsize = AtomicUsize::new(0);

extern "C" fn note_child(_signal: i32) {
    TOLD.fetch_add(1, Ordering::Relaxed);
}

fn program() -> PathBuf {
    let tests = std::env::current_exe().expect("this program");
    let built = tests.ancestors().nth(2).expect("a folder of a build").join("wmshimd");
    assert!(built.is_file(), "{} is missing: cargo build -p wm-dedup", built.display());
    built
}

fn wait_for_any() -> Result<i32, i32> {
    // SAFETY: waits for nothing that is not there, and writes no status.
    let pid = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) };
    if pid < 0 { Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)) } else { Ok(pid) }
}

/// A thread that waits for children again and again, as a program's own does. The result ends it
/// and checks that it found no child.
fn waits_all_the_time() -> impl FnOnce() {
    let done = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&done);
    let thread = std::thread::spawn(move || {
        while !ends.load(Ordering::Relaxed) {
            assert_eq!(wait_for_any(), Err(libc::ECHILD), "a child while the broker starts");
        }
    });
    move || {
        done.store(true, Ordering::Relaxed);
        thread.join().expect("no child was seen");
    }
}

fn signal_mask() -> [u64; 2] {
    let status = fs::read_to_string("/proc/thread-self/status").expect("read");
    ["SigBlk:", "SigCgt:"].map(|key| {
        let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("a line");
        u64::from_str_radix(line.trim(), 16).expect("a mask")
    })
}

#[test]
fn the_program_sees_nothing_of_the_start() {
    // SAFETY: a handler that adds to a counter.
    unsafe { libc::signal(libc::SIGCHLD, note_child as *const () as libc::sighandler_t) };
    let (mut stage, masks) = (Stage::new(program(), start), signal_mask());
    let descriptors = || fs::read_dir("/proc/self/fd").expect("read").count();
    let before = descriptors();
    let waited = waits_all_the_time();
    let client = stage.client();
    waited();
    assert_eq!(wait_for_any(), Err(libc::ECHILD), "there is no child");
    assert_eq!(signal_mask(), masks, "signals are as they were");
    assert_eq!(descriptors(), before + 1, "the connection is all that is open");
    let pid = client.broker().expect("a broker");
    let environment = fs::read(format!("/proc/{pid}/environ")).expect("it runs");
    assert_eq!(environment, b"WMSHIM_DISABLE=1\0");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    assert!(status.contains("SigBlk:\t0000000000000000"), "{status}");
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).expect("it runs"), PathBuf::from("/"));
    drop(client);
    stage.kill();
    assert_eq!(wait_for_any(), Err(libc::ECHILD), "nor was the broker one");
    // A broker that cannot be executed leaves nothing either.
    let at = |program: &str| BrokerHome { program: Some(program.into()), ..stage.home.clone() };
    let problem = Client::connect(at("/nonexistent/wmshimd"), start).expect_err("no program");
    assert!(problem.to_string().contains("No such file"), "{problem}");
    assert!(Client::connect(at("/bin/true"), start).expect("one may come").is_lost());
    assert_eq!(wait_for_any(), Err(libc::ECHILD));
    assert_eq!((TOLD.load(Ordering::Relaxed), descriptors()), (0, before));
    let own = Command::new("/bin/true").status().expect("the program's own children are as ever");
    assert!(own.success() && TOLD.load(Ordering::Relaxed) == 1);
}

#[test]
fn a_process_that_adopts_orphans_starts_none() {
    // SAFETY: an attribute of this process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    let stage = Stage::new(program(), start);
    let problem = Client::connect(stage.home.clone(), start).expect_err("not started").to_string();
    assert!(problem.contains("adopts orphans"), "{problem}");
}
