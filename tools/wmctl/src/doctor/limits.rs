//! The limit of device memory that programs from this shell will have, and which one it is: the
//! setting's with the node's ceiling, or that of the control groups.

use wm_driver::dmem::{self, GroupLimits};
use wm_schema::size;

use super::finding::Finding;
use crate::human;

/// A device as far as its limit matters.
pub(super) struct LimitedDevice {
    pub(super) ordinal: i32,
    pub(super) total_bytes: u64,
    pub(super) pci: String,
}

/// A line for each device that has a limit. `setting`: the value of WMSHIM_DEVICE_LIMIT, ceiling
/// included.
pub(super) fn examine(
    devices: impl Iterator<Item = LimitedDevice>,
    setting: Option<&str>,
    findings: &mut Vec<Finding>,
) {
    let lines = devices.filter_map(|device| told(&device, setting, dmem::limits(&device.pci)));
    findings.extend(lines.map(Finding::good));
}

fn told(device: &LimitedDevice, setting: Option<&str>, group: GroupLimits) -> Option<String> {
    let of_setting = setting
        .and_then(|text| Some((bytes(text, device.total_bytes)?, format!("WMSHIM_DEVICE_LIMIT={text}"))));
    let of_group = group.most.map(|most| (most, "dmem.max of the control group".to_owned()));
    let (most, source) = of_setting.into_iter().chain(of_group).min_by_key(|(bytes, _)| *bytes)?;
    let least = match group.least {
        Some(least) => format!("; `wmctl limit` leaves {} (dmem.min)", human::bytes(least.min(most))),
        None => String::new(),
    };
    let (ordinal, most) = (device.ordinal, human::bytes(most.min(device.total_bytes)));
    let total = human::bytes(device.total_bytes);
    Some(format!("device {ordinal}: programs hold {most} of {total} at most, by {source}{least}"))
}

/// A size, a share of the device, or the smaller of both (`48GiB, at most 80%`).
fn bytes(text: &str, total: u64) -> Option<u64> {
    let one = |part: &str| match part.strip_suffix('%') {
        Some(share) => share.trim().parse::<f64>().ok().map(|share| (total as f64 * share / 100.0) as u64),
        None => size::parse(part),
    };
    text.split(", at most ").filter_map(one).min()
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): a container's limit counts, and the doctor names another one.
    use super::*;

    const GIB: u64 = 1 << 30;

    fn line(setting: Option<&str>, most: Option<u64>, least: Option<u64>) -> Option<String> {
        let device = LimitedDevice { ordinal: 0, total_bytes: 80 * GIB, pci: String::new() };
        told(&device, setting, GroupLimits { most, least })
    }

    #[test]
    fn the_smallest_limit_counts_and_is_named() {
        assert_eq!(line(None, None, None), None);
        let expected =
            "device 0: programs hold 30.0 GiB of 80.0 GiB at most, by dmem.max of the control group";
        assert_eq!(line(Some("48GiB"), Some(30 * GIB), None).as_deref(), Some(expected));
        let own = line(Some("48GiB, at most 25%"), Some(30 * GIB), Some(10 * GIB)).expect("a limit");
        assert!(
            own.contains("20.0 GiB of 80.0 GiB at most, by WMSHIM_DEVICE_LIMIT=48GiB, at most 25%"),
            "{own}"
        );
        assert!(own.ends_with("`wmctl limit` leaves 10.0 GiB (dmem.min)"), "{own}");
    }
}
