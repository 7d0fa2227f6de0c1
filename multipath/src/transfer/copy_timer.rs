//! Times a split copy without waiting for it: did the relays' shares arrive later than the direct
//! one?
//!
//! It records three events with times in the program's stream: at the start, behind the direct
//! share, and behind the whole copy. They are read when the next copy finds them complete. A
//! failure ends the timer, never the copy.

use wm_abi::{CUdevice, CUevent, CUstream};

use crate::driver::{CopyDriver, DriverResult, WaitMode};
use crate::transfer::resource_guard::ResourceGuard;
use crate::vocabulary::copy::{HostDeviceCopy, LinkDirection};
use crate::vocabulary::observation::Observation;
use crate::vocabulary::stream::{Home, ProgramStream};

/// The point of a copy that an event marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimerEvent {
    /// Before all parts of it.
    Start,
    /// Behind the direct share.
    Direct,
    /// Behind all parts of it.
    End,
}

/// Three events in a home.
#[derive(Debug)]
pub struct CopyTimer {
    home: Home,
    events: [CUevent; 3],
    /// The copy whose events are recorded and not read yet.
    pending: Option<(CUdevice, LinkDirection)>,
    broken: bool,
}

impl CopyTimer {
    /// A new timer in a home.
    ///
    /// # Errors
    /// Those of the driver; the events made before are destroyed.
    pub fn new<D: CopyDriver>(driver: &D, home: Home) -> DriverResult<Self> {
        let mut guard = ResourceGuard::new(driver, home.context);
        let events = guard.events(WaitMode::Timed)?;
        guard.keep();
        Ok(Self { home, events, pending: None, broken: false })
    }

    /// The context that it belongs to, and ends with.
    pub fn home(&self) -> Home {
        self.home
    }

    /// Is it useless from now on?
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Can a copy be marked? Not while an earlier one is in flight.
    pub fn is_free(&self) -> bool {
        self.pending.is_none() && !self.broken
    }

    /// Starts to time a copy.
    pub fn followed(&mut self, copy: &HostDeviceCopy) -> &mut Self {
        self.pending = Some((copy.user.device, copy.direction));
        self
    }

    /// Marks a point of the copy.
    pub fn mark<D: CopyDriver>(&mut self, driver: &D, user: ProgramStream, moment: TimerEvent) {
        let event = self.events[moment as usize];
        self.broken |= driver.record(self.home.context, event, user.stream).is_err();
    }

    /// The times of the last copy, if they are complete and have not been read.
    pub fn read<D: CopyDriver>(&mut self, driver: &D) -> Option<Observation> {
        let (target, direction) = self.pending.filter(|_| !self.broken)?;
        let [start, direct, end] = self.events;
        let times = driver.passed(self.home.context, end).and_then(|passed| {
            let between = |from, to| driver.elapsed(self.home.context, from, to);
            passed.then(|| Ok((between(start, direct)?, between(direct, end)?))).transpose()
        });
        self.broken |= times.is_err();
        let (direct, late) = times.ok().flatten()?;
        self.pending = None;
        Some(Observation { target, direction, direct: direct.as_secs_f64(), late: late.as_secs_f64() })
    }

    /// Destroys its events.
    pub fn close<D: CopyDriver>(self, driver: &D) {
        driver.retire(self.home.context, CUstream::NULL, &self.events);
    }
}
