//! Hazard: a program that notices the broker start, leases that are lost with a broker, and a wait without end.
//!
//! The broker is the one that a build of the workspace puts beside this program.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use wm_dedup::chunk::{ChunkName, Fingerprint};

use super::client::{Client, Lease, OfferAnswer};
use super::home::BrokerHome;
use wm_sockets::descriptor::Descriptor;

/// Children that the program was told of.
static TOLD: AtomicUsize = AtomicUsize::new(0);

extern "C" fn note_child(_signal: i32) {
    TOLD.fetch_add(1, Ordering::Relaxed);
}

/// A folder, the broker in it, and an end of both.
struct Stage {
    home: BrokerHome,
    brokers: Vec<u32>,
}

impl Stage {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("wmshim-dedup-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::DirBuilder::new().mode(0o700).create(&folder).expect("a fresh folder");
        Self { home: BrokerHome::at(folder, Some(program())), brokers: Vec::new() }
    }

    fn client(&mut self) -> Client {
        let client = Client::connect(self.home.clone()).expect("a broker");
        self.brokers.extend(client.broker());
        client
    }

    /// Kills the broker, and waits until it is gone.
    fn kill(&mut self) {
        for pid in self.brokers.drain(..) {
            let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process");
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            while rustix::process::test_kill_process(pid).is_ok() && !is_zombie(pid) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.home.folder);
    }
}

/// Dead, and not yet waited for by whoever adopted it.
fn is_zombie(pid: rustix::process::Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

fn program() -> PathBuf {
    let tests = std::env::current_exe().expect("this program");
    let built = tests.ancestors().nth(2).expect("a folder of a build").join("wmshimd");
    assert!(built.is_file(), "{} is missing: cargo build -p wm-dedup", built.display());
    built
}

fn name(number: u64) -> ChunkName {
    ChunkName { device: [7; 16], fingerprint: Fingerprint(number.into()) }
}

fn memory(number: u64) -> OwnedFd {
    let file = rustix::fs::memfd_create("chunk", rustix::fs::MemfdFlags::CLOEXEC).expect("a memfd");
    rustix::io::pwrite(&file, &number.to_le_bytes(), 0).expect("written");
    file
}

fn said(file: &Descriptor) -> u64 {
    let mut number = [0; 8];
    rustix::io::pread(file.get().expect("open"), &mut number, 0).expect("read");
    u64::from_le_bytes(number)
}

fn offer(client: &mut Client, number: u64) -> OfferAnswer {
    let file = memory(number);
    client.offer(&[(name(number), file.as_fd())]).expect("an answer")[0]
}

fn look_up(client: &mut Client, number: u64) -> Option<(Lease, u64)> {
    let mut found = client.look_up(&[name(number)]).expect("an answer");
    found.remove(0).map(|(lease, file)| (lease, said(&file)))
}

fn wait_for_any() -> Result<i32, i32> {
    // SAFETY: waits for nothing that is not there, and writes no status.
    let pid = unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) };
    if pid < 0 { Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)) } else { Ok(pid) }
}

/// A thread that waits for children again and again, as a program's own does. What ends it, when it has found none.
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
    let (mut stage, masks) = (Stage::new(), signal_mask());
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
    let missing = BrokerHome::at(stage.home.folder.clone(), Some("/nonexistent/wmshimd".into()));
    assert!(Client::connect(missing).expect_err("no program").contains("No such file"));
    let wrong = BrokerHome::at(stage.home.folder.clone(), Some("/bin/true".into()));
    assert!(Client::connect(wrong).expect("one may come").is_lost());
    assert_eq!(wait_for_any(), Err(libc::ECHILD));
    assert_eq!((TOLD.load(Ordering::Relaxed), descriptors()), (0, before));
    let own = Command::new("/bin/true").status().expect("the program's own children are as ever");
    assert!(own.success() && TOLD.load(Ordering::Relaxed) == 1);
}

#[test]
fn a_process_that_adopts_orphans_starts_none() {
    // SAFETY: an attribute of this process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    let stage = Stage::new();
    let problem = Client::connect(stage.home.clone()).expect_err("not started");
    assert!(problem.contains("adopts orphans"), "{problem}");
}

