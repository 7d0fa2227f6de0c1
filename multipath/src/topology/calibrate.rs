//! Measures what the links carry: each alone, each pair at once, all at once; in and out.
//!
//! Needs a context of our own, a buffer and a pinned host buffer on every device measured, for about half a second; all is given
//! back, for which it may wait: this is no part of a program's call. Devices that fail, or that nobody may relay through, have a rate of zero and are never chosen.
//!
//! Others may be using the links meanwhile. So everything is measured until two passes agree; of several passes the highest
//! figure counts, link by link. A measurement whose passes never agree serves the process that made it, and is not kept.

use std::sync::Arc;
use std::time::Duration;

use wm_abi::{CUcontext, CUdevice, CUresult, CUstream};

use super::{Rates, Topology};
use crate::lane::{Cargo, Lane};
use crate::links::{Links, Result, Survey};
use crate::making::Making;
use crate::plan::{Costs, Direction, SMALLEST_PIECE};
use crate::point::Point;
use crate::pool::has_room;
use crate::user::{Home, Kind, User};
use crate::wire::whole;

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
/// Measurements of what a copy through a relay costs; the median counts.
const SAMPLES: usize = 9;

/// A measured machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// What was measured.
    pub topology: Topology,
    /// Two passes agreed.
    pub steady: bool,
}

/// One device under measurement.
struct Probe {
    device: CUdevice,
    context: CUcontext,
    /// What opening its context took, in seconds.
    opening: f64,
    /// One a direction; and so are the halves of memory.
    streams: [CUstream; 2],
    memory: u64,
    host: u64,
}

/// Measures `devices`; the target of copies need not be among them. `go_on` is asked again and again: where it fails, nothing
/// more is done, and nothing given back.
///
/// # Errors
/// `NOT_SUPPORTED` if fewer than two devices can be measured; that of `go_on`.
pub fn calibrate<L: Links>(
    links: &L,
    survey: Survey,
    devices: &[CUdevice],
    go_on: &dyn Fn() -> Result<()>,
) -> Result<Calibration> {
    let mut probes = Vec::new();
    for device in devices {
        go_on()?;
        probes.extend(Probe::open(links, *device));
    }
    let measured = measure(links, survey, &probes, go_on);
    go_on()?;
    probes.into_iter().for_each(|probe| probe.close(links));
    measured
}

fn measure<L: Links>(
    links: &L,
    survey: Survey,
    probes: &[Probe],
    go_on: &dyn Fn() -> Result<()>,
) -> Result<Calibration> {
    if probes.len() < 2 {
        return Err(CUresult::NOT_SUPPORTED);
    }
    let count = survey.key.devices.len();
    let way = |way| rates(links, probes, count, way, go_on);
    let pass = || -> Result<[Rates; 2]> { Ok([way(Direction::In)?, way(Direction::Out)?]) };
    let (mut best, mut steady) = (pass()?, false);
    for _ in 1..PASSES {
        let again = pass()?;
        steady = best.iter().zip(&again).all(|(one, other)| one.agrees(other, TOLERANCE));
        best = std::array::from_fn(|way| best[way].undisturbed(&again[way]));
        if steady {
            break;
        }
    }
    let costs = costs(links, &survey, probes)?;
    let [into, out] = best;
    let topology = Topology { key: survey.key, reach: survey.reach, into, out, costs };
    Ok(Calibration { topology, steady })
}

/// One pass over all links in one direction.
fn rates<L: Links>(
    links: &L,
    probes: &[Probe],
    count: usize,
    way: Direction,
    go_on: &dyn Fn() -> Result<()>,
) -> Result<Rates> {
    let mut rates = Rates { alone: vec![0.0; count], together: vec![vec![0.0; count]; count], all: 0.0 };
    // The first copy of a stream pays for what the driver sets up.
    run(links, &probes.iter().collect::<Vec<_>>(), way)?;
    for (index, one) in probes.iter().enumerate() {
        rates.alone[one.device as usize] = rate(links, &[one], way)?;
        for other in &probes[..index] {
            go_on()?;
            let sum = rate(links, &[one, other], way)?;
            rates.together[one.device as usize][other.device as usize] = sum;
            rates.together[other.device as usize][one.device as usize] = sum;
        }
    }
    rates.all = rate(links, &probes.iter().collect::<Vec<_>>(), way)?;
    Ok(rates)
}

/// What a set of links carries at once, bytes a second.
fn rate<L: Links>(links: &L, set: &[&Probe], way: Direction) -> Result<f64> {
    (0..TRIES).try_fold(0.0, |best, _| Ok(run(links, set, way)?.max(best)))
}

