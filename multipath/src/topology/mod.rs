//! The rates of this machine's links: measured once, judged purely.
//!
//! Names and slot numbers say little: GPUs share uplinks, and the host's memory has a ceiling of
//! its own, different for the two directions. So [`crate::measure`] measures, and
//! [`Topology::paths`] derives from the [`Rates`] which relays add to a copy, and at which rate. A
//! relay behind the target's own uplink, or behind one in use, adds nothing and is not used.
//!
//! Rates are bytes a second. Devices are ordinals of this process; [`MachineKey`] ties a topology
//! to the machine and to the devices that this process sees.

pub mod cache;
pub(crate) mod correction;
pub mod picture;
pub(crate) mod rates;

use serde::{Deserialize, Serialize};
use wm_abi::CUdevice;

use crate::plan;
use crate::topology::rates::Rates;
use crate::vocabulary::copy::LinkDirection;
use crate::vocabulary::machine::MachineKey;
use crate::vocabulary::path::{Costs, Path};

/// The measured machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Topology {
    /// The machine and the devices.
    pub key: MachineKey,
    /// `reach[a][b]`: device `a` can use memory of device `b`.
    pub reach: Vec<Vec<bool>>,
    /// Host to device.
    pub into: Rates,
    /// Device to host.
    pub out: Rates,
    /// The costs of splitting a copy.
    pub costs: Costs,
}

impl Topology {
    /// Rates of a direction.
    pub fn rates(&self, direction: LinkDirection) -> &Rates {
        match direction {
            LinkDirection::In => &self.into,
            LinkDirection::Out => &self.out,
        }
    }

    /// The paths of a copy to or from `target`: the direct one first, then each relay of `usable`
    /// that adds enough, the best first.
    pub fn paths(&self, target: CUdevice, direction: LinkDirection, usable: &[CUdevice]) -> Vec<Path> {
        let rates = self.rates(direction);
        let Some(direct) = rates.index(target) else { return Vec::new() };
        let mut chosen = vec![direct];
        let mut candidates: Vec<usize> = usable
            .iter()
            .filter_map(|device| rates.index(*device))
            .filter(|index| *index != direct && self.reaches(direct, *index))
            .collect();
        while let Some(best) = rates.best(&chosen, &candidates) {
            chosen.push(best);
            candidates.retain(|candidate| *candidate != best);
        }
        let carried = rates.carried(&chosen);
        chosen.iter().zip(carried).map(|(index, rate)| Path { device: *index as CUdevice, rate }).collect()
    }

    /// The target uses the relay's staging memory, for both directions of a copy.
    fn reaches(&self, target: usize, relay: usize) -> bool {
        self.reach.get(target).and_then(|row| row.get(relay)).copied().unwrap_or(false)
    }

    /// The size in bytes from which a copy over these paths beats the plain one.
    pub fn threshold(&self, paths: &[Path], direction: LinkDirection) -> usize {
        let Some(direct) = paths.first() else { return usize::MAX };
        let alone = self.rates(direction).alone[direct.device as usize];
        plan::threshold(alone, paths.iter().map(|path| path.rate).sum(), self.costs.fixed)
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: relays that share the target's uplink slow the copy down, and look like a gain.
    use super::*;
    use crate::vocabulary::machine::Identity;

    const IN: LinkDirection = LinkDirection::In;

    /// Eight links of 55 GB/s in pairs behind uplinks of 52, and a ceiling.
    fn pairs(ceiling: f64) -> Rates {
        let sum = |a: usize, b: usize| if a / 2 == b / 2 { 52.0 } else { 110.0_f64.min(ceiling) };
        let together = (0..8).map(|a| (0..8).map(|b| sum(a, b)).collect()).collect();
        Rates { alone: vec![55.0; 8], together, all: ceiling }
    }

    fn machine() -> Topology {
        let identity = |n: usize| Identity { uuid: n.to_string(), pci: n.to_string(), numa: None };
        let key = MachineKey { driver: 13_000, devices: (0..8).map(identity).collect() };
        let (reach, costs) = (vec![vec![true; 8]; 8], Costs { fixed: 1e-4, ..Costs::default() });
        Topology { key, reach, into: pairs(208.0), out: pairs(116.0), costs }
    }

    fn devices(paths: &[Path]) -> Vec<CUdevice> {
        paths.iter().map(|path| path.device).collect()
    }

    #[test]
    fn one_relay_an_uplink_and_never_the_targets_own() {
        let paths = machine().paths(3, IN, &[0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(devices(&paths), [3, 0, 4, 6]);
        let sum: f64 = paths.iter().map(|path| path.rate).sum();
        assert!((sum - 208.0).abs() < 1.0, "{sum}");
    }

    #[test]
    fn the_hosts_ceiling_limits_how_many_relays_pay() {
        let paths = machine().paths(0, LinkDirection::Out, &[1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(devices(&paths), [0, 2, 4]);
    }

    #[test]
    fn a_device_out_of_reach_is_no_relay() {
        let mut machine = machine();
        machine.reach[0] = vec![false; 8];
        assert_eq!(devices(&machine.paths(0, IN, &[1, 2, 3])), [0]);
    }

    #[test]
    fn uplinks_are_found() {
        assert_eq!(pairs(208.0).uplinks(), [[0, 1], [2, 3], [4, 5], [6, 7]]);
    }

    #[test]
    fn an_unknown_device_has_no_path() {
        assert!(machine().paths(8, IN, &[0]).is_empty());
        assert!(machine().paths(-1, IN, &[0]).is_empty());
    }

    #[test]
    fn a_slower_machine_has_a_higher_threshold() {
        let mut machine = machine();
        machine.into = Rates { alone: vec![55e9; 8], together: vec![vec![110e9; 8]; 8], all: 208e9 };
        let paths = machine.paths(0, IN, &[2]);
        let quick = machine.threshold(&paths, IN);
        machine.costs.fixed *= 10.0;
        assert!(machine.threshold(&paths, IN) > 5 * quick);
        assert_eq!(machine.threshold(&paths[..1], IN), usize::MAX);
    }
}
