//! Holders and the timeline of a profile (`WMSHIM_PROFILE`), alone or beside another source.

use std::collections::BTreeMap;

use wm_schema::BytesByTier;

use super::holders::sorted;
use super::model::{
    COLUMNS, MemoryHolder, MemoryReport, SCHEMA, TimelineEvent, TimelineEventKind, TimelinePoint, UNFREED,
    UnfreedMemory, reduced,
};
use crate::human;
use crate::profile::holders::{HolderRow, NamedFrame, by_site};
use crate::profile::recording::{RecordedProfile, SiteFigures};
use crate::profile::symbols::Symbols;

/// Frames of a call site that are shown.
const FRAMES: usize = 96;

/// A report with the call sites of a profile of the same run.
pub(crate) fn with_call_sites(report: MemoryReport, profile: &RecordedProfile) -> MemoryReport {
    let sites = by_site(profile, &mut Symbols::default());
    MemoryReport {
        holders_of: "Call sites at the peak, estimated from samples (WMSHIM_PROFILE).".to_owned(),
        holders: holders(&sites, |figures| figures.at_peak_bytes),
        ..report
    }
}

/// The report of a profile alone.
pub(crate) fn report(profile: &RecordedProfile, name: &str) -> MemoryReport {
    let timeline = timeline(profile);
    let span = timeline.last().map_or(0, |point| point.at);
    let sites = by_site(profile, &mut Symbols::default());
    let at_end = holders(&sites, |figures| figures.at_end_bytes);
    let unfreed = at_end.into_iter().take(UNFREED).map(|holder| UnfreedMemory {
        what: holder.path.iter().rev().take(3).cloned().collect::<Vec<_>>().join(" < "),
        bytes: holder.bytes,
        count: holder.count,
        allocated: None,
    });
    let report = MemoryReport {
        schema: SCHEMA,
        title: format!("{} (process {})", human::name(&profile.header.program), profile.header.pid),
        source: format!("A profile, {name}: samples of allocations, by their weight."),
        span,
        timeline: reduced(&timeline, span, COLUMNS),
        events: events(profile),
        unfreed_of: "Call sites of memory that was not freed.".to_owned(),
        unfreed: unfreed.collect(),
        missing: vec![
            "A profile has no tiers and no addresses: a recording, or a running process, has.".to_owned(),
        ],
        ..MemoryReport::default()
    };
    with_call_sites(report, profile)
}

/// Call sites, the outermost frame first; a site of several devices or kinds of memory is one. The
/// count is that of all its allocations.
fn holders(sites: &[HolderRow], bytes: fn(&SiteFigures) -> u64) -> Vec<MemoryHolder> {
    let mut held: BTreeMap<Vec<String>, (u64, f64)> = BTreeMap::new();
    for site in sites.iter().filter(|site| bytes(&site.figures) > 0) {
        let sums = held.entry(path(&site.frames)).or_default();
        *sums = (sums.0.saturating_add(bytes(&site.figures)), sums.1 + site.figures.count);
    }
    let holder =
        |(path, (bytes, count)): (_, (u64, f64))| MemoryHolder { path, bytes, count: count.round() as u64 };
    sorted(held.into_iter().map(holder).collect())
}

fn path(frames: &[NamedFrame]) -> Vec<String> {
    let path: Vec<_> = frames.iter().take(FRAMES).map(NamedFrame::shown).rev().collect();
    if path.is_empty() { vec!["?".to_owned()] } else { path }
}

/// Times never go back, whatever the file says.
fn timeline(profile: &RecordedProfile) -> Vec<TimelinePoint> {
    let mut last = 0;
    let point = |(ms, bytes): &(u64, u64)| {
        last = last.max(ms.saturating_mul(1000));
        TimelinePoint { at: last, live: BytesByTier { device: *bytes, ..BytesByTier::default() } }
    };
    profile.timeline.iter().map(point).collect()
}

fn events(profile: &RecordedProfile) -> Vec<TimelineEvent> {
    let event = |ms: u64, kind, text| TimelineEvent { at: ms.saturating_mul(1000), kind, text };
    let marks = profile.marks.iter().map(|mark| event(mark.ms, TimelineEventKind::Mark, mark.text.clone()));
    let refusals = profile.refusals.iter().map(|refusal| {
        let text = format!("out of memory: {} asked", human::bytes(refusal.asked_bytes));
        event(refusal.ms, TimelineEventKind::OutOfMemory, text)
    });
    let mut events: Vec<_> = marks.chain(refusals).collect();
    events.sort_by_key(|event| event.at);
    events
}