fn run<L: Links>(links: &L, set: &[&Probe], way: Direction) -> Result<f64> {
    let start = links.clock();
    for _ in 0..ROUNDS {
        set.iter().try_for_each(|probe| probe.send(links, way, BLOCK))?;
    }
    set.iter().try_for_each(|probe| probe.drain(links))?;
    Ok((ROUNDS * BLOCK * set.len()) as f64 / seconds(links.clock() - start))
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64().max(1e-9)
}

/// Times of the smallest piece, from an idle stream and back: what a cut copy costs on top.
fn costs<L: Links>(links: &L, survey: &Survey, probes: &[Probe]) -> Result<Costs> {
    let reach = |target: &Probe, relay: &Probe| survey.reach[target.device as usize][relay.device as usize];
    let pairs = probes.iter().flat_map(|target| probes.iter().map(move |relay| (target, relay)));
    let mut pairs = pairs.filter(|(target, relay)| target.device != relay.device && reach(target, relay));
    let (target, relay) = pairs.next().ok_or(CUresult::PEER_ACCESS_UNSUPPORTED)?;
    // These contexts are ours, and end with the measurement.
    let home = Home { context: target.context, life: 0 };
    let user = User { home, device: target.device, stream: target.streams[0], kind: Kind::Alone };
    let mut lane = Lane::new(links, relay.device, relay.context, user)?;
    let samples = Point::new(links, home).map(Arc::new).and_then(|start| {
        // The first trip pays for what the driver sets up.
        trip(links, &mut lane, target, &start)?;
        let sample = |_| Ok((trip(links, &mut lane, target, &start)?, straight(links, target)?));
        (0..SAMPLES).map(sample).collect::<Result<Vec<_>>>()
    });
    lane.drain(links);
    lane.bury(links, true);
    let samples = samples?;
    let middle = |pick: fn(&((f64, f64), f64)) -> f64| median(samples.iter().map(pick).collect());
    let (fixed, step, straight) = (middle(|s| s.0.0), middle(|s| s.0.1), middle(|s| s.1));
    Ok(Costs { fixed, step, lag: (fixed - straight).max(0.0), open: opening(probes) })
}

fn opening(probes: &[Probe]) -> f64 {
    median(probes.iter().map(|probe| probe.opening).collect())
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// Through a relay: the whole time, and what of it the calls took.
fn trip<L: Links>(links: &L, lane: &mut Lane, target: &Probe, at: &Arc<Point>) -> Result<(f64, f64)> {
    let (context, stream) = (target.context, target.streams[0]);
    let start = links.clock();
    at.record(links, stream)?;
    lane.engage(stream, at);
    lane.follow(links, Direction::In)?;
    lane.carry(links, Direction::In, target.block(Direction::In, SMALLEST_PIECE))?;
    let called = links.clock() - start;
    if let Some(mark) = lane.end() {
        links.order(context, stream, mark.event)?;
    }
    links.drain(context, stream)?;
    Ok((seconds(links.clock() - start), seconds(called)))
}

/// The same bytes the direct way.
fn straight<L: Links>(links: &L, target: &Probe) -> Result<f64> {
    let start = links.clock();
    target.send(links, Direction::In, SMALLEST_PIECE)?;
    links.drain(target.context, target.streams[0])?;
    Ok(seconds(links.clock() - start))
}

impl Probe {
    fn open<L: Links>(links: &L, device: CUdevice) -> Result<Self> {
        let start = links.clock();
        let context = links.open(device)?;
        let opening = seconds(links.clock() - start);
        Self::build(links, device, context, opening).inspect_err(|_| links.close(context))
    }

    fn build<L: Links>(links: &L, device: CUdevice, context: CUcontext, opening: f64) -> Result<Self> {
        has_room(links, context)?;
        let mut making = Making::new(links, context);
        let (memory, host) = (making.staging(device, 2 * BLOCK)?, making.buffer(device, 2 * BLOCK)?);
        let streams = [making.stream()?, making.stream()?];
        making.keep();
        Ok(Self { device, context, opening, streams, memory, host })
    }

    fn block(&self, way: Direction, bytes: usize) -> Cargo {
        let offset = (way as usize * BLOCK) as u64;
        Cargo { host: self.host + offset, device: self.memory + offset, bytes }
    }

    fn send<L: Links>(&self, links: &L, way: Direction, bytes: usize) -> Result<()> {
        links.copy(self.context, self.streams[way as usize], whole(way, self.block(way, bytes)))
    }

    fn drain<L: Links>(&self, links: &L) -> Result<()> {
        self.streams.iter().try_for_each(|stream| links.drain(self.context, *stream))
    }

    fn close<L: Links>(self, links: &L) {
        let _ = self.drain(links);
        self.streams.iter().for_each(|stream| links.retire(self.context, *stream, &[]));
        links.discard(self.host, 2 * BLOCK);
        links.discard(self.memory, 2 * BLOCK);
        links.close(self.context);
    }
}
