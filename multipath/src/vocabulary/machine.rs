//! The machine: its devices, their peer access, and names of links that are the same in every
//! process.

use serde::{Deserialize, Serialize};

use crate::vocabulary::copy::LinkDirection;

/// The machine and devices of a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MachineKey {
    /// The driver's version, as it numbers itself.
    pub driver: i32,
    /// The devices, by ordinal.
    pub devices: Vec<Identity>,
}

/// One device, independent of its ordinal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// UUID in hexadecimal digits.
    pub uuid: String,
    /// PCI address, such as `0000:1b:00.0`.
    pub pci: String,
    /// The NUMA node of the host memory next to it, where known.
    pub numa: Option<i32>,
}

/// The devices of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// The devices' identities.
    pub key: MachineKey,
    /// `reach[a][b]`: device `a` can use memory of device `b`.
    pub reach: Vec<Vec<bool>>,
}

/// One direction of one device's PCIe link, the same number in every process of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link(pub u64);

impl Link {
    /// The link of a device.
    pub fn of(device: &Identity, direction: LinkDirection) -> Self {
        // FNV-1a: equal in every build, which the standard library's hasher does not promise.
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = device.uuid.bytes().chain(device.pci.bytes()).fold(0xcbf2_9ce4_8422_2325, step);
        Self((hash << 1 | direction as u64).max(1))
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: processes name one link differently, or two alike.
    use super::*;

    #[test]
    fn directions_of_one_link_differ_and_zero_is_no_link() {
        let device = Identity { uuid: String::new(), pci: String::new(), numa: None };
        let (into, out) = (Link::of(&device, LinkDirection::In), Link::of(&device, LinkDirection::Out));
        assert_ne!(into, out);
        assert!(into.0 != 0 && out.0 != 0);
    }
}
