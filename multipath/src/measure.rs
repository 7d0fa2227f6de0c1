//! Measures the rates of the links: each alone, each pair at once, all at once; in and out.
//!
//! It needs a context of our own, a buffer and a pinned host buffer on every measured device, for
//! about half a second. It may wait when it releases them, since no call of the program runs here.
//! A device that fails, or through which no copy may be relayed, has a rate of zero and is never
//! chosen.
//!
//! Other processes may use the links meanwhile. So everything is measured until two passes agree;
//! of several passes the highest figure counts, link by link. A measurement whose passes never
//! agree serves the process that made it, and is not stored.

use std::sync::Arc;
use std::time::Duration;

use wm_abi::{CUcontext, CUdevice, CUresult, CUstream};

use crate::driver::{CopyDriver, DriverResult};
use crate::topology::Topology;
use crate::topology::rates::Rates;
use crate::transfer::direct_pipeline::direct_transfer;
use crate::transfer::pool::has_room;
use crate::transfer::relay_pipeline::RelayPipeline;
use crate::transfer::resource_guard::ResourceGuard;
use crate::transfer::stream_event::StreamEvent;
use crate::vocabulary::chunk::ChunkAddrs;
use crate::vocabulary::copy::LinkDirection;
use crate::vocabulary::machine::Survey;
use crate::vocabulary::path::Costs;
use crate::vocabulary::sizes::SMALLEST_CHUNK;
use crate::vocabulary::stream::{Home, ProgramStream, StreamOrdering};

/// Bytes of one measured copy.
const BLOCK: usize = 16 << 20;
/// Copies of one link in one measurement.
const ROUNDS: usize = 3;
/// Runs of one measurement; the fastest counts.
const TRIES: usize = 2;
/// Passes over all links at most.
const PASSES: usize = 4;
/// Two passes agree if no figure differs by more than this part.
const TOLERANCE: f64 = 0.1;
/// Measurements of the cost of a copy through a relay; the median counts.
const SAMPLES: usize = 9;

/// A measured machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// The measured rates.
    pub topology: Topology,
    /// Two passes agreed.
    pub steady: bool,
}

/// One device under measurement.
struct MeasuredDevice {
    device: CUdevice,
    context: CUcontext,
    /// The time that opening its context took, in seconds.
    opening: f64,
    /// One for each direction, as are the halves of memory.
    streams: [CUstream; 2],
    memory: u64,
    host: u64,
}

/// Measures `devices`; the target of copies need not be among them. `go_on` is called between
/// steps: once it fails, no more calls are made and nothing is released.
///
/// # Errors
/// `NOT_SUPPORTED` if fewer than two devices can be measured; that of `go_on`.
pub fn calibrate<D: CopyDriver>(
    driver: &D,
    survey: Survey,
    devices: &[CUdevice],
    go_on: &dyn Fn() -> DriverResult<()>,
) -> DriverResult<Calibration> {
    let mut probes = Vec::new();
    for device in devices {
        go_on()?;
        probes.extend(MeasuredDevice::open(driver, *device));
    }
    let measured = measure(driver, survey, &probes, go_on);
    go_on()?;
    probes.into_iter().for_each(|probe| probe.close(driver));
    measured
}

fn measure<D: CopyDriver>(
    driver: &D,
    survey: Survey,
    probes: &[MeasuredDevice],
    go_on: &dyn Fn() -> DriverResult<()>,
) -> DriverResult<Calibration> {
    if probes.len() < 2 {
        return Err(CUresult::NOT_SUPPORTED);
    }
    let count = survey.key.devices.len();
    let way = |way| rates(driver, probes, count, way, go_on);
    let pass = || -> DriverResult<[Rates; 2]> { Ok([way(LinkDirection::In)?, way(LinkDirection::Out)?]) };
    let (mut best, mut steady) = (pass()?, false);
    for _ in 1..PASSES {
        let again = pass()?;
        steady = best.iter().zip(&again).all(|(one, other)| one.agrees(other, TOLERANCE));
        best = std::array::from_fn(|way| best[way].undisturbed(&again[way]));
        if steady {
            break;
        }
    }
    let costs = costs(driver, &survey, probes)?;
    let [into, out] = best;
    let topology = Topology { key: survey.key, reach: survey.reach, into, out, costs };
    Ok(Calibration { topology, steady })
}

/// One pass over all links in one direction.
fn rates<D: CopyDriver>(
    driver: &D,
    probes: &[MeasuredDevice],
    count: usize,
    way: LinkDirection,
    go_on: &dyn Fn() -> DriverResult<()>,
) -> DriverResult<Rates> {
    let mut rates = Rates { alone: vec![0.0; count], together: vec![vec![0.0; count]; count], all: 0.0 };
    // The first copy of a stream pays for the driver's set-up.
    run(driver, &probes.iter().collect::<Vec<_>>(), way)?;
    for (index, one) in probes.iter().enumerate() {
        rates.alone[one.device as usize] = rate(driver, &[one], way)?;
        for other in &probes[..index] {
            go_on()?;
            let sum = rate(driver, &[one, other], way)?;
            rates.together[one.device as usize][other.device as usize] = sum;
            rates.together[other.device as usize][one.device as usize] = sum;
        }
    }
    rates.all = rate(driver, &probes.iter().collect::<Vec<_>>(), way)?;
    Ok(rates)
}

/// The rate of a set of links at once, bytes a second.
fn rate<D: CopyDriver>(driver: &D, set: &[&MeasuredDevice], way: LinkDirection) -> DriverResult<f64> {
    (0..TRIES).try_fold(0.0, |best, _| Ok(run(driver, set, way)?.max(best)))
}

