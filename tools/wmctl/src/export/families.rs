//! The figures of programs as families of series. Pure.
//!
//! Names have base units, counters end with `_total`. A figure of a device is a row of a table
//! here; others are calls of [`Families::add`].

use std::collections::BTreeMap;

use wm_schema::{DeviceStats, Reason, Stats, TierUsage};

use crate::client::ProcessIdentity;

/// A program at the time of a scrape.
#[derive(Debug)]
pub(super) struct ExportedProgram {
    pub(super) pid: u32,
    pub(super) identity: ProcessIdentity,
    pub(super) answers: bool,
    /// Its answer, or the figures of its black box. `None`: it has neither.
    pub(super) stats: Option<Stats>,
}

/// All programs at the time of a scrape.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) programs: Vec<ExportedProgram>,
    /// Processes that could not be looked into.
    pub(super) closed: u64,
}

/// Names and values, in the order in which they are written.
pub(super) type MetricLabels = Vec<(&'static str, String)>;

/// Takes a series of a family.
type AddSeries<'a> = dyn FnMut(MetricLabels, u64) + 'a;

/// The kinds of figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricKind {
    Gauge,
    Counter,
}

impl MetricKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
        }
    }
}

/// Series with one name.
#[derive(Debug)]
pub(super) struct MetricFamily {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: MetricKind,
    pub(super) series: Vec<(MetricLabels, u64)>,
}

/// Families that grow. Equal labels are one series with the sum.
struct Families<'a> {
    reading: &'a Reading,
    no_pid: bool,
    all: Vec<MetricFamily>,
}

/// A figure of each device's memory on each tier.
type TierFigure = (&'static str, &'static str, fn(&TierUsage) -> u64);

/// A figure of each device.
type DeviceFigure = (&'static str, MetricKind, &'static str, fn(&DeviceStats) -> u64);

const OF_TIERS: [TierFigure; 4] = [
    ("wmshim_live_bytes", "Memory that the program holds, by where it lies.", |tier| tier.live_bytes),
    ("wmshim_reserved_bytes", "Physical memory held for the program, with what is idle.", |tier| {
        tier.reserved_bytes
    }),
    ("wmshim_peak_live_bytes", "The most that was live since the start.", |tier| tier.peak_live_bytes),
    ("wmshim_peak_reserved_bytes", "The most that was reserved since the start.", |tier| {
        tier.peak_reserved_bytes
    }),
];

const OF_DEVICES: [DeviceFigure; 5] = [
    ("wmshim_limit_bytes", MetricKind::Gauge, "Most device memory that the program may hold.", |device| {
        device.limit_bytes
    }),
    ("wmshim_device_bytes", MetricKind::Gauge, "All memory of the device.", |device| device.total_bytes),
    ("wmshim_out_of_memory_total", MetricKind::Counter, "Requests for memory that were refused.", |device| {
        device.counters.out_of_memory
    }),
    ("wmshim_overflows_total", MetricKind::Counter, "Requests with a part on another tier.", |device| {
        device.counters.overflows.saturating_add(device.pieces.overflows)
    }),
    (
        "wmshim_clean_bytes_total",
        MetricKind::Counter,
        "Bytes that left the device without a copy.",
        |device| device.moves.clean_bytes,
    ),
];

/// All figures of a reading. `no_pid`: the labels have no process, so that programs which are equal
/// otherwise are summed up.
pub(super) fn families(reading: &Reading, no_pid: bool) -> Vec<MetricFamily> {
    let mut families = Families { reading, no_pid, all: Vec::new() };
    let help = "Programs under wmshim that answer: 0 for one that is stopped.";
    families.add("wmshim_up", MetricKind::Gauge, help, |program, add| {
        add(Vec::new(), program.answers.into());
    });
    families.add_memory();
    families.add_events();
    families.all.push(MetricFamily {
        name: "wmshim_processes_not_looked_into",
        help: "Processes that may be programs; CAP_SYS_PTRACE is missing to see them.",
        kind: MetricKind::Gauge,
        series: vec![(Vec::new(), reading.closed)],
    });
    families.all
}

fn by_tier(device: &DeviceStats, figure: fn(&TierUsage) -> u64, add: &mut AddSeries<'_>) {
    let all = device.everything();
    for (name, tier) in [("device", all.device), ("peer", all.peer), ("host", all.host)] {
        add(vec![("tier", name.to_owned())], figure(&tier));
    }
}

fn by_reason(reasons: &[Reason], add: &mut AddSeries<'_>) {
    reasons.iter().for_each(|reason| add(vec![("reason", reason.reason.clone())], reason.count));
}

