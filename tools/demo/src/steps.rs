//! The program, step by step. Sizes follow the memory that is free at the start, so that
//! a small simulated device and a large real one see the same pattern.

use std::io;

use wm_driver::Api;

use crate::account::{self, size};
use crate::blocks::{Block, PAGE};
use crate::driver::{Device, Driver, Failure};

/// Block sizes in units of a thousandth of the device: mixed, as programs are.
const MIXED: [u64; 7] = [1, 12, 3, 32, 7, 2, 20];
/// Larger than any hole that freeing one of [`MIXED`] leaves.
const LARGE: [u64; 1] = [48];
/// Sizes of the blocks that the program allocates once the device is full.
const BEYOND: [u64; 3] = [16, 48, 5];

/// The program's state: its blocks, and the number of the next one.
struct Program<'a> {
    driver: &'a Driver,
    blocks: Vec<Block>,
    next: u32,
    /// Bytes that the entries of the size tables are multiples of.
    unit: u64,
}

/// Fills, fragments, exceeds, checks.
pub(crate) fn outgrow(driver: &Driver, device: &Device, exceed: f64) -> Result<(), Failure> {
    let goal = (device.free as f64 * exceed) as u64;
    let (free, total, asked) = (size(device.free), size(device.total), size(goal));
    println!("  {}: {total}, {free} free. This program will hold {asked}.", device.name);
    account::heading();
    let unit = (device.free / 1024 / PAGE).max(1) * PAGE;
    let mut program = Program { driver, blocks: Vec::new(), next: 0, unit };
    program.grow("fill the device", &MIXED, device.free / 10 * 9)?;
    program.fragment()?;
    program.grow("ask for more than a hole", &LARGE, device.free / 10 * 9)?;
    program.grow("ask for more than there is", &BEYOND, goal)?;
    program.check()?;
    program.finish()
}

impl Program<'_> {
    fn held(&self) -> u64 {
        self.blocks.iter().map(|block| block.bytes).sum()
    }

    /// Frees every other block: the free memory is fragmented then.
    fn fragment(&mut self) -> Result<(), Failure> {
        let blocks = std::mem::take(&mut self.blocks);
        let (kept, freed): (Vec<_>, Vec<_>) = blocks.into_iter().enumerate().partition(|(i, _)| i % 2 == 0);
        let count = freed.len();
        let largest = freed.iter().map(|(_, block)| block.bytes).max().unwrap_or(0);
        freed.into_iter().try_for_each(|(_, block)| block.free(self.driver))?;
        self.blocks = kept.into_iter().map(|(_, block)| block).collect();
        self.driver.wait()?;
        account::step("free every other block", count, &format!("up to {}", size(largest)), self.held());
        Ok(())
    }

    /// Allocates and writes blocks of `sizes` in turn until the program holds `goal` bytes.
    fn grow(&mut self, name: &str, sizes: &[u64], goal: u64) -> Result<(), Failure> {
        let before = self.blocks.len();
        let mut turn = sizes.iter().cycle();
        while self.held() < goal {
            let bytes = turn.next().map_or(PAGE, |factor| factor * self.unit);
            self.add(bytes).map_err(|failure| self.stopped(name, before, &failure))?;
        }
        self.driver.wait()?;
        account::step(name, self.blocks.len() - before, &self.range(sizes), self.held());
        Ok(())
    }

    fn add(&mut self, bytes: u64) -> Result<(), Failure> {
        self.blocks.push(Block::new(self.driver, bytes, self.next)?);
        self.next += 1;
        Ok(())
    }

    /// The failure with the step that it ended, and the program's memory at that time.
    fn stopped(&self, name: &str, before: usize, failure: &Failure) -> Failure {
        account::step(name, self.blocks.len() - before, "then the driver failed", self.held());
        let free = self.driver.mem_info().map_or_else(|_| "unknown".into(), |(free, _)| size(free as u64));
        Failure(format!("{failure} (the driver reports {free} free). The program ends here."))
    }

    fn range(&self, sizes: &[u64]) -> String {
        let (least, most) = (sizes.iter().min().unwrap_or(&0), sizes.iter().max().unwrap_or(&0));
        match (least * self.unit, most * self.unit) {
            (least, most) if least == most => size(most),
            (least, most) => format!("{} to {}", least >> 20, size(most)),
        }
    }

    fn check(&self) -> Result<(), Failure> {
        self.blocks.iter().try_for_each(|block| block.check(self.driver))?;
        account::step("read every byte back", self.blocks.len(), "all as written", self.held());
        Ok(())
    }

    fn finish(self) -> Result<(), Failure> {
        let count = self.blocks.len();
        self.blocks.into_iter().try_for_each(|block| block.free(self.driver))?;
        self.driver.wait()?;
        account::step("free everything", count, "", 0);
        Ok(())
    }
}

/// Holds all free memory but `leave` bytes until standard input ends; says so when it does.
pub(crate) fn neighbour(driver: &Driver, leave: u64) -> Result<(), Failure> {
    let (free, _) = driver.mem_info()?;
    let bytes = (free as u64).saturating_sub(leave) / PAGE * PAGE;
    if bytes > 0 {
        driver.allocate(bytes, false)?;
    }
    println!("neighbour holds {}", size(bytes));
    io::copy(&mut io::stdin(), &mut io::sink()).map_err(|error| Failure(error.to_string()))?;
    Ok(())
}
