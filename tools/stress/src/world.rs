//! The state that all threads share: the driver, the devices, the wishes of the run, the counts,
//! and whether to go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::budget::Wish;
use crate::driver::{Driver, Failure, Result};
use crate::place::Place;
use crate::tally::Tally;

/// The run.
pub(crate) struct World {
    pub(crate) driver: Driver,
    pub(crate) places: Vec<Place>,
    pub(crate) wish: Wish,
    /// Largest usual block, as a part of the capacity.
    pub(crate) part: u64,
    pub(crate) seed: u64,
    /// Operations after which the run ends.
    pub(crate) operations: u64,
    /// The number of marks after which a foreign thread writes into a block. The checks must find
    /// it.
    pub(crate) sabotage: Option<usize>,
    pub(crate) tally: Tally,
    ended: AtomicBool,
    failure: Mutex<Option<Failure>>,
}

impl World {
    pub(crate) fn new(driver: Driver, places: Vec<Place>, wish: Wish, part: u64, seed: u64) -> Self {
        let operations = u64::MAX;
        let (tally, ended, failure) = (Tally::default(), AtomicBool::new(false), Mutex::default());
        Self { driver, places, wish, part, seed, operations, sabotage: None, tally, ended, failure }
    }

    /// Tells every thread to come to its end.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed) || self.tally.sum() >= self.operations
    }

    /// Keeps the first failure and ends the run.
    pub(crate) fn fail(&self, failure: Failure) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
        self.end();
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// The first failure, or the findings of a ledger.
    pub(crate) fn verdict(&self) -> Result {
        self.check()?;
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone().map_or(Ok(()), Err)
    }

    /// Fails if a check has found something.
    pub(crate) fn check(&self) -> Result {
        let mut findings = self.places.iter().map(|place| (place.ordinal, place.findings()));
        let wrong = findings.find(|(_, findings)| findings.wrong != 0);
        wrong.map_or(Ok(()), |(ordinal, findings)| {
            Err(Failure::of(format!("device {ordinal}: {}", findings.describe())))
        })
    }
}
