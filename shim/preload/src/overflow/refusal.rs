//! What is said of a request that no tier could meet: what was where, and which settings stood in
//! the way, with their values.

use wm_abi::CUdevice;
use wm_driver::host::{self, HostRoom};
use wm_driver::{Device, Gpu, Tier};
use wm_memory::{Manager, OverflowVerdict, ReadableBytes, Shortage, TierBytes};

use crate::{physical, registry};

/// The end of a line about a refusal: the largest that the program holds, and the settings that
/// stand in the way.
pub(super) fn advice_on(device: CUdevice, shortage: &Shortage) -> String {
    let of_manager = |manager: &'static Manager<Device>| {
        let largest = largest(manager.largest_block(), physical::book().longest_range(device));
        format!("{largest}{}", advice(&bounds(manager, shortage)))
    };
    registry::existing(device).map(of_manager).unwrap_or_default()
}

/// The largest block, or the longest range of the program's own memory, if that is longer.
fn largest(block: u64, range: u64) -> String {
    match block.max(range) {
        0 => String::new(),
        bytes if block >= range => format!("; the largest block has {}", ReadableBytes(bytes)),
        bytes => format!("; the largest range that the program made itself has {}", ReadableBytes(bytes)),
    }
}

/// The memory that a request met, in bytes.
#[derive(Debug, Clone)]
struct RefusalBounds {
    asked: u64,
    /// Held already, by the library and by the program.
    held: TierBytes,
    device_left: u64,
    device_limit: u64,
    headroom: u64,
    host_limit: u64,
    /// Read where the host is in the way: it costs some files.
    host: fn(u64) -> HostRoom,
    peer_limit: u64,
    /// Tiers that the user allows.
    allowed: Vec<Tier>,
    overflow: OverflowVerdict,
}

fn bounds(manager: &Manager<Device>, shortage: &Shortage) -> RefusalBounds {
    let (limits, usage) = (manager.settings(), manager.usage());
    let others = TierBytes { host: manager.gpu().external_usage(), ..TierBytes::default() };
    let held = usage.together.reserved.plus(others);
    RefusalBounds {
        asked: shortage.asked,
        held,
        device_left: shortage.device_left,
        device_limit: manager.device_limit(),
        headroom: limits.headroom,
        host_limit: limits.host_limit,
        host: |limit| host::room(host::reserve(limit, host::whole())),
        peer_limit: limits.peer_limit,
        allowed: limits.overflow.clone(),
        overflow: shortage.overflow,
    }
}

/// The settings that stand in the way, with their values; empty where none does.
fn advice(bounds: &RefusalBounds) -> String {
    let ways = [device(bounds), elsewhere(bounds)].concat();
    if ways.is_empty() { String::new() } else { format!("; to have more, change {}", ways.join(", ")) }
}

fn device(bounds: &RefusalBounds) -> Vec<String> {
    let RefusalBounds { asked, held, device_left, device_limit, headroom, .. } = *bounds;
    if device_limit != u64::MAX && held.device.saturating_add(asked) > device_limit {
        return vec![format!("WMSHIM_DEVICE_LIMIT={}", ReadableBytes(device_limit))];
    }
    let would_do = headroom > 0 && asked <= device_left.saturating_add(headroom);
    Vec::from_iter(would_do.then(|| format!("WMSHIM_HEADROOM={}", ReadableBytes(headroom))))
}

fn elsewhere(bounds: &RefusalBounds) -> Vec<String> {
    match bounds.overflow {
        OverflowVerdict::Off => vec!["WMSHIM_OVERFLOW=off".to_owned()],
        OverflowVerdict::Allowed => [peers(bounds), host_memory(bounds)].concat(),
        // More than all limits together: the host itself is not looked at.
        OverflowVerdict::Beyond if bounds.allowed.is_empty() => vec!["WMSHIM_OVERFLOW=off".to_owned()],
        OverflowVerdict::Beyond if bounds.host_limit != u64::MAX => vec![host_limit(bounds)],
        OverflowVerdict::Beyond | OverflowVerdict::Unfit | OverflowVerdict::Later => Vec::new(),
    }
}

fn peers(bounds: &RefusalBounds) -> Vec<String> {
    let has_peers = bounds.allowed.iter().any(|tier| matches!(tier, Tier::Peer(_)));
    let is_limited = has_peers && bounds.peer_limit != u64::MAX;
    Vec::from_iter(is_limited.then(|| format!("WMSHIM_PEER_LIMIT={}", ReadableBytes(bounds.peer_limit))))
}

fn host_limit(bounds: &RefusalBounds) -> String {
    format!("WMSHIM_HOST_LIMIT={}", ReadableBytes(bounds.host_limit))
}

