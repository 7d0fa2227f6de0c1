//! The driver's own checkpoint of another process (`cuCheckpointProcess*`, from driver 570 on): its
//! calls of the driver are held up, and all that it has on GPUs goes to host memory of the driver.
//!
//! The calls are made by another process than the one that they are about.

use std::ffi::{c_int, c_uint};
use std::ptr::null_mut;
use std::time::Duration;

use wm_abi::{CUcheckpointLockArgs, symbol};

use crate::api::{Api, Failed, Named};
use crate::table::Table;

/// The checkpoints of a driver that has them.
#[derive(Debug, Clone, Copy)]
pub struct Checkpoints<'a>(&'a Table);

impl<'a> Checkpoints<'a> {
    /// `None` where the driver is older.
    pub fn of(table: &'a Table) -> Option<Self> {
        let has_all = table.has::<symbol::cuCheckpointProcessLock>()
            && table.has::<symbol::cuCheckpointProcessCheckpoint>()
            && table.has::<symbol::cuCheckpointProcessRestore>()
            && table.has::<symbol::cuCheckpointProcessUnlock>()
            && table.has::<symbol::cuCheckpointProcessGetState>();
        has_all.then_some(Self(table))
    }

    /// A process's state: `CU_PROCESS_STATE_*`.
    ///
    /// # Errors
    /// The driver's.
    pub fn state(&self, pid: c_int) -> Result<c_uint, Failed> {
        let mut state = 0;
        // SAFETY: the out-pointer is to a live local.
        self.checked::<symbol::cuCheckpointProcessGetState>(|function| unsafe { function(pid, &mut state) })?;
        Ok(state)
    }

    /// Holds the calls of a running process up. Those that have begun may end within a limit; it
    /// runs on if they do not.
    ///
    /// # Errors
    /// The driver's: `NOT_READY` after the limit.
    pub fn lock(&self, pid: c_int, limit: Duration) -> Result<(), Failed> {
        let milliseconds = c_uint::try_from(limit.as_millis()).unwrap_or(c_uint::MAX).max(1);
        let mut limit = CUcheckpointLockArgs { timeoutMs: milliseconds, ..CUcheckpointLockArgs::default() };
        let place = (&raw mut limit).cast();
        // SAFETY: the driver reads a live structure.
        self.checked::<symbol::cuCheckpointProcessLock>(|function| unsafe { function(pid, place) })
    }

    /// Takes what a locked process has on GPUs.
    ///
    /// # Errors
    /// The driver's. The process stays locked.
    pub fn checkpoint(&self, pid: c_int) -> Result<(), Failed> {
        // SAFETY: the function has no arguments that it must be given.
        self.checked::<symbol::cuCheckpointProcessCheckpoint>(|function| unsafe { function(pid, null_mut()) })
    }

    /// Gives it back. The process is locked then.
    ///
    /// # Errors
    /// The driver's.
    pub fn restore(&self, pid: c_int) -> Result<(), Failed> {
        // SAFETY: as for a checkpoint.
        self.checked::<symbol::cuCheckpointProcessRestore>(|function| unsafe { function(pid, null_mut()) })
    }

    /// Lets a locked process run on.
    ///
    /// # Errors
    /// The driver's.
    pub fn unlock(&self, pid: c_int) -> Result<(), Failed> {
        // SAFETY: as for a checkpoint.
        self.checked::<symbol::cuCheckpointProcessUnlock>(|function| unsafe { function(pid, null_mut()) })
    }

    fn checked<S: symbol::Symbol>(
        &self,
        call: impl FnOnce(S::Function) -> wm_abi::CUresult,
    ) -> Result<(), Failed> {
        Named(self.0).checked::<S>(call)
    }
}
