//! The figures of a replay: as JSON with fixed names, and as a table for people.

use std::time::Duration;

use serde::Serialize;
use wm_memory::Usage;

use super::latency::Histogram;
use super::play::Played;
use crate::human;
use crate::table::TextTable;

/// The fields of `--json`. Sizes are bytes, times nanoseconds.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ReplayOutcome {
    /// No allocation was refused.
    pub(crate) completed: bool,
    /// Events played, by all threads.
    pub(crate) events: u64,
    /// Kernel launches among the trace's events, which a replay does not make.
    pub(crate) launches: u64,
    /// Most bytes live at once, as the program asked for them, in blocks and pieces.
    pub(crate) peak_live_bytes: u64,
    /// Most physical memory held at once, on all tiers.
    pub(crate) peak_reserved_bytes: u64,
    /// `peak_live_bytes` over `peak_reserved_bytes`.
    pub(crate) utilization: f64,
    /// Smallest device memory that completes; null unless it was searched.
    pub(crate) capacity_bytes: Option<u64>,
    /// `capacity_bytes` over `peak_live_bytes`.
    pub(crate) capacity_ratio: Option<f64>,
    /// Calls of the driver that make, map and give back memory; null for the driver's own pool,
    /// which does not tell.
    pub(crate) vmm_calls: Option<u64>,
    /// Of these, in the last quarter of the events.
    pub(crate) vmm_calls_last_quarter: Option<u64>,
    /// Allocations met by mapping free memory of several places together.
    pub(crate) stitches: Option<u64>,
    /// Most bytes held that are not on the device.
    pub(crate) overflow_peak_bytes: u64,
    pub(crate) alloc_ns_p50: Option<u64>,
    pub(crate) alloc_ns_p99: Option<u64>,
    pub(crate) free_ns_p50: Option<u64>,
    pub(crate) threads: usize,
    /// For people only: the mean times of an allocation and of a free, by which rare and slow ones
    /// count.
    #[serde(skip)]
    pub(crate) means: [Option<u64>; 2],
    /// For people only: the slowest thread's time.
    #[serde(skip)]
    pub(crate) took: Duration,
    /// With `--periods`: `vmm_calls` of each period.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) vmm_calls_by_period: Option<Vec<u64>>,
    /// Where and why it ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refusal: Option<String>,
    /// With `--baseline`: the same for the driver's own pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) baseline: Option<Box<ReplayOutcome>>,
}

impl ReplayOutcome {
    /// Figures of a replay on the manager.
    pub(crate) fn managed(played: Played, usage: &Usage, threads: usize) -> Self {
        let by_period = Some(played.vmm_calls_by_period.clone()).filter(|periods| periods.len() > 1);
        let calls = (played.vmm_calls, played.vmm_calls_last_quarter);
        let outcome = Self::of(played, usage.together.reserved_peaks.total, threads);
        Self {
            vmm_calls: Some(calls.0),
            vmm_calls_last_quarter: Some(calls.1),
            stitches: Some(usage.counters.stitches),
            overflow_peak_bytes: usage.together.reserved_peaks.tiers.elsewhere(),
            vmm_calls_by_period: by_period,
            ..outcome
        }
    }

    /// Figures of a replay on the driver's own pool, which held at most `reserved` bytes.
    pub(crate) fn of(played: Played, reserved: u64, threads: usize) -> Self {
        Self {
            completed: played.refusal.is_none(),
            events: played.events,
            launches: 0,
            peak_live_bytes: played.peak_live,
            peak_reserved_bytes: reserved,
            utilization: ratio(played.peak_live, reserved),
            capacity_bytes: None,
            capacity_ratio: None,
            vmm_calls: None,
            vmm_calls_last_quarter: None,
            stitches: None,
            overflow_peak_bytes: 0,
            alloc_ns_p50: played.allocate.quantile(0.5),
            alloc_ns_p99: played.allocate.quantile(0.99),
            free_ns_p50: played.free.quantile(0.5),
            threads,
            means: [&played.allocate, &played.free].map(Histogram::mean),
            took: played.took,
            vmm_calls_by_period: None,
            refusal: played.refusal,
            baseline: None,
        }
    }

    /// How many launches the trace has.
    pub(crate) fn with_launches(self, launches: u64) -> Self {
        let baseline = self.baseline.map(|baseline| Box::new(baseline.with_launches(launches)));
        Self { launches, baseline, ..self }
    }

    /// The search's answer: the smallest device memory that completes.
    pub(crate) fn with_capacity(self, bytes: u64) -> Self {
        let capacity_ratio = Some(ratio(bytes, self.peak_live_bytes));
        Self { capacity_bytes: Some(bytes), capacity_ratio, ..self }
    }

