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

use std::time::{Duration, Instant};

use wm_abi::*;
use wm_driver::Api;
use wm_driver::api::Named;
use wm_driver::api::scope::{Current, Relaxed};

use crate::error::{Error, Result};
use crate::nccl::library::{Nccl, UniqueId};
use crate::nccl::link::{DEADLINE, NcclLink, NcclTransfer};
use crate::spanning::memory::FixedMemory;
use crate::spanning::record::{self, HEADER_WORDS};

/// A rank that has ended may have sent all that this one waits for: it arrives within this time.
const GRACE: Duration = Duration::from_millis(500);
/// How often a wait looks at the other ranks.
const WATCH: Duration = Duration::from_millis(2);
/// A wait looks without a pause at first.
const BUSY: Duration = Duration::from_micros(200);
const PAUSE: Duration = Duration::from_micros(20);

/// Says whether all ranks are still there.
pub type Watch<'a> = &'a dyn Fn() -> Result;

/// Where a rank's GPU work is done.
#[derive(Debug, Clone, Copy)]
pub struct RankPlace {
    /// The driver.
    pub driver: Named<'static>,
    /// The GPU.
    pub device: CUdevice,
    /// The context.
    pub context: CUcontext,
}

/// See the file's text.
#[derive(Debug)]
pub struct Fabric {
    place: RankPlace,
    process: u32,
    /// How long ranks wait for each other.
    patience: Duration,
    /// How many islands a record has counts for.
    islands: usize,
    link: Option<NcclLink>,
    /// Why there is no link any more.
    lost: Option<Error>,
    stream: CUstream,
    /// The caller's stream has come so far.
    ready: CUevent,
    /// This fabric's stream has come so far.
    passed: CUevent,
    records: Option<Records>,
    staging: Option<FixedMemory>,
    operations: u64,
    memories: u64,
}

/// Where records lie: this rank's and those of all, on the GPU and in pinned memory.
#[derive(Debug)]
struct Records {
    words: usize,
    ranks: usize,
    device: FixedMemory,
    pinned: *mut u64,
}

// SAFETY: the pointer is to memory of the driver's, which any thread may use; calls that do have
// the fabric for themselves.
unsafe impl Send for Records {}

impl Records {
    fn new(place: RankPlace, islands: usize, ranks: usize) -> Result<Self> {
        let words = record::words(islands);
        let bytes = (words * (ranks + 1) * size_of::<u64>()) as u64;
        let device = FixedMemory::new(place.driver, place.device, bytes)?;
        let pinned = place.driver.mem_host_alloc(bytes as usize, 0)?.cast();
        Ok(Self { words, ranks, device, pinned })
    }

    fn bytes(&self) -> usize {
        self.words * size_of::<u64>()
    }

    /// The address of all ranks' records on the GPU, behind this rank's own.
    fn all(&self) -> CUdeviceptr {
        self.device.address() + self.bytes() as u64
    }
}

