//! The end of the process: rows that other ranks wait for are sent before, and meetings that were
//! given up come to their end.
//!
//! A program may end right after a call that has returned, while its rank still serves others.
//! Without the wait these would lose the rank, and with it the rows of calls that have returned.

use std::convert::Infallible;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use wm_driver::departure;

use crate::spanning::network::Network;
use crate::spanning::watch::RankWatch;

/// The pause between two looks.
const PAUSE: Duration = Duration::from_micros(100);
/// How long calls of the driver in threads of ours may take at the end.
const LAST_CALLS: Duration = Duration::from_millis(500);

/// The networks of the process.
static NETWORKS: Mutex<Vec<Weak<Network>>> = Mutex::new(Vec::new());

/// A thread's calls of NCCL's that were given up.
#[derive(Debug)]
struct Abandoned {
    ended: Receiver<Infallible>,
    deadline: Instant,
    process: u32,
}

/// Those of the process.
static ABANDONED: Mutex<Vec<Abandoned>> = Mutex::new(Vec::new());

/// Has the process wait, before it ends, until `ended` is closed, and no longer than the deadline.
pub(super) fn before_end_of(ended: Receiver<Infallible>, deadline: Instant) {
    let now = Instant::now();
    let mut all = ABANDONED.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|other| now < other.deadline);
    all.push(Abandoned { ended, deadline, process: std::process::id() });
    drop(all);
    departure::before_exit(leave);
}

/// Waits for calls that were given up. A child of a fork has none of the threads.
fn wait_for_abandoned() {
    let Ok(all) = ABANDONED.try_lock().map(|mut all| std::mem::take(&mut *all)) else { return };
    for Abandoned { ended, deadline, process } in all {
        if process == std::process::id() {
            let _over = ended.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        }
    }
}

/// Has the process wait, before it ends, for the rows that a network has under way.
pub(super) fn before(network: &Arc<Network>) {
    let mut networks = NETWORKS.lock().unwrap_or_else(PoisonError::into_inner);
    networks.retain(|network| network.strong_count() > 0);
    networks.push(Arc::downgrade(network));
    drop(networks);
    departure::before_exit(leave);
}

extern "C" fn leave() {
    wait_for_abandoned();
    // A thread that holds it has not ended: the rows of its network are not waited for.
    let Ok(networks) = NETWORKS.try_lock().map(|networks| networks.clone()) else { return };
    for network in networks {
        if let Some(network) = network.upgrade().filter(|network| network.is_own()) {
            let mut watch = RankWatch::new(network.patience());
            while matches!(network.have_rows_come(), Ok(false)) && watch.look(&network).is_ok() {
                std::thread::sleep(PAUSE);
            }
        }
    }
    departure::close(LAST_CALLS);
}

#[cfg(test)]
mod tests {
    //! Hazard (process lifecycle): a process ends while NCCL's threads begin, or does not end since
    //! a call of NCCL's does not return.
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn the_end_waits_for_calls_that_were_given_up_and_not_past_their_deadline() {
        let (open, ended) = channel();
        before_end_of(ended, Instant::now() + Duration::from_secs(60));
        let call = thread::spawn(move || drop(open));
        wait_for_abandoned();
        call.join().expect("no panic");

        let (_never_closed, ended) = channel();
        let deadline = Instant::now() + Duration::from_millis(50);
        before_end_of(ended, deadline);
        wait_for_abandoned();
        assert!(Instant::now() >= deadline, "it is waited for");
    }
}
