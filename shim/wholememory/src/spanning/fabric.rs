//! What a rank needs to exchange rows with other islands: a stream of its own, events, the network
//! of all ranks, and memory.
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
use std::sync::Arc;
use std::time::{Duration, Instant};

use wm_abi::*;
use wm_driver::Api;

use crate::error::{Error, Result};
use crate::exchange::RankExchange;
use crate::kernels::Kernels;
use crate::nccl::link::{DEADLINE, NcclTransfer};
use crate::spanning::exit;
use crate::spanning::gpu::RankGpu;
use crate::spanning::meeting::{MeetingThread, RankMeeting};
use crate::spanning::memory::FixedMemory;
use crate::spanning::network::Network;
use crate::spanning::opening::{Opening, OpeningPlaces};
use crate::spanning::record::HEADER_WORDS;
use crate::spanning::watch::{RankWatch, WatchThread};
use crate::vocabulary::islands::Islands;

/// A wait looks without a pause at first.
const BUSY: Duration = Duration::from_micros(200);
const PAUSE: Duration = Duration::from_micros(20);

/// What a fabric needs of its communicator.
#[derive(Debug)]
pub struct FabricPlace {
    /// Where the rank's GPU work is done.
    pub gpu: RankGpu,
    /// The kernels of its context.
    pub kernels: Arc<Kernels>,
    /// The ranks' own connections.
    pub ranks: Arc<RankExchange>,
    /// Do calls return only when the rows of all ranks have moved?
    pub waits: bool,
}

/// See the file's text.
#[derive(Debug)]
pub struct Fabric {
    place: RankGpu,
    meeting: Option<MeetingThread>,
    network: Arc<Network>,
    /// Looks at the network while rows of returned calls are under way. Without it calls wait for
    /// them.
    watch: Option<WatchThread>,
    stream: CUstream,
    /// The caller's stream has come so far.
    ready: CUevent,
    /// This fabric's stream has come so far.
    passed: CUevent,
    opening: Option<Opening>,
    staging: Option<FixedMemory>,
    operations: u64,
    memories: u64,
    failures: u64,
}

impl Fabric {
    /// Begins to meet the other ranks. [`Fabric::meet`] waits for them. Memory is divided into
    /// `islands` islands at most.
    ///
    /// # Errors
    /// NCCL's and the driver's.
    pub fn begin(place: FabricPlace, invitation: RankMeeting, islands: usize) -> Result<Self> {
        let FabricPlace { gpu, kernels, ranks, waits } = place;
        let _entered = gpu.enter()?;
        let network = Arc::new(Network::new(gpu, ranks, kernels)?);
        let mut fabric = Self {
            place: gpu,
            meeting: None,
            watch: None,
            stream: CUstream::NULL,
            ready: CUevent::NULL,
            passed: CUevent::NULL,
            opening: None,
            staging: None,
            operations: 0,
            memories: 0,
            failures: 0,
            network,
        };
        let driver = gpu.driver;
        fabric.stream = driver.stream_create(CU_STREAM_NON_BLOCKING)?;
        fabric.ready = driver.event_create(CU_EVENT_DISABLE_TIMING)?;
        fabric.passed = driver.event_create(CU_EVENT_DISABLE_TIMING)?;
        let opening = Opening::new(gpu, islands, invitation.size, invitation.partners.clone())?;
        let gathered = opening.record_bytes();
        fabric.opening = Some(opening);
        if !waits {
            fabric.watch = Some(WatchThread::begin(&fabric.network)?);
            exit::before(&fabric.network);
        }
        fabric.meeting = Some(MeetingThread::begin(gpu, invitation, gathered)?);
        Ok(fabric)
    }

