//! What a rank needs to exchange rows with other islands: a stream of its own, events, an NCCL
//! communicator of all ranks, and memory.
//!
//! The stream never blocks the caller's: events put both in order. Every wait looks at the event,
//! at NCCL's error and at the other ranks, and blocks in none.
//!
//! Invariants:
//! * One operation at a time; at most one group is on its way to the stream.
//! * A fabric that has lost a rank is aborted, so that all streams are free again, and refuses from
//!   then on.
//! * It belongs to the process that made it: in a child nothing of it is touched.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use wm_abi::*;
use wm_driver::Api;

use crate::error::{Error, Result};
use crate::nccl::link::{DEADLINE, NcclLink, NcclTransfer};
use crate::spanning::gpu::RankGpu;
use crate::spanning::meeting::{MeetingThread, RankMeeting};
use crate::spanning::memory::FixedMemory;
use crate::spanning::opening::{Opening, OpeningPlaces};
use crate::spanning::record::HEADER_WORDS;
use crate::vocabulary::islands::Islands;

/// A rank that has ended may have sent all that this one waits for: it arrives within this time.
const GRACE: Duration = Duration::from_millis(500);
/// How often a wait looks at the other ranks.
const WATCH: Duration = Duration::from_millis(2);
/// A wait looks without a pause at first.
const BUSY: Duration = Duration::from_micros(200);
const PAUSE: Duration = Duration::from_micros(20);

/// Says whether all ranks are still there.
pub type Watch<'a> = &'a dyn Fn() -> Result;

/// See the file's text.
#[derive(Debug)]
pub struct Fabric {
    place: RankGpu,
    process: u32,
    /// How long ranks wait for each other.
    patience: Duration,
    meeting: Option<MeetingThread>,
    link: Option<NcclLink>,
    /// Why there is no link any more.
    lost: Option<Error>,
    stream: CUstream,
    /// The caller's stream has come so far.
    ready: CUevent,
    /// This fabric's stream has come so far.
    passed: CUevent,
    opening: Option<Opening>,
    staging: Option<FixedMemory>,
    operations: u64,
    memories: u64,
}

impl Fabric {
    /// Begins to meet the other ranks. [`Fabric::meet`] waits for them. Memory is divided into
    /// `islands` islands at most.
    ///
    /// # Errors
    /// NCCL's and the driver's.
    pub fn begin(
        place: RankGpu,
        patience: Duration,
        invitation: RankMeeting,
        islands: usize,
    ) -> Result<Self> {
        let mut fabric = Self {
            place,
            process: std::process::id(),
            patience,
            meeting: None,
            link: None,
            lost: None,
            stream: CUstream::NULL,
            ready: CUevent::NULL,
            passed: CUevent::NULL,
            opening: None,
            staging: None,
            operations: 0,
            memories: 0,
        };
        let _entered = place.enter()?;
        let driver = place.driver;
        fabric.stream = driver.stream_create(CU_STREAM_NON_BLOCKING)?;
        fabric.ready = driver.event_create(CU_EVENT_DISABLE_TIMING)?;
        fabric.passed = driver.event_create(CU_EVENT_DISABLE_TIMING)?;
        let opening = Opening::new(place, islands, invitation.size, invitation.partners.clone())?;
        let gathered = opening.record_bytes();
        fabric.opening = Some(opening);
        fabric.meeting = Some(MeetingThread::begin(place, invitation, gathered)?);
        Ok(fabric)
    }

    /// Waits for the ranks.
    ///
    /// # Errors
    /// NCCL's; [`Error::Communication`] where a rank has ended or does not come.
    pub fn meet(&mut self, watch: Watch<'_>) -> Result {
        let meeting = self.meeting.take().ok_or_else(|| Error::Logic("no ranks to meet".to_owned()))?;
        let link = RefCell::new(None);
        let met = self.wait(watch, || {
            link.replace(meeting.within(PAUSE)?);
            Ok(link.borrow().is_some())
        });
        if met.is_err() {
            meeting.abandon();
            return met;
        }
        self.link = link.into_inner();
        Ok(())
    }

    /// How many islands a record has counts for.
    pub fn islands(&self) -> usize {
        self.opening.as_ref().map_or(0, Opening::islands)
    }

