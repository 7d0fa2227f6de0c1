//! A communicator of NCCL's: each call puts something into a stream. A call waits for another rank
//! only where both exchange something for the first time, which [`crate::spanning::meeting`] does
//! on a thread of its own.
//!
//! `NCCL_COMM_BLOCKING=0` of the user's makes calls return earlier, so [`NcclLink::is_ready`] says
//! whether they are done.
//!
//! Invariant: an end or an abort returns within its deadline. A communicator whose abort does not
//! return is left to a thread, with a line in the log.

use std::ffi::c_int;
use std::sync::mpsc;
use std::time::Duration;

use wm_abi::{CUdeviceptr, CUstream};

use super::abi::{BYTES, IN_PROGRESS, NcclConfig, NcclHandle, SUCCESS};
use super::library::{Nccl, UniqueId};
use crate::error::Result;

/// How long an abort, or an end in good order, may take.
pub const DEADLINE: Duration = Duration::from_secs(3);
/// Bytes of the stack of a thread that ends a communicator: NCCL's own code runs there.
const STACK: usize = 2 << 20;

/// Bytes that pass between this rank and another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NcclTransfer {
    /// The other rank.
    pub peer: usize,
    /// The bytes' address, on this rank's GPU.
    pub address: CUdeviceptr,
    /// How many bytes; not 0.
    pub bytes: u64,
    /// Do they leave this rank?
    pub is_sent: bool,
}

/// Bytes of each rank that all ranks get, by rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NcclGather {
    /// This rank's bytes, on its GPU.
    pub from: CUdeviceptr,
    /// Those of all ranks.
    pub to: CUdeviceptr,
    /// How many bytes a rank has.
    pub bytes: u64,
}

/// A communicator of NCCL's. Without an [end](NcclLink::end) it is aborted when it is dropped.
#[derive(Debug)]
pub struct NcclLink {
    nccl: &'static Nccl,
    handle: NcclHandle,
}

impl NcclLink {
    /// Meets the other ranks that have the id: waits for them. The GPU is that of the current
    /// context.
    ///
    /// # Errors
    /// NCCL's.
    pub fn begin(nccl: &'static Nccl, id: UniqueId, rank: usize, size: usize) -> Result<Self> {
        let (mut handle, config) = (NcclHandle(0), NcclConfig::blocking());
        // SAFETY: places are live locals.
        let code = unsafe { (nccl.init)(&mut handle, size as c_int, id, rank as c_int, &config) };
        let link = Self { nccl, handle };
        link.begun("ncclCommInitRankConfig", code).map(|()| link)
    }

    /// Is everything done that was begun by calls? Work in streams may go on.
    ///
    /// # Errors
    /// [`Error::Communication`]: the communicator's error, which may be another rank's end.
    pub fn is_ready(&self) -> Result<bool> {
        let mut state = SUCCESS;
        // SAFETY: the place is a live local, and the communicator lives.
        let code = unsafe { (self.nccl.async_error)(self.handle, &mut state) };
        match (code, state) {
            (SUCCESS, SUCCESS) => Ok(true),
            (SUCCESS | IN_PROGRESS, IN_PROGRESS) => Ok(false),
            (SUCCESS, state) => Err(self.nccl.error("NCCL", state)),
            (code, _) => Err(self.nccl.error("ncclCommGetAsyncError", code)),
        }
    }

    /// Puts a gather and transfers into a stream, as one group: they are made side by side.
    /// Transfers between two ranks meet in their order.
    ///
    /// # Errors
    /// NCCL's.
    pub fn group(
        &self,
        gather: Option<NcclGather>,
        transfers: impl IntoIterator<Item = NcclTransfer>,
        stream: CUstream,
    ) -> Result {
        let Nccl { group_start, group_end, .. } = self.nccl;
        // SAFETY: a function without arguments.
        self.begun("ncclGroupStart", unsafe { group_start() })?;
        let added = gather.map_or(Ok(()), |gather| self.gather(gather, stream));
        let transferred = || transfers.into_iter().try_for_each(|transfer| self.transfer(transfer, stream));
        let added = added.and_then(|()| transferred());
        // SAFETY: as above. A group that was started is ended on all ways.
        let ended = self.begun("ncclGroupEnd", unsafe { group_end() });
        added.and(ended)
    }

