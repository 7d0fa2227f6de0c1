//! The cost of our own driver calls: counts, errors and a latency histogram for each function.
//!
//! Any thread writes them with relaxed atomics, the statistics endpoint reads them. Nothing here
//! allocates or locks.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use wm_abi::CUresult;
use wm_abi::symbol::{self, Symbol};
use wm_schema::{Bucket, DriverCall};

use crate::api::Api;
use crate::table::Table;
use crate::thread::Uncancelled;

/// Upper bounds of the histogram's buckets in nanoseconds; the last bucket has none.
pub const BOUNDS_NS: [u64; 11] = [
    1_000,
    4_000,
    16_000,
    64_000,
    256_000,
    1_000_000,
    4_000_000,
    16_000_000,
    64_000_000,
    256_000_000,
    1_000_000_000,
];

/// Figures of one driver function.
#[derive(Debug)]
pub struct Probe {
    count: AtomicU64,
    errors: AtomicU64,
    total_ns: AtomicU64,
    buckets: [AtomicU64; BOUNDS_NS.len() + 1],
}

impl Probe {
    pub(crate) const fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            total_ns: AtomicU64::new(0),
            buckets: [const { AtomicU64::new(0) }; BOUNDS_NS.len() + 1],
        }
    }

    /// Counts one call that began at `start`.
    pub(crate) fn note(&self, start: Instant, failed: bool) {
        let ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_NS.iter().position(|bound| ns <= *bound).unwrap_or(BOUNDS_NS.len());
        self.count.fetch_add(1, Relaxed);
        self.errors.fetch_add(u64::from(failed), Relaxed);
        self.total_ns.fetch_add(ns, Relaxed);
        self.buckets[bucket].fetch_add(1, Relaxed);
    }

    pub(crate) fn read(&self, name: &str) -> DriverCall {
        let counts = self.buckets.iter().map(|bucket| bucket.load(Relaxed));
        let bounds = BOUNDS_NS.iter().map(|bound| Some(*bound)).chain([None]);
        let histogram = bounds.zip(counts).filter(|(_, count)| *count > 0);
        DriverCall {
            name: name.to_owned(),
            count: self.count.load(Relaxed),
            errors: self.errors.load(Relaxed),
            total_ns: self.total_ns.load(Relaxed),
            histogram: histogram.map(|(le_ns, count)| Bucket { le_ns, count }).collect(),
        }
    }
}

/// Declares the functions that are measured, by name.
macro_rules! measured {
    ($($name:ident,)*) => {
        const MEASURED: &[(usize, &str)] = &[$((symbol::$name::INDEX, stringify!($name)),)*];
    };
}

measured! {
    cuCtxRecordEvent,
    cuCtxSynchronize,
    cuEventCreate,
    cuEventQuery,
    cuEventRecord,
    cuEventSynchronize,
    cuMemAddressFree,
    cuMemAddressReserve,
    cuMemAllocFromPoolAsync,
    cuMemCreate,
    cuMemFreeAsync,
    cuMemGetInfo_v2,
    cuMemHostRegister_v2,
    cuMemMap,
    cuMemRelease,
    cuMemSetAccess,
    cuMemUnmap,
    cuMemcpyDtoDAsync_v2,
    cuMemcpyDtoHAsync_v2,
    cuMemcpyHtoDAsync_v2,
    cuStreamCreate,
    cuStreamDestroy_v2,
    cuStreamIsCapturing,
    cuStreamSynchronize,
    cuStreamWaitEvent,
}

/// The position of a function among the measured ones. To call another one through [`Measured`],
/// name it above.
const fn position(index: usize) -> usize {
    let mut position = 0;
    while MEASURED[position].0 != index {
        position += 1;
    }
    position
}

/// One [`Probe`] a function.
#[derive(Debug)]
pub struct Probes([Probe; MEASURED.len()]);

impl Probes {
    pub(crate) const fn new() -> Self {
        Self([const { Probe::new() }; MEASURED.len()])
    }

    /// Every function that has been called.
    pub fn read(&self) -> Vec<DriverCall> {
        let named = MEASURED.iter().zip(&self.0);
        named.map(|((_, name), probe)| probe.read(name)).filter(|reading| reading.count > 0).collect()
    }

    fn of<S: Symbol>(&self) -> &Probe {
        &self.0[const { position(S::INDEX) }]
    }
}

/// A driver whose calls are measured and not interrupted: a cancelled thread ends before such a
/// call or after it.
#[derive(Debug)]
pub(crate) struct Measured<'a> {
    pub(crate) driver: &'a Table,
    pub(crate) probes: &'a Probes,
}

impl Api for Measured<'_> {
    type Error = CUresult;

    fn call<S: Symbol>(&self, call: impl FnOnce(S::Function) -> CUresult) -> CUresult {
        let _whole = Uncancelled::new();
        let start = Instant::now();
        let code = self.driver.call::<S>(call);
        self.probes.of::<S>().note(start, code != CUresult::SUCCESS);
        if code != CUresult::SUCCESS && code != CUresult::NOT_READY {
            log::debug!("{}: {code}", S::NAME.to_string_lossy());
        }
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hazard: a query that is repeated until it is no longer "not yet" counts as twice as many
    /// calls.
    #[test]
    fn a_call_is_counted_once_whatever_it_answers() {
        let (driver, probes) = (Table::empty(), Probes::new());
        let measured = Measured { driver: &driver, probes: &probes };
        assert_eq!(measured.event_query(wm_abi::CUevent::NULL), Err(CUresult::NOT_SUPPORTED));
        let [reading] = &probes.read()[..] else { panic!("one function was called") };
        assert_eq!((reading.name.as_str(), reading.count, reading.errors), ("cuEventQuery", 1, 1));
    }
}
