//! A folder with its broker, for tests of clients: here, and in `wmshim`, which has a way of its
//! own to start brokers.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use wm_dedup::client::{BrokerHome, Client, StartBroker};

/// The folder and its brokers are gone at the end.
pub(crate) struct Stage {
    pub(crate) home: BrokerHome,
    pub(crate) brokers: Vec<u32>,
    start: StartBroker,
}

impl Stage {
    /// With a broker's program, and a way to start it.
    pub(crate) fn new(program: PathBuf, start: StartBroker) -> Self {
        let folder = std::env::temp_dir().join(format!("wm-dedup-stage-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        wm_trust::folder::make(&folder).expect("a fresh folder");
        let home = BrokerHome { folder, program: Some(program) };
        Self { home, brokers: Vec::new(), start }
    }

    pub(crate) fn client(&mut self) -> Client {
        let client = Client::connect(self.home.clone(), self.start).expect("a broker");
        self.brokers.extend(client.broker());
        client
    }

    /// Kills the broker, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        for pid in self.brokers.drain(..) {
            let pid = Pid::from_raw(pid as i32).expect("a process");
            let _ = kill_process(pid, Signal::KILL);
            while test_kill_process(pid).is_ok() && !is_zombie(pid) {
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

/// Has it ended, and no process has waited for it yet?
fn is_zombie(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}