impl Families<'_> {
    fn add_memory(&mut self) {
        for (name, help, figure) in OF_TIERS {
            self.of_devices(name, MetricKind::Gauge, help, |device, add| by_tier(device, figure, add));
        }
        for (name, kind, help, figure) in OF_DEVICES {
            self.of_devices(name, kind, help, |device, add| add(Vec::new(), figure(device)));
        }
    }

    fn add_events(&mut self) {
        let help = "Live memory that moved to the device, or off it.";
        self.of_devices("wmshim_moved_bytes_total", MetricKind::Counter, help, |device, add| {
            add(vec![("direction", "in".to_owned())], device.moves.in_bytes);
            add(vec![("direction", "out".to_owned())], device.moves.out_bytes);
        });
        let help = "Moves that were not made, by reason.";
        self.of_devices("wmshim_moves_refused_total", MetricKind::Counter, help, |device, add| {
            by_reason(&device.moves.refused, add);
        });
        let help = "Bytes copied, by path and direction.";
        self.of_programs("wmshim_copied_bytes_total", MetricKind::Counter, help, |stats, add| {
            for copy in &stats.copies {
                let labels = vec![("path", copy.path.clone()), ("direction", copy.direction.clone())];
                add(labels, copy.bytes);
            }
        });
        let help = "Times that the driver served a call instead, by reason.";
        self.of_programs("wmshim_step_asides_total", MetricKind::Counter, help, |stats, add| {
            by_reason(&stats.fail_open.reasons, add);
        });
    }

    fn of_devices(
        &mut self,
        name: &'static str,
        kind: MetricKind,
        help: &'static str,
        mut figures: impl FnMut(&DeviceStats, &mut AddSeries<'_>),
    ) {
        self.of_programs(name, kind, help, |stats, add| {
            for device in &stats.devices {
                let gpu = [("gpu_uuid", device.uuid.clone()), ("gpu", device.ordinal.to_string())];
                figures(device, &mut |labels, value| {
                    add(gpu.clone().into_iter().chain(labels).collect(), value)
                });
            }
        });
    }

    fn of_programs(
        &mut self,
        name: &'static str,
        kind: MetricKind,
        help: &'static str,
        mut figures: impl FnMut(&Stats, &mut AddSeries<'_>),
    ) {
        self.add(name, kind, help, |program, add| {
            program.stats.iter().for_each(|stats| figures(stats, add));
        });
    }

    fn add(
        &mut self,
        name: &'static str,
        kind: MetricKind,
        help: &'static str,
        mut figures: impl FnMut(&ExportedProgram, &mut AddSeries<'_>),
    ) {
        let mut series: BTreeMap<MetricLabels, u64> = BTreeMap::new();
        for program in &self.reading.programs {
            let of_program = program.labels(self.no_pid);
            figures(program, &mut |labels, value| {
                let labels = of_program.iter().cloned().chain(labels).collect();
                let sum = series.entry(labels).or_default();
                *sum = sum.saturating_add(value);
            });
        }
        self.all.push(MetricFamily { name, help, kind, series: series.into_iter().collect() });
    }
}

impl ExportedProgram {
    /// What is known of the program: a label without a value would be one that is not there.
    fn labels(&self, no_pid: bool) -> MetricLabels {
        let identity = &self.identity;
        let own = self.stats.as_ref().map_or("", |stats| &stats.program);
        let labels = [
            ("user", identity.user.clone()),
            ("program", Some(identity.program_or(own))),
            ("container_id", identity.container_id.clone()),
            ("pod_uid", identity.pod_uid.clone()),
            ("slurm_job_id", identity.slurm_job_id.clone()),
            ("pid", (!no_pid).then(|| self.pid.to_string())),
        ];
        labels
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.filter(|value| !value.is_empty())?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): a figure is on another program's account, or counted twice.
    use serde_json::json;

    use super::*;

    fn program(pid: u32, stats: Option<serde_json::Value>) -> ExportedProgram {
        let identity = ProcessIdentity {
            user: Some("anna".to_owned()),
            command: vec!["python3".to_owned(), "train.py".to_owned()],
            slurm_job_id: Some("7".to_owned()),
            ..ProcessIdentity::default()
        };
        let stats = stats.map(|stats| serde_json::from_value(stats).expect("statistics"));
        ExportedProgram { pid, identity, answers: stats.is_some(), stats }
    }

    fn answer(live: u64) -> serde_json::Value {
        json!({ "devices": [{ "ordinal": 0, "uuid": "GPU-1", "memory": { "device": { "live_bytes": live } },
            "counters": { "overflows": 2 }, "pieces": { "overflows": 3 } }],
            "copies": [{ "path": "direct", "direction": "htod", "bytes": 9 }] })
    }

    fn series(families: &[MetricFamily], name: &str) -> Vec<(String, u64)> {
        let family = families.iter().find(|family| family.name == name).expect("a family");
        let text = |labels: &MetricLabels| {
            labels.iter().map(|(label, value)| format!("{label}={value}")).collect::<Vec<_>>().join(",")
        };
        family.series.iter().map(|(labels, value)| (text(labels), *value)).collect()
    }

    #[test]
    fn each_figure_has_the_labels_of_its_program() {
        let reading = Reading { programs: vec![program(5, Some(answer(8))), program(6, None)], closed: 0 };
        let families = families(&reading, false);
        let of = "user=anna,program=train.py,slurm_job_id=7,pid=5";
        assert_eq!(
            series(&families, "wmshim_live_bytes")[0],
            (format!("{of},gpu_uuid=GPU-1,gpu=0,tier=device"), 8)
        );
        assert_eq!(series(&families, "wmshim_overflows_total"), [(format!("{of},gpu_uuid=GPU-1,gpu=0"), 5)]);
        assert_eq!(
            series(&families, "wmshim_copied_bytes_total"),
            [(format!("{of},path=direct,direction=htod"), 9)]
        );
        let up: Vec<u64> = series(&families, "wmshim_up").into_iter().map(|(_, up)| up).collect();
        assert_eq!(up, [1, 0], "one that does not answer is there, and has no other series");
    }

    #[test]
    fn without_process_ids_equal_programs_are_one() {
        let programs = vec![program(5, Some(answer(8))), program(6, Some(answer(20)))];
        let families = families(&Reading { programs, closed: 3 }, true);
        let live = series(&families, "wmshim_live_bytes");
        assert_eq!(live.len(), 3, "one a tier: {live:?}");
        assert!(live.iter().any(|(labels, live)| labels.ends_with("tier=device") && *live == 28), "{live:?}");
        assert_eq!(
            series(&families, "wmshim_up"),
            [("user=anna,program=train.py,slurm_job_id=7".to_owned(), 2)]
        );
        assert_eq!(series(&families, "wmshim_processes_not_looked_into"), [(String::new(), 3)]);
    }
}
