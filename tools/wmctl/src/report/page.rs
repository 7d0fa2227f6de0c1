//! A report as a page: the templates beside this file, with the model's figures in their places.
//!
//! The page has all that it needs in itself, and its policy forbids a browser to fetch anything. It
//! is whole without its script, which adds a cursor, a zoom and a choice of colours.

use super::holders::tree;
use super::model::{MemoryReport, TimelineEvent, TimelinePoint, peak, reduced};
use super::pictures::{self, text, time};
use crate::human;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Rows of the tables.
const ROWS: usize = 30;
/// Rows of the timeline's table.
const TIMES: u64 = 24;
/// Events in the table.
const EVENTS: usize = 400;

/// The page of a report.
pub(crate) fn page(report: &MemoryReport) -> String {
    let highest = peak(&report.timeline).unwrap_or_default();
    let regions = pictures::largest_regions(&report.ranges);
    filled(
        PAGE,
        &[
            ("style", STYLE.to_owned()),
            ("script", SCRIPT.to_owned()),
            ("title", text(&report.title)),
            ("source", text(&report.source)),
            (
                "missing",
                report.missing.iter().map(|line| format!("<p class=\"note\">{}</p>", text(line))).collect(),
            ),
            ("facts", facts(report)),
            ("timeline", pictures::timeline(report)),
            ("timeline_text", text(&timeline_text(report, &highest))),
            ("timeline_rows", timeline_rows(report)),
            ("event_rows", rows(report.events.iter().take(EVENTS), |event| event_row(event, report))),
            ("timeline_data", timeline_data(report)),
            ("holders_of", text(&report.holders_of)),
            ("flame", pictures::flame(&tree(&report.holders))),
            ("holder_rows", holder_rows(report)),
            ("moment", text(&report.moment)),
            ("addresses", pictures::address_space(&report.ranges)),
            ("address_text", address_text(report, regions.len())),
            (
                "region_rows",
                rows(regions.iter(), |region| {
                    vec![
                        format!("{:#x}", region.from),
                        human::bytes(region.bytes()),
                        human::count(region.ranges.len() as u64),
                        human::bytes(region.live),
                        percent(region.live, region.bytes()),
                    ]
                }),
            ),
            ("class_rows", class_rows(report)),
            ("unfreed_of", text(&report.unfreed_of)),
            ("unfreed_rows", unfreed_rows(report)),
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ],
    )
}

/// The template with each `{{name}}` replaced. What is put in is not looked into again.
fn filled(template: &str, values: &[(&str, String)]) -> String {
    let mut page = String::with_capacity(template.len() * 4);
    let mut parts = template.split("{{");
    page.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let (name, rest) = part.split_once("}}").unwrap_or((part, ""));
        let value = values.iter().find(|(known, _)| *known == name);
        debug_assert!(value.is_some(), "the template asks for {name}");
        page.push_str(value.map_or("", |(_, value)| value));
        page.push_str(rest);
    }
    page
}

fn rows<T>(items: impl Iterator<Item = T>, cells: impl Fn(T) -> Vec<String>) -> String {
    let cell = |cell: &String| format!("<td>{}</td>", text(cell));
    items.map(|item| format!("<tr>{}</tr>\n", cells(item).iter().map(cell).collect::<String>())).collect()
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1} %", 100.0 * part as f64 / whole as f64) }
}

fn facts(report: &MemoryReport) -> String {
    let fact = |fact: &super::model::ReportFact| {
        format!("<div><dt>{}</dt><dd>{}</dd></div>", text(&fact.name), text(&fact.value))
    };
    report.facts.iter().map(fact).collect()
}

fn timeline_text(report: &MemoryReport, highest: &TimelinePoint) -> String {
    let last = report.timeline.last().copied().unwrap_or_default();
    format!(
        "The most was {} at {}: {} on the device, {} on peers, {} on the host. At the end ({}) it is {}. Events: \
         {}.",
        human::bytes(highest.total()),
        time(highest.at, report.unit),
        human::bytes(highest.live.device),
        human::bytes(highest.live.peer),
        human::bytes(highest.live.host),
        time(report.span, report.unit),
        human::bytes(last.total()),
        human::count(report.events.len() as u64)
    )
}

fn timeline_rows(report: &MemoryReport) -> String {
    let points = reduced(&report.timeline, report.span, TIMES);
    rows(points.iter(), |point| {
        let live = [point.live.device, point.live.peer, point.live.host, point.total()];
        let sizes = live.into_iter().map(human::bytes);
        std::iter::once(time(point.at, report.unit)).chain(sizes).collect()
    })
}

fn event_row(event: &TimelineEvent, report: &MemoryReport) -> Vec<String> {
    vec![time(event.at, report.unit), pictures::class(event.kind).to_owned(), event.text.clone()]
}

/// The timeline for the script: times and bytes as numbers, and nothing that a program has said.
fn timeline_data(report: &MemoryReport) -> String {
    let points = report.timeline.iter().map(|point| {
        let said = format!("{}: ", time(point.at, report.unit));
        let sizes = [point.live.device, point.live.peer, point.live.host].map(human::bytes);
        let [device, peer, host] = sizes;
        serde_json::json!([
            point.at,
            format!("{said}{device} on the device, {peer} on peers, {host} on the host")
        ])
    });
    let marks = report.events.iter().map(|event| event.at);
    let data = serde_json::json!({ "span": report.span, "points": points.collect::<Vec<_>>(), "events": marks.collect::<Vec<_>>() });
    data.to_string().replace('<', "\\u003c")
}

fn holder_rows(report: &MemoryReport) -> String {
    let total = report.holders.iter().fold(0_u64, |sum, holder| sum.saturating_add(holder.bytes));
    rows(report.holders.iter().take(ROWS), |holder| {
        let path = holder.path.iter().rev().map(|name| human::shown(name)).collect::<Vec<_>>();
        vec![
            human::bytes(holder.bytes),
            percent(holder.bytes, total),
            human::count(holder.count),
            path.join(" < "),
        ]
    })
}

fn address_text(report: &MemoryReport, shown: usize) -> String {
    let without = report.ranges.iter().filter(|range| range.address == 0).count();
    let mut sentence = format!(
        "Live ranges: {}. Regions that are shown: {shown}. A region has ranges with no more than {} between them.",
        human::count(report.ranges.len() as u64),
        human::bytes(super::address::LONGEST_HOLE)
    );
    if without > 0 {
        sentence.push_str(&format!(" {} ranges have no known address.", human::count(without as u64)));
    }
    sentence
}

fn class_rows(report: &MemoryReport) -> String {
    rows(report.classes.iter(), |class| {
        vec![
            format!("{} to {}", human::bytes(class.from), human::bytes(class.from.saturating_mul(2))),
            if class.allocations == 0 { "-".to_owned() } else { human::count(class.allocations) },
            human::count(class.live),
            human::bytes(class.live_bytes),
            human::count(class.holes),
            human::bytes(class.hole_bytes),
        ]
    })
}

fn unfreed_rows(report: &MemoryReport) -> String {
    rows(report.unfreed.iter().take(ROWS), |row| {
        let when = |allocated: [u64; 2]| {
            let [first, last] = allocated.map(|at| time(at, report.unit));
            if first == last { first } else { format!("{first} to {last}") }
        };
        let allocated = row.allocated.map_or_else(|| "-".to_owned(), when);
        vec![row.what.clone(), human::bytes(row.bytes), human::count(row.count), allocated]
    })
}