    /// Says which driver calls had failed, where a refusal has to be explained.
    pub(crate) fn with_failures(self, failures: &str) -> Self {
        let explain = |refusal: String| match failures {
            "" => refusal,
            _ => format!("{refusal}; failed driver calls: {failures}"),
        };
        Self { refusal: self.refusal.map(explain), ..self }
    }

    /// A table for people; a second column for the baseline.
    pub(crate) fn table(&self) -> String {
        let columns = [Some(self), self.baseline.as_deref()];
        let columns: Vec<&Self> = columns.into_iter().flatten().collect();
        let headings: &[&str] =
            if columns.len() > 1 { &["", ">WMSHIM", ">DRIVER'S POOL"] } else { &["", ">WMSHIM"] };
        let mut table = TextTable::new(headings);
        for (name, cell) in ROWS {
            let cells: Vec<String> = columns.iter().map(|outcome| cell(outcome)).collect();
            if cells.iter().any(|cell| !cell.is_empty()) {
                table.row(std::iter::once((*name).to_owned()).chain(cells));
            }
        }
        let refusals = columns.iter().filter_map(|outcome| outcome.refusal.as_ref());
        refusals.fold(table.to_string(), |text, refusal| format!("{text}\nended at {refusal}\n"))
    }
}

type Cell = fn(&ReplayOutcome) -> String;

/// The table's rows. A row whose cells are all empty is left out.
const ROWS: &[(&str, Cell)] = &[
    ("completed", |o| if o.completed { "yes" } else { "no" }.into()),
    ("events", |o| human::count(o.events)),
    ("  of them launches", |o| at_least_one(o.launches, human::count)),
    ("threads", |o| human::count(o.threads as u64)),
    ("peak live", |o| human::bytes(o.peak_live_bytes)),
    ("peak reserved", |o| human::bytes(o.peak_reserved_bytes)),
    ("utilization", |o| format!("{:.4}", o.utilization)),
    ("capacity", |o| o.capacity_bytes.map_or(String::new(), human::bytes)),
    ("capacity / peak live", |o| o.capacity_ratio.map_or(String::new(), |ratio| format!("{ratio:.4}"))),
    ("not on the device", |o| at_least_one(o.overflow_peak_bytes, human::bytes)),
    ("driver calls", |o| o.vmm_calls.map_or(String::new(), human::count)),
    ("  in the last quarter", |o| o.vmm_calls_last_quarter.map_or(String::new(), human::count)),
    ("  by period", |o| o.vmm_calls_by_period.as_deref().map_or(String::new(), periods)),
    ("stitches", |o| o.stitches.map_or(String::new(), human::count)),
    ("allocate, median", |o| time(o.alloc_ns_p50)),
    ("allocate, 99 %", |o| time(o.alloc_ns_p99)),
    ("allocate, mean", |o| time(o.means[0])),
    ("free, median", |o| time(o.free_ns_p50)),
    ("free, mean", |o| time(o.means[1])),
    ("the whole replay", |o| time(u64::try_from(o.took.as_nanos()).ok())),
];

fn time(ns: Option<u64>) -> String {
    ns.map_or(String::new(), |ns| human::nanoseconds(ns as f64))
}

fn at_least_one(number: u64, text: impl Fn(u64) -> String) -> String {
    if number == 0 { String::new() } else { text(number) }
}

fn periods(calls: &[u64]) -> String {
    calls.iter().map(|count| human::count(*count)).collect::<Vec<_>>().join(" ")
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    //! Hazard: a name in the JSON changes and every script that reads it breaks in silence.
    use super::*;

    fn outcome() -> ReplayOutcome {
        ReplayOutcome::of(Played { events: 4, peak_live: 100, ..Played::default() }, 128, 1)
    }

    #[test]
    fn the_names_are_the_documented_ones() {
        let json = serde_json::to_value(outcome().with_capacity(110)).expect("plain data");
        let mut names: Vec<&String> = json.as_object().expect("an object").keys().collect();
        names.sort();
        let mut documented = [
            "completed",
            "events",
            "launches",
            "peak_live_bytes",
            "peak_reserved_bytes",
            "utilization",
            "capacity_bytes",
            "capacity_ratio",
            "vmm_calls",
            "vmm_calls_last_quarter",
            "stitches",
            "overflow_peak_bytes",
            "alloc_ns_p50",
            "alloc_ns_p99",
            "free_ns_p50",
            "threads",
        ];
        documented.sort_unstable();
        assert_eq!(names, documented);
        assert_eq!(json["capacity_ratio"], 1.1);
    }

    #[test]
    fn a_refusal_is_under_the_table() {
        let refused = ReplayOutcome { completed: false, refusal: Some("event 3".into()), ..outcome() };
        assert!(refused.table().ends_with("\nended at event 3\n"));
        assert!(!refused.table().contains("capacity"));
    }
}