    fn transfer(&self, transfer: NcclTransfer, stream: CUstream) -> Result {
        let NcclTransfer { peer, address, bytes, is_sent } = transfer;
        let (count, peer) = (bytes as usize, peer as c_int);
        // SAFETY: the memory is the operation's, which lives until the stream has passed, or until
        // the communicator was aborted.
        let (function, code) = unsafe {
            if is_sent {
                ("ncclSend", (self.nccl.send)(address as *const _, count, BYTES, peer, self.handle, stream))
            } else {
                ("ncclRecv", (self.nccl.receive)(address as *mut _, count, BYTES, peer, self.handle, stream))
            }
        };
        self.begun(function, code)
    }

    fn gather(&self, gather: NcclGather, stream: CUstream) -> Result {
        let NcclGather { from, to, bytes } = gather;
        let (count, from, to) = (bytes as usize, from as *const _, to as *mut _);
        // SAFETY: as in `transfer`.
        let code = unsafe { (self.nccl.all_gather)(from, to, count, BYTES, self.handle, stream) };
        self.begun("ncclAllGather", code)
    }

    fn begun(&self, function: &str, code: c_int) -> Result {
        match code {
            SUCCESS | IN_PROGRESS => Ok(()),
            code => Err(self.nccl.error(function, code)),
        }
    }

    /// Frees the streams and ends, whatever the other ranks do. False if that took too long: then
    /// memory of transfers may still be in use.
    pub fn abort(self) -> bool {
        self.leave().abort()
    }

    /// The communicator, to be aborted while another thread is inside a call for it.
    pub fn abortable(&self) -> AbortableLink {
        AbortableLink { nccl: self.nccl, handle: self.handle }
    }

    /// The same of a communicator that has no other owner any more.
    pub fn leave(self) -> AbortableLink {
        let left = self.abortable();
        std::mem::forget(self);
        left
    }

    /// Ends in good order, after the work in streams. A communicator whose end takes too long is
    /// left as it is.
    pub fn end(self) {
        let AbortableLink { nccl, handle } = self.leave();
        within_deadline("ncclCommDestroy", move || {
            // SAFETY: nothing else uses the communicator any more.
            unsafe {
                match (nccl.finalize)(handle) {
                    SUCCESS => (nccl.destroy)(handle),
                    _ => (nccl.abort)(handle),
                };
            }
        });
    }
}

impl Drop for NcclLink {
    fn drop(&mut self) {
        self.abortable().abort();
    }
}

/// A communicator of NCCL's that may be aborted, once.
#[derive(Debug, Clone, Copy)]
pub struct AbortableLink {
    nccl: &'static Nccl,
    handle: NcclHandle,
}

impl AbortableLink {
    /// As [`NcclLink::abort`]. A call of another thread that does not return comes to its end.
    pub fn abort(self) -> bool {
        let Self { nccl, handle } = self;
        if handle == NcclHandle(0) {
            return true;
        }
        within_deadline("ncclCommAbort", move || {
            // SAFETY: at most one call of another thread uses the communicator, which NCCL allows
            // for an abort.
            unsafe { (nccl.abort)(handle) };
        })
    }
}

/// Makes a call in a detached thread of its own, which takes no signal of the program's. Returns
/// whether it came back in time.
fn within_deadline(function: &'static str, call: impl FnOnce() + Send + 'static) -> bool {
    let (told, heard) = mpsc::channel();
    let body = move || {
        call();
        let _gone = told.send(());
    };
    let started = wm_driver::thread::spawn(c"wm-nccl-end", STACK, body);
    let returned = started.is_ok() && heard.recv_timeout(DEADLINE).is_ok();
    if !returned {
        log::warn!(
            "{function} did not return within {DEADLINE:?}: the communicator of NCCL is left as it is"
        );
    }
    returned
}
