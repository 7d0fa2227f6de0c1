//! A report from a process's own figures: its black box, its answers, or its dump. Pure.

use std::time::Duration;

use wm_schema::black_box::{PastMark, PastSample, RefusedRequest};
use wm_schema::{BlockList, BytesByTier, DeviceBlocks, DeviceStats, Stats};

use super::address::classes;
use super::holders;
use super::model::{
    COLUMNS, HeldRange, MemoryHolder, MemoryReport, ReportFact, SCHEMA, TimelineEvent, TimelineEventKind,
    TimelinePoint, UNFREED, UnfreedMemory, first_overflow, reduced,
};
use crate::human;

/// What is known of a process.
#[derive(Debug, Default)]
pub(crate) struct ProcessFigures {
    pub(crate) stats: Stats,
    pub(crate) blocks: Option<BlockList>,
    /// The last seconds, and the last minutes.
    pub(crate) samples: [Vec<PastSample>; 2],
    pub(crate) marks: Vec<PastMark>,
    pub(crate) refused: Vec<RefusedRequest>,
    pub(crate) state: ProcessState,
}

/// Whether there is more to come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ProcessState {
    #[default]
    Running,
    Stopped,
    Ended,
    /// The figures are of a file that the process wrote once.
    Dumped,
}

impl ProcessState {
    fn words(self) -> [&'static str; 2] {
        match self {
            Self::Running => ["A running process", "now"],
            Self::Stopped => ["A process that is stopped", "now"],
            Self::Ended => ["The black box of a process that ended without an exit", "at its end"],
            Self::Dumped => ["A dump", "when it was written"],
        }
    }
}

/// The report of a process.
pub(crate) fn report(figures: &ProcessFigures) -> MemoryReport {
    let stats = &figures.stats;
    let [state, moment] = figures.state.words();
    let timeline = timeline(figures);
    let events = events(figures, &timeline);
    let span = end_of(figures, &timeline, &events);
    let ranges = figures.blocks.as_ref().map(ranges).unwrap_or_default();
    let unfreed = if ranges.is_empty() { by_tier(stats) } else { by_size(&ranges) };
    MemoryReport {
        schema: SCHEMA,
        title: format!("{} (process {})", human::name(&stats.program), stats.pid),
        source: format!("{state}, with the library {}.", human::word(&stats.version)),
        span,
        timeline: reduced(&timeline, span, COLUMNS),
        events,
        facts: stats.devices.iter().flat_map(facts).collect(),
        holders_of: format!(
            "Sizes that hold the most memory {moment}; a profile (WMSHIM_PROFILE) has call sites."
        ),
        holders: holders::by_size(&ranges),
        moment: moment.to_owned(),
        classes: classes(&ranges, &[0; 64]),
        ranges,
        unfreed_of: match figures.state {
            ProcessState::Ended => "Memory that the process held when it ended.".to_owned(),
            _ => format!("Memory that the process holds {moment}: what it will not free is among it."),
        },
        unfreed,
        missing: missing(figures),
        ..MemoryReport::default()
    }
}

