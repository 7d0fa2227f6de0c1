//! What the programs of each device held in the last minute, for a line of small bars. Pure.
//!
//! A black box has the live bytes of its process on all devices together. So what was before the
//! first reading is known of a device with programs that use no other; later it is the sum of
//! readings.

use std::collections::{BTreeMap, VecDeque};

use wm_schema::BytesByTier;

use super::reading::{Change, DeviceUsage, ProcessReading};

/// Readings that are kept.
pub(super) const LENGTH: usize = 60;

/// The notes of all programs: live bytes by second since 1970, the oldest first.
#[derive(Debug, Default)]
pub(super) struct PastUse {
    pub(super) now: u64,
    pub(super) programs: Vec<(u32, Vec<(u64, BytesByTier)>)>,
}

/// Live bytes on all tiers, by device, the oldest first.
#[derive(Debug, Default)]
pub(super) struct History {
    devices: BTreeMap<String, VecDeque<u64>>,
}

/// A device as processes agree on it; by the number of one process where an older library tells
/// neither identity nor address.
pub(super) fn device_key(process: &ProcessReading, device: &DeviceUsage) -> String {
    match (device.gpu_uuid.as_str(), device.pci.as_str()) {
        ("", "") => format!("{} of {}", device.ordinal, process.pid),
        ("", address) => address.to_owned(),
        (uuid, _) => uuid.to_owned(),
    }
}

impl History {
    /// Takes what was before the first reading, a value each `step` seconds.
    pub(super) fn begin(&mut self, change: &Change, past: &PastUse, step: u64) {
        let devices = change.processes.iter().flat_map(|process| {
            process.devices.iter().map(move |device| (device_key(process, device), process))
        });
        let mut users: BTreeMap<String, Vec<&ProcessReading>> = BTreeMap::new();
        devices.for_each(|(key, process)| users.entry(key).or_default().push(process));
        for (key, processes) in users {
            if processes.iter().any(|process| process.devices.len() != 1) {
                continue;
            }
            let noted = |process: &&ProcessReading| past.programs.iter().find(|(pid, _)| *pid == process.pid);
            let notes: Vec<_> =
                processes.iter().filter_map(noted).map(|(_, notes)| notes.as_slice()).collect();
            let sum = |back: u64| {
                let at = past.now.saturating_sub(back * step);
                notes.iter().map(|notes| held(notes, at)).fold(0, u64::saturating_add)
            };
            let values: Vec<u64> = (1..LENGTH as u64).rev().map(sum).collect();
            let silent = values.iter().take_while(|value| **value == 0).count();
            self.devices.insert(key, values.into_iter().skip(silent).collect());
        }
    }

    /// Takes a reading. Devices without programs are forgotten.
    pub(super) fn note(&mut self, change: &Change) {
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for process in &change.processes {
            for device in &process.devices {
                let sum = sums.entry(device_key(process, device)).or_default();
                *sum = sum.saturating_add(device.held_bytes);
            }
        }
        self.devices.retain(|key, _| sums.contains_key(key));
        for (key, sum) in sums {
            let values = self.devices.entry(key).or_default();
            values.push_back(sum);
            values.drain(..values.len().saturating_sub(LENGTH));
        }
    }

    /// The last values of a device, the oldest first.
    pub(super) fn last(&self, key: &str, most: usize) -> Vec<u64> {
        let values = self.devices.get(key);
        values
            .map(|values| values.iter().skip(values.len().saturating_sub(most)).copied().collect())
            .unwrap_or_default()
    }
}

/// What a program held at a time: a note counts until the next one. Before the first note that is
/// kept it held nothing that is known.
fn held(notes: &[(u64, BytesByTier)], at: u64) -> u64 {
    let last = notes.iter().take_while(|(noted, _)| *noted <= at).last();
    last.map_or(0, |(_, live)| [live.device, live.peer, live.host].into_iter().fold(0, u64::saturating_add))
}

/// Bars of eight heights, from the least to the most; nothing is no bar.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The same for terminals without such letters.
const PLAIN_BARS: [char; 9] = [' ', '.', ':', '-', '=', '+', '*', '%', '#'];

/// Values as bars. The highest bar is `full`, or the most of the values if that is more.
pub(super) fn bars(values: &[u64], full: u64, is_plain: bool) -> String {
    let bars = if is_plain { PLAIN_BARS } else { BARS };
    let most = values.iter().copied().max().unwrap_or(0).max(full).max(1);
    let bar = |value: &u64| {
        let height = (u128::from(*value) * 8).div_ceil(u128::from(most));
        bars[usize::try_from(height).unwrap_or(8).min(8)]
    };
    values.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): the past of one program is drawn as another device's.
    use std::collections::BTreeMap;
    use std::time::Instant;

    use serde_json::json;

    use super::super::reading::{ProgramFigures, Sample};
    use super::*;

    fn change(programs: &[(u32, &[(&str, u64)])]) -> Change {
        let figures = |(pid, devices): &(u32, &[(&str, u64)])| {
            let devices: Vec<_> = devices
                .iter()
                .map(|(uuid, live)| json!({ "uuid": uuid, "tiers": { "device": { "live_bytes": live } } }))
                .collect();
            let stats = serde_json::from_value(json!({ "devices": devices })).expect("statistics");
            (*pid, ProgramFigures { is_stopped: false, stats: Some(stats) })
        };
        let processes: BTreeMap<_, _> = programs.iter().map(figures).collect();
        Sample { at: Instant::now(), processes, closed: None }.since(None)
    }

    fn notes(list: &[(u64, u64)]) -> Vec<(u64, BytesByTier)> {
        list.iter().map(|(at, device)| (*at, BytesByTier { device: *device, peer: 1, host: 1 })).collect()
    }

    #[test]
    fn the_past_of_a_device_is_the_sum_of_the_programs_that_use_it_alone() {
        let change = change(&[(7, &[("a", 40)]), (8, &[("a", 2)]), (9, &[("b", 1), ("c", 1)])]);
        let programs =
            vec![(7, notes(&[(997, 10), (999, 30)])), (8, notes(&[(998, 5)])), (9, notes(&[(990, 90)]))];
        let mut history = History::default();
        history.begin(&change, &PastUse { now: 1000, programs }, 1);
        history.note(&change);
        assert_eq!(history.last("a", LENGTH), [12, 19, 39, 42]);
        assert_eq!(history.last("a", 2), [39, 42]);
        assert_eq!(
            (history.last("b", 9), history.last("c", 9)),
            (vec![1], vec![1]),
            "nothing is known before"
        );
        assert_eq!(history.last("d", 9), [] as [u64; 0]);
    }

    #[test]
    fn only_the_last_readings_of_devices_in_use_are_kept() {
        let mut history = History::default();
        (0..100).for_each(|value| history.note(&change(&[(7, &[("a", value)])])));
        assert_eq!(history.last("a", 1000), (40..100).collect::<Vec<_>>());
        history.note(&change(&[(7, &[("b", 1)])]));
        assert_eq!(history.last("a", 1000), [] as [u64; 0]);
    }

    #[test]
    fn bars_are_as_high_as_their_values() {
        assert_eq!(bars(&[0, 1, 50, 100], 100, false), " ▁▄█");
        assert_eq!(bars(&[0, 1, 50, 200], 100, true), " .:#", "more than the device has");
        assert_eq!(bars(&[u64::MAX, 0], 0, false), "█ ");
        assert_eq!(bars(&[], 0, false), "");
    }
}
