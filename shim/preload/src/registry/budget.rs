//! How much of a device may be used: the limit and the headroom, judged together.
//!
//! Two settings that are sound each for itself can leave a device nothing, and then every block
//! lies on the host and the program runs at the speed of PCIe. No user wants that: neither is in
//! force then, and a line says so. A budget of very few bytes may be meant, by a test or an
//! experiment, so it is in force; but it is told as an error too.

use wm_abi::CUdevice;
use wm_memory::ManagerSettings;

use crate::settings::Size;

/// Below this share of the device a budget is taken for an error.
const LITTLE: f64 = 0.02;

/// Bytes of one device: the most to hold, and the rest that stays free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) limit: u64,
    pub(crate) headroom: u64,
}

/// The judgement of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Sound,
    Little(u64),
    Nothing,
}

/// The settings that a budget is made of.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct BudgetSettings {
    pub(crate) limit: Option<Size>,
    pub(crate) headroom: Option<Size>,
    /// The node's ceiling, which the limit has been bounded by. A headroom does not undo it.
    pub(crate) ceiling: Option<Size>,
}

/// The budget of a device of `total` bytes.
pub(crate) fn of(device: CUdevice, total: u64, wanted: BudgetSettings) -> Budget {
    let BudgetSettings { limit, headroom, ceiling } = wanted;
    let default = Budget {
        limit: ceiling.map_or(u64::MAX, |size| size.of(total)),
        headroom: (total / 100).clamp(32 << 20, 1 << 30),
    };
    let wanted = Budget {
        limit: limit.map_or(default.limit, |size| size.of(total)),
        headroom: headroom.map_or(default.headroom, |size| size.of(total)),
    };
    if limit.is_none() && headroom.is_none() {
        return default;
    }
    // If only the limit was set, it is judged without the default headroom, however small the
    // device is.
    match judge(Budget { headroom: headroom.map_or(0, |_| wanted.headroom), ..wanted }, total) {
        Verdict::Sound => wanted,
        Verdict::Little(bytes) => {
            log::error!("device {device}: {}", little(bytes, total));
            wanted
        }
        Verdict::Nothing => {
            log::error!(
                "device {device}: WMSHIM_DEVICE_LIMIT and WMSHIM_HEADROOM leave none of its {} MiB to use; neither is in \
                 force: correct them",
                total >> 20
            );
            default
        }
    }
}

/// The usable bytes are the smaller of the limit and of the device's total without the headroom.
fn judge(budget: Budget, total: u64) -> Verdict {
    let usable = budget.limit.min(total.saturating_sub(budget.headroom));
    match usable {
        0 => Verdict::Nothing,
        bytes if (bytes as f64) < total as f64 * LITTLE => Verdict::Little(bytes),
        _ => Verdict::Sound,
    }
}

fn little(bytes: u64, total: u64) -> String {
    format!(
        "WMSHIM_DEVICE_LIMIT and WMSHIM_HEADROOM leave {:.1} of its {} MiB to use; what is more goes where \
         WMSHIM_OVERFLOW says, at the speed of PCIe. Is a unit wrong?",
        bytes as f64 / f64::from(1 << 20),
        total >> 20
    )
}

/// Logs the limits that are in force on a device.
pub(crate) fn tell(device: CUdevice, total: u64, limits: &ManagerSettings) {
    let mib = |bytes: u64| if bytes == u64::MAX { "none".to_owned() } else { format!("{} MiB", bytes >> 20) };
    log::info!(
        "device {device}: managed, {} in all; limit {}, headroom {}, keeps {} idle; limits of host and peers {}, {}; \
         overflow {:?}",
        mib(total),
        mib(limits.device_limit),
        mib(limits.headroom),
        mib(limits.keep_idle),
        mib(limits.host_limit),
        mib(limits.peer_limit),
        limits.overflow,
    );
}

#[cfg(test)]
mod tests {
    //! Hazard (silent degradation): a forgotten unit puts everything into host memory, and nothing
    //! says why the program is slow.
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn what_leaves_nothing_is_not_in_force() {
        let all = BudgetSettings { headroom: Some(Size::Bytes(99 * GIB)), ..BudgetSettings::default() };
        assert_eq!(of(0, GIB, all), of(0, GIB, BudgetSettings::default()));
        let half = Some(Size::Share(0.5));
        assert_eq!(
            of(0, GIB, BudgetSettings { limit: half, ceiling: half, ..all }).limit,
            GIB / 2,
            "the node's"
        );
        assert_eq!(judge(Budget { limit: 0, headroom: 0 }, GIB), Verdict::Nothing);
    }

    #[test]
    fn what_leaves_little_is_in_force_and_said() {
        let tiny =
            of(0, GIB, BudgetSettings { limit: Some(Size::Bytes(1 << 20)), ..BudgetSettings::default() });
        assert_eq!(tiny.limit, 1 << 20);
        assert_eq!(judge(tiny, GIB), Verdict::Little(1 << 20));
        assert_eq!(judge(Budget { limit: GIB / 4, headroom: 32 << 20 }, GIB), Verdict::Sound);
    }
}
