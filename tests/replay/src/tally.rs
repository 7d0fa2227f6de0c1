//! A walk of random allocations, frees and waits, counted.

use std::fmt;
use std::ops::Add;

use wm_abi::CUstream;

use crate::driver::{Driver, Failure};

/// What a walk did.
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
pub(crate) struct Walk<'a> {
    driver: &'a Driver,
    places: [Option<CUstream>; 3],
    blocks: Vec<(u64, usize)>,
    tally: Tally,
    random: u64,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(driver: &'a Driver, seed: u64) -> Result<Self, Failure> {
        let places = [Some(driver.stream()?), Some(driver.stream()?), None];
        Ok(Self { driver, places, blocks: Vec::new(), tally: Tally::default(), random: seed })
    }

    pub(crate) fn step(&mut self) -> Result<(), Failure> {
        match self.draw(20) {
            0 => self.wait(),
            1..=9 if !self.blocks.is_empty() => self.free(),
            _ if self.blocks.len() < 100 => self.allocate(),
            _ => self.free(),
        }
    }

    /// Frees what is live, but for one block, as programs do at their end.
    pub(crate) fn end(mut self) -> Result<Tally, Failure> {
        while self.blocks.len() > 1 {
            self.free()?;
        }
        Ok(self.tally)
    }

    fn allocate(&mut self) -> Result<(), Failure> {
        let bytes = 1 + self.draw(3 << 20) as usize;
        let place = self.place();
        self.blocks.push((self.driver.allocate(bytes, place)?, bytes));
        self.tally.allocations += 1;
        self.tally.live += bytes as u64;
        self.tally.peak = self.tally.peak.max(self.tally.live);
        Ok(())
    }

    fn free(&mut self) -> Result<(), Failure> {
        let index = self.draw(self.blocks.len() as u64) as usize;
        let (address, bytes) = self.blocks.swap_remove(index);
        self.tally.frees += 1;
        self.tally.live -= bytes as u64;
        let place = self.place();
        self.driver.free(address, place)
    }

    fn wait(&mut self) -> Result<(), Failure> {
        let place = self.place();
        // Waits before the first allocation are nothing to replay, and are not recorded.
        self.tally.waits += u64::from(self.tally.allocations > 0);
        self.driver.wait(place)
    }

    fn place(&mut self) -> Option<CUstream> {
        self.places[self.draw(3) as usize]
    }

    /// A number below `limit`; the same sequence for the same seed (splitmix64).
    fn draw(&mut self, limit: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}
