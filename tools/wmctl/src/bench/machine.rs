//! The machine of a benchmark of copies: the driver, a target with a buffer, host memory of both
//! kinds.
//!
//! No `unsafe` here: everything goes through [`CopyDriver`], the same contract that the copies
//! themselves use.

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Result, anyhow};
use serde_json::json;
use wm_abi::{CUcontext, CUdevice, CUresult, CUstream};
use wm_driver::{Loader, Table, search};
use wm_multipath::bench::{Calibration, ChunkAddrs, Survey, calibrate, direct_transfer};
use wm_multipath::measured::{Costs, Rates, Topology, cache};
use wm_multipath::{
    CopyDriver, CopyOutcome, CopyRequest, CopyRoute, Engine, EngineSettings, Home, HostDeviceCopy,
    HostMemory, LinkDirection, ProgramStream, StreamOrdering, TableDriver,
};

use super::comparison::CopyKind;
use crate::shim;

/// Bytes that [`Machine::verify`] copies in each direction, at most.
pub(super) const VERIFIED: usize = 256 << 20;

/// The driver, opened at the first call.
///
/// # Errors
/// No driver was found.
pub fn driver() -> Result<&'static Table> {
    static TABLE: OnceLock<Table> = OnceLock::new();
    if let Some(table) = TABLE.get() {
        return Ok(table);
    }
    let table =
        search::open(&Loader::system(), shim::driver().as_deref()).map_err(|missing| anyhow!("{missing}"))?;
    Ok(TABLE.get_or_init(|| table))
}

/// The devices, and nothing of their links.
pub(super) fn unmeasured() -> Result<Topology> {
    let links = TableDriver::new(driver()?);
    told(links.start(), "cuInit")?;
    let Survey { key, reach } = told(links.survey(), "the devices")?;
    let rates = Rates { alone: Vec::new(), together: Vec::new(), all: 0.0 };
    Ok(Topology { key, reach, into: rates.clone(), out: rates, costs: Costs::default() })
}

/// Measures the links between the host and these devices, or all.
pub fn measure(devices: Option<&[CUdevice]>) -> Result<Calibration> {
    let links = TableDriver::new(driver()?);
    told(links.start(), "cuInit")?;
    let survey = told(links.survey(), "the devices")?;
    let all: Vec<_> = (0..survey.key.devices.len() as CUdevice).collect();
    anyhow::ensure!(all.len() > 1, "several GPUs that reach each other are needed: this machine shows fewer");
    told(calibrate(&links, survey, devices.unwrap_or(&all), &|| Ok(())), "the links cannot be measured")
}

/// Stores a measurement for the shim and for `wmctl doctor`, if it is a steady one of all devices.
/// Returns whether it was stored.
pub(super) fn store(measured: &Calibration) -> Result<bool> {
    let whole = measured.topology.into.alone.iter().all(|rate| *rate > 0.0);
    match cache::folder().filter(|_| whole && measured.steady) {
        Some(folder) => Ok(cache::store(&folder, &measured.topology).map(|()| true)?),
        None => Ok(false),
    }
}

/// How long something takes, seconds.
pub fn seconds(links: &TableDriver, body: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = links.clock();
    body()?;
    Ok((links.clock() - start).max(Duration::from_nanos(1)).as_secs_f64())
}

/// One target and the memory of the largest copy.
pub struct Machine {
    /// The shim's engine of copies, with `settings`.
    pub engine: Engine<TableDriver>,
    /// The settings that `engine` was made with.
    pub settings: EngineSettings,
    /// The measured links.
    pub topology: Topology,
    /// The GPU that copies go to and come from.
    pub target: CUdevice,
    context: CUcontext,
    streams: [CUstream; 2],
    /// Addresses of device memory: of copies in, and of copies out.
    device: [u64; 2],
    pub(super) pinned: [u64; 2],
    pageable: Vec<u8>,
}

/// Adds the name of the attempted call to a driver's code.
pub(super) fn told<T>(result: std::result::Result<T, CUresult>, what: &str) -> Result<T> {
    result.map_err(|code| anyhow!("{what}: {code}"))
}

impl Machine {
    /// Buffers of `bytes` around `target`.
    pub fn new(target: CUdevice, topology: Topology, settings: EngineSettings, bytes: usize) -> Result<Self> {
        let links = TableDriver::new(driver()?);
        told(links.start(), "cuInit")?;
        let context = told(links.open(target), "the target's context")?;
        let stream = || told(links.stream(context), "a stream");
        let pin = || told(links.pin(context, bytes), "pinned memory; use --largest to ask for less");
        // A driver gives memory in multiples of 2 MiB.
        let bytes = bytes.next_multiple_of(2 << 20);
        let memory =
            || told(links.staging(target, context, bytes), "device memory; use --largest to ask for less");
        let (streams, pinned, device) = ([stream()?, stream()?], [pin()?, pin()?], [memory()?, memory()?]);
        let engine = Engine::with_topology(links, settings.clone(), topology.clone());
        let pageable = vec![1; bytes];
        Ok(Self { engine, settings, topology, target, context, streams, device, pinned, pageable })
    }

