//! What each rank says of itself when ranks meet, and the islands that follow from it.

use std::ffi::c_uint;

use serde::{Deserialize, Serialize};
use wm_abi::CUdevice;
use wm_driver::Api;
use wm_driver::api::Named;

use crate::error::Result;
use crate::exchange::Roster;
use crate::vocabulary::codes::Location;
use crate::vocabulary::islands::Islands;

/// A GPU's identity (`cuDeviceGetUuid`).
type DeviceId = [u8; 16];

/// A rank, as all ranks of a communicator know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankInfo {
    /// Its process.
    pub process: u32,
    /// Identity of its GPU.
    pub device: DeviceId,
    /// GPUs that its process sees and whose memory its GPU does not reach.
    pub unreached: Vec<DeviceId>,
    /// GPUs that its process sees and in whose memory its GPU does atomic operations: its own, and
    /// those that it reaches by NVLink.
    pub atomic: Vec<DeviceId>,
}

/// `CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED`
const NATIVE_ATOMICS: c_uint = 3;

impl RankInfo {
    /// What a rank with this GPU says.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn own(driver: Named<'static>, device: CUdevice) -> Result<Self> {
        let identity = |device| Ok::<_, crate::error::Error>(driver.device_uuid(device)?.bytes);
        let is_unreached = |other: &CUdevice| {
            *other != device
                && !matches!(driver.device_can_access_peer(device, *other), Ok(able) if able != 0)
        };
        let is_atomic = |other: &CUdevice| {
            *other == device
                || matches!(driver.device_p2p_attribute(NATIVE_ATOMICS, device, *other), Ok(able) if able != 0)
        };
        let unreached = (0..driver.device_count()?).filter(is_unreached).map(identity);
        let atomic = (0..driver.device_count()?).filter(is_atomic).map(identity);
        Ok(Self {
            process: std::process::id(),
            device: identity(device)?,
            unreached: unreached.collect::<Result<_>>()?,
            atomic: atomic.collect::<Result<_>>()?,
        })
    }

    /// A GPU that the rank's process does not see cannot be asked for, and counts as reached.
    fn reaches(&self, other: &Self) -> bool {
        !self.unreached.contains(&other.device)
    }

    /// Does its GPU do atomic operations in memory of another rank's? A GPU that its process does
    /// not see cannot be asked for, and counts as one where it does not.
    fn is_atomic_at(&self, other: &Self) -> bool {
        self.atomic.contains(&other.device)
    }
}

/// The islands of ranks, for each location of memory.
#[derive(Debug)]
pub(super) struct RankIslands {
    device: Islands,
    host: Islands,
}

impl RankIslands {
    /// Ranks of one machine have one leader.
    pub(super) fn of(ranks: &[RankInfo], roster: &Roster) -> Self {
        let are_together = |one, other| roster.leader(one) == roster.leader(other);
        let reach = |one: usize, other: usize| ranks[one].reaches(&ranks[other]);
        let device = Islands::new(ranks.len(), |one, other| are_together(one, other) && reach(one, other));
        Self { device, host: Islands::new(ranks.len(), are_together) }
    }

    pub(super) fn at(&self, location: Location) -> &Islands {
        match location {
            Location::Device => &self.device,
            Location::Host => &self.host,
        }
    }

    /// Do the GPUs of each island do atomic operations in each other's memory?
    pub(super) fn are_atomic(&self, ranks: &[RankInfo]) -> bool {
        (0..self.device.count()).all(|island| {
            let members = self.device.members(island);
            let is_atomic =
                |one: &usize| members.iter().all(|other| ranks[*one].is_atomic_at(&ranks[*other]));
            members.iter().all(is_atomic)
        })
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a rank is taken to reach memory that its GPU does not reach.
    use super::*;

    fn rank(device: u8, unreached: &[u8]) -> RankInfo {
        let id = |device: &u8| [*device; 16];
        let unreached = unreached.iter().map(id).collect();
        RankInfo { process: 1, device: id(&device), unreached, atomic: vec![] }
    }

    fn islands(ranks: &[RankInfo], leaders: Vec<usize>) -> [usize; 2] {
        let islands = RankIslands::of(ranks, &Roster::new(0, leaders));
        [islands.at(Location::Device).count(), islands.at(Location::Host).count()]
    }

    #[test]
    fn gpus_without_peer_access_are_apart_and_have_memory_of_the_host_together() {
        let together = || vec![0, 0];
        assert_eq!(islands(&[rank(1, &[]), rank(2, &[])], together()), [1, 1]);
        assert_eq!(islands(&[rank(1, &[2]), rank(2, &[1])], together()), [2, 1]);
        assert_eq!(islands(&[rank(1, &[2]), rank(1, &[2])], together()), [1, 1], "one GPU");
        assert_eq!(islands(&[rank(1, &[]), rank(2, &[1])], together()), [2, 1], "one direction");
    }

    #[test]
    fn machines_are_apart() {
        assert_eq!(islands(&[rank(1, &[]), rank(2, &[]), rank(3, &[])], vec![0, 1, 0]), [2, 2]);
    }

    #[test]
    fn one_gpu_without_atomic_operations_is_enough() {
        let id = |device: u8| [device; 16];
        let with = |device, atomic: &[u8]| RankInfo {
            atomic: atomic.iter().map(|device| id(*device)).collect(),
            ..rank(device, &[])
        };
        let are_atomic =
            |ranks: &[RankInfo], leaders| RankIslands::of(ranks, &Roster::new(0, leaders)).are_atomic(ranks);
        assert!(are_atomic(&[with(1, &[1, 2]), with(2, &[1, 2])], vec![0, 0]));
        assert!(!are_atomic(&[with(1, &[1, 2]), with(2, &[2])], vec![0, 0]));
        assert!(are_atomic(&[with(1, &[1]), with(2, &[2])], vec![0, 1]), "they are in two islands");
    }
}
