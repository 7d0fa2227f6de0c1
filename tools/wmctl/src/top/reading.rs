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
#[derive(Debug, Clone, Serialize)]
pub(super) struct Change {
    schema: &'static str,
    /// Seconds between the readings.
    pub(super) interval_s: f64,
    pub(super) processes: Vec<ProcessReading>,
    /// That there may be more programs, as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) incomplete: Option<String>,
    /// The memory in use by everything on a device, by its UUID, where NVIDIA's library tells it.
    #[serde(skip)]
    pub(super) used: BTreeMap<String, u64>,
}

/// One program. `devices` and `copies` are empty if it did not answer. Identity and ancestors are
/// empty until they are looked up.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ProcessReading {
    pub(super) pid: u32,
    pub(super) program: String,
    pub(super) identity: ProcessIdentity,
    /// Its parent, the parent of that one, and so on.
    #[serde(skip)]
    pub(super) ancestors: Vec<u32>,
    pub(super) answers: bool,
    /// A signal or a debugger has stopped it: its figures are those of then.
    pub(super) stopped: bool,
    /// `pausing`, `paused` or `resuming` of one that does not run on; `giving way`, `away`,
    /// `waiting` or `coming` of one that others take turns with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pause: Option<String>,
    /// Host memory that lies ready for a pause, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) arena_bytes: Option<u64>,
    /// The shim's features are off in it.
    pub(super) detached: bool,
    pub(super) devices: Vec<DeviceUsage>,
    pub(super) copies: Vec<CopyRate>,
    /// None where `WMSHIM_DEDUP` is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dedup: Option<SharedUsage>,
}

impl ProcessReading {
    /// The reason why it does not run on, in a word.
    pub(super) fn halt(&self) -> Option<&str> {
        if self.stopped { Some("stopped") } else { self.pause.as_deref() }
    }

    /// Host memory that lies ready for a pause, in words.
    pub(super) fn arena(&self) -> Option<String> {
        self.arena_bytes.map(|bytes| format!("arena {}", human::bytes(bytes)))
    }
}

/// The memory that a program shares, or could share, in bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct SharedUsage {
    pub(super) mode: String,
    pub(super) candidate_bytes: u64,
    pub(super) shared_bytes: u64,
    pub(super) saved_bytes: u64,
}

/// The memory that a program holds for one device, in bytes: blocks and pieces.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct DeviceUsage {
    pub(super) ordinal: i32,
    pub(super) gpu_uuid: String,
    pub(super) pci: String,
    #[serde(skip)]
    pub(super) name: String,
    #[serde(skip)]
    pub(super) total_bytes: u64,
    /// Live on all tiers.
    #[serde(skip)]
    pub(super) held_bytes: u64,
    pub(super) live_bytes: u64,
    pub(super) reserved_bytes: u64,
    pub(super) limit_bytes: u64,
    pub(super) peer_bytes: u64,
    pub(super) host_bytes: u64,
    pub(super) out_of_memory: u64,
}

/// The copies over one path, in one direction, between the readings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct CopyRate {
    pub(super) path: String,
    pub(super) direction: String,
    pub(super) bytes: u64,
    pub(super) bytes_per_s: f64,
}