/// As programs of one job do.
#[test]
fn those_who_start_brokers_at_once_meet_at_one() {
    let mut stage = Stage::new();
    let homes: Vec<_> = (0..8).map(|_| stage.home.clone()).collect();
    let threads: Vec<_> =
        homes.into_iter().map(|home| std::thread::spawn(|| Client::connect(home))).collect();
    let clients: Vec<_> =
        threads.into_iter().map(|thread| thread.join().expect("joined").expect("a broker")).collect();
    stage.brokers.extend(clients[0].broker());
    assert!(clients.iter().all(|client| client.broker() == clients[0].broker()));
    assert_eq!(wait_for_any(), Err(libc::ECHILD));
}

#[test]
fn chunks_are_offered_found_and_released() {
    let mut stage = Stage::new();
    let (mut one, mut other) = (stage.client(), stage.client());
    assert_eq!(one.broker(), other.broker(), "one broker serves both");
    let OfferAnswer::Accepted(own) = offer(&mut one, 1) else { panic!("there was none") };
    assert_eq!(offer(&mut other, 1), OfferAnswer::Present);
    let (theirs, number) = look_up(&mut other, 1).expect("offered");
    assert_eq!((number, look_up(&mut other, 2)), (1, None));
    one.release(&[own, own]);
    assert!(look_up(&mut one, 1).is_some_and(|(lease, _)| {
        one.release(&[lease]);
        true
    }));
    other.release(&[theirs]);
    assert_eq!(look_up(&mut one, 1), None, "its last user is gone");
    assert!(one.look_up(&[name(1); 33]).is_err() && !one.is_lost(), "too many at once are refused here");
}

#[test]
fn nothing_is_lost_with_a_broker() {
    let mut stage = Stage::new();
    let (mut one, mut other) = (stage.client(), stage.client());
    let numbers: Vec<u64> = (0..40).collect();
    let leases: Vec<_> = numbers.iter().map(|number| offer(&mut one, *number)).collect();
    let shared =
        numbers.iter().map(|number| look_up(&mut other, *number).expect("offered").0).collect::<Vec<_>>();
    let twice = look_up(&mut other, 0).expect("offered").0;
    stage.kill();
    assert!(other.look_up(&[name(0)]).is_err() && other.is_lost());
    assert!(!other.reconnect(|_, _| None), "not at once");
    other.release(&[shared[1]]);
    until_due(&other);
    // The other one is first, and knows what it holds.
    assert!(other.reconnect(|_, name| Descriptor::adopt(memory(name.fingerprint.0 as u64)).ok()));
    stage.brokers.extend(other.broker());
    assert!(one.look_up(&[name(0)]).is_err());
    until_due(&one);
    assert!(one.reconnect(|_, name| Descriptor::adopt(memory(name.fingerprint.0 as u64)).ok()));
    assert_eq!(one.broker(), other.broker());
    for number in numbers {
        assert_eq!(look_up(&mut one, number).map(|(_, said)| said), Some(number));
    }
    // Leases are what they were: the chunk stays until all of them are gone.
    drop(one);
    other.release(&[twice]);
    assert!(look_up(&mut other, 0).is_some_and(|(lease, _)| {
        other.release(&[lease]);
        true
    }));
    other.release(&shared);
    assert_eq!((look_up(&mut other, 0), look_up(&mut other, 5)), (None, None));
    assert_eq!(leases.len(), 40);
}

fn until_due(client: &Client) {
    std::thread::sleep(client.retry_at().saturating_duration_since(Instant::now()));
}

#[test]
fn a_broker_that_is_stopped_costs_a_second() {
    let mut stage = Stage::new();
    let mut client = stage.client();
    let pid = rustix::process::Pid::from_raw(client.broker().expect("a broker") as i32).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("stopped");
    let started = Instant::now();
    assert!(client.look_up(&[name(1)]).is_err() && client.is_lost());
    assert!(started.elapsed() < Duration::from_secs(3));
    assert!(client.look_up(&[name(1)]).is_err(), "and nothing after that");
    assert!(started.elapsed() < Duration::from_secs(3));
}
