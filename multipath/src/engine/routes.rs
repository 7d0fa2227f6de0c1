//! Which links a copy may use now, and the claim on them.

use std::path::PathBuf;
use std::time::Duration;

use wm_abi::CUdevice;

use super::{Engine, Request};
use crate::enqueue::Copy;
use crate::links::Links;
use crate::share::{Link, Share};
use crate::topology::{Path, Topology};

/// Longest claim: a copy that was enqueued behind other work may start much later than it is claimed for.
const LONGEST: f64 = 10.0;

impl<L: Links> Engine<L> {
    pub(super) fn may_relay(&self, device: CUdevice) -> bool {
        self.settings.relays.as_ref().is_none_or(|relays| relays.contains(&device))
    }

    pub(super) fn share(&self) -> &Share {
        self.share.get_or_init(|| Share::new(self.settings.page.as_ref().map(PathBuf::from)))
    }

    /// The direct path, and relays over links that nobody else uses.
    pub(super) fn paths(&self, topology: &Topology, request: &Request) -> Vec<Path> {
        let Copy { user, direction, .. } = request.copy;
        let busy = self.share().busy(user.device);
        let is_idle = |device: &CUdevice| {
            let identity = topology.key.devices.get(*device as usize);
            identity.is_some_and(|identity| !busy.contains(&Link::of(identity, direction)))
        };
        let all = 0..topology.key.devices.len() as CUdevice;
        let usable = all.filter(|device| self.may_relay(*device) && !self.pool.is_lost(*device));
        let mut paths = topology.paths(user.device, direction, &usable.filter(is_idle).collect::<Vec<_>>());
        self.trims.apply(user.device, direction, &mut paths);
        paths
    }

    /// Claims the links of a copy for about as long as it takes.
    pub(super) fn claim(&self, topology: &Topology, request: &Request, paths: &[Path]) -> Vec<Link> {
        let identities = paths.iter().filter_map(|path| topology.key.devices.get(path.device as usize));
        let links: Vec<_> = identities.map(|device| Link::of(device, request.copy.direction)).collect();
        let rate: f64 = paths.iter().map(|path| path.rate).sum();
        let seconds = if rate > 0.0 { request.copy.bytes as f64 / rate } else { 0.0 };
        self.share().claim(request.copy.user.device, &links, Duration::from_secs_f64(seconds.min(LONGEST)));
        links
    }
}
