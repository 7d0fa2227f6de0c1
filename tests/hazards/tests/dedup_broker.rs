//! Hazard (latency): a program never shares memory because the broker was slow for a second at the
//! program's first request.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use hazards::places;
use hazards::sharers::{SOON, Stage, read_until, share};

/// A broker that the test has started and can stop.
struct Broker(Child);

impl Broker {
    fn start(folder: &Path) -> Self {
        let mut command = Command::new(places::broker());
        command.args(["--foreground", "--folder"]).arg(folder).stdin(Stdio::null()).stderr(Stdio::null());
        let broker = Self(command.spawn().expect("the broker can be started"));
        wait("the broker listens", || folder.join("dedup.sock").exists());
        broker
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a plain system call; the process is ours and not waited for.
        assert_eq!(unsafe { libc::kill(self.0.id() as i32, signal) }, 0);
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < SOON, "{what}");
    }
}

/// Connected sockets in a folder, and the listening one. A socket is identified by the name that it
/// was bound to.
fn sockets(folder: &Path) -> usize {
    let table = fs::read_to_string("/proc/net/unix").expect("the table of sockets");
    let prefix = format!("{}/.", folder.display());
    table.lines().filter(|line| line.contains(&prefix) && !line.contains(".sock")).count()
}

#[test]
fn a_broker_that_is_stopped_at_the_first_question_is_asked_again() {
    let stage = Stage::new();
    let folder = stage.sockets();
    let broker = Broker::start(&folder);
    wait("the broker listens", || sockets(&folder) == 1);
    broker.signal(libc::SIGSTOP);
    let mut sharers = stage.loaded::<2>(&[(0, 7, 8)]);
    // Both connect, and each waits for a second at most. An abandoned connection is visible until
    // the broker accepts it.
    wait("both ask the broker", || {
        read_until(&mut sharers, 8, 100);
        sockets(&folder) >= 3
    });
    read_until(&mut sharers, 8, 2500);
    broker.signal(libc::SIGCONT);
    share(&mut sharers, 8);
    sharers.iter_mut().for_each(|sharer| sharer.expect_right("the broker goes on"));
    stage.end(sharers);
}