/// The user's limit of host memory, or the machine's own.
fn host_memory(bounds: &RefusalBounds) -> Vec<String> {
    if !bounds.allowed.contains(&Tier::Host) {
        return vec!["WMSHIM_OVERFLOW=peer".to_owned()];
    }
    let by_limit = bounds.host_limit.saturating_sub(bounds.held.host);
    if by_limit == 0 {
        return vec![host_limit(bounds)];
    }
    let HostRoom { free, kept, container } = (bounds.host)(bounds.host_limit);
    if by_limit <= free.saturating_sub(kept) {
        return vec![host_limit(bounds)];
    }
    let [free, kept] = [free, kept].map(ReadableBytes);
    vec![match container {
        Some(limit) => {
            let limit = ReadableBytes(limit);
            format!(
                "the container's memory limit of {limit} (--memory, limits.memory or MemoryMax; {free} free, of which \
                 {kept} are left to others)"
            )
        }
        None => format!("the host's memory ({free} free, of which {kept} are left to others)"),
    }]
}

#[cfg(test)]
mod tests {
    //! Hazard: a user raises a setting that was not in the way.
    use super::*;

    const MIB: u64 = 1 << 20;

    /// 16 MiB were asked for, of a full device, with nothing in the way but the machine.
    const FULL: RefusalBounds = RefusalBounds {
        asked: 16 * MIB,
        held: TierBytes { device: 64 * MIB, peer: 0, host: 8 * MIB },
        device_left: 0,
        device_limit: u64::MAX,
        headroom: 0,
        host_limit: u64::MAX,
        host: |_| HostRoom { free: 1024 * MIB, kept: 1024 * MIB, container: None },
        peer_limit: u64::MAX,
        allowed: Vec::new(),
        overflow: OverflowVerdict::Off,
    };

    fn said(bounds: RefusalBounds) -> String {
        advice(&bounds)
    }

    #[test]
    fn the_largest_is_a_block_or_a_range() {
        assert_eq!(largest(0, 0), "");
        assert_eq!(largest(8 * MIB, 8 * MIB), "; the largest block has 8.0 MiB");
        assert_eq!(largest(0, 20 * MIB), "; the largest range that the program made itself has 20.0 MiB");
    }

    #[test]
    fn what_bounds_the_device_is_named_where_more_of_it_would_do() {
        let off = "; to have more, change WMSHIM_OVERFLOW=off";
        assert_eq!(said(FULL), off);
        let headroom = RefusalBounds { headroom: 32 * MIB, ..FULL };
        assert_eq!(
            said(headroom.clone()),
            "; to have more, change WMSHIM_HEADROOM=32.0 MiB, WMSHIM_OVERFLOW=off"
        );
        assert_eq!(said(RefusalBounds { asked: 33 * MIB, ..headroom.clone() }), off);
        let limit = RefusalBounds { device_limit: 70 * MIB, ..headroom };
        assert_eq!(said(limit), "; to have more, change WMSHIM_DEVICE_LIMIT=70.0 MiB, WMSHIM_OVERFLOW=off");
        assert_eq!(said(RefusalBounds { overflow: OverflowVerdict::Unfit, ..FULL }), "");
        assert_eq!(said(RefusalBounds { overflow: OverflowVerdict::Beyond, ..FULL }), off);
    }

    #[test]
    fn of_the_host_the_limit_is_named_or_the_container_or_the_machine_whichever_leaves_least() {
        let host = RefusalBounds { allowed: vec![Tier::Host], overflow: OverflowVerdict::Allowed, ..FULL };
        let machine = "the host's memory (1.00 GiB free, of which 1.00 GiB are left to others)";
        assert_eq!(said(host.clone()), format!("; to have more, change {machine}"));
        let room: fn(u64) -> HostRoom =
            |_| HostRoom { free: 100 * MIB, kept: 90 * MIB, container: Some(512 * MIB) };
        let container = RefusalBounds { host: room, ..host };
        let words = "the container's memory limit of 512.0 MiB (--memory, limits.memory or MemoryMax; 100.0 MiB free, of \
                     which 90.0 MiB are left to others)";
        assert_eq!(said(container.clone()), format!("; to have more, change {words}"));
        let limited = RefusalBounds { host_limit: 12 * MIB, ..container };
        assert_eq!(said(limited.clone()), "; to have more, change WMSHIM_HOST_LIMIT=12.0 MiB");
        let both = RefusalBounds { allowed: vec![Tier::Peer(1), Tier::Host], peer_limit: MIB, ..limited };
        assert_eq!(
            said(both),
            "; to have more, change WMSHIM_PEER_LIMIT=1.0 MiB, WMSHIM_HOST_LIMIT=12.0 MiB"
        );
    }
}
