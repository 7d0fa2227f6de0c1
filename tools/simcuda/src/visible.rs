//! `CUDA_VISIBLE_DEVICES`: which devices of the machine a process has, and in which order.
//!
//! A device is a *unit* of the machine; its ordinal is its position among those that the process
//! has. Its identity, and what processes have in common of it, go by the unit. Pure.

use wm_abi::CUuuid;

/// The identity of a unit. Units of different machines differ.
pub(crate) fn uuid(unit: usize, machine: Option<u32>) -> CUuuid {
    let mut bytes = *b"simulated-gpu-00";
    if let Some(machine) = machine {
        bytes[..8].copy_from_slice(format!("{machine:08x}").as_bytes());
    }
    bytes[14] += (unit / 10) as u8;
    bytes[15] += (unit % 10) as u8;
    CUuuid { bytes }
}

/// The units that a list names, by number or by the beginning of the UUID. As with the driver, the
/// list ends at the first name that is no device, or one that was named before.
pub(crate) fn units(list: Option<&str>, count: usize, machine: Option<u32>) -> Vec<usize> {
    let Some(list) = list else { return (0..count).collect() };
    let mut units = Vec::new();
    for name in list.split(',').map(str::trim) {
        match named(name, count, machine).filter(|unit| !units.contains(unit)) {
            Some(unit) => units.push(unit),
            None => break,
        }
    }
    units
}

fn named(name: &str, count: usize, machine: Option<u32>) -> Option<usize> {
    if !name.starts_with("GPU-") {
        return name.parse().ok().filter(|unit| *unit < count);
    }
    let mut fitting = (0..count).filter(|unit| text(*unit, machine).starts_with(name));
    fitting.next().filter(|_| fitting.next().is_none())
}

/// A unit's identity as the list names it.
fn text(unit: usize, machine: Option<u32>) -> String {
    format!("GPU-{}", uuid(unit, machine))
}

#[cfg(test)]
mod tests {
    //! Hazard (vacuous test): a process has other devices than the ones that were named.
    use super::*;

    #[test]
    fn a_list_names_units_until_it_names_none() {
        let units = |list| units(Some(list), 4, None);
        assert_eq!(units("2,0"), [2, 0]);
        assert_eq!(units("1, 3,-1,2"), [1, 3], "-1 ends the list");
        assert_eq!(units("1,1,2"), [1]);
        assert_eq!((units(""), units("4"), units("none")), (vec![], vec![], vec![]));
        assert_eq!(super::units(None, 3, None), [0, 1, 2]);
    }

    #[test]
    fn a_uuid_may_be_cut_as_long_as_one_device_has_it() {
        let text = &text(3, Some(7))[..40];
        assert_eq!(units(Some(text), 4, Some(7)), [3]);
        assert_eq!(units(Some("GPU-"), 4, Some(7)), [] as [usize; 0], "all have it");
        assert_eq!(units(Some("GPU-"), 1, None), [0]);
        assert_eq!(units(Some(text), 4, Some(8)), [] as [usize; 0], "another machine's");
    }
}
