//! Two readings of all programs, and their difference. Pure.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;
use wm_schema::{CopyStats, DedupStats, DeviceStats, Stats};

use crate::client::ProcessIdentity;
use crate::human;

/// The statistics of all programs at one time.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) at: Instant,
    pub(super) processes: BTreeMap<u32, ProgramFigures>,
    /// That there may be more programs.
    pub(super) closed: Option<String>,
}

/// One program at one time; `None` for one without figures.
#[derive(Debug, Clone)]
pub(super) struct ProgramFigures {
    pub(super) is_stopped: bool,
    pub(super) stats: Option<Stats>,
}

/// All programs now, and their copies since the reading before.
#[derive(Debug, Serialize)]
pub(super) struct Change {
    schema: &'static str,
    /// Seconds between the readings.
    pub(super) interval_s: f64,
    pub(super) processes: Vec<ProcessReading>,
    /// That there may be more programs, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) incomplete: Option<String>,
}

/// One program. `devices` and `copies` are empty if it did not answer. Its identity is empty until
/// [`Change::identify`].
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct ProcessReading {
    pub(super) pid: u32,
    pub(super) program: String,
    pub(super) identity: ProcessIdentity,
    pub(super) answers: bool,
    /// A signal or a debugger has stopped it: its figures are those of then.
    pub(super) stopped: bool,
    pub(super) devices: Vec<DeviceUsage>,
    pub(super) copies: Vec<CopyRate>,
    /// None where `WMSHIM_DEDUP` is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dedup: Option<SharedUsage>,
}

/// The memory that a program shares, or could share, in bytes.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct SharedUsage {
    pub(super) mode: String,
    pub(super) candidate_bytes: u64,
    pub(super) shared_bytes: u64,
    pub(super) saved_bytes: u64,
}

/// The memory that a program holds for one device, in bytes: blocks and pieces.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct DeviceUsage {
    pub(super) ordinal: i32,
    pub(super) gpu_uuid: String,
    pub(super) pci: String,
    pub(super) live_bytes: u64,
    pub(super) reserved_bytes: u64,
    pub(super) limit_bytes: u64,
    pub(super) peer_bytes: u64,
    pub(super) host_bytes: u64,
    pub(super) out_of_memory: u64,
}

/// The copies over one path, in one direction, between the readings.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct CopyRate {
    pub(super) path: String,
    pub(super) direction: String,
    pub(super) bytes: u64,
    pub(super) bytes_per_s: f64,
}

/// The sort key of processes: the lowest PID first, else the largest sum over all devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum By {
    Pid,
    Live,
    Reserved,
    Host,
    OutOfMemory,
}

impl By {
    /// The one that a key stands for.
    pub(super) fn of_key(key: u8) -> Option<Self> {
        Some(match key {
            b'p' => Self::Pid,
            b'l' => Self::Live,
            b'r' => Self::Reserved,
            b'h' => Self::Host,
            b'o' => Self::OutOfMemory,
            _ => return None,
        })
    }

    /// As people name it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pid => "PID",
            Self::Live => "live",
            Self::Reserved => "reserved",
            Self::Host => "on host",
            Self::OutOfMemory => "out of memory",
        }
    }

    fn of(self, device: &DeviceUsage) -> u64 {
        match self {
            Self::Pid => 0,
            Self::Live => device.live_bytes,
            Self::Reserved => device.reserved_bytes,
            Self::Host => device.host_bytes,
            Self::OutOfMemory => device.out_of_memory,
        }
    }
}

impl Change {
    /// Asks for the identity of each program.
    pub(super) fn identify(&mut self, mut of: impl FnMut(u32) -> ProcessIdentity) {
        self.processes.iter_mut().for_each(|process| process.identity = of(process.pid));
    }

    /// Equal processes stay in the order of their numbers.
    pub(super) fn sort(&mut self, by: By) {
        let most = |process: &ProcessReading| {
            let sum = process.devices.iter().map(|device| by.of(device)).fold(0, u64::saturating_add);
            (std::cmp::Reverse(sum), process.pid)
        };
        self.processes.sort_by_key(most);
    }
}

