//! A pageable copy: couriers pull pieces, each over its path, as fast as the path is.
//!
//! The direct path's couriers take from the head, relays' from the tail; a relay that fails gives its pieces back and the
//! direct path copies them, so the worst case is the plain copy.
//!
//! Pageable memory has to be moved, and one core moves less than a link carries: so a courier is a thread for the time of one
//! copy, and the first one is the caller's own. Nothing of ours runs between copies, after a fork, or at exit.

use std::sync::Mutex;

use wm_abi::CUresult;
use wm_driver::thread;

use crate::driver::{CopyDriver, DriverResult};
use crate::transfer::chunk_queue::ChunkQueue;
use crate::transfer::path_worker::PathWorker;
use crate::vocabulary::copy::HostDeviceCopy;
use crate::vocabulary::times::ThreadTimes;

/// Stack of a courier's thread, bytes: it calls the driver and copies.
const STACK: usize = 512 << 10;

/// What couriers have in common.
struct Job<'a> {
    copy: &'a HostDeviceCopy,
    work: &'a Mutex<ChunkQueue>,
    waits: &'a ThreadTimes,
}

/// Carries a whole copy out and returns when every byte has arrived. The host has seen the copy's start. The first courier
/// must be a direct one; pieces are at most `largest` bytes. `waits` learns what our threads had of the cores.
///
/// # Errors
/// The direct path's error. Nothing is under way any more: the caller can make the plain call.
pub(crate) fn pull<D: CopyDriver>(
    driver: &D,
    copy: &HostDeviceCopy,
    largest: usize,
    couriers: &mut [PathWorker],
    waits: &ThreadTimes,
) -> DriverResult<()> {
    let work = Mutex::new(ChunkQueue::new(copy.bytes, largest, couriers.len()));
    spread(driver, &Job { copy, work: &work, waits }, couriers);
    // Pieces that a relay gave back when the direct couriers had finished already.
    couriers[0].run(driver, copy, &work);
    let direct = couriers.iter().filter(|courier| courier.relay().is_none());
    direct.filter_map(PathWorker::fault).next().map_or(Ok(()), |code: CUresult| Err(code))
}

/// Runs all couriers, the first on this thread. Each thread makes one for half of what it has been given, so that the last
/// one starts after a few steps and not after as many as there are couriers. Those whose thread cannot be made carry
/// nothing.
fn spread<D: CopyDriver>(driver: &D, job: &Job<'_>, couriers: &mut [PathWorker]) {
    if let [courier] = couriers {
        return courier.run(driver, job.copy, job.work);
    }
    let (near, far) = couriers.split_at_mut(couriers.len() / 2);
    let far = std::iter::once(move || {
        driver.quietly(|| spread(driver, job, far));
        driver.ran_and_waited().into_iter().for_each(|(ran, waited)| job.waits.add(ran, waited));
    });
    thread::beside(c"wm-copy", STACK, far, || spread(driver, job, near));
}
