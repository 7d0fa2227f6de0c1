//! Partners: other processes on the library's simulated device, which take what memory is free,
//! and are killed at random moments.
//!
//! The library and its partners compete for twice the memory that a program holds at once. What
//! the driver needs for calls that the library does not serve is left free by both: a partner asks
//! before it takes, and the library has a headroom. So no call may fail that does not fail on the
//! driver alone.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use conformance::cu;
use conformance::driver::{Driver, Lookup};
use random::{Choices, Random};
use wm_abi::*;

use crate::moves::peak;
use crate::program::Program;

const MIB: u64 = 1 << 20;

/// What the driver may need beside what a program holds.
const LEAST_FREE: u64 = 64 * MIB;

/// The variable with a partner's seed.
const SEED: &str = "ORACLE_PARTNER_SEED";

/// How long a partner lives, in milliseconds.
const LIFE: [usize; 2] = [5, 60];

/// The options of a partner.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct Arguments {
    /// The driver to open
    #[arg(long)]
    open: String,
    /// Bytes of the device that it leaves free
    #[arg(long)]
    leaves: u64,
}

/// Partners of one process, one after another, for as long as this value.
#[derive(Debug)]
pub(crate) struct Partners {
    machine: PathBuf,
    is_over: Arc<AtomicBool>,
    killer: Option<JoinHandle<()>>,
}

impl Partners {
    /// Puts a process that runs a program on a machine with partners.
    pub(crate) fn beside(command: &mut Command, driver: &Path, program: &Program) -> Self {
        static MACHINES: AtomicU32 = AtomicU32::new(0);
        let number = MACHINES.fetch_add(1, Ordering::Relaxed);
        let machine = std::env::temp_dir().join(format!("oracle-partners-{}-{number}", std::process::id()));
        let most = peak(program).next_multiple_of(2 * MIB);
        let leaves = most + LEAST_FREE;
        let memory = format!("{}B", leaves + 2 * most);
        command.env("SIMCUDA_SHARED", &machine).env("SIMCUDA_MEMORY", &memory);
        command.env("WMSHIM_HEADROOM", format!("{leaves}B"));
        let mut partner = Command::new(std::env::current_exe().unwrap_or_else(|_| "oracle".into()));
        partner.arg("partner").arg("--open").arg(driver).args(["--leaves", &leaves.to_string()]);
        partner.env("SIMCUDA_SHARED", &machine).env("SIMCUDA_MEMORY", &memory).env("SIMCUDA_QUIET", "1");
        partner.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let is_over = Arc::new(AtomicBool::new(false));
        let (seen, seed) = (Arc::clone(&is_over), program.seed);
        let killer = Some(std::thread::spawn(move || kill_one_after_another(partner, seed, &seen)));
        Self { machine, is_over, killer }
    }
}

impl Drop for Partners {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(killer) = self.killer.take() {
            // It has no panic to tell.
            let _ended = killer.join();
        }
        let _removed = std::fs::remove_file(&self.machine);
    }
}

fn kill_one_after_another(mut partner: Command, seed: u64, is_over: &AtomicBool) {
    let mut random = Random::with_seed(seed ^ 0x7061_7274_6e65);
    while !is_over.load(Ordering::Relaxed) {
        partner.env(SEED, random.below(usize::MAX >> 1).to_string());
        let Ok(child) = partner.spawn() else { return };
        let life = LIFE[0] + random.below(LIFE[1] - LIFE[0]);
        std::thread::sleep(Duration::from_millis(life as u64));
        kill(child);
    }
}

fn kill(mut child: Child) {
    // It may have ended before.
    let _ended = child.kill();
    let _reaped = child.wait();
}

/// Takes memory of the device and gives it back, at random, until it is killed.
pub(crate) fn main(arguments: &Arguments) -> Result<()> {
    let driver = Driver::open(&arguments.open, Lookup::Exported)?;
    let mut context = CUcontext::NULL;
    cu!(driver, cuInit(0)).ok().context("cuInit")?;
    cu!(driver, cuDevicePrimaryCtxRetain(&mut context, 0)).ok().context("cuDevicePrimaryCtxRetain")?;
    cu!(driver, cuCtxSetCurrent(context)).ok().context("cuCtxSetCurrent")?;
    let seed = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let (mut random, mut blocks) = (Random::with_seed(seed), VecDeque::new());
    loop {
        let (mut free, mut total) = (0_usize, 0_usize);
        cu!(driver, cuMemGetInfo_v2(&mut free, &mut total)).ok().context("cuMemGetInfo")?;
        let bytes = MIB as usize * (1 + random.below(24));
        let mut block = CUdeviceptr::default();
        if free as u64 >= arguments.leaves + bytes as u64 && !random.one_in(4) {
            if cu!(driver, cuMemAlloc_v2(&mut block, bytes)) == CUresult::SUCCESS {
                blocks.push_back(block);
            }
        } else if let Some(block) = blocks.pop_front() {
            cu!(driver, cuMemFree_v2(block)).ok().context("cuMemFree")?;
        }
        std::thread::sleep(Duration::from_micros(random.below(400) as u64));
    }
}
