//! A walk of random allocations, frees and waits, counted.

use std::fmt;
use std::ops::Add;

use fastrand::Rng;
use wm_abi::CUstream;
use wm_driver::Api;
use wm_driver::api::Failed;

use crate::Driver;

/// The counts of a walk.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Tally {
    allocations: u64,
    frees: u64,
    waits: u64,
    live: u64,
    /// Most bytes live at once. Of several walks together, an upper bound.
    peak: u64,
}

impl Add for Tally {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            allocations: self.allocations + other.allocations,
            frees: self.frees + other.frees,
            waits: self.waits + other.waits,
            live: self.live + other.live,
            peak: self.peak + other.peak,
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { allocations, frees, waits, peak, .. } = self;
        write!(f, "allocations={allocations} frees={frees} waits={waits} peak={peak}")
    }
}

/// One thread's walk in two streams and in none.
pub(crate) struct Walk {
    driver: Driver,
    /// Streams; no stream is a plain call.
    places: [Option<CUstream>; 3],
    blocks: Vec<(u64, usize)>,
    tally: Tally,
    random: Rng,
}

impl Walk {
    pub(crate) fn new(driver: Driver, seed: u64) -> Result<Self, Failed> {
        let places = [Some(driver.stream_create(0)?), Some(driver.stream_create(0)?), None];
        Ok(Self { driver, places, blocks: Vec::new(), tally: Tally::default(), random: Rng::with_seed(seed) })
    }

    pub(crate) fn step(&mut self) -> Result<(), Failed> {
        match self.random.u32(..20) {
            0 => self.wait(),
            1..=9 if !self.blocks.is_empty() => self.free(),
            _ if self.blocks.len() < 100 => self.allocate(),
            _ => self.free(),
        }
    }

    /// Frees all live blocks except one, as programs do at their end.
    pub(crate) fn end(mut self) -> Result<Tally, Failed> {
        while self.blocks.len() > 1 {
            self.free()?;
        }
        Ok(self.tally)
    }

    fn allocate(&mut self) -> Result<(), Failed> {
        let bytes = 1 + self.random.usize(..3 << 20);
        let place = self.place();
        let address = match place {
            Some(stream) => self.driver.mem_alloc_async(bytes, stream)?,
            None => self.driver.mem_alloc(bytes)?,
        };
        self.blocks.push((address, bytes));
        self.tally.allocations += 1;
        self.tally.live += bytes as u64;
        self.tally.peak = self.tally.peak.max(self.tally.live);
        Ok(())
    }

    fn free(&mut self) -> Result<(), Failed> {
        let index = self.random.usize(..self.blocks.len());
        let (address, bytes) = self.blocks.swap_remove(index);
        self.tally.frees += 1;
        self.tally.live -= bytes as u64;
        match self.place() {
            Some(stream) => self.driver.mem_free_async(address, stream),
            None => self.driver.mem_free(address),
        }
    }

    fn wait(&mut self) -> Result<(), Failed> {
        let place = self.place();
        // Waits before the first allocation are nothing to replay, and are not recorded.
        self.tally.waits += u64::from(self.tally.allocations > 0);
        match place {
            Some(stream) => self.driver.stream_synchronize(stream),
            None => self.driver.ctx_synchronize(),
        }
    }

    fn place(&mut self) -> Option<CUstream> {
        self.places[self.random.usize(..3)]
    }
}
