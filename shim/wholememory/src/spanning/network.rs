//! A rank's connection to the ranks of other islands: NCCL's communicator, the connections by
//! which ranks see each other's end, and the end of both when a rank is lost.
//!
//! A call may have returned while its rows are under way, and the caller's stream waits for them.
//! Then a loss is an error of the GPU's context, as that of any work in a stream: behind the rows a
//! kernel fails. If NCCL alone were aborted, the caller's kernels would go on without their rows.
//!
//! Invariants:
//! * It is lost once, by the first thread that sees why, and refuses from then on.
//! * No call of the driver is made to look at it or to lose it: another thread's call may wait for
//!   rows, and let no other one into the driver.
//! * In a forked child neither NCCL nor the GPU is touched.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use wm_abi::*;
use wm_driver::Api;

use crate::error::{Error, Result};
use crate::exchange::RankExchange;
use crate::kernels::Kernels;
use crate::nccl::link::{AbortableLink, DEADLINE, NcclGather, NcclLink, NcclTransfer};
use crate::spanning::flags::ReturnFlags;
use crate::spanning::gpu::RankGpu;

/// The pause between two looks at something that ends soon.
const PAUSE: Duration = Duration::from_micros(100);

/// See the file's text.
#[derive(Debug)]
pub(super) struct Network {
    gpu: RankGpu,
    process: u32,
    ranks: Arc<RankExchange>,
    kernels: Arc<Kernels>,
    /// Held for calls of NCCL's. `None` before ranks have met, and after a loss.
    link: Mutex<Option<NcclLink>>,
    /// The same, for a loss while a call of NCCL's does not return.
    abortable: OnceLock<AbortableLink>,
    /// Why there is no link any more.
    lost: OnceLock<Error>,
    /// Held while it is lost; whether NCCL uses no memory any more.
    is_over: Mutex<Option<bool>>,
    flags: Option<ReturnFlags>,
    /// Calls that return, so far.
    ended: AtomicU64,
    /// The rows of all calls that have returned have come.
    returned: CUevent,
}