/// Samples of minutes up to those of seconds, these, and what is live at last.
fn timeline(figures: &ProcessFigures) -> Vec<TimelinePoint> {
    let [seconds, minutes] = &figures.samples;
    let first_second = seconds.first().map_or(u64::MAX, |sample| sample.at);
    let point = |sample: &PastSample, unit: u64| TimelinePoint {
        at: sample.at.saturating_mul(unit).saturating_mul(1_000_000),
        live: sample.live,
    };
    let old = minutes.iter().filter(|sample| sample.at.saturating_add(1).saturating_mul(60) <= first_second);
    let mut points: Vec<_> = old.map(|sample| point(sample, 60)).collect();
    points.extend(seconds.iter().map(|sample| point(sample, 1)));
    let at = microseconds(Duration::try_from_secs_f64(figures.stats.uptime_s).unwrap_or_default());
    let last = TimelinePoint { at, live: live(&figures.stats) };
    // A sample is of a whole second, which the end may lie within.
    let at = points.last().map_or(last.at, |point| point.at.max(last.at));
    points.push(TimelinePoint { at, ..last });
    points
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn live(stats: &Stats) -> BytesByTier {
    let mut live = BytesByTier::default();
    for tiers in stats.devices.iter().map(DeviceStats::everything) {
        live.device = live.device.saturating_add(tiers.device.live_bytes);
        live.peer = live.peer.saturating_add(tiers.peer.live_bytes);
        live.host = live.host.saturating_add(tiers.host.live_bytes);
    }
    live
}

fn events(figures: &ProcessFigures, timeline: &[TimelinePoint]) -> Vec<TimelineEvent> {
    let mark = |mark: &PastMark| TimelineEvent {
        at: microseconds(mark.at),
        kind: TimelineEventKind::Mark,
        text: mark.text.clone(),
    };
    let refusal = |request: &RefusedRequest| TimelineEvent {
        at: microseconds(request.at),
        kind: TimelineEventKind::OutOfMemory,
        text: format!(
            "out of memory: device {}, {} asked, {} held",
            request.ordinal,
            human::bytes(request.asked),
            human::bytes(request.held)
        ),
    };
    let marks = figures.marks.iter().map(mark);
    let mut events: Vec<_> = marks.chain(figures.refused.iter().map(refusal)).collect();
    // The first sample is the beginning only while the rings have not forgotten it.
    events.extend(first_overflow(timeline));
    events.sort_by_key(|event| event.at);
    events
}

fn end_of(figures: &ProcessFigures, timeline: &[TimelinePoint], events: &[TimelineEvent]) -> u64 {
    let last = timeline.last().map_or(0, |point| point.at);
    let last_event = events.last().map_or(0, |event| event.at);
    // Only a file of another program's has an event after its end.
    if figures.state == ProcessState::Running { last } else { last.max(last_event) }
}

fn ranges(list: &BlockList) -> Vec<HeldRange> {
    let mut ranges: Vec<_> = list.devices.iter().flat_map(ranges_of).collect();
    ranges.sort_by_key(|range| (range.address, range.bytes));
    ranges
}

fn ranges_of(device: &DeviceBlocks) -> Vec<HeldRange> {
    let blocks = device.blocks.iter().map(|block| HeldRange {
        address: block.address,
        bytes: block.bytes,
        is_piece: false,
        device: device.ordinal,
        stream: block.stream,
        elsewhere: block.tiers.peer.saturating_add(block.tiers.host),
    });
    let pieces = device.pieces.iter().map(|piece| HeldRange {
        // A second mapping is no second memory.
        address: piece.mappings.first().map_or(0, |range| range.address),
        bytes: piece.bytes,
        is_piece: true,
        device: device.ordinal,
        stream: None,
        elsewhere: piece.tiers.peer.saturating_add(piece.tiers.host),
    });
    blocks.chain(pieces).collect()
}

fn by_tier(stats: &Stats) -> Vec<UnfreedMemory> {
    let mut rows = Vec::new();
    for device in &stats.devices {
        let tiers = device.everything();
        let tier = [
            ("itself", tiers.device),
            ("'s memory on peers", tiers.peer),
            ("'s memory on the host", tiers.host),
        ];
        for (place, usage) in tier.into_iter().filter(|(_, usage)| usage.live_bytes > 0) {
            let what = if place == "itself" {
                format!("on device {}", device.ordinal)
            } else {
                format!("device {}{place}", device.ordinal)
            };
            rows.push(UnfreedMemory { what, bytes: usage.live_bytes, count: 1, allocated: None });
        }
    }
    rows
}

fn by_size(ranges: &[HeldRange]) -> Vec<UnfreedMemory> {
    let row = |holder: MemoryHolder| UnfreedMemory {
        what: format!("{}, {} each", holder.path[0], holder.path[2]),
        bytes: holder.bytes,
        count: holder.count,
        allocated: None,
    };
    holders::by_size(ranges).into_iter().take(UNFREED).map(row).collect()
}

fn facts(device: &DeviceStats) -> Vec<ReportFact> {
    let tiers = device.everything();
    let named = |name: &str, value: String| {
        let name = format!("Device {}: {name}", device.ordinal);
        ReportFact { name, value }
    };
    let of = |live: u64, peak: u64| format!("{} (peak {})", human::bytes(live), human::bytes(peak));
    let mut facts = vec![
        named("name", human::name(&device.name)),
        named("live", of(tiers.device.live_bytes, tiers.device.peak_live_bytes)),
        named("held", of(tiers.device.reserved_bytes, tiers.device.peak_reserved_bytes)),
        named("on the host", of(tiers.host.live_bytes, tiers.host.peak_live_bytes)),
        named("on peers", of(tiers.peer.live_bytes, tiers.peer.peak_live_bytes)),
    ];
    let sizes = [
        ("idle, in whole handles", device.idle_bytes),
        ("kept for the next request", device.cached_bytes),
        ("longest free range", device.largest_free_run_bytes),
    ];
    let known = sizes.into_iter().filter(|(_, bytes)| *bytes > 0);
    facts.extend(known.map(|(name, bytes)| named(name, human::bytes(bytes))));
    let counts = [
        ("allocations", device.counters.allocations),
        ("frees", device.counters.frees),
        ("overflows", device.counters.overflows.saturating_add(device.pieces.overflows)),
        ("out of memory", device.counters.out_of_memory),
    ];
    facts.extend(counts.into_iter().map(|(name, count)| named(name, human::count(count))));
    facts
}

fn missing(figures: &ProcessFigures) -> Vec<String> {
    let mut missing = Vec::new();
    if figures.samples.iter().all(Vec::is_empty) {
        missing.push("The source has no figures of the past: a black box, or a recording, has.".to_owned());
    }
    if figures.blocks.is_none() {
        missing.push(
            "The source has no single blocks, so no addresses and no sizes: a running process tells them, and a \
             recording (WMSHIM_TRACE) keeps them."
                .to_owned(),
        );
    }
    missing
}
