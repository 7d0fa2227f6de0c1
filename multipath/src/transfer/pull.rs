//! A pageable copy: workers pull chunks, each over its path, as fast as the path is.
//!
//! The direct path's workers take from the head, relays' from the tail. If a relay fails, it
//! returns its chunks and the direct path copies them, so the worst case is the plain copy.
//!
//! A core has to move pageable memory, and one core moves less than a link carries. So each worker
//! is a thread for the time of one copy, and the first one is the caller's own. No thread of ours
//! runs between copies, after a fork, or at exit.

use std::sync::Mutex;

use wm_abi::CUresult;
use wm_driver::thread;

use crate::driver::{CopyDriver, DriverResult};
use crate::transfer::chunk_queue::ChunkQueue;
use crate::transfer::path_worker::PathWorker;
use crate::vocabulary::copy::HostDeviceCopy;
use crate::vocabulary::times::ThreadTimes;

/// Stack of a worker's thread, bytes: it calls the driver and copies.
const STACK: usize = 512 << 10;

/// The state that workers share.
struct Job<'a> {
    copy: &'a HostDeviceCopy,
    queue: &'a Mutex<ChunkQueue>,
    waits: &'a ThreadTimes,
}

/// Carries a whole copy out and returns when every byte has arrived. The host has seen the copy's
/// start. The first worker must be a direct one; chunks are at most `largest` bytes. `waits` gets
/// the times of our threads on the cores.
///
/// # Errors
/// The direct path's error. Nothing is in flight any more, so the caller can make the plain call.
pub(crate) fn pull<D: CopyDriver>(
    driver: &D,
    copy: &HostDeviceCopy,
    largest: usize,
    workers: &mut [PathWorker],
    waits: &ThreadTimes,
) -> DriverResult<()> {
    let queue = Mutex::new(ChunkQueue::new(copy.bytes, largest, workers.len()));
    spread(driver, &Job { copy, queue: &queue, waits }, workers);
    // Chunks that a relay returned after the direct workers had finished.
    workers[0].run(driver, copy, &queue);
    let direct = workers.iter().filter(|worker| worker.relay().is_none());
    direct.filter_map(PathWorker::fault).next().map_or(Ok(()), |code: CUresult| Err(code))
}

/// Runs all workers, the first on this thread. Each thread starts one for half of its workers, so
/// that the last worker starts after logarithmically many steps. If a thread cannot be started, its
/// workers carry nothing.
fn spread<D: CopyDriver>(driver: &D, job: &Job<'_>, workers: &mut [PathWorker]) {
    if let [worker] = workers {
        return worker.run(driver, job.copy, job.queue);
    }
    let (near, far) = workers.split_at_mut(workers.len() / 2);
    let far = std::iter::once(move || {
        driver.quietly(|| spread(driver, job, far));
        driver.ran_and_waited().into_iter().for_each(|(ran, waited)| job.waits.add(ran, waited));
    });
    thread::beside(c"wm-copy", STACK, far, || spread(driver, job, near));
}