impl Fabric {
    /// Begins to meet the other ranks that have the id. [`Fabric::meet`] waits for them.
    ///
    /// # Errors
    /// NCCL's and the driver's.
    pub fn begin(
        place: RankPlace,
        patience: Duration,
        (nccl, id): (&'static Nccl, UniqueId),
        (rank, size): (usize, usize),
        islands: usize,
    ) -> Result<Self> {
        let mut fabric = Self {
            place,
            process: std::process::id(),
            patience,
            islands,
            link: None,
            lost: None,
            stream: CUstream::NULL,
            ready: CUevent::NULL,
            passed: CUevent::NULL,
            records: None,
            staging: None,
            operations: 0,
            memories: 0,
        };
        let (_current, _relaxed) = fabric.enter()?;
        let driver = place.driver;
        fabric.stream = driver.stream_create(CU_STREAM_NON_BLOCKING)?;
        fabric.ready = driver.event_create(CU_EVENT_DISABLE_TIMING)?;
        fabric.passed = driver.event_create(CU_EVENT_DISABLE_TIMING)?;
        fabric.records = Some(Records::new(place, islands, size)?);
        fabric.link = Some(NcclLink::begin(nccl, id, rank, size)?);
        Ok(fabric)
    }

    /// Waits for the ranks.
    ///
    /// # Errors
    /// NCCL's; [`Error::Communication`] where a rank has ended or does not come.
    pub fn meet(&self, watch: Watch<'_>) -> Result {
        let (_current, _relaxed) = self.enter()?;
        self.wait(watch, || self.link()?.is_ready())
    }

    /// How many islands a record has counts for.
    pub fn islands(&self) -> usize {
        self.islands
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
        let (_current, _relaxed) = self.enter()?;
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

    fn enter(&self) -> Result<(Current<'static>, Relaxed<'static>)> {
        let RankPlace { driver, context, .. } = self.place;
        let current = Current::make(driver.0, context);
        let current = current
            .map_err(|code| Error::Cuda(format!("the communicator's context is not usable: {code}")))?;
        Ok((current, Relaxed::always(driver.0)))
    }

    /// Lets this fabric's stream wait for what is in the caller's.
    ///
    /// # Errors
    /// The driver's.
    pub fn after(&self, stream: CUstream) -> Result {
        let (_current, _relaxed) = self.enter()?;
        let driver = self.place.driver;
        driver.event_record(self.ready, stream)?;
        Ok(driver.stream_wait_event(self.stream, self.ready)?)
    }

    /// Lets the caller's stream wait for what has been passed so far.
    ///
    /// # Errors
    /// The driver's.
    pub fn before(&self, stream: CUstream) -> Result {
        let (_current, _relaxed) = self.enter()?;
        Ok(self.place.driver.stream_wait_event(stream, self.passed)?)
    }

    /// Tells all ranks this one's record, and returns those of all. `counts` is the address of the
    /// GPU's counts, of `count` islands; 0 where there are none. Waits.
    ///
    /// # Errors
    /// NCCL's and the driver's; [`Error::Communication`] where a rank has ended or does not call.
    pub fn tell(
        &mut self,
        header: [u64; HEADER_WORDS],
        (counts, count): (CUdeviceptr, usize),
        watch: Watch<'_>,
    ) -> Result<Vec<u64>> {
        let (_current, _relaxed) = self.enter()?;
        let (driver, stream) = (self.place.driver, self.stream);
        let records = self.records.as_ref().ok_or_else(|| Error::Logic("no records".to_owned()))?;
        let (own, bytes) = (records.device.address(), records.bytes());
        let counted = if counts == 0 { 0 } else { count.min(self.islands) * size_of::<u64>() };
        // SAFETY: the pinned memory has room for this rank's record, and no copy is under way.
        unsafe {
            records.pinned.write_bytes(0, records.words);
            records.pinned.copy_from_nonoverlapping(header.as_ptr(), HEADER_WORDS);
        }
        let begun = || {
            // SAFETY: memory of this fabric's; the counts are the caller's scratch, which it keeps
            // until this returns.
            unsafe {
                driver.memcpy_htod_async(own, records.pinned.cast_const().cast(), bytes, stream)?;
                if counted > 0 {
                    let to = own + size_of_val(&header) as u64;
                    driver.memcpy_dtod_async(to, counts, counted, stream)?;
                }
            }
            self.link()?.all_gather(own, records.all(), bytes as u64, stream)?;
            self.wait(watch, || self.link()?.is_ready())?;
            let to = records.pinned.wrapping_add(records.words).cast();
            // SAFETY: memory of this fabric's, with room for all records.
            unsafe { driver.memcpy_dtoh_async(to, records.all(), bytes * records.ranks, stream)? };
            self.mark()
        };
        begun()?;
        self.wait(watch, || Ok(driver.event_query(self.passed)?))?;
        // SAFETY: the copy is done.
        let read = |at| unsafe { records.pinned.add(records.words + at).read() };
        Ok((0..records.words * records.ranks).map(read).collect())
    }

    fn mark(&self) -> Result {
        Ok(self.place.driver.event_record(self.passed, self.stream)?)
    }

    /// Puts transfers into this fabric's stream, as one group.
    ///
    /// # Errors
    /// NCCL's; [`Error::Communication`] where a rank has ended.
    pub fn pass(&self, transfers: &[NcclTransfer], watch: Watch<'_>) -> Result {
        let (_current, _relaxed) = self.enter()?;
        if !transfers.is_empty() {
            self.link()?.transfer(transfers.iter().copied(), self.stream)?;
            self.wait(watch, || self.link()?.is_ready())?;
        }
        self.mark()
    }

    /// Waits for the work in the caller's stream so far, at all ranks: when this returns, no rank
    /// has rows under way, so each rank may leave. All ranks call.
    ///
    /// # Errors
    /// NCCL's; [`Error::Communication`] where a rank has ended.
    pub fn finish(&self, stream: CUstream, watch: Watch<'_>) -> Result {
        self.after(stream)?;
        let (_current, _relaxed) = self.enter()?;
        let records = self.records.as_ref().ok_or_else(|| Error::Logic("no records".to_owned()))?;
        let (own, bytes) = (records.device.address(), records.bytes() as u64);
        // The bytes are of no use. The end of the collective call is.
        self.link()?.all_gather(own, records.all(), bytes, self.stream)?;
        self.wait(watch, || self.link()?.is_ready())?;
        self.mark()?;
        self.before(stream)?;
        self.place.driver.event_record(self.ready, stream)?;
        self.wait(watch, || Ok(self.place.driver.event_query(self.ready)?))
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
                let seen = self.link().and_then(NcclLink::is_ready).map(drop).and_then(|()| watch());
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
        let Ok((_current, _relaxed)) = self.enter() else { return false };
        let is_over = self.link.take().is_none_or(NcclLink::abort) && self.is_over(stream);
        if !is_over {
            // Something may still write there.
            std::mem::forget(self.staging.take());
            std::mem::forget(self.records.take());
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
            std::mem::forget(self.records.take());
            return;
        }
        let Ok((_current, _relaxed)) = self.enter() else { return };
        if let Some(link) = self.link.take() {
            link.end();
        }
        let driver = self.place.driver;
        if let Some(records) = self.records.take() {
            // SAFETY: made by the driver; its last copy is done.
            let _ = unsafe { driver.mem_free_host(records.pinned.cast()) };
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