    /// A number that no memory before has. All ranks make memory in the same order.
    pub fn number_of_memory(&mut self) -> u64 {
        self.memories += 1;
        self.memories
    }

    /// A number for an operation, the same on all ranks.
    pub fn number_of_operation(&mut self) -> u64 {
        self.operations += 1;
        self.operations
    }

    /// Has memory for exchanges that need so many bytes. No operation is under way.
    ///
    /// # Errors
    /// The driver's; then there is as much as before.
    pub fn reserve(&mut self, bytes: u64) -> Result {
        if self.staging.as_ref().is_some_and(|staging| staging.bytes() >= bytes) {
            return Ok(());
        }
        let _entered = self.place.enter()?;
        self.staging = Some(FixedMemory::new(self.place.driver, self.place.device, bytes)?);
        Ok(())
    }

    /// The address of that memory.
    ///
    /// # Errors
    /// [`Error::Logic`] before it was reserved.
    pub fn staging(&self) -> Result<CUdeviceptr> {
        let none = || Error::Logic("no memory for an exchange".to_owned());
        self.staging.as_ref().map(FixedMemory::address).ok_or_else(none)
    }

    /// Is it usable?
    ///
    /// # Errors
    /// Why a rank was lost.
    pub fn is_whole(&self) -> Result {
        self.link().map(drop)
    }

    fn link(&self) -> Result<&NcclLink> {
        let gone = || Error::Communication("memory that spans islands was closed".to_owned());
        self.link.as_ref().ok_or_else(|| self.lost.clone().unwrap_or_else(gone))
    }

    fn opening(&self) -> Result<&Opening> {
        self.opening.as_ref().ok_or_else(|| Error::Logic("no memory for records".to_owned()))
    }

    /// The places of the first messages' content, where no counts lie yet. The next
    /// [`Fabric::tell`] sends it.
    ///
    /// # Errors
    /// [`Error::Logic`] after a loss.
    pub fn begin_opening(&self) -> Result<OpeningPlaces> {
        self.opening().map(Opening::begin)
    }

    /// Bytes of the first numbers for a server: alike on all ranks.
    pub fn opening_bytes(&self) -> u64 {
        self.opening.as_ref().map_or(0, Opening::bytes)
    }

    /// The place of a client's first numbers, which came with its record.
    ///
    /// # Errors
    /// [`Error::Logic`] after a loss.
    pub fn first_numbers_of(&self, client: usize) -> Result<CUdeviceptr> {
        self.opening().map(|opening| opening.arriving(client))
    }

    /// This fabric's stream, in the communicator's context. It is never captured, and waits for no
    /// work but the operation's.
    pub fn stream(&self) -> CUstream {
        self.stream
    }

    /// Lets this fabric's stream wait for what is in another one.
    ///
    /// # Errors
    /// The driver's.
    pub fn after(&self, stream: CUstream) -> Result {
        if stream == self.stream {
            return Ok(());
        }
        let _entered = self.place.enter()?;
        let driver = self.place.driver;
        driver.event_record(self.ready, stream)?;
        Ok(driver.stream_wait_event(self.stream, self.ready)?)
    }

    /// Lets another stream wait for what has been passed so far.
    ///
    /// # Errors
    /// The driver's.
    pub fn before(&self, stream: CUstream) -> Result {
        if stream == self.stream {
            return Ok(());
        }
        let _entered = self.place.enter()?;
        Ok(self.place.driver.stream_wait_event(stream, self.passed)?)
    }

    /// Tells all ranks this one's record, and returns those of all; the first numbers for the
    /// other `islands` pass with them. Waits.
    ///
    /// # Errors
    /// NCCL's; [`Error::Communication`] where a rank has ended or does not call.
    pub fn tell(
        &mut self,
        header: [u64; HEADER_WORDS],
        islands: &Islands,
        watch: Watch<'_>,
    ) -> Result<Vec<u64>> {
        let _entered = self.place.enter()?;
        let opening = self.opening()?;
        opening.write(header);
        self.link()?.group(Some(opening.gather()), opening.transfers(islands), self.stream)?;
        self.wait(watch, || self.link()?.is_ready())?;
        self.mark()?;
        self.wait(watch, || Ok(self.place.driver.event_query(self.passed)?))?;
        Ok(opening.read())
    }

