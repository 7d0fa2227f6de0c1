//! The driver as a copy over several links uses it: one small contract.
//!
//! The seam between policy and mechanism: a model of it runs the property tests under adversarial
//! scheduling and fails any call; [`table::TableDriver`] is the real one.
//!
//! Pre- and post-conditions that hold for every method:
//! * When a method returns, the calling thread's current context is the same as before.
//! * Streams are non-blocking, so only the methods here order them. Where a method takes a stream,
//!   it also takes a user's stream together with the user's context.
//! * Copies run in the order of their stream, and are asynchronous: the host end must be pinned.
//! * The program guarantees its addresses with its call: nothing here can check them, and a wrong
//!   one has the effect that it would have in the plain call.
//! * An `Err` means that nothing was enqueued. The code is the driver's own.

#[allow(unsafe_code, reason = "the one file that calls the driver")]
pub(crate) mod table;

use std::time::Duration;

use wm_abi::{CUcontext, CUdevice, CUevent, CUresult, CUstream};

use crate::vocabulary::machine::Survey;

/// Outcome of a driver call.
pub type DriverResult<T> = std::result::Result<T, CUresult>;

/// The link that a copy crosses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hop {
    /// A PCIe link, towards the device.
    HostToDevice,
    /// A PCIe link, towards the host.
    DeviceToHost,
    /// NVLink, by the engine of the device that the stream belongs to.
    DeviceToDevice,
}

/// One copy in a stream. Addresses are of the unified address space; the host's are among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// The link that it crosses.
    pub hop: Hop,
    /// First byte written.
    pub to: u64,
    /// First byte read.
    pub from: u64,
    /// Length.
    pub bytes: usize,
}

/// How a host thread waits for an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitMode {
    /// Asleep: for a wait by one of many threads.
    Sleeping,
    /// No thread waits for it: its time is read with [`CopyDriver::elapsed`].
    Timed,
    /// As the context's flags say, like the driver's own copies: the thread spins unless the
    /// program asked for sleep.
    Prompt,
}

/// The driver calls that copies make.
pub trait CopyDriver: Send + Sync {
    /// The devices that this process sees, and whose memory each of them can use.
    ///
    /// # Errors
    /// Those of the driver.
    fn survey(&self) -> DriverResult<Survey>;

    /// A new context on a device: ours alone, so that the program's operations on its own contexts
    /// do not affect it. It costs device memory and up to half a second.
    ///
    /// # Errors
    /// Those of the driver: a lost device, or one without memory for a context.
    fn open(&self, device: CUdevice) -> DriverResult<CUcontext>;

    /// Memory of a context's device: the free bytes and the total.
    ///
    /// # Errors
    /// Those of the driver.
    fn room(&self, context: CUcontext) -> DriverResult<(u64, u64)>;

    /// Ends a context that [`CopyDriver::open`] made. Nothing is in flight there.
    fn close(&self, context: CUcontext);

    /// A new non-blocking stream.
    ///
    /// # Errors
    /// Those of the driver.
    fn stream(&self, context: CUcontext) -> DriverResult<CUstream>;

    /// A new event.
    ///
    /// # Errors
    /// Those of the driver.
    fn event(&self, context: CUcontext, wake: WaitMode) -> DriverResult<CUevent>;

    /// Destroys events, and a stream that is empty, unless it is null.
    fn retire(&self, context: CUcontext, stream: CUstream, events: &[CUevent]);

    /// Memory on `device` that its own context and every later admitted device can use. The
    /// program's allocations and access rights stay as they are, because the target itself reads
    /// and writes the staging memory.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`, and those of the driver.
    fn staging(&self, device: CUdevice, context: CUcontext, bytes: usize) -> DriverResult<u64>;

    /// Lets another device use staging memory.
    ///
    /// # Errors
    /// Those of the driver: the devices do not reach each other.
    fn admit(&self, staging: u64, bytes: usize, device: CUdevice) -> DriverResult<()>;

    /// Pinned host memory near a device, which all devices reach. It belongs to no context, and its
    /// release waits for no work.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`, and those of the driver.
    fn buffer(&self, device: CUdevice, bytes: usize) -> DriverResult<u64>;

    /// Releases staging memory or a buffer. No copy may use it any more.
    fn discard(&self, address: u64, bytes: usize);

    /// Enqueues a copy.
    ///
    /// # Errors
    /// Those of the driver.
    fn copy(&self, context: CUcontext, stream: CUstream, transfer: Transfer) -> DriverResult<()>;

    /// Records an event of the stream's own context behind all work now in the stream.
    ///
    /// # Errors
    /// Those of the driver.
    fn record(&self, context: CUcontext, event: CUevent, stream: CUstream) -> DriverResult<()>;

    /// Makes later work of the stream wait for the last record of an event, of any context.
    ///
    /// # Errors
    /// Those of the driver.
    fn order(&self, context: CUcontext, stream: CUstream, event: CUevent) -> DriverResult<()>;

    /// Has the device reached the last record of an event?
    ///
    /// # Errors
    /// A sticky error of the context.
    fn passed(&self, context: CUcontext, event: CUevent) -> DriverResult<bool>;

    /// Is all work of a stream over?
    ///
    /// # Errors
    /// A sticky error of the context.
    fn is_empty(&self, context: CUcontext, stream: CUstream) -> DriverResult<bool>;

    /// Time between the last records of two [`WaitMode::Timed`] events of one context. The device
    /// has reached both.
    ///
    /// # Errors
    /// Those of the driver.
    fn elapsed(&self, context: CUcontext, from: CUevent, to: CUevent) -> DriverResult<Duration>;

    /// Blocks the thread until the device has reached the last record of an event.
    ///
    /// # Errors
    /// A sticky error of the context.
    fn wait(&self, context: CUcontext, event: CUevent) -> DriverResult<()>;

    /// Blocks the thread until a stream is empty.
    ///
    /// # Errors
    /// A sticky error of the context.
    fn drain(&self, context: CUcontext, stream: CUstream) -> DriverResult<()>;

    /// The cores that the calling thread and the threads that it starts may use now, by affinity
    /// and by the quota of the control group.
    fn cores(&self) -> usize;

    /// How long the calling thread has run since its start, and how long it was ready without a
    /// core. `None` if the system does not count that.
    fn ran_and_waited(&self) -> Option<(Duration, Duration)>;

    /// Runs `body` so that calls of this thread disturb no stream capture of another thread.
    fn quietly<T>(&self, body: impl FnOnce() -> T) -> T;

    /// Copies within host memory, by the calling thread. The caller guarantees both ranges.
    fn move_bytes(&self, to: u64, from: u64, bytes: usize);

    /// A clock that never goes back.
    fn clock(&self) -> Duration;
}
