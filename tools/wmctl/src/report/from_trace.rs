//! A report from a recording: every event counts.

use std::collections::BTreeMap;

use super::address::{class_of, classes};
use super::holders;
use super::lifetimes::{Lifetimes, MemoryChange, RecordedBlock};
use super::model::{
    COLUMNS, HeldRange, MemoryReport, ReportFact, SCHEMA, TimeUnit, TimelineEvent, TimelineEventKind,
    TimelinePoint, TimelineReducer, UNFREED, UnfreedMemory, first_overflow,
};
use crate::human;
use crate::trace::Trace;

/// The report of a recording with this name.
pub(crate) fn report(trace: &Trace, name: &str) -> MemoryReport {
    let (unit, span) = span(trace);
    let played = play(trace, span);
    let peak = at_peak(trace, played.peak_event);
    let mut events = notes(trace);
    events.extend(first_overflow(&played.timeline));
    events.sort_by_key(|event| event.at);
    let mut missing = Vec::new();
    if unit == TimeUnit::Events {
        missing.push("The recording has no times and no tiers: a newer library records both.".to_owned());
    }
    if peak.iter().any(|range| range.is_piece) {
        missing.push(
            "A recording has no addresses of memory that the program maps itself (PyTorch's expandable segments): the \
             report of a running process has."
                .to_owned(),
        );
    }
    MemoryReport {
        schema: SCHEMA,
        title: name.to_owned(),
        source: format!(
            "A recording with {} events (WMSHIM_TRACE).",
            human::count(trace.events.len() as u64)
        ),
        unit,
        span,
        facts: facts(trace, &played),
        timeline: played.timeline,
        events,
        holders_of: "Sizes that held the most memory at the peak; a profile (WMSHIM_PROFILE) has call sites."
            .to_owned(),
        holders: holders::by_size(&peak),
        moment: "at the peak".to_owned(),
        classes: classes(&peak, &played.allocations),
        ranges: peak,
        unfreed_of: "Memory that was live when the recording ended.".to_owned(),
        unfreed: played.unfreed,
        missing,
    }
}

/// The measure of the timeline and its end.
pub(crate) fn span(trace: &Trace) -> (TimeUnit, u64) {
    match trace.times.last() {
        Some(last) => (TimeUnit::Microseconds, last.at_us),
        None => (TimeUnit::Events, trace.events.len() as u64),
    }
}

struct PlayedTrace {
    timeline: Vec<TimelinePoint>,
    allocations: [u64; 64],
    /// Events up to the peak.
    peak_event: usize,
    frees: u64,
    live_at_end: u64,
    unfreed: Vec<UnfreedMemory>,
}

fn play(trace: &Trace, span: u64) -> PlayedTrace {
    let mut lives = Lifetimes::new(trace);
    let mut reducer = TimelineReducer::new(span, COLUMNS);
    let (mut allocations, mut frees, mut peak, mut peak_event) = ([0; 64], 0, 0, 0);
    while let Some(change) = lives.step() {
        match change {
            MemoryChange::Came(block) => allocations[block.bytes.max(1).ilog2() as usize] += 1,
            MemoryChange::Went(_) => frees += 1,
            MemoryChange::None => continue,
        }
        if lives.live > peak {
            (peak, peak_event) = (lives.live, lives.events());
        }
        reducer.add(lives.point());
    }
    reducer.add(TimelinePoint { at: span, ..lives.point() });
    let (live_at_end, unfreed) = (lives.live, unfreed(lives.blocks()));
    PlayedTrace { timeline: reducer.finish(), allocations, peak_event, frees, live_at_end, unfreed }
}

/// What is live after so many events, by address.
fn at_peak(trace: &Trace, events: usize) -> Vec<HeldRange> {
    let mut lives = Lifetimes::new(trace);
    while lives.events() < events && lives.step().is_some() {}
    let mut ranges: Vec<_> = lives.blocks().map(RecordedBlock::range).collect();
    ranges.sort_by_key(|range| (range.address, range.bytes));
    ranges
}

fn unfreed<'a>(blocks: impl Iterator<Item = &'a RecordedBlock>) -> Vec<UnfreedMemory> {
    let mut sizes: BTreeMap<(bool, u64), UnfreedMemory> = BTreeMap::new();
    for block in blocks {
        let entry = sizes.entry((block.is_piece, block.bytes)).or_insert_with(|| UnfreedMemory {
            what: format!(
                "{} of {}",
                if block.is_piece { "pieces" } else { "blocks" },
                human::bytes(block.bytes)
            ),
            bytes: 0,
            count: 0,
            allocated: Some([block.at; 2]),
        });
        entry.bytes = entry.bytes.saturating_add(block.bytes);
        entry.count += 1;
        entry.allocated = entry.allocated.map(|[first, last]| [first.min(block.at), last.max(block.at)]);
    }
    let mut sizes: Vec<_> = sizes.into_values().collect();
    sizes.sort_by_key(|size| std::cmp::Reverse(size.bytes));
    sizes.truncate(UNFREED);
    sizes
}

/// Marks and refusals at their times.
pub(crate) fn notes(trace: &Trace) -> Vec<TimelineEvent> {
    let mut times = trace.times.iter().peekable();
    let mut now = 0;
    let event = |note: &crate::trace::TraceNote| {
        while let Some(time) = times.next_if(|time| time.event <= note.event) {
            now = time.at_us;
        }
        let at = if trace.times.is_empty() { note.event as u64 } else { now };
        match &note.mark {
            Some(text) => TimelineEvent { at, kind: TimelineEventKind::Mark, text: text.clone() },
            None => {
                let text = format!("out of memory: {} asked", human::bytes(note.asked));
                TimelineEvent { at, kind: TimelineEventKind::OutOfMemory, text }
            }
        }
    };
    trace.notes.iter().map(event).collect()
}

fn facts(trace: &Trace, played: &PlayedTrace) -> Vec<ReportFact> {
    let peak_host = played.timeline.iter().map(|point| point.live.host).max().unwrap_or(0);
    let largest = played.allocations.iter().rposition(|count| *count > 0).map_or(0, |power| 1 << power);
    let mut facts = vec![
        ReportFact::new("Peak of live memory", human::bytes(trace.peak_live)),
        ReportFact::new("Peak on the host", human::bytes(peak_host)),
        ReportFact::new("Live at the end", human::bytes(played.live_at_end)),
        ReportFact::new("Allocations", human::count(played.allocations.iter().sum())),
        ReportFact::new("Frees", human::count(played.frees)),
        ReportFact::new("Largest size class", human::bytes(class_of(largest))),
    ];
    if trace.launches > 0 {
        facts.push(ReportFact::new("Launches", human::count(trace.launches)));
    }
    if let Some(lines) = trace.whole_lines {
        let note = format!("too early, after {} lines", human::count(lines as u64));
        facts.push(ReportFact::new("The file ends", note));
    }
    facts
}
