//! The targets that copy in both directions at once. It has a lock and no other side effect.
//!
//! A link carries less in one direction while the other direction is busy, and a host's memory has
//! one ceiling for both. If two copies of opposite directions each use all links, they slow each
//! other down and pay for relays on top. Measured on two H200s: 0.85 to 1.01 of plain copies,
//! though the links together could carry more. So a copy asks here whether it meets another one; if
//! so, it uses its own link only.
//!
//! The driver does not report when an asynchronous copy ends. A copy is taken to be in flight for
//! [`SURE`] of its expected time, so that copies which closely follow each other do not count as
//! copies that meet. Copies of one stream never meet. After two copies have met, the next ones are
//! expected to meet too: a copy that is already split cannot be undone when the other direction
//! begins.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use wm_abi::{CUdevice, CUstream};
use wm_driver::lock;

use crate::vocabulary::copy::{HostDeviceCopy, LinkDirection};

/// The fraction of its expected time for which a copy is certainly in flight.
const SURE: f64 = 0.75;
/// Copies that met are expected to meet again for this multiple of the later one's time...
const REMEMBERED: u32 = 4;
/// ... and for this long at least: a program does other work between short copies.
const SHORTEST: Duration = Duration::from_millis(5);

/// A direction of a target in use.
#[derive(Debug, Clone, Copy)]
struct ActiveCopy {
    direction: LinkDirection,
    stream: CUstream,
    until: Duration,
}

/// The copies of one target.
#[derive(Debug, Default)]
struct TargetTraffic {
    flows: Vec<ActiveCopy>,
    /// Until when copies are expected to meet others.
    crossed: Duration,
}

impl TargetTraffic {
    fn is_opposed(&self, copy: &HostDeviceCopy, now: Duration) -> bool {
        let opposes = |flow: &ActiveCopy| {
            flow.direction != copy.direction && flow.stream != copy.user.stream && flow.until > now
        };
        self.flows.iter().any(opposes)
    }

    fn forget(&mut self, copy: &HostDeviceCopy, now: Duration) {
        let is_it = |flow: &ActiveCopy| (flow.direction, flow.stream) == (copy.direction, copy.user.stream);
        self.flows.retain(|flow| flow.until > now && !is_it(flow));
    }
}

/// The copies of all targets.
#[derive(Debug, Default)]
pub(crate) struct OpposingTraffic {
    known: Mutex<BTreeMap<CUdevice, TargetTraffic>>,
}

impl OpposingTraffic {
    /// Does a copy meet one of the opposite direction now, or is it expected to?
    pub(crate) fn meets(&self, copy: &HostDeviceCopy, now: Duration) -> bool {
        let meets = |target: &TargetTraffic| target.crossed > now || target.is_opposed(copy, now);
        self.known().get(&copy.user.device).is_some_and(meets)
    }

    /// A copy begins, with its expected duration.
    pub(crate) fn begin(&self, copy: &HostDeviceCopy, now: Duration, takes: Duration) {
        let mut known = self.known();
        let target = known.entry(copy.user.device).or_default();
        if target.is_opposed(copy, now) {
            target.crossed = target.crossed.max(now + SHORTEST.max(takes * REMEMBERED));
        }
        target.forget(copy, now);
        let until = now + takes.mul_f64(SURE);
        target.flows.push(ActiveCopy { direction: copy.direction, stream: copy.user.stream, until });
    }

    /// A copy is over, as its caller has seen.
    pub(crate) fn end(&self, copy: &HostDeviceCopy, now: Duration) {
        if let Some(target) = self.known().get_mut(&copy.user.device) {
            target.forget(copy, now);
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<CUdevice, TargetTraffic>> {
        lock(&self.known)
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: copies of opposite directions take from each other, or a program whose copies never
    //! meet loses its relays.
    use super::*;
    use crate::vocabulary::stream::{Home, ProgramStream, StreamOrdering};
    use wm_abi::CUcontext;

    const TAKES: Duration = Duration::from_millis(10);

    fn copy(direction: LinkDirection, stream: usize, device: CUdevice) -> HostDeviceCopy {
        let home = Home { context: CUcontext(1), life: 1 };
        let user = ProgramStream { home, device, stream: CUstream(stream), kind: StreamOrdering::Alone };
        HostDeviceCopy { user, direction, host: 0, device: 0, bytes: 1 }
    }

    fn at(milliseconds: u64) -> Duration {
        Duration::from_secs(1) + Duration::from_millis(milliseconds)
    }

    /// Does a copy meet another one that began at 0?
    fn meets(first: &HostDeviceCopy, second: &HostDeviceCopy, now: u64) -> bool {
        let opposing = OpposingTraffic::default();
        opposing.begin(first, at(0), TAKES);
        opposing.meets(second, at(now))
    }

    #[test]
    fn only_opposite_directions_of_one_target_meet_and_not_in_one_stream() {
        let into = copy(LinkDirection::In, 1, 0);
        assert!(meets(&into, &copy(LinkDirection::Out, 2, 0), 1));
        for other in
            [copy(LinkDirection::In, 2, 0), copy(LinkDirection::Out, 1, 0), copy(LinkDirection::Out, 2, 1)]
        {
            assert!(!meets(&into, &other, 1), "{other:?}");
        }
    }

    #[test]
    fn copies_that_follow_each_other_closely_do_not_meet() {
        assert!(!meets(&copy(LinkDirection::In, 1, 0), &copy(LinkDirection::Out, 2, 0), 8));
        let (opposing, into) = (OpposingTraffic::default(), copy(LinkDirection::In, 1, 0));
        opposing.begin(&into, at(0), TAKES);
        opposing.end(&into, at(1));
        assert!(!opposing.meets(&copy(LinkDirection::Out, 2, 0), at(1)), "its caller waited");
    }

    #[test]
    fn where_copies_met_they_are_expected_to_meet_again_for_a_while() {
        let opposing = OpposingTraffic::default();
        let (into, out) = (copy(LinkDirection::In, 1, 0), copy(LinkDirection::Out, 2, 0));
        opposing.begin(&into, at(0), TAKES);
        opposing.begin(&out, at(0), TAKES);
        assert!(opposing.meets(&into, at(30)));
        assert!(!opposing.meets(&into, at(41)));
    }

    #[test]
    fn nothing_is_kept_of_copies_that_have_ended() {
        let opposing = OpposingTraffic::default();
        for stream in 0..100 {
            opposing.begin(&copy(LinkDirection::In, stream, 0), at(stream as u64 * 20), TAKES);
        }
        assert_eq!(opposing.known()[&0].flows.len(), 1);
    }
}