    fn mark(&self) -> Result {
        Ok(self.place.driver.event_record(self.passed, self.stream)?)
    }

    /// Puts transfers into this fabric's stream, as one group.
    ///
    /// # Errors
    /// NCCL's; [`Error::Communication`] where a rank has ended.
    pub fn pass(&self, transfers: &[NcclTransfer], watch: Watch<'_>) -> Result {
        if transfers.is_empty() {
            return Ok(());
        }
        let _entered = self.place.enter()?;
        self.link()?.group(None, transfers.iter().copied(), self.stream)?;
        self.wait(watch, || self.link()?.is_ready())?;
        self.mark()
    }

    /// Waits for the work in a stream so far, at all ranks: when this returns, no rank has rows
    /// under way, so each rank may leave. All ranks call.
    ///
    /// # Errors
    /// NCCL's; [`Error::Communication`] where a rank has ended.
    pub fn finish(&self, stream: CUstream, watch: Watch<'_>) -> Result {
        self.after(stream)?;
        let _entered = self.place.enter()?;
        // The bytes are of no use. The end of the collective call is.
        self.link()?.group(Some(self.opening()?.gather()), [], self.stream)?;
        self.wait(watch, || self.link()?.is_ready())?;
        self.mark()?;
        self.wait(watch, || Ok(self.place.driver.event_query(self.passed)?))
    }

    fn wait(&self, watch: Watch<'_>, is_done: impl Fn() -> Result<bool>) -> Result {
        let start = Instant::now();
        let (mut looked, mut ended) = (start, None);
        loop {
            if is_done()? {
                return Ok(());
            }
            let now = Instant::now();
            if now - looked >= WATCH && ended.is_none() {
                looked = now;
                // An error of NCCL's, or an end that this rank sees.
                let ready = self.link.as_ref().map_or(Ok(true), NcclLink::is_ready);
                let seen = ready.and_then(|_| watch());
                ended = seen.err().map(|error| (now, error));
            }
            match &ended {
                Some((since, error)) if now - *since >= GRACE => return Err(error.clone()),
                _ if now - start >= self.patience => {
                    return Err(Error::Communication(format!(
                        "ranks of other islands did not answer within {:?}",
                        self.patience
                    )));
                }
                _ => {}
            }
            if now - start < BUSY { std::thread::yield_now() } else { std::thread::sleep(PAUSE) }
        }
    }

    /// Gives up: NCCL is aborted, so that this fabric's stream and the caller's go on. Returns
    /// whether nothing uses the operation's memory any more.
    pub fn give_up(&mut self, error: &Error, stream: CUstream) -> bool {
        self.lost.get_or_insert_with(|| error.clone());
        let Ok(_entered) = self.place.enter() else { return false };
        let is_over = self.link.take().is_none_or(NcclLink::abort) && self.is_over(stream);
        if !is_over {
            // Something may still write there.
            std::mem::forget(self.staging.take());
            std::mem::forget(self.opening.take());
        }
        is_over
    }

    /// Has all work ended, or does it within the deadline?
    fn is_over(&self, stream: CUstream) -> bool {
        let driver = self.place.driver;
        let deadline = Instant::now() + DEADLINE;
        if driver.event_record(self.ready, stream).is_err() || self.mark().is_err() {
            return false;
        }
        while Instant::now() < deadline {
            let states = [self.ready, self.passed].map(|event| driver.event_query(event));
            if states.iter().all(|state| !matches!(state, Ok(false))) {
                return true;
            }
            std::thread::sleep(PAUSE);
        }
        false
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            // The parent's GPU and connections.
            std::mem::forget(self.link.take());
            std::mem::forget(self.staging.take());
            std::mem::forget(self.opening.take());
            return;
        }
        let Ok(_entered) = self.place.enter() else { return };
        if let Some(link) = self.link.take() {
            link.end();
        }
        let driver = self.place.driver;
        if let Some(opening) = self.opening.take() {
            let _ = opening.free(self.place);
        }
        self.staging = None;
        for event in [self.ready, self.passed] {
            if event != CUevent::NULL {
                let _ = driver.event_destroy(event);
            }
        }
        if self.stream != CUstream::NULL {
            let _ = driver.stream_destroy(self.stream);
        }
    }
}