impl Sample {
    /// The difference to an earlier reading.
    pub(super) fn since(&self, before: &Self) -> Change {
        let interval_s = self.at.duration_since(before.at).as_secs_f64();
        let process = |(pid, now): (&u32, &ProgramFigures)| {
            let earlier = before.processes.get(pid).and_then(|earlier| earlier.stats.as_ref());
            let reading = ProcessReading::new(*pid, now.stats.as_ref(), earlier, interval_s);
            ProcessReading { stopped: now.is_stopped, ..reading }
        };
        let processes = self.processes.iter().map(process).collect();
        Change { schema: "wmctl-top/1", interval_s, processes, incomplete: self.closed.clone() }
    }
}

impl ProcessReading {
    fn new(pid: u32, answer: Option<&Stats>, earlier: Option<&Stats>, seconds: f64) -> Self {
        let nothing = Stats::default();
        let now = answer.unwrap_or(&nothing);
        // Without an earlier answer the copies since the start would look like this interval's.
        let copies = earlier.map(|earlier| copies(now, earlier, seconds)).unwrap_or_default();
        let devices = now.devices.iter().map(DeviceUsage::new).collect();
        let dedup = now.dedup.as_ref().filter(|dedup| dedup.is_in_force()).map(SharedUsage::new);
        let program = if now.program.is_empty() { "-" } else { &now.program };
        let identity = ProcessIdentity::default();
        let (program, answers) = (program.to_owned(), answer.is_some());
        Self { pid, program, identity, answers, stopped: false, devices, copies, dedup }
    }
}

impl SharedUsage {
    fn new(dedup: &DedupStats) -> Self {
        let DedupStats { candidate_bytes, shared_bytes, saved_bytes, .. } = *dedup;
        Self { mode: human::name(&dedup.mode), candidate_bytes, shared_bytes, saved_bytes }
    }
}

impl DeviceUsage {
    fn new(device: &DeviceStats) -> Self {
        let all = device.everything();
        Self {
            ordinal: device.ordinal,
            gpu_uuid: device.uuid.clone(),
            pci: device.pci.clone(),
            live_bytes: all.device.live_bytes,
            reserved_bytes: all.device.reserved_bytes,
            limit_bytes: device.limit_bytes,
            peer_bytes: all.peer.reserved_bytes,
            host_bytes: all.host.reserved_bytes,
            out_of_memory: device.counters.out_of_memory,
        }
    }
}

fn copies(now: &Stats, earlier: &Stats, seconds: f64) -> Vec<CopyRate> {
    let same = |copy: &CopyStats, other: &&CopyStats| {
        (&copy.path, &copy.direction) == (&other.path, &other.direction)
    };
    let since = |copy: &CopyStats| {
        let before = earlier.copies.iter().find(|other| same(copy, other)).map_or(0, |other| other.bytes);
        let (path, direction) = (human::word(&copy.path), human::word(&copy.direction));
        let bytes = copy.bytes.saturating_sub(before);
        CopyRate { path, direction, bytes, bytes_per_s: bytes as f64 / seconds.max(1e-9) }
    };
    now.copies.iter().map(since).filter(|copies| copies.bytes > 0).collect()
}

#[cfg(test)]
mod tests {
    //! Hazard: all that a program has ever copied is shown as its rate, or a process that came or
    //! went as another's.
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn stats(answer: serde_json::Value) -> Stats {
        serde_json::from_value(answer).expect("statistics")
    }

    fn answer(direct: u64, relayed: u64) -> Stats {
        stats(json!({
            "program": "train",
            "devices": [{ "ordinal": 1, "limit_bytes": 9, "tiers": { "device": { "live_bytes": 5, "reserved_bytes": 6 },
                          "host": { "reserved_bytes": 7 } } }],
            "copies": [{ "path": "direct", "direction": "htod", "bytes": direct },
                       { "path": "relay 2", "direction": "htod", "bytes": relayed }],
        }))
    }

