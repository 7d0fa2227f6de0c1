//! What a change did, as text.

use std::fmt::Write as _;

use wm_schema::{DeviceChange, ProcessChange};

use crate::human::{self, bytes};

/// The answer to `limit`.
pub(super) fn limit(change: &ProcessChange) -> String {
    of_devices(change, |device| {
        let limit = match device.limit_bytes {
            Some(limit) => format!("limit {} ({})", bytes(limit), human::word(&device.limit_source)),
            None => "no limit".to_owned(),
        };
        format!("{limit}, holds {}{}", bytes(device.held_bytes), elsewhere(device))
    })
}

/// The answer to `trim`.
pub(super) fn trim(change: &ProcessChange) -> String {
    of_devices(change, |device| {
        format!("{} given back, holds {}", bytes(device.given_bytes), bytes(device.held_bytes))
    })
}

/// The answer to `detach`.
pub(super) fn detach(change: &ProcessChange) -> String {
    let pid = change.pid;
    let mut text =
        format!("Detached: new memory of process {pid} is the driver's; `wmctl attach {pid}` undoes it.\n");
    text.push_str(&of_devices(change, |device| {
        let DeviceChange { given_bytes, held_bytes, .. } = device;
        format!("{} given back, holds {}{}", bytes(*given_bytes), bytes(*held_bytes), elsewhere(device))
    }));
    text.push_str(&remains(change));
    text
}

/// The answer to `attach`.
pub(super) fn attach(change: &ProcessChange) -> String {
    format!("Attached: new memory of process {} is wmshim's again.\n{}", change.pid, remains(change))
}

fn remains(change: &ProcessChange) -> String {
    let line = |what: &String| format!("  remains  {}\n", human::shortened(what, 200));
    change.remains.iter().map(line).collect()
}

fn elsewhere(device: &DeviceChange) -> String {
    match device.elsewhere_bytes {
        0 => String::new(),
        elsewhere => format!(", and {} elsewhere", bytes(elsewhere)),
    }
}

/// A line a device, with what moved and what stays below it.
fn of_devices(change: &ProcessChange, line: impl Fn(&DeviceChange) -> String) -> String {
    let mut text = String::new();
    if change.devices.is_empty() {
        text.push_str("The program has used no device yet; it counts from its first allocation on.\n");
    }
    for device in &change.devices {
        let DeviceChange { ordinal, out_bytes, back_bytes, beyond_bytes, stays, .. } = device;
        let _ = writeln!(text, "Device {ordinal}: {}", line(device));
        if out_bytes + back_bytes > 0 {
            let _ = writeln!(text, "  moved    {} out, {} back", bytes(*out_bytes), bytes(*back_bytes));
        }
        if *beyond_bytes > 0 {
            let _ = writeln!(text, "  beyond   {}", bytes(*beyond_bytes));
        }
        for staying in stays.iter().filter(|staying| staying.bytes > 0) {
            let reason = human::shortened(&staying.reason, 100);
            let _ = writeln!(text, "  stays    {}: {reason}", bytes(staying.bytes));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    //! Hazard (silent degradation): memory stays beyond a limit, and no line says so.
    use wm_schema::StayingBytes;

    use super::*;

    #[test]
    fn what_moved_and_what_stays_is_said() {
        let stays = vec![StayingBytes { reason: "a graph names a block there".to_owned(), bytes: 2 << 20 }];
        let device = DeviceChange {
            limit_bytes: Some(1 << 30),
            limit_source: "asked".to_owned(),
            held_bytes: (1 << 30) + (2 << 20),
            beyond_bytes: 2 << 20,
            elsewhere_bytes: 1 << 30,
            out_bytes: 1 << 30,
            stays,
            ..DeviceChange::default()
        };
        let text = limit(&ProcessChange { devices: vec![device], ..ProcessChange::default() });
        assert_eq!(
            text,
            "Device 0: limit 1.0 GiB (asked), holds 1.0 GiB, and 1.0 GiB elsewhere\n  moved    1.0 GiB out, 0 B back\n  \
             beyond   2.0 MiB\n  stays    2.0 MiB: a graph names a block there\n"
        );
        assert!(limit(&ProcessChange::default()).contains("no device yet"));
    }
}
