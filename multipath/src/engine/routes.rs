//! The links that a copy may use now, and the claim on them.

use std::path::PathBuf;
use std::time::Duration;

use wm_abi::CUdevice;

use crate::arbitration::link_claims::LinkClaims;
use crate::driver::CopyDriver;
use crate::engine::Inner;
use crate::engine::request::CopyRequest;
use crate::topology::Topology;
use crate::vocabulary::copy::{HostDeviceCopy, LinkDirection};
use crate::vocabulary::machine::Link;
use crate::vocabulary::path::Path;

/// Longest claim: a copy that was enqueued behind other work may start much later than its claim
/// assumes.
const LONGEST: f64 = 10.0;

impl<D: CopyDriver + 'static> Inner<D> {
    pub(super) fn may_relay(&self, device: CUdevice) -> bool {
        self.settings.relays.as_ref().is_none_or(|relays| relays.contains(&device))
    }

    pub(super) fn claims(&self) -> &LinkClaims {
        self.claims.get_or_init(|| LinkClaims::new(self.settings.page.as_ref().map(PathBuf::from)))
    }

    /// The direct path, and relays over idle links. A copy that meets one of the opposite direction
    /// gets no relay, and a device that was not measured gets no path.
    pub(super) fn routes(&self, topology: &Topology, copy: &HostDeviceCopy) -> Vec<Path> {
        let meets = self.opposing.meets(copy, self.driver.clock());
        let usable = if meets { Vec::new() } else { self.usable(topology, copy) };
        let mut paths = topology.paths(copy.user.device, copy.direction, &usable);
        self.corrections.apply(copy.user.device, copy.direction, &mut paths);
        paths
    }

    /// Siblings that may relay now: those on which we have a context. The others are opened once
    /// the copies have missed as much time as opening them takes.
    fn usable(&self, topology: &Topology, copy: &HostDeviceCopy) -> Vec<CUdevice> {
        let idle = self.idle(topology, copy);
        let paths = |usable: &[CUdevice]| topology.paths(copy.user.device, copy.direction, usable);
        let all = paths(&idle);
        let closed = all.iter().skip(1).map(|path| path.device).filter(|device| !self.pool.is_open(*device));
        let closed: Vec<_> = closed.collect();
        let open =
            |idle: Vec<CUdevice>| idle.into_iter().filter(|device| self.pool.is_open(*device)).collect();
        let threshold = self.settings.minimum.unwrap_or_else(|| topology.threshold(&all, copy.direction));
        if closed.is_empty() || copy.bytes < threshold {
            return open(idle);
        }
        let now = paths(&open(idle.clone()));
        let rate = |paths: &[Path]| paths.iter().map(|path| path.rate).sum();
        let opening = Duration::from_secs_f64(topology.costs.open * closed.len() as f64);
        if self.settings.eager || self.deferred.note(copy.bytes, rate(&now), rate(&all), opening) {
            self.open(closed);
        }
        open(idle)
    }

    /// Siblings that may relay and whose links are idle in both directions, since a relay takes
    /// bandwidth from a copy in the opposite direction too.
    fn idle(&self, topology: &Topology, copy: &HostDeviceCopy) -> Vec<CUdevice> {
        let busy = self.claims().busy(copy.user.device);
        let ways = [LinkDirection::In, LinkDirection::Out];
        let is_idle = |device: &CUdevice| {
            let identity = topology.key.devices.get(*device as usize);
            identity.is_some_and(|identity| ways.iter().all(|way| !busy.contains(&Link::of(identity, *way))))
        };
        let all = 0..topology.key.devices.len() as CUdevice;
        let now = self.driver.clock();
        let usable = all.filter(|device| self.may_relay(*device) && !self.pool.is_lost(*device, now));
        usable.filter(is_idle).collect()
    }

    /// Claims the links of a copy for about as long as it takes.
    pub(super) fn claim(&self, topology: &Topology, copy: &HostDeviceCopy, paths: &[Path]) -> Vec<Link> {
        let identities = paths.iter().filter_map(|path| topology.key.devices.get(path.device as usize));
        let links: Vec<_> = identities.map(|device| Link::of(device, copy.direction)).collect();
        let rate: f64 = paths.iter().map(|path| path.rate).sum();
        let seconds = if rate > 0.0 { copy.bytes as f64 / rate } else { 0.0 };
        let takes = Duration::from_secs_f64(seconds.min(LONGEST));
        self.claims().claim(copy.user.device, &links, takes);
        self.opposing.begin(copy, self.driver.clock(), takes);
        links
    }

    /// Releases the claim of a copy whose caller waited, and the relays of any other one that is
    /// plain.
    pub(super) fn release(&self, request: &CopyRequest, claimed: &[Link], plain: bool) {
        let copy = &request.copy;
        if request.blocks() {
            self.claims().release(copy.user.device, claimed);
            self.opposing.end(copy, self.driver.clock());
        } else if plain {
            self.claims().release(copy.user.device, claimed.get(1..).unwrap_or(&[]));
        }
    }
}