    /// Another engine for the same machine.
    pub fn engine_with(&self, settings: EngineSettings) -> Result<Engine<TableDriver>> {
        Ok(Engine::with_topology(TableDriver::new(driver()?), settings, self.topology.clone()))
    }

    /// Free memory of the target, bytes.
    pub fn room(&self) -> Result<u64> {
        Ok(told(self.links().room(self.context), "free memory")?.0)
    }

    /// The bytes that each path has carried so far.
    pub fn paths(&self) -> Vec<serde_json::Value> {
        let flows = self.engine.traffic().into_iter();
        flows
            .map(|flow| {
                let direction = format!("{:?}", flow.direction).to_lowercase();
                let relay = if let CopyRoute::Relay(relay) = flow.route { Some(relay) } else { None };
                json!({ "relay": relay, "threads": flow.route == CopyRoute::Threads, "direction": direction, "count": flow.count, "bytes": flow.bytes })
            })
            .collect()
    }

    /// The driver that `engine` uses.
    pub fn links(&self) -> &TableDriver {
        self.engine.driver()
    }

    fn host(&self, memory: HostMemory, direction: LinkDirection) -> u64 {
        match memory {
            HostMemory::Pinned => self.pinned[direction as usize],
            HostMemory::Pageable => self.pageable.as_ptr() as u64,
        }
    }

    fn request(
        &self,
        memory: HostMemory,
        direction: LinkDirection,
        waits: bool,
        bytes: usize,
    ) -> CopyRequest {
        let stream = self.streams[direction as usize];
        // A context of this command, which ends with it.
        let home = Home { context: self.context, life: 0 };
        let user = ProgramStream { home, device: self.target, stream, kind: StreamOrdering::Alone };
        let (host, device) = (self.host(memory, direction), self.device[direction as usize]);
        CopyRequest { copy: HostDeviceCopy { user, direction, host, device, bytes }, memory, waits }
    }

    /// Seconds of the plain copies of these directions, at once.
    pub fn plain(&self, memory: HostMemory, directions: &[LinkDirection], bytes: usize) -> Result<f64> {
        seconds(self.links(), || {
            directions.iter().try_for_each(|way| self.plainly(&self.request(memory, *way, false, bytes)))?;
            self.drain(directions)
        })
    }

    fn plainly(&self, request: &CopyRequest) -> Result<()> {
        let HostDeviceCopy { user, direction, host, device, bytes } = request.copy;
        let transfer = direct_transfer(direction, ChunkAddrs { host, device, bytes });
        told(self.links().copy(user.home.context, user.stream, transfer), "a plain copy")
    }

    /// Seconds of the same copies as the shim makes them, and whether it made any.
    pub fn shared(
        &self,
        engine: &Engine<TableDriver>,
        kind: &CopyKind,
        directions: &[LinkDirection],
        bytes: usize,
    ) -> Result<(f64, bool)> {
        let mut served = false;
        let seconds = seconds(self.links(), || {
            for direction in directions {
                let request = self.request(kind.memory, *direction, kind.waits, bytes);
                match engine.copy(&request) {
                    CopyOutcome::Done => served = true,
                    CopyOutcome::Plain => self.plainly(&request)?,
                }
            }
            self.drain(directions)
        })?;
        Ok((seconds, served))
    }

    fn drain(&self, directions: &[LinkDirection]) -> Result<()> {
        let drain = |way: &LinkDirection| {
            told(self.links().drain(self.context, self.streams[*way as usize]), "a copy")
        };
        directions.iter().try_for_each(drain)
    }

    /// Sends a pattern in over several paths and back plainly, and in plainly and back over several
    /// paths.
    pub fn verify(&mut self, memory: HostMemory, bytes: usize) -> Result<()> {
        let pattern: Vec<u8> = (0..bytes).map(|index| (index ^ index >> 8 ^ index >> 17) as u8).collect();
        let zeros = vec![0; bytes];
        for shared_way in [LinkDirection::In, LinkDirection::Out] {
            self.links().move_bytes(self.host(memory, LinkDirection::In), pattern.as_ptr() as u64, bytes);
            for direction in [LinkDirection::In, LinkDirection::Out] {
                let mut request = self.request(memory, direction, false, bytes);
                request.copy.device = self.device[0];
                if direction == LinkDirection::Out {
                    self.links().move_bytes(request.copy.host, zeros.as_ptr() as u64, bytes);
                }
                let served = direction == shared_way && self.engine.copy(&request) == CopyOutcome::Done;
                if !served {
                    self.plainly(&request)?;
                }
                self.drain(&[direction])?;
            }
            let mut back = vec![0; bytes];
            self.links().move_bytes(back.as_mut_ptr() as u64, self.host(memory, LinkDirection::Out), bytes);
            anyhow::ensure!(back == pattern, "bytes were lost on the way {shared_way:?}: please report this");
        }
        Ok(())
    }
}
