//! Looks at a rank's network: in each wait of a call, and on a thread of ours while rows of calls
//! that have returned are under way.
//!
//! The thread sleeps while no rows are. It makes no call of the driver, and waits for no lock of
//! the program's, which may hold the fabric and be inside a call of the driver that waits for rows.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::spanning::network::Network;

/// Bytes of the thread's stack: it asks NCCL for its error.
const STACK: usize = 256 << 10;
/// A rank that has ended may have sent all that this one waits for: it arrives within this time.
const GRACE: Duration = Duration::from_millis(500);
/// How often other ranks are looked at.
const INTERVAL: Duration = Duration::from_millis(2);

/// The looks of one wait.
#[derive(Debug)]
pub(super) struct RankWatch {
    start: Instant,
    patience: Duration,
    looked: Instant,
    ended: Option<(Instant, Error)>,
}

impl RankWatch {
    /// A wait that begins now.
    pub(super) fn new(patience: Duration) -> Self {
        let start = Instant::now();
        Self { start, patience, looked: start, ended: None }
    }

    /// How long it has taken.
    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Looks, if the last look was some time ago.
    ///
    /// # Errors
    /// [`Error::Communication`] where a rank was lost some time ago, or does not come.
    pub(super) fn look(&mut self, network: &Network) -> Result {
        let now = Instant::now();
        if now - self.looked >= INTERVAL && self.ended.is_none() {
            self.looked = now;
            self.ended = network.check().err().map(|error| (now, error));
        }
        match &self.ended {
            Some((since, error)) if now - *since >= GRACE => Err(error.clone()),
            _ if now - self.start >= self.patience => {
                let patience = self.patience;
                let late = format!("ranks of other islands did not answer within {patience:?}");
                Err(Error::Communication(late))
            }
            _ => Ok(()),
        }
    }
}

/// What is under way.
#[derive(Debug, Default)]
struct Rows {
    /// A call puts rows into streams.
    is_passing: bool,
    /// Calls that have returned, so far.
    returned: u64,
    /// Of those, the ones whose rows have come.
    come: u64,
    /// No more calls.
    has_ended: bool,
}

impl Rows {
    fn are_under_way(&self) -> bool {
        self.is_passing || self.come < self.returned
    }
}

#[derive(Debug, Default)]
struct Shared {
    rows: Mutex<Rows>,
    changed: Condvar,
}

impl Shared {
    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is under way; wakes the thread if it sleeps because nothing was.
    fn change(&self, change: impl FnOnce(&mut Rows)) {
        let mut rows = self.rows();
        let was_idle = !rows.are_under_way();
        change(&mut rows);
        if was_idle || rows.has_ended {
            self.changed.notify_one();
        }
    }

    /// Sleeps until rows are under way. False at the end.
    fn sleep(&self) -> bool {
        let rows = self.rows();
        let is_idle = |rows: &mut Rows| !rows.are_under_way() && !rows.has_ended;
        let rows = self.changed.wait_while(rows, is_idle).unwrap_or_else(PoisonError::into_inner);
        !rows.has_ended
    }

    /// Sleeps until the next look.
    fn pause(&self) {
        let rows = self.rows();
        let goes_on = |rows: &mut Rows| !rows.has_ended;
        let _rest = self.changed.wait_timeout_while(rows, INTERVAL, goes_on);
    }
}

/// The thread. It ends when this is dropped, and after a loss.
#[derive(Debug)]
pub(super) struct WatchThread(Arc<Shared>);

impl WatchThread {
    /// Begins to look at a network.
    ///
    /// # Errors
    /// [`Error::System`] where no thread begins.
    pub(super) fn begin(network: &Arc<Network>) -> Result<Self> {
        let (shared, network) = (Arc::new(Shared::default()), Arc::downgrade(network));
        let seen = Arc::clone(&shared);
        wm_driver::thread::spawn(c"wm-nccl-watch", STACK, move || watch(&seen, &network))
            .map_err(|error| Error::System(format!("a thread to watch ranks: {error}")))?;
        Ok(Self(shared))
    }

    /// A call begins to put rows into streams: it may be held up there by the network.
    pub(super) fn passes(&self) {
        self.0.change(|rows| rows.is_passing = true);
    }

    /// The number of the call that passes rows: the first one has 1.
    pub(super) fn number(&self) -> u64 {
        self.0.rows().returned + 1
    }

    /// A call returns, behind [`Network::end_call`].
    pub(super) fn returns(&self) {
        self.0.change(|rows| {
            rows.is_passing = false;
            rows.returned += 1;
        });
    }
}

impl Drop for WatchThread {
    fn drop(&mut self) {
        self.0.change(|rows| rows.has_ended = true);
    }
}

fn watch(shared: &Shared, network: &Weak<Network>) {
    let mut wait: Option<(u64, RankWatch)> = None;
    while shared.sleep() {
        let Some(network) = network.upgrade() else { return };
        let mut rows = shared.rows();
        rows.come = network.come();
        let (is_idle, returned) = (!rows.are_under_way(), rows.returned);
        drop(rows);
        if is_idle {
            wait = None;
            continue;
        }
        // If a call has returned since, the ranks are there, and the wait begins again.
        let current = wait.take().filter(|(of, _)| *of == returned);
        let (_, watch) =
            wait.insert(current.unwrap_or_else(|| (returned, RankWatch::new(network.patience()))));
        if let Err(error) = watch.look(&network) {
            network.lose(&error);
            return;
        }
        drop(network);
        shared.pause();
    }
}