    /// Waits for the ranks.
    ///
    /// # Errors
    /// NCCL's; [`Error::Communication`] where a rank has ended or does not come.
    pub fn meet(&mut self) -> Result {
        let meeting = self.meeting.take().ok_or_else(|| Error::Logic("no ranks to meet".to_owned()))?;
        let link = RefCell::new(None);
        let met = self.wait(|| {
            link.replace(meeting.within(PAUSE)?);
            Ok(link.borrow().is_some())
        });
        if let Err(error) = met {
            // The other ranks are told first.
            self.network.lose(&error);
            meeting.abandon();
            return Err(error);
        }
        self.network.connect(link.into_inner());
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

    /// An operation was an error of all ranks, before anything passed.
    pub fn has_failed(&mut self) {
        self.failures += 1;
    }

    /// How many such operations there were: the same on all ranks.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// The messages by which the ranks of this island wait for each other, in the fabric's stream.
    pub fn meeting(&self) -> impl Iterator<Item = NcclTransfer> {
        self.opening.iter().flat_map(Opening::meeting)
    }

    /// Has memory for exchanges that need so many bytes. Waits for the rows of calls that have
    /// returned.
    ///
    /// # Errors
    /// The driver's; then there is as much as before. Those of [`Fabric::drain`].
    pub fn reserve(&mut self, bytes: u64) -> Result {
        if self.staging.as_ref().is_some_and(|staging| staging.bytes() >= bytes) {
            return Ok(());
        }
        self.drain()?;
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
        self.network.is_whole()
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
    pub fn tell(&mut self, header: [u64; HEADER_WORDS], islands: &Islands) -> Result<Vec<u64>> {
        let _entered = self.place.enter()?;
        let opening = self.opening()?;
        opening.write(header);
        self.network.group(Some(opening.gather()), opening.transfers(islands), self.stream)?;
        self.wait(|| self.network.is_ready())?;
        self.mark()?;
        self.wait(|| Ok(self.place.driver.event_query(self.passed)?))?;
        Ok(opening.read())
    }

    fn mark(&self) -> Result {
        Ok(self.place.driver.event_record(self.passed, self.stream)?)
    }

    /// Rows of a call begin to pass. [`Fabric::return_to`] or a loss ends it.
    pub fn begin_rows(&self) {
        if let Some(watch) = &self.watch {
            watch.passes();
        }
    }

    /// Puts transfers into this fabric's stream, as one group.
    ///
    /// # Errors
    /// NCCL's; [`Error::Communication`] where a rank has ended.
    pub fn pass(&self, transfers: &[NcclTransfer]) -> Result {
        if transfers.is_empty() {
            return Ok(());
        }
        let _entered = self.place.enter()?;
        self.network.group(None, transfers.iter().copied(), self.stream)?;
        self.wait(|| self.network.is_ready())?;
        self.mark()
    }

    /// Ends a call, whose work in a stream is behind its rows: the caller's stream waits for the
    /// work of all ranks. So a rank whose stream is here may leave, because no rank has rows under
    /// way. Waits for it as well, if calls do. All ranks call.
    ///
    /// # Errors
    /// NCCL's; [`Error::Communication`] where a rank has ended.
    pub fn return_to(&self, caller: CUstream, stream: CUstream) -> Result {
        let Some(watch) = &self.watch else { return self.finish(stream) };
        self.end(stream)?;
        let _entered = self.place.enter()?;
        self.network.end_call(watch.number(), self.stream)?;
        self.mark()?;
        self.before(caller)?;
        watch.returns();
        Ok(())
    }

    /// Waits for the work in a stream so far, at all ranks: when this returns, no rank has rows
    /// under way, so each rank may leave. All ranks call.
    ///
    /// # Errors
    /// NCCL's; [`Error::Communication`] where a rank has ended.
    pub fn finish(&self, stream: CUstream) -> Result {
        self.end(stream)?;
        let _entered = self.place.enter()?;
        self.wait(|| Ok(self.place.driver.event_query(self.passed)?))
    }

    /// A barrier of all ranks in this fabric's stream, behind the work in a stream so far.
    fn end(&self, stream: CUstream) -> Result {
        self.after(stream)?;
        let _entered = self.place.enter()?;
        self.network.group(Some(self.opening()?.barrier()), [], self.stream)?;
        self.wait(|| self.network.is_ready())?;
        self.mark()
    }

    /// Waits for the rows of all calls that have returned, at all ranks.
    ///
    /// # Errors
    /// [`Error::Communication`] where a rank was lost meanwhile: then this rank's network is, too.
    pub fn drain(&self) -> Result {
        if !self.network.is_own() {
            return Ok(());
        }
        let _entered = self.place.enter()?;
        self.wait(|| self.network.have_rows_come()).inspect_err(|error| {
            self.network.lose(error);
        })
    }

    fn wait(&self, is_done: impl Fn() -> Result<bool>) -> Result {
        let mut watch = RankWatch::new(self.network.patience());
        loop {
            if is_done().map_err(|error| self.network.reason(error))? {
                return Ok(());
            }
            watch.look(&self.network)?;
            if watch.elapsed() < BUSY { std::thread::yield_now() } else { std::thread::sleep(PAUSE) }
        }
    }

    /// Gives up, for all ranks: NCCL is aborted, so that this fabric's stream and the caller's go
    /// on. Returns whether nothing uses the operation's memory any more.
    pub fn give_up(&mut self, error: &Error, stream: CUstream) -> bool {
        let Ok(_entered) = self.place.enter() else { return false };
        let is_over = self.network.lose(error) && self.is_over(stream);
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
        if !self.network.is_own() {
            // The parent's GPU.
            std::mem::forget(self.staging.take());
            std::mem::forget(self.opening.take());
            return;
        }
        let Ok(_entered) = self.place.enter() else { return };
        if self.is_whole().is_ok() {
            let _lost = self.drain();
        }
        self.watch = None;
        self.network.end();
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
