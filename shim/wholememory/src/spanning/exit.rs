//! The end of the process: rows that other ranks wait for are sent before.
//!
//! A program may end right after a call that has returned, while its rank still serves others.
//! Without the wait these would lose the rank, and with it the rows of calls that have returned.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use wm_driver::departure;

use crate::spanning::network::Network;
use crate::spanning::watch::RankWatch;

/// The pause between two looks.
const PAUSE: Duration = Duration::from_micros(100);
/// How long calls of the driver in threads of ours may take at the end.
const LAST_CALLS: Duration = Duration::from_millis(500);

/// The networks of the process.
static NETWORKS: Mutex<Vec<Weak<Network>>> = Mutex::new(Vec::new());

/// Has the process wait, before it ends, for the rows that a network has under way.
pub(super) fn before(network: &Arc<Network>) {
    let mut networks = NETWORKS.lock().unwrap_or_else(PoisonError::into_inner);
    networks.retain(|network| network.strong_count() > 0);
    networks.push(Arc::downgrade(network));
    drop(networks);
    departure::before_exit(leave);
}

extern "C" fn leave() {
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
