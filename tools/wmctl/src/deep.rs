//! `--deep`: the driver's checkpoint of a paused process, which takes what the library cannot move:
//! its contexts, its code, and the driver's own memory.
//!
//! The process is told before, because it cannot be afterwards: its calls of the driver wait, so
//! its library makes none, and refuses what would need one. It is told again once the driver has
//! given all back. A client that is killed in between leaves a process that says `deep`, whether
//! the driver has it or not; the next `wmctl resume` asks the driver.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::json;
use wm_abi::{CU_PROCESS_STATE_CHECKPOINTED, CU_PROCESS_STATE_FAILED, CU_PROCESS_STATE_LOCKED};
use wm_driver::api::Named;
use wm_driver::checkpoint::Checkpoints;
use wm_driver::{Api, Loader, Table, search};
use wm_schema::PauseAnswer;

use crate::client::{self, Endpoint};

/// How long calls of the process that have begun may take to end. Few have: it is paused.
const CALLS: Duration = Duration::from_secs(10);

/// A driver that takes processes off GPUs.
pub(crate) struct DeepDriver(Table);

impl DeepDriver {
    /// Opens the driver of this machine.
    ///
    /// # Errors
    /// There is none, or it is too old.
    pub(crate) fn open() -> Result<Self> {
        let table = search::open(&Loader::system(), crate::shim::driver().as_deref())?;
        Named(&table).init().context("the driver does not start")?;
        let driver = Self(table);
        if Checkpoints::of(&driver.0).is_none() {
            bail!("the driver has no checkpoints of processes: --deep needs driver 570 or newer");
        }
        Ok(driver)
    }

    fn checkpoints(&self) -> Result<Checkpoints<'_>> {
        Checkpoints::of(&self.0).context("the driver has no checkpoints of processes")
    }

    /// Takes the rest of a paused process. If the driver refuses, the process stays paused.
    ///
    /// # Errors
    /// Why it was not taken.
    pub(crate) fn take(&self, endpoint: &Endpoint) -> Result<PauseAnswer> {
        let told = tell(endpoint, "pause_deep")?;
        if let Some(problem) = told.pause.problem.clone().filter(|_| !told.pause.is_deep) {
            bail!("it is paused, but not deep: {problem}");
        }
        if let Err(why) = self.checkpoint(endpoint) {
            tell(endpoint, "pause_restored")?;
            bail!("it is paused, but the driver has not taken the rest: {why:#}");
        }
        tell(endpoint, "pause_state")
    }

    fn checkpoint(&self, endpoint: &Endpoint) -> Result<()> {
        let (driver, pid) = (self.checkpoints()?, number(endpoint)?);
        if driver.state(pid)? == CU_PROCESS_STATE_CHECKPOINTED {
            return Ok(());
        }
        driver.lock(pid, CALLS)?;
        driver.checkpoint(pid).or_else(|why| {
            driver.unlock(pid).with_context(|| why.to_string())?;
            Err(why.into())
        })
    }

    /// Gives a process back what was taken, if anything was.
    ///
    /// # Errors
    /// The driver's. The process stays as it was.
    pub(crate) fn give_back(&self, endpoint: &Endpoint) -> Result<()> {
        let (driver, pid) = (self.checkpoints()?, number(endpoint)?);
        let state = driver.state(pid)?;
        if state == CU_PROCESS_STATE_FAILED {
            bail!("the driver has lost it: a restore or a checkpoint failed");
        }
        if state == CU_PROCESS_STATE_CHECKPOINTED {
            driver.restore(pid).context("the driver does not give it back")?;
        }
        if [CU_PROCESS_STATE_CHECKPOINTED, CU_PROCESS_STATE_LOCKED].contains(&state) {
            driver.unlock(pid)?;
        }
        let told = tell(endpoint, "pause_restored")?;
        if told.pause.is_deep {
            Err(anyhow!("it has all back, but still says that it is deep: resume it again"))
        } else {
            Ok(())
        }
    }
}

fn number(endpoint: &Endpoint) -> Result<i32> {
    i32::try_from(endpoint.pid).context("no number of a process")
}

fn tell(endpoint: &Endpoint, request: &str) -> Result<PauseAnswer> {
    let answer = client::ask_with(endpoint, &json!({ "request": request }), client::PATIENCE)?;
    client::parsed(&answer)
}
