//! The begin of a communicator of NCCL's, on a thread of its own: NCCL blocks until all ranks have
//! come, and until two ranks that exchange something for the first time are connected. Later no
//! call waits for another rank, so operations make their calls on the caller's thread.
//!
//! A communicator that does not block would not need this thread. NCCL begins a thread for each of
//! its groups instead, which takes longer than a small message.
//!
//! Invariant: the thread owns the communicator and the memory of the first exchange until it hands
//! the communicator over. If its caller has given up, it aborts the communicator. A call of NCCL's
//! that never returns keeps this thread, and nothing of the caller's.

use std::convert::Infallible;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use wm_abi::*;
use wm_driver::Api;

use crate::error::{Error, Result};
use crate::nccl::library::{Nccl, UniqueId};
use crate::nccl::link::{DEADLINE, NcclGather, NcclLink, NcclTransfer};
use crate::spanning::exit;
use crate::spanning::gpu::RankGpu;
use crate::spanning::memory::FixedMemory;
use crate::spanning::rails::Partners;

/// Bytes of the thread's stack: NCCL looks for the machine's topology there.
const STACK: usize = 8 << 20;
/// The pause between two looks at the first exchange.
const PAUSE: Duration = Duration::from_micros(100);
/// Bytes of each message of the first exchange.
const BYTES: u64 = 256;

/// What a rank needs to meet the others.
#[derive(Debug)]
pub struct RankMeeting {
    /// NCCL.
    pub nccl: &'static Nccl,
    /// The communicator's name, which all ranks have.
    pub id: UniqueId,
    /// This rank.
    pub rank: usize,
    /// How many ranks there are.
    pub size: usize,
    /// The ranks that this one exchanges messages with.
    pub partners: Partners,
}

/// A communicator that begins.
#[derive(Debug)]
pub(super) struct MeetingThread {
    link: Receiver<Result<NcclLink>>,
    /// Closed when the thread's calls of NCCL's have ended.
    ended: Receiver<Infallible>,
    caller: Arc<()>,
}

impl MeetingThread {
    /// Begins to meet the other ranks; operations will gather `gathered` bytes of each.
    ///
    /// # Errors
    /// [`Error::System`] where no thread begins.
    pub(super) fn begin(place: RankGpu, invitation: RankMeeting, gathered: u64) -> Result<Self> {
        let (told, link) = mpsc::channel();
        let (open, ended) = mpsc::channel();
        let caller = Arc::new(());
        let seen = Arc::downgrade(&caller);
        // A link that no caller receives is dropped, which aborts the communicator.
        let body = move || {
            drop(told.send(meet(place, &invitation, gathered, &seen)));
            drop(open);
        };
        wm_driver::thread::spawn(c"wm-nccl-meet", STACK, body)
            .map_err(|error| Error::System(format!("a thread to begin NCCL: {error}")))?;
        Ok(Self { link, ended, caller })
    }

    /// The communicator, if it is connected within a time.
    ///
    /// # Errors
    /// NCCL's and the driver's.
    pub(super) fn within(&self, time: Duration) -> Result<Option<NcclLink>> {
        match self.link.recv_timeout(time) {
            Ok(link) => link.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                Err(Error::Communication("the thread that begins NCCL has ended".to_owned()))
            }
        }
    }

    /// Gives up, and does not wait for the thread: NCCL may wait for a rank that is lost. The end
    /// of the process waits for it, until the deadline, because a process that exits while NCCL's
    /// own threads begin may crash.
    pub(super) fn abandon(self) {
        let Self { link, ended, caller } = self;
        drop(caller);
        // A communicator that was made meanwhile is aborted.
        drop(link);
        exit::before_end_of(ended, Instant::now() + DEADLINE);
    }
}

fn meet(place: RankGpu, invitation: &RankMeeting, gathered: u64, caller: &Weak<()>) -> Result<NcclLink> {
    let _entered = place.enter()?;
    let RankMeeting { nccl, id, rank, size, .. } = *invitation;
    let link = NcclLink::begin(nccl, id, rank, size)?;
    connect(place, &link, invitation, gathered, caller).map(|()| link)
}

/// Makes the messages of an operation for the first time, with no content.
fn connect(
    place: RankGpu,
    link: &NcclLink,
    invitation: &RankMeeting,
    gathered: u64,
    caller: &Weak<()>,
) -> Result {
    let RankGpu { driver, device, .. } = place;
    let records = gathered * (invitation.size as u64 + 1);
    let memory = FixedMemory::new(driver, device, records + 2 * BYTES)?;
    let own = memory.address();
    let gather = NcclGather { from: own, to: own + gathered, bytes: gathered };
    // Messages may share an address, as no rank reads them.
    let message = |peer: &usize, is_sent| NcclTransfer {
        peer: *peer,
        address: own + records + u64::from(is_sent) * BYTES,
        bytes: BYTES,
        is_sent,
    };
    let Partners { servers, clients, mates } = &invitation.partners;
    let sent = servers.iter().chain(mates).map(|peer| message(peer, true));
    let transfers = sent.chain(clients.iter().chain(mates).map(|peer| message(peer, false)));
    let stream = driver.stream_create(CU_STREAM_NON_BLOCKING)?;
    let exchanged = link.group(Some(gather), transfers, stream).and_then(|()| {
        while !link.is_ready()? || !driver.stream_query(stream)? {
            if caller.strong_count() == 0 {
                return Err(Error::Communication("the caller has given up".to_owned()));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    });
    if exchanged.is_err() {
        // NCCL may still write to it until the communicator is aborted.
        std::mem::forget(memory);
        return exchanged;
    }
    Ok(driver.stream_destroy(stream)?)
}

#[cfg(test)]
mod tests {
    //! Hazard (latency): a call that fails because a rank is lost waits for NCCL, which waits for
    //! that rank.
    use super::*;

    #[test]
    fn a_meeting_that_is_given_up_is_not_waited_for() {
        let (_told, link) = mpsc::channel();
        let (open, ended) = mpsc::channel();
        let begin = Instant::now();
        MeetingThread { link, ended, caller: Arc::new(()) }.abandon();
        assert!(begin.elapsed() < DEADLINE / 2, "{:?}", begin.elapsed());
        drop(open);
    }
}
