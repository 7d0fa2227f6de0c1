//! What our own driver calls cost: counts, errors and a latency histogram for each function we call.
//!
//! Written by any thread with relaxed atomics, read by the statistics endpoint. Nothing allocates, nothing locks.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use wm_schema::{Bucket, DriverCall};

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

/// Declares the functions that this crate calls for the memory manager: one row a function.
macro_rules! probes {
    ($($name:ident,)*) => {
        /// One [`Probe`] a function.
        #[allow(non_snake_case, missing_docs, reason = "fields are named after the driver's functions")]
        #[derive(Debug)]
        pub struct Probes {
            $(pub(crate) $name: Probe,)*
        }

        impl Probes {
            pub(crate) const fn new() -> Self {
                Self { $($name: Probe::new(),)* }
            }

            /// Every function that has been called.
            pub fn read(&self) -> Vec<DriverCall> {
                [$(self.$name.read(stringify!($name)),)*].into_iter().filter(|r| r.count > 0).collect()
            }
        }
    };
}

probes! {
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
    cuMemcpyDtoHAsync_v2,
    cuMemcpyHtoDAsync_v2,
    cuStreamCreate,
    cuStreamIsCapturing,
    cuStreamWaitEvent,
}