    fn change(before: &[(u32, Option<Stats>)], now: &[(u32, Option<Stats>)]) -> Change {
        let start = Instant::now();
        let figures = |(pid, stats): &(u32, Option<Stats>)| {
            (*pid, ProgramFigures { is_stopped: false, stats: stats.clone() })
        };
        let reading = |at, processes: &[(u32, Option<Stats>)]| Sample {
            at,
            processes: processes.iter().map(figures).collect(),
            closed: None,
        };
        reading(start + Duration::from_secs(2), now).since(&reading(start, before))
    }

    #[test]
    fn what_is_stored_once_is_read_where_it_is_on() {
        let mut on = answer(0, 0);
        on.dedup = serde_json::from_value(
            json!({ "mode": "on", "candidate_bytes": 4, "shared_bytes": 3, "saved_bytes": 2 }),
        )
        .expect("figures");
        let off = answer(0, 0);
        let change = change(&[], &[(1, Some(on)), (2, Some(off)), (3, Some(answer(0, 0)))]);
        let usage =
            SharedUsage { mode: "on".to_owned(), candidate_bytes: 4, shared_bytes: 3, saved_bytes: 2 };
        let found: Vec<_> = change.processes.into_iter().map(|process| process.dedup).collect();
        assert_eq!(found, [Some(usage), None, None]);
    }

    #[test]
    fn rates_are_differences() {
        let change = change(&[(7, Some(answer(100, 50)))], &[(7, Some(answer(300, 50)))]);
        let copies = &change.processes[0].copies;
        assert_eq!(copies.len(), 1, "what stands still is left out: {copies:?}");
        assert_eq!((copies[0].path.as_str(), copies[0].bytes, copies[0].bytes_per_s), ("direct", 200, 100.0));
    }

    #[test]
    fn a_new_process_has_no_rate_yet_and_one_that_ended_is_gone() {
        let change = change(&[(7, Some(answer(100, 50)))], &[(8, Some(answer(300, 50)))]);
        assert_eq!(change.processes.len(), 1);
        assert_eq!((change.processes[0].pid, change.processes[0].copies.len()), (8, 0));
    }

    #[test]
    fn the_most_of_what_was_chosen_comes_first_and_equals_keep_their_order() {
        let of =
            |host: u64| stats(json!({ "devices": [{ "tiers": { "host": { "reserved_bytes": host } } }] }));
        let readings = [(5, Some(of(1))), (7, Some(of(9))), (8, None), (9, Some(of(1)))];
        let mut change = change(&[], &readings);
        let mut pids = |by| {
            change.sort(by);
            change.processes.iter().map(|process| process.pid).collect::<Vec<_>>()
        };
        assert_eq!(pids(By::Host), [7, 5, 9, 8]);
        assert_eq!(pids(By::Live), [5, 7, 8, 9]);
    }

    #[test]
    fn a_silent_process_is_shown_as_such() {
        let change = change(&[(7, Some(answer(1, 1)))], &[(7, None)]);
        let silent = &change.processes[0];
        assert_eq!((silent.answers, silent.devices.len(), silent.program.as_str()), (false, 0, "-"));
    }

    /// A library that tells no sum is of an earlier version.
    #[test]
    fn what_the_program_made_itself_is_memory_too() {
        let mut earlier = answer(0, 0);
        earlier.devices[0].pieces =
            serde_json::from_value(json!({ "device_bytes": 10, "idle_bytes": 20, "host_bytes": 40 }))
                .expect("figures");
        let mut now = earlier.clone();
        now.devices[0].memory = Some(now.devices[0].everything());
        for answer in [earlier, now] {
            let change = change(&[], &[(7, Some(answer))]);
            let device = &change.processes[0].devices[0];
            assert_eq!((device.live_bytes, device.reserved_bytes, device.host_bytes), (15, 36, 47));
        }
    }

    #[test]
    fn tiers_that_are_absent_are_empty() {
        let change = change(&[], &[(7, Some(answer(0, 0)))]);
        let device = &change.processes[0].devices[0];
        assert_eq!((device.ordinal, device.live_bytes, device.peer_bytes, device.host_bytes), (1, 5, 0, 7));
    }
}