fn run<D: CopyDriver>(driver: &D, set: &[&MeasuredDevice], way: LinkDirection) -> DriverResult<f64> {
    let start = driver.clock();
    for _ in 0..ROUNDS {
        set.iter().try_for_each(|probe| probe.send(driver, way, BLOCK))?;
    }
    set.iter().try_for_each(|probe| probe.drain(driver))?;
    Ok((ROUNDS * BLOCK * set.len()) as f64 / seconds(driver.clock() - start))
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64().max(1e-9)
}

/// Times of the smallest chunk, from an idle stream and back: the additional cost of a split copy.
fn costs<D: CopyDriver>(driver: &D, survey: &Survey, probes: &[MeasuredDevice]) -> DriverResult<Costs> {
    let reach = |target: &MeasuredDevice, relay: &MeasuredDevice| {
        survey.reach[target.device as usize][relay.device as usize]
    };
    let pairs = probes.iter().flat_map(|target| probes.iter().map(move |relay| (target, relay)));
    let mut pairs = pairs.filter(|(target, relay)| target.device != relay.device && reach(target, relay));
    let (target, relay) = pairs.next().ok_or(CUresult::PEER_ACCESS_UNSUPPORTED)?;
    // These contexts are ours, and end with the measurement.
    let home = Home { context: target.context, life: 0 };
    let user =
        ProgramStream { home, device: target.device, stream: target.streams[0], kind: StreamOrdering::Alone };
    let mut lane = RelayPipeline::new(driver, relay.device, relay.context, user)?;
    let samples = StreamEvent::new(driver, home).map(Arc::new).and_then(|start| {
        // The first trip pays for the driver's set-up.
        trip(driver, &mut lane, target, &start)?;
        let sample = |_| Ok((trip(driver, &mut lane, target, &start)?, straight(driver, target)?));
        (0..SAMPLES).map(sample).collect::<DriverResult<Vec<_>>>()
    });
    lane.drain(driver);
    lane.destroy(driver, true);
    let samples = samples?;
    let middle = |pick: fn(&((f64, f64), f64)) -> f64| median(samples.iter().map(pick).collect());
    let (fixed, step, straight) = (middle(|s| s.0.0), middle(|s| s.0.1), middle(|s| s.1));
    Ok(Costs { fixed, step, lag: (fixed - straight).max(0.0), open: opening(probes) })
}

fn opening(probes: &[MeasuredDevice]) -> f64 {
    median(probes.iter().map(|probe| probe.opening).collect())
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// Through a relay: the whole time, and the part of it that the calls took.
fn trip<D: CopyDriver>(
    driver: &D,
    lane: &mut RelayPipeline,
    target: &MeasuredDevice,
    at: &Arc<StreamEvent>,
) -> DriverResult<(f64, f64)> {
    let (context, stream) = (target.context, target.streams[0]);
    let start = driver.clock();
    at.record(driver, stream)?;
    lane.engage(stream, at);
    lane.follow(driver, LinkDirection::In)?;
    lane.carry(driver, LinkDirection::In, target.block(LinkDirection::In, SMALLEST_CHUNK))?;
    let called = driver.clock() - start;
    if let Some(mark) = lane.end() {
        driver.order(context, stream, mark.event)?;
    }
    driver.drain(context, stream)?;
    Ok((seconds(driver.clock() - start), seconds(called)))
}

/// The same bytes the direct way.
fn straight<D: CopyDriver>(driver: &D, target: &MeasuredDevice) -> DriverResult<f64> {
    let start = driver.clock();
    target.send(driver, LinkDirection::In, SMALLEST_CHUNK)?;
    driver.drain(target.context, target.streams[0])?;
    Ok(seconds(driver.clock() - start))
}

impl MeasuredDevice {
    fn open<D: CopyDriver>(driver: &D, device: CUdevice) -> DriverResult<Self> {
        let start = driver.clock();
        let context = driver.open(device)?;
        let opening = seconds(driver.clock() - start);
        Self::build(driver, device, context, opening).inspect_err(|_| driver.close(context))
    }

    fn build<D: CopyDriver>(
        driver: &D,
        device: CUdevice,
        context: CUcontext,
        opening: f64,
    ) -> DriverResult<Self> {
        has_room(driver, context)?;
        let mut guard = ResourceGuard::new(driver, context);
        let (memory, host) = (guard.staging(device, 2 * BLOCK)?, guard.buffer(device, 2 * BLOCK)?);
        let streams = [guard.stream()?, guard.stream()?];
        guard.keep();
        Ok(Self { device, context, opening, streams, memory, host })
    }

    fn block(&self, way: LinkDirection, bytes: usize) -> ChunkAddrs {
        let offset = (way as usize * BLOCK) as u64;
        ChunkAddrs { host: self.host + offset, device: self.memory + offset, bytes }
    }

    fn send<D: CopyDriver>(&self, driver: &D, way: LinkDirection, bytes: usize) -> DriverResult<()> {
        driver.copy(self.context, self.streams[way as usize], direct_transfer(way, self.block(way, bytes)))
    }

    fn drain<D: CopyDriver>(&self, driver: &D) -> DriverResult<()> {
        self.streams.iter().try_for_each(|stream| driver.drain(self.context, *stream))
    }

    fn close<D: CopyDriver>(self, driver: &D) {
        let _ = self.drain(driver);
        self.streams.iter().for_each(|stream| driver.retire(self.context, *stream, &[]));
        driver.discard(self.host, 2 * BLOCK);
        driver.discard(self.memory, 2 * BLOCK);
        driver.close(self.context);
    }
}