impl Network {
    /// Without NCCL's communicator, which comes when ranks have met. The context is current.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn new(gpu: RankGpu, ranks: Arc<RankExchange>, kernels: Arc<Kernels>) -> Result<Self> {
        let mut network = Self {
            gpu,
            process: std::process::id(),
            ranks,
            kernels,
            link: Mutex::new(None),
            abortable: OnceLock::new(),
            lost: OnceLock::new(),
            is_over: Mutex::new(None),
            flags: None,
            ended: AtomicU64::new(0),
            returned: CUevent::NULL,
        };
        network.returned = gpu.driver.event_create(CU_EVENT_DISABLE_TIMING)?;
        network.flags = Some(ReturnFlags::new(gpu.driver)?);
        Ok(network)
    }

    /// How long ranks wait for each other.
    pub(super) fn patience(&self) -> Duration {
        self.ranks.patience()
    }

    /// The ranks have met.
    pub(super) fn connect(&self, link: Option<NcclLink>) {
        if let Some(link) = &link {
            self.abortable.get_or_init(|| link.abortable());
        }
        *self.link() = link;
    }

    fn link(&self) -> MutexGuard<'_, Option<NcclLink>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is it usable?
    ///
    /// # Errors
    /// Why it was lost; [`Error::Communication`] before ranks have met.
    pub(super) fn is_whole(&self) -> Result {
        self.link().as_ref().map(drop).ok_or_else(|| self.gone())
    }

    /// Why it was lost, if an error came after that.
    pub(super) fn reason(&self, error: Error) -> Error {
        self.lost.get().cloned().unwrap_or(error)
    }

    fn gone(&self) -> Error {
        self.reason(Error::Communication("memory that spans islands was closed".to_owned()))
    }

    /// Puts a gather and transfers into a stream, as one group.
    ///
    /// # Errors
    /// NCCL's, and those of [`Network::is_whole`].
    pub(super) fn group(
        &self,
        gather: Option<NcclGather>,
        transfers: impl IntoIterator<Item = NcclTransfer>,
        stream: CUstream,
    ) -> Result {
        let link = self.link();
        link.as_ref().ok_or_else(|| self.gone())?.group(gather, transfers, stream)
    }

    /// Is everything done that was begun by calls of NCCL's? Work in streams may go on.
    ///
    /// # Errors
    /// NCCL's, and those of [`Network::is_whole`].
    pub(super) fn is_ready(&self) -> Result<bool> {
        let link = self.link();
        link.as_ref().ok_or_else(|| self.gone())?.is_ready()
    }

    /// Is any rank lost, as far as this one sees? Does not wait.
    ///
    /// # Errors
    /// NCCL's; [`Error::Communication`] where a rank has ended; why the network was lost.
    pub(super) fn check(&self) -> Result {
        if let Some(error) = self.lost.get() {
            return Err(error.clone());
        }
        match self.link.try_lock() {
            Ok(link) => link.as_ref().map_or(Ok(true), NcclLink::is_ready)?,
            Err(TryLockError::Poisoned(link)) => {
                link.into_inner().as_ref().map_or(Ok(true), NcclLink::is_ready)?
            }
            // A call of NCCL's, which tells its own error.
            Err(TryLockError::WouldBlock) => true,
        };
        self.ranks.check()
    }

    /// Puts the end of a call's rows into a stream: what comes behind it there has its rows. The
    /// context is current.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn end_call(&self, number: u64, stream: CUstream) -> Result {
        self.ended.store(number, Relaxed);
        if let Some(flags) = &self.flags {
            flags.end_call(number, &self.kernels, stream)?;
        }
        Ok(self.gpu.driver.event_record(self.returned, stream)?)
    }

    /// The last call that has returned whose rows have come. Asks no driver.
    pub(super) fn come(&self) -> u64 {
        self.flags.as_ref().map_or(0, ReturnFlags::come)
    }

    /// Have the rows of all returned calls come? For threads of the program: another thread's call
    /// of the driver may let this one wait.
    ///
    /// # Errors
    /// The context's.
    pub(super) fn have_rows_come(&self) -> Result<bool> {
        let _entered = self.gpu.enter()?;
        Ok(self.gpu.driver.event_query(self.returned)?)
    }

    /// Ends the connection for all ranks, and lets this rank's streams go on, or fail where rows of
    /// a call are missing that has returned. Returns whether NCCL uses no memory any more.
    pub(super) fn lose(&self, error: &Error) -> bool {
        let mut is_over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        *is_over.get_or_insert_with(|| {
            self.lost.get_or_init(|| error.clone());
            if self.come() < self.ended.load(Relaxed) {
                log::error!(
                    "rows of a call that has returned are missing, so the GPU's context ends: {error} \
                     (WMSHIM_WHOLEMEMORY_WAIT=on makes it an error of the call)"
                );
            }
            // Kernels see it before NCCL's let them run.
            if let Some(flags) = &self.flags {
                flags.lose();
            }
            let is_told = self.ranks.try_break_off(error);
            let is_aborted = self.abort();
            if !is_told {
                self.ranks.break_off(error);
            }
            is_aborted
        })
    }

    /// Aborts NCCL's communicator, if need be beside a call that does not return. That call then
    /// ends with an error.
    fn abort(&self) -> bool {
        let deadline = Instant::now() + DEADLINE;
        let link = loop {
            match self.link.try_lock() {
                Ok(mut link) => break link.take(),
                Err(TryLockError::Poisoned(link)) => break link.into_inner().take(),
                Err(TryLockError::WouldBlock) if Instant::now() > deadline => {
                    return self.abortable.get().copied().is_none_or(AbortableLink::abort);
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            }
        };
        link.is_none_or(NcclLink::abort)
    }

    /// Ends NCCL's communicator in good order, after the work in streams. The context is current.
    pub(super) fn end(&self) {
        if let Some(link) = self.link().take() {
            link.end();
        }
    }

    /// Is this the process that made it?
    pub(super) fn is_own(&self) -> bool {
        std::process::id() == self.process
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let link = self.link().take();
        let flags = self.flags.take();
        if !self.is_own() {
            // The parent's GPU and connections.
            std::mem::forget((link, flags));
            return;
        }
        let Ok(_entered) = self.gpu.enter() else { return };
        match link {
            // Aborted beside the call that kept it.
            Some(link) if self.lost.get().is_some() => std::mem::forget(link),
            link => drop(link),
        }
        if let Some(flags) = flags {
            flags.free();
        }
        if self.returned != CUevent::NULL {
            let _ = self.gpu.driver.event_destroy(self.returned);
        }
    }
}
