//! A communicator: its state, and the thread that meets the other ranks and exchanges messages.

use std::ffi::c_int;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wm_abi::{CUcontext, CUstream};

use crate::abi::{Code, Outcome, UniqueId};
use crate::address;
use crate::faults::{self, Delays, Kind};
use crate::job::Job;
use crate::operation::{Operation, Plan, Shape};
use crate::process::PROCESS;
use crate::rendezvous::Member;
use crate::report::{append, error, line};
use crate::state::{Next, State};
use crate::thread;
use crate::transport::{Counters, Transport};

/// The time within which abort returns, also if the communicator's thread does not end.
const ABORT: Duration = Duration::from_secs(2);

/// A rank of a communicator.
#[derive(Debug)]
pub(crate) struct Communicator {
    member: Member,
    id: UniqueId,
    pub(crate) device: c_int,
    pub(crate) blocking: bool,
    context: CUcontext,
    process: u32,
    state: Arc<State<Job>>,
    counters: Arc<Counters>,
    /// The number of collectives that streams have. Groups are handed to them one after the other,
    /// in the order of the queue.
    launched: Mutex<u64>,
    /// Registered buffers.
    pub(crate) buffers: Mutex<Vec<usize>>,
}

impl Communicator {
    /// A rank that has not begun to meet the others.
    pub(crate) fn new(id: UniqueId, size: usize, rank: usize, blocking: bool) -> Outcome<Arc<Self>> {
        let (settings, driver) = (PROCESS.settings()?, PROCESS.driver()?);
        let context = driver.context()?;
        let (device, uuid) = driver.within(context, || driver.device())?;
        let at = address::own(&settings.interfaces).map_err(|text| error(Code::INVALID_USAGE, &text))?;
        let mut gpu = uuid.bytes;
        let host = machine(settings.host.as_deref()).to_le_bytes();
        gpu.iter_mut().zip(host).for_each(|(byte, other)| *byte ^= other);
        let member = Member { rank, size, gpu, shares: settings.shared_gpus, at };
        Ok(Arc::new(Self {
            member,
            id,
            device,
            blocking,
            context,
            process: std::process::id(),
            state: Arc::new(State::new()),
            counters: Arc::default(),
            launched: Mutex::new(0),
            buffers: Mutex::default(),
        }))
    }

    /// Starts the thread that meets the other ranks.
    pub(crate) fn start(self: &Arc<Self>) -> Outcome {
        let this = Arc::clone(self);
        let body = move || {
            this.meet().map_or_else(|code| this.state.fail(code), |transport| this.serve(transport));
            this.state.end();
        };
        thread::spawn("simnccl-comm", body).map(drop).inspect_err(|code| {
            self.state.fail(*code);
            self.state.end();
        })
    }

    fn meet(&self) -> Outcome<Transport> {
        let settings = PROCESS.settings()?;
        if faults::strike(&settings.failures, Kind::Init, self.member.rank) {
            return Err(error(Code::SYSTEM, "SIMNCCL_FAIL: this initialisation fails"));
        }
        let sockets = self.member.meet(&self.id, &|| self.state.is_stopped())?;
        let delays = Delays::new(settings.seed, self.member.rank, settings.delay);
        let drop = settings.drop.and_then(|drop| drop.of(self.member.rank));
        Transport::new(sockets, delays, drop, Arc::clone(&self.counters))
    }

    /// Exchanges the messages of one job after the other, until the communicator is stopped.
    fn serve(&self, mut transport: Transport) {
        line(&format!("rank {} of {} has met the others", self.member.rank, self.member.size));
        self.state.initialised();
        loop {
            match self.state.next() {
                Next::Work(job) => {
                    self.state.end_work(&job, job.exchange(&mut transport, self.member.size));
                }
                Next::Finalize => {
                    transport.finish();
                    self.state.finalized();
                }
                Next::Stop => return,
            }
        }
    }

    pub(crate) fn shape(&self) -> Shape {
        Shape { rank: self.member.rank, size: self.member.size }
    }

    pub(crate) fn process(&self) -> u32 {
        self.process
    }

    pub(crate) fn state(&self) -> &State<Job> {
        &self.state
    }

    /// Hands a group's operations to their streams.
    pub(crate) fn launch(&self, operations: &[Operation], streams: &[CUstream]) -> Outcome {
        let (settings, driver) = (PROCESS.settings()?, PROCESS.driver()?);
        let struck = |it: &&Operation| faults::strike(&settings.failures, it.kind(), self.member.rank);
        let fails = operations.iter().filter(struck).count() > 0;
        let mut launched = crate::lock(&self.launched);
        let plan = Plan::new(operations, self.shape(), *launched)?;
        let collectives = plan.collectives;
        driver.within(self.context, || {
            let job = Job::new(plan, fails, Arc::clone(&self.state), driver)?;
            job.launch(driver, streams)
        })?;
        *launched = collectives;
        Ok(())
    }

    /// Hands them over from a thread of their own, as NCCL does for a nonblocking communicator. The
    /// streams lack the operations until the state is no longer `ncclInProgress`.
    pub(crate) fn launch_later(
        self: &Arc<Self>,
        operations: Vec<Operation>,
        streams: Vec<CUstream>,
    ) -> Outcome {
        let this = Arc::clone(self);
        self.state.begin_launch();
        let body = move || this.state.end_launch(this.launch(&operations, &streams));
        thread::spawn("simnccl-launch", body).map(drop).inspect_err(|code| self.state.end_launch(Err(*code)))
    }

    /// Messages and bytes that this rank has sent to others.
    pub(crate) fn counted(&self) -> (u64, u64) {
        (self.counters.messages.load(Ordering::Relaxed), self.counters.bytes.load(Ordering::Relaxed))
    }

    /// Appends this rank's counts to the file that `SIMNCCL_STATS` names.
    fn record(&self) -> Outcome {
        let Some(file) = &PROCESS.settings()?.stats else { return Ok(()) };
        let (Member { rank, size, .. }, (messages, bytes)) = (&self.member, self.counted());
        append(file, &format!("rank={rank} size={size} messages={messages} bytes={bytes}"))
    }

    /// Begins to flush; waits for the end if the communicator is a blocking one.
    pub(crate) fn finalize(&self) -> Outcome {
        self.state.ready()?;
        self.state.finalize();
        if self.blocking { self.state.wait_finalized() } else { Err(Code::IN_PROGRESS) }
    }

    /// Flushes if no call did, and ends.
    pub(crate) fn destroy(&self) -> Outcome {
        // A communicator with an error has nothing to flush.
        if matches!(self.state.wait_initialised(), Ok(()) | Err(Code::IN_PROGRESS)) {
            self.state.finalize();
            // An error is no reason to stay: the end below frees the streams.
            let _ = self.state.wait_finalized();
        }
        self.abort()
    }

    /// Frees the streams and ends.
    pub(crate) fn abort(&self) -> Outcome {
        match self.state.stop(ABORT) {
            true => self.record(),
            false => Err(error(Code::INTERNAL, "the communicator's thread did not end in time")),
        }
    }
}

/// A number of this machine, or of the one that `NCCL_HOSTID` names.
fn machine(named: Option<&str>) -> u64 {
    let mut hasher = DefaultHasher::new();
    match named {
        Some(name) => name.hash(&mut hasher),
        None => std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default().hash(&mut hasher),
    }
    hasher.finish()
}