impl Sample {
    /// The difference to an earlier reading. Without one there are no rates.
    pub(super) fn since(&self, before: Option<&Self>) -> Change {
        let interval_s = before.map_or(0.0, |before| self.at.duration_since(before.at).as_secs_f64());
        let process = |(pid, now): (&u32, &ProgramFigures)| {
            let earlier = before.and_then(|before| before.processes.get(pid)?.stats.as_ref());
            let reading = ProcessReading::new(*pid, now.stats.as_ref(), earlier, interval_s);
            ProcessReading { stopped: now.is_stopped, ..reading }
        };
        let processes = self.processes.iter().map(process).collect();
        let incomplete = self.closed.clone();
        Change { schema: "wmctl-top/1", interval_s, processes, incomplete, used: BTreeMap::new() }
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
        Self {
            pid,
            program,
            identity,
            ancestors: Vec::new(),
            answers,
            stopped: false,
            pause: now.halt().map(str::to_owned),
            arena_bytes: now.pause.as_ref().map(|pause| pause.arena.bytes).filter(|bytes| *bytes > 0),
            detached: now.detached,
            devices,
            copies,
            dedup,
        }
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
        let tiers = [all.device, all.peer, all.host];
        Self {
            ordinal: device.ordinal,
            gpu_uuid: device.uuid.clone(),
            pci: device.pci.clone(),
            name: device.name.clone(),
            total_bytes: device.total_bytes,
            held_bytes: tiers.map(|tier| tier.live_bytes).into_iter().fold(0, u64::saturating_add),
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
        reading(start + Duration::from_secs(2), now).since(Some(&reading(start, before)))
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
    fn host_memory_that_lies_ready_is_shown() {
        let mut answer = answer(0, 0);
        answer.pause = serde_json::from_value(json!({ "arena": { "bytes": 3_u64 << 30 } })).expect("figures");
        let change = change(&[], &[(1, Some(answer)), (2, None)]);
        let shown: Vec<_> = change.processes.iter().map(ProcessReading::arena).collect();
        assert_eq!(shown, [Some("arena 3.0 GiB".to_owned()), None]);
        assert!(super::super::render::table(&change).contains("(arena 3.0 GiB)"));
    }

    #[test]
    fn a_program_that_is_paused_is_told_from_one_that_runs() {
        let paused = |state: &str| {
            let mut answer = answer(0, 0);
            answer.pause = serde_json::from_value(json!({ "state": state })).expect("figures");
            Some(answer)
        };
        let change = change(&[], &[(1, paused("paused")), (2, paused("running")), (3, Some(answer(0, 0)))]);
        let halts: Vec<_> = change.processes.iter().map(ProcessReading::halt).collect();
        assert_eq!(halts, [Some("paused"), None, None]);
    }

    #[test]
    fn it_is_told_which_program_has_its_turn() {
        let taking = |state: &str, pause: &str| {
            let mut answer = answer(0, 0);
            answer.turn = serde_json::from_value(json!({ "state": state })).expect("figures");
            answer.pause = serde_json::from_value(json!({ "state": pause })).expect("figures");
            Some(answer)
        };
        let all = [
            (1, taking("away", "paused")),
            (2, taking("running", "running")),
            (3, taking("paused", "paused")),
        ];
        let change = change(&[], &all);
        let halts: Vec<_> = change.processes.iter().map(ProcessReading::halt).collect();
        assert_eq!(halts, [Some("away"), None, Some("paused")]);
    }

    #[test]
    fn rates_are_differences() {
        let change = change(&[(7, Some(answer(100, 50)))], &[(7, Some(answer(300, 50)))]);
        let copies = &change.processes[0].copies;
        assert_eq!(copies.len(), 1, "what stands still is left out: {copies:?}");
        assert_eq!((copies[0].path.as_str(), copies[0].bytes, copies[0].bytes_per_s), ("direct", 200, 100.0));
    }

    #[test]
    fn a_first_reading_has_figures_and_no_rates() {
        let stats = Some(answer(100, 50));
        let figures = BTreeMap::from([(7, ProgramFigures { is_stopped: true, stats })]);
        let change = Sample { at: Instant::now(), processes: figures, closed: None }.since(None);
        let process = &change.processes[0];
        assert_eq!((change.interval_s, process.copies.len(), process.stopped), (0.0, 0, true));
        assert_eq!(process.devices[0].live_bytes, 5);
    }

    #[test]
    fn a_new_process_has_no_rate_yet_and_one_that_ended_is_gone() {
        let change = change(&[(7, Some(answer(100, 50)))], &[(8, Some(answer(300, 50)))]);
        assert_eq!(change.processes.len(), 1);
        assert_eq!((change.processes[0].pid, change.processes[0].copies.len()), (8, 0));
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
