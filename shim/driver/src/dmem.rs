//! Limits of device memory that an operator has set by control group: the files `dmem.max` and
//! `dmem.min` of the kernel's controller for device memory, in the process's group and those around
//! it.
//!
//! A line of such a file is `REGION BYTES` or `REGION max`. A region of a device names its address
//! on the PCI bus, as in `drm/0000:03:00.0/vram0`. The kernel enforces these limits for memory that
//! it counts, and it does not count that of every driver. So the library keeps them itself, as
//! other limits of a device.

use std::fs;
use std::path::{Path, PathBuf};

use crate::host::{GROUPS, group_folders};

/// What the control groups say of a device, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupLimits {
    /// The most that the group may have: `dmem.max`.
    pub most: Option<u64>,
    /// What others do not take from it: `dmem.min`.
    pub least: Option<u64>,
}

/// The limits of the device at an address on the PCI bus (`0000:03:00.0`), read now.
pub fn limits(pci: &str) -> GroupLimits {
    let listed = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limits_in(&group_folders(&listed, Path::new(GROUPS)), pci)
}

/// The same in these groups' folders. The lowest value counts: a group has no more than the one
/// around it. A group without the file says nothing.
fn limits_in(groups: &[PathBuf], pci: &str) -> GroupLimits {
    let lowest = |file: &str| {
        let texts = groups.iter().filter_map(|group| fs::read_to_string(group.join(file)).ok());
        texts.filter_map(|text| of_device(&text, pci)).min()
    };
    GroupLimits { most: lowest("dmem.max"), least: lowest("dmem.min") }
}

/// The sum over the device's regions; `None` without a line of the device, or with one that has no
/// limit or no number.
fn of_device(text: &str, pci: &str) -> Option<u64> {
    let is_device = |region: &str| region.split('/').any(|part| is_same(part, pci));
    let lines = text.lines().filter_map(|line| line.trim().rsplit_once(' '));
    let mut values = lines.filter(|(region, _)| is_device(region)).map(|(_, value)| value.parse().ok());
    let first: u64 = values.next()??;
    values.try_fold(first, |sum, value| Some(sum.saturating_add(value?)))
}

/// Do two texts name one address? Some tools write its domain with eight digits.
fn is_same(part: &str, pci: &str) -> bool {
    const SHORT: usize = "0000:03:00.0".len();
    let short = |text: &str| text.get(text.len().saturating_sub(SHORT)..).map(str::to_ascii_lowercase);
    pci.len() >= SHORT && short(part) == short(pci)
}

#[cfg(test)]
mod tests {
    //! Hazard (out of memory): a container's limit of device memory is not seen, or another
    //! device's is taken for it.
    use super::*;

    const PCI: &str = "0000:03:00.0";

    #[test]
    fn reads_the_kernels_notation() {
        let text = "drm/0000:02:00.0/vram0 100\ndrm/0000:03:00.0/vram0 1073741824\nother max\n";
        assert_eq!(of_device(text, PCI), Some(1 << 30));
        assert_eq!(of_device(text, "00000000:03:00.0"), Some(1 << 30));
        assert_eq!(of_device("drm/0000:0A:00.0/vram0 7\n", "0000:0a:00.0"), Some(7));
        assert_eq!(of_device("drm/0000:03:00.0/vram0 5\ndrm/0000:03:00.0/stolen 3\n", PCI), Some(8));
    }

    #[test]
    fn what_is_no_limit_of_the_device_is_none() {
        for text in ["", "\n", "drm/0000:03:00.0/vram0 max\n", "drm/0000:03:00.0/vram0 x\n", "garbage\0 1\n"]
        {
            assert_eq!(of_device(text, PCI), None, "{text:?}");
        }
        assert_eq!(of_device("drm/0000:03:00.0/vram0 7\n", ""), None, "the driver does not tell the address");
        assert_eq!(of_device("drm/0000:03:00.0/vram0 7\n", "0000:03:00.1"), None);
    }

    #[test]
    fn the_lowest_of_the_groups_around_counts() {
        let folder = std::env::temp_dir().join(format!("wmshim-dmem-{}", std::process::id()));
        let write = |group: &str, file: &str, value: &str| {
            fs::create_dir_all(folder.join(group)).expect("a folder");
            let text = format!("drm/{PCI}/vram0 {value}\n");
            fs::write(folder.join(group).join(file), text).expect("a file");
        };
        write("a", "dmem.max", "900");
        write("a/b", "dmem.max", "max");
        write("a/b", "dmem.min", "300");
        let of = |listed: &str| limits_in(&group_folders(listed, &folder), PCI);
        assert_eq!(of("0::/a/b\n"), GroupLimits { most: Some(900), least: Some(300) });
        assert_eq!(of("0::/a\n"), GroupLimits { most: Some(900), least: None });
        assert_eq!(of("0::/elsewhere\n"), GroupLimits::default());
        assert_eq!(of("3:memory:/a\n"), GroupLimits::default(), "the first version has no such files");
        fs::remove_dir_all(&folder).expect("ours");
    }
}
