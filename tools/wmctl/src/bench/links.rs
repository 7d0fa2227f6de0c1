//! The rates of links when each device copies its own buffer. Copies over several links are
//! compared with them.

use anyhow::Result;
use wm_abi::{CUcontext, CUdevice, CUstream};
use wm_multipath::bench::{ChunkAddrs, direct_transfer};
use wm_multipath::{CopyDriver, LinkDirection, TableDriver};

use super::machine::{Machine, seconds, told};

/// Bytes of one copy of a sustained measurement, and how many there are of each.
const BLOCK: usize = 64 << 20;
const ROUNDS: usize = 12;
/// The granularity of the buffers.
const GRANULARITY: usize = 2 << 20;

/// One device with buffers of its own, for either direction.
struct Own {
    device: CUdevice,
    context: CUcontext,
    streams: [CUstream; 2],
    memory: [u64; 2],
    host: [u64; 2],
    /// Its share of the bytes that all carry.
    part: f64,
}

/// All devices with buffers of their own.
pub struct All {
    own: Vec<Own>,
}

/// Sums of the links' rates, bytes a second.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(super) struct Sums {
    /// The target's own link: in, out, and both ways at once.
    own: [f64; 3],
    /// All links.
    all: [f64; 3],
    /// The target's own in, its siblings' out, and the other way round.
    crosswise: [f64; 2],
}

impl Sums {
    /// Of all links, in these directions at once.
    pub(super) fn all(&self, ways: &[LinkDirection]) -> f64 {
        match ways {
            [way] => self.all[*way as usize],
            _ => self.all[2],
        }
    }

    pub(super) fn render(&self) -> String {
        let line = |[into, out, both]: [f64; 3]| {
            format!("{:.1} in, {:.1} out, {:.1} both", into / 1e9, out / 1e9, both / 1e9)
        };
        let [one, other] = self.crosswise.map(|rate| rate / 1e9);
        format!(
            "sustained, GB/s: own link {}; all links {}; own in and siblings out {one:.1}, own out and siblings in {other:.1}\n",
            line(self.own),
            line(self.all)
        )
    }
}

const IN: &[LinkDirection] = &[LinkDirection::In];
const OUT: &[LinkDirection] = &[LinkDirection::Out];
const BOTH: &[LinkDirection] = &[LinkDirection::In, LinkDirection::Out];

impl All {
    /// Buffers for copies of up to `largest` bytes in all, on every measured device of a machine.
    pub(super) fn new(machine: &Machine, largest: usize) -> Result<Self> {
        let (links, rates) = (machine.links(), machine.topology.rates(LinkDirection::In));
        let devices: Vec<_> = (0..rates.alone.len()).filter(|device| rates.alone[*device] > 0.0).collect();
        let carried = rates.carried(&devices);
        let sum: f64 = carried.iter().sum();
        let own = |(device, rate): (&usize, &f64)| Own::new(links, *device as CUdevice, rate / sum, largest);
        Ok(Self { own: devices.iter().zip(&carried).map(own).collect::<Result<_>>()? })
    }

    /// The sustained rates of the links, alone and together.
    pub(super) fn sums(&self, machine: &Machine) -> Result<Sums> {
        let (links, target) = (machine.links(), machine.target);
        let own = |ways| self.sustained(links, |device| if device == target { ways } else { &[] });
        let all = |ways| self.sustained(links, |_| ways);
        let cross =
            |one, other| self.sustained(links, move |device| if device == target { one } else { other });
        Ok(Sums {
            own: [own(IN)?, own(OUT)?, own(BOTH)?],
            all: [all(IN)?, all(OUT)?, all(BOTH)?],
            crosswise: [cross(IN, OUT)?, cross(OUT, IN)?],
        })
    }

    fn sustained(
        &self,
        links: &TableDriver,
        ways: impl Fn(CUdevice) -> &'static [LinkDirection],
    ) -> Result<f64> {
        let copies = || self.own.iter().flat_map(|own| ways(own.device).iter().map(move |way| (own, *way)));
        let run = |rounds: usize| {
            for _ in 0..rounds {
                copies().try_for_each(|(own, way)| own.copy(links, way, own.host[way as usize], BLOCK))?;
            }
            self.drain(links)
        };
        run(1)?;
        Ok((ROUNDS * BLOCK * copies().count()) as f64 / seconds(links, || run(ROUNDS))?)
    }

    /// Seconds in which all links together carry `bytes` of a machine's pinned buffers in each
    /// direction, each device its part.
    ///
    /// # Errors
    /// The driver's.
    pub fn same_size(&self, machine: &Machine, ways: &[LinkDirection], bytes: usize) -> Result<f64> {
        let (links, host) = (machine.links(), machine.pinned);
        seconds(links, || {
            for way in ways {
                let mut at = 0;
                for (index, own) in self.own.iter().enumerate() {
                    let last = index + 1 == self.own.len();
                    let part = if last { bytes - at } else { own.part_of(bytes) };
                    own.copy(links, *way, host[*way as usize] + at as u64, part)?;
                    at += part;
                }
            }
            self.drain(links)
        })
    }

    fn drain(&self, links: &TableDriver) -> Result<()> {
        let streams = self.own.iter().flat_map(|own| own.streams.map(|stream| (own.context, stream)));
        streams.into_iter().try_for_each(|(context, stream)| told(links.drain(context, stream), "a copy"))
    }
}

impl Own {
    fn new(links: &TableDriver, device: CUdevice, part: f64, largest: usize) -> Result<Self> {
        let context = told(links.open(device), "a context")?;
        let stream = || told(links.stream(context), "a stream");
        let pin = || told(links.pin(context, BLOCK), "pinned memory");
        // The last device copies the remainder.
        let bytes = ((largest as f64 * part) as usize + GRANULARITY).next_multiple_of(GRANULARITY).max(BLOCK);
        let memory =
            || told(links.staging(device, context, bytes), "device memory; use --largest to ask for less");
        let (streams, memory, host) = ([stream()?, stream()?], [memory()?, memory()?], [pin()?, pin()?]);
        Ok(Self { device, context, streams, memory, host, part })
    }

    fn part_of(&self, bytes: usize) -> usize {
        (bytes as f64 * self.part) as usize / 4096 * 4096
    }

    fn copy(&self, links: &TableDriver, way: LinkDirection, host: u64, bytes: usize) -> Result<()> {
        let addrs = ChunkAddrs { host, device: self.memory[way as usize], bytes };
        told(links.copy(self.context, self.streams[way as usize], direct_transfer(way, addrs)), "a copy")
    }
}
