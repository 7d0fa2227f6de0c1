//! What each rank says of itself when ranks meet, and the islands that follow from it.

use serde::{Deserialize, Serialize};
use wm_abi::CUdevice;
use wm_driver::Api;
use wm_driver::api::Named;

use crate::error::Result;
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
    /// The machine that it says it is on (`WMSHIM_WHOLEMEMORY_NODE`); empty without the setting.
    pub node: String,
    /// GPUs that its process sees and whose memory its GPU does not reach.
    pub unreached: Vec<DeviceId>,
}

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
        let unreached = (0..driver.device_count()?).filter(is_unreached).map(identity);
        Ok(Self {
            process: std::process::id(),
            device: identity(device)?,
            node: wm_trust::environment::text("WMSHIM_WHOLEMEMORY_NODE").unwrap_or_default(),
            unreached: unreached.collect::<Result<_>>()?,
        })
    }

    fn is_on_the_machine_of(&self, other: &Self) -> bool {
        self.node == other.node
    }

    /// A GPU that the rank's process does not see cannot be asked for, and counts as reached.
    fn reaches(&self, other: &Self) -> bool {
        self.is_on_the_machine_of(other) && !self.unreached.contains(&other.device)
    }
}

/// The islands of ranks, for each location of memory.
#[derive(Debug)]
pub(super) struct RankIslands {
    device: Islands,
    host: Islands,
}

impl RankIslands {
    pub(super) fn of(ranks: &[RankInfo]) -> Self {
        let device = Islands::new(ranks.len(), |one, other| ranks[one].reaches(&ranks[other]));
        let host = Islands::new(ranks.len(), |one, other| ranks[one].is_on_the_machine_of(&ranks[other]));
        Self { device, host }
    }

    pub(super) fn at(&self, location: Location) -> &Islands {
        match location {
            Location::Device => &self.device,
            Location::Host => &self.host,
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a rank is taken to reach memory that its GPU does not reach.
    use super::*;

    fn rank(device: u8, node: &str, unreached: &[u8]) -> RankInfo {
        let id = |device: &u8| [*device; 16];
        let unreached = unreached.iter().map(id).collect();
        RankInfo { process: 1, device: id(&device), node: node.to_owned(), unreached }
    }

    fn islands(ranks: &[RankInfo]) -> [usize; 2] {
        let islands = RankIslands::of(ranks);
        [islands.at(Location::Device).count(), islands.at(Location::Host).count()]
    }

    #[test]
    fn gpus_without_peer_access_are_apart_and_have_memory_of_the_host_together() {
        assert_eq!(islands(&[rank(1, "", &[]), rank(2, "", &[])]), [1, 1]);
        assert_eq!(islands(&[rank(1, "", &[2]), rank(2, "", &[1])]), [2, 1]);
        assert_eq!(islands(&[rank(1, "", &[2]), rank(1, "", &[2])]), [1, 1], "one GPU");
        assert_eq!(islands(&[rank(1, "", &[]), rank(2, "", &[1])]), [2, 1], "one direction");
    }

    #[test]
    fn machines_are_apart() {
        assert_eq!(islands(&[rank(1, "a", &[]), rank(2, "b", &[]), rank(3, "a", &[])]), [2, 2]);
    }
}
