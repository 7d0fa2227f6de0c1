//! Turns: the library's processes of several programs on one simulated GPU, which has less memory
//! than they need together (`WMSHIM_SHARE=turns`).
//!
//! Beside the programs that are judged there are [others](crate::killed), which are killed at
//! random moments, and so is the broker. What the driver needs for calls that the library does not
//! serve is left free, as beside [partners](crate::partners). So no call may fail that does not
//! fail on the driver alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::generate::{self, Wishes};
use crate::moves::peak;

const MIB: u64 = 1 << 20;

/// Programs that are judged side by side, unless the user says how many.
pub(crate) const JOBS: usize = 3;

/// What the driver may need beside what programs hold.
const LEAST_FREE: u64 = 64 * MIB;

/// The machine that the library's processes share, for as long as this value.
#[derive(Debug)]
pub(crate) struct TurnMachine {
    folder: PathBuf,
    broker: PathBuf,
    memory: u64,
    headroom: u64,
}

impl TurnMachine {
    /// With room for one of some programs, if it is of the usual size, and for what the library
    /// does not serve of `jobs` of them and of one that is killed.
    ///
    /// # Errors
    /// There is no folder, or no broker beside the library.
    pub(crate) fn new(library: &Path, jobs: usize, seeds: &[u64], wishes: &Wishes) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("oracle-turns-{}", std::process::id()));
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let peaks = seeds.iter().map(|seed| peak(&generate::program(*seed, wishes)));
        let (sum, most) = peaks.fold((0, 0), |(sum, most), peak| (sum + peak, peak.max(most)));
        let headroom = most.next_multiple_of(2 * MIB) * (jobs as u64 + 1) + LEAST_FREE;
        let room = (sum / seeds.len().max(1) as u64).next_multiple_of(2 * MIB);
        let broker = library.with_file_name("wmshimd");
        anyhow::ensure!(broker.exists(), "{} is not there", broker.display());
        Ok(Self { folder, broker, memory: headroom + room, headroom })
    }

    /// A process of the library's takes turns on it.
    pub(crate) fn furnish(&self, command: &mut Command) {
        command.arg("--turns").env("WMSHIM_SHARE", "turns").env("WMSHIM_BROKER", &self.broker);
        command.env("WMSHIM_STATS_DIR", self.home()).env("SIMCUDA_SHARED", self.folder.join("machine"));
        command.env("SIMCUDA_MEMORY", format!("{}B", self.memory));
        command.env("WMSHIM_HEADROOM", format!("{}B", self.headroom));
    }

    /// The folder that the broker is told, and no other one.
    fn home(&self) -> PathBuf {
        self.folder.join("stats")
    }

    /// Kills the broker, or several where one has replaced another one.
    pub(crate) fn kill_brokers(&self) {
        let home = self.home();
        for process in numbers_of_processes().filter(|process| is_broker(*process, &home)) {
            // SAFETY: a signal to a process that this run's processes have started.
            unsafe { libc::kill(process, libc::SIGKILL) };
        }
    }
}

impl Drop for TurnMachine {
    fn drop(&mut self) {
        self.kill_brokers();
        let _removed = fs::remove_dir_all(&self.folder);
    }
}

fn numbers_of_processes() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Does it run the broker's program for this folder?
fn is_broker(process: i32, home: &Path) -> bool {
    let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let names_home = words.iter().any(|word| Path::new(word.as_ref()) == home);
    names_home && words.first().is_some_and(|program| program.ends_with("wmshimd"))
}
