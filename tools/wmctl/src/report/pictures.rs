//! The pictures of a report, as SVG. Pure.
//!
//! Each has a name and a description for a reader that does not see it, and the page has its
//! figures as a table. Text of programs is escaped by [`text`].

use std::fmt::Write;

use super::address::{AddressRegion, regions};
use super::holders::FlameNode;
use super::model::{HeldRange, MemoryReport, TimeUnit, TimelineEventKind, TimelinePoint, peak};
use crate::human;

/// Size of the timeline in units of its own.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 260.0;
/// Room for the labels of the axes.
const LEFT: f64 = 78.0;
const BOTTOM: f64 = 24.0;
/// Room for the names of events, above the highest point.
const HEADROOM: f64 = 1.12;
/// Most marks that have their names in the picture, and most that have a whole line.
const NAMED: usize = 12;
const LINES: usize = 40;
/// Height of a frame of the flame graph.
const FRAME: f64 = 20.0;
/// Frames deeper than this are not drawn.
const DEPTH: usize = 96;
/// Regions that are drawn, the largest ones.
const REGIONS: usize = 24;
/// Parts of a region that are drawn.
const PARTS: usize = 200;

/// Text for HTML: control characters are written out, and no character ends it.
pub(super) fn text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in human::shown(text).chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(character),
        }
    }
    escaped
}

/// A time of a timeline.
pub(super) fn time(at: u64, unit: TimeUnit) -> String {
    match unit {
        TimeUnit::Microseconds if at == 0 => "0 s".to_owned(),
        TimeUnit::Microseconds if at < 60_000_000 => human::nanoseconds(at as f64 * 1e3),
        TimeUnit::Microseconds => human::duration(at as f64 / 1e6),
        TimeUnit::Events => format!("event {}", human::count(at)),
    }
}

/// A figure of a point.
type TimelineHeight = fn(&TimelinePoint) -> u64;

/// Where a figure lies in the timeline.
struct TimelineScale {
    span: f64,
    /// Bytes at the upper end, above the highest point.
    most: f64,
}

impl TimelineScale {
    fn x(&self, at: u64) -> f64 {
        LEFT + (at as f64 / self.span).min(1.0) * (WIDTH - LEFT)
    }

    fn y(&self, bytes: u64) -> f64 {
        (HEIGHT - BOTTOM) * (1.0 - (bytes as f64 / self.most).min(1.0)).max(0.0)
    }
}

/// Bytes by tier over time, with events.
pub(super) fn timeline(report: &MemoryReport) -> String {
    let highest = peak(&report.timeline).unwrap_or_default();
    let most = highest.total().max(1);
    let scale = TimelineScale { span: report.span.max(1) as f64, most: most as f64 * HEADROOM };
    let mut svg = format!(
        "<svg id=\"timeline\" class=\"timeline\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" tabindex=\"0\" \
         aria-label=\"Live memory over time\" aria-describedby=\"timeline-text\" data-left=\"{LEFT}\" \
         data-width=\"{WIDTH}\" data-bottom=\"{}\">",
        HEIGHT - BOTTOM
    );
    axes(&mut svg, &scale, report, most);
    let tiers: [(&str, TimelineHeight); 3] = [
        ("host", TimelinePoint::total),
        ("peer", |point| point.live.device.saturating_add(point.live.peer)),
        ("device", |point| point.live.device),
    ];
    for (class, of) in tiers {
        let _ = write!(svg, "<path class=\"{class}\" d=\"{}\"/>", area(report, &scale, of));
    }
    events(&mut svg, &scale, report);
    svg.push_str("<path id=\"cursor\" class=\"cursor\" d=\"\"/></svg>");
    svg
}

/// A line for each event. Many marks become ticks at the lower edge, and those that would lie on
/// each other one tick.
fn events(svg: &mut String, scale: &TimelineScale, report: &MemoryReport) {
    let floor = HEIGHT - BOTTOM;
    let marks = report.events.iter().filter(|event| event.kind == TimelineEventKind::Mark).count();
    let mut last = f64::NEG_INFINITY;
    for event in &report.events {
        let (is_mark, x) = (event.kind == TimelineEventKind::Mark, scale.x(event.at));
        let is_tick = is_mark && marks > LINES;
        if is_tick && x - last < 1.0 {
            continue;
        }
        let (class, top) = (class(event.kind), if is_tick { floor - 8.0 } else { 0.0 });
        let said = text(&format!("{}: {}", time(event.at, report.unit), event.text));
        let line = format!("<title>{said}</title><path d=\"M{x:.1} {top:.1}V{floor:.1}\"/>");
        let _ = write!(svg, "<g class=\"event {class}\">{line}");
        if is_mark && marks <= NAMED {
            let name = text(&human::shortened(&event.text, 12));
            let _ = write!(svg, "<text x=\"{:.1}\" y=\"11\">{name}</text>", x + 3.0);
        }
        svg.push_str("</g>");
        last = if is_tick { x } else { last };
    }
}

pub(super) fn class(kind: TimelineEventKind) -> &'static str {
    match kind {
        TimelineEventKind::Mark => "mark",
        TimelineEventKind::OutOfMemory => "refused",
        TimelineEventKind::Overflow => "overflow",
    }
}

fn axes(svg: &mut String, scale: &TimelineScale, report: &MemoryReport, most: u64) {
    for quarter in 0..=4_u64 {
        let bytes = (most as f64 * quarter as f64 / 4.0) as u64;
        let (y, label) = (scale.y(bytes), human::bytes(bytes));
        let baseline = (y + 4.0).clamp(10.0, HEIGHT - BOTTOM);
        let _ = write!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{WIDTH}\"/><text x=\"{:.1}\" y=\"{baseline:.1}\" \
             class=\"end\">{label}</text>",
            LEFT - 6.0
        );
        let at = (report.span / 4).saturating_mul(quarter);
        let anchor = ["start", "middle", "middle", "middle", "end"][quarter as usize];
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" class=\"{anchor}\">{}</text>",
            scale.x(at),
            HEIGHT - 6.0,
            time(at, report.unit)
        );
    }
}

/// The area below a figure, which holds until the next point.
fn area(report: &MemoryReport, scale: &TimelineScale, of: TimelineHeight) -> String {
    let floor = HEIGHT - BOTTOM;
    let mut path = format!("M{LEFT:.1} {floor:.1}");
    for point in &report.timeline {
        let _ = write!(path, "H{:.1}V{:.1}", scale.x(point.at), scale.y(of(point)));
    }
    let _ = write!(path, "H{WIDTH}V{floor:.1}Z");
    path
}

/// The flame graph: the outermost frame is above.
pub(super) fn flame(root: &FlameNode) -> String {
    let depth = depth(root).min(DEPTH);
    let height = FRAME * depth as f64;
    let mut svg = format!(
        "<svg id=\"flame\" class=\"flame\" viewBox=\"0 0 {WIDTH} {height}\" role=\"tree\" \
         aria-label=\"Holders of memory\" data-frame=\"{FRAME}\">"
    );
    if root.bytes > 0 {
        frame(&mut svg, root, 0, 0.0, WIDTH / root.bytes as f64, root.bytes);
    }
    svg.push_str("</svg>");
    svg
}

fn depth(node: &FlameNode) -> usize {
    1 + node.children.iter().map(depth).max().unwrap_or(0)
}

fn frame(svg: &mut String, node: &FlameNode, level: usize, x: f64, scale: f64, total: u64) {
    let width = node.bytes as f64 * scale;
    // Half a unit is less than a pixel of most screens.
    if width < 0.5 || level >= DEPTH {
        return;
    }
    let share = 100.0 * node.bytes as f64 / total as f64;
    let said = text(&format!(
        "{}: {}, {share:.1} %, {} allocations",
        node.name,
        human::bytes(node.bytes),
        human::count(node.count)
    ));
    let (y, hue) = (level as f64 * FRAME, hue(&node.name));
    let _ = write!(
        svg,
        "<g role=\"treeitem\" aria-level=\"{}\" tabindex=\"{}\" aria-label=\"{said}\" data-x=\"{x:.2}\" \
         data-w=\"{width:.2}\" data-l=\"{level}\"><title>{said}</title><rect x=\"{x:.2}\" y=\"{y}\" \
         width=\"{width:.2}\" height=\"{}\" class=\"hue{hue}\"/>",
        level + 1,
        if level == 0 { 0 } else { -1 },
        FRAME - 1.0
    );
    let letters = (width / 7.0) as usize;
    if letters > 3 {
        let _ = write!(
            svg,
            "<text x=\"{:.2}\" y=\"{}\">{}</text>",
            x + 4.0,
            y + FRAME - 6.0,
            text(&human::shortened(&node.name, letters))
        );
    }
    svg.push_str("</g>");
    let mut left = x;
    for child in &node.children {
        frame(svg, child, level + 1, left, scale, total);
        left += child.bytes as f64 * scale;
    }
}

/// One of six colours, the same for the same name.
fn hue(name: &str) -> u32 {
    name.bytes().fold(7_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into())) % 6
}

/// The address space: a bar a region, the largest regions.
pub(super) fn address_space(ranges: &[HeldRange]) -> String {
    let shown = largest_regions(ranges);
    let height = 34.0 * shown.len() as f64;
    let longest = shown.iter().map(AddressRegion::bytes).max().unwrap_or(1).max(1) as f64;
    let mut svg = format!(
        "<svg class=\"addresses\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Address space\" \
         aria-describedby=\"address-text\">"
    );
    for (row, region) in shown.iter().enumerate() {
        bar(&mut svg, region, 34.0 * row as f64, longest);
    }
    svg.push_str("</svg>");
    svg
}

/// By address.
pub(super) fn largest_regions(ranges: &[HeldRange]) -> Vec<AddressRegion> {
    let mut all = regions(ranges);
    all.sort_by_key(|region| std::cmp::Reverse(region.bytes()));
    all.truncate(REGIONS);
    all.sort_by_key(|region| region.from);
    all
}

fn bar(svg: &mut String, region: &AddressRegion, y: f64, longest: f64) {
    let width = (region.bytes() as f64 / longest * WIDTH).max(2.0);
    let parts = ((width / WIDTH * PARTS as f64) as usize).max(1);
    let part = width / parts as f64;
    let _ = write!(
        svg,
        "<text x=\"0\" y=\"{:.1}\">{:#x}, {}</text><rect class=\"free\" x=\"0\" y=\"{:.1}\" width=\"{width:.1}\" \
         height=\"16\"/>",
        y + 11.0,
        region.from,
        human::bytes(region.bytes()),
        y + 15.0
    );
    for (index, [live, elsewhere]) in region.filled(parts).into_iter().enumerate() {
        if live <= 0.0 {
            continue;
        }
        let class = if elsewhere > live / 2.0 { "host" } else { "device" };
        let _ = write!(
            svg,
            "<rect class=\"{class}\" x=\"{:.2}\" y=\"{:.1}\" width=\"{part:.2}\" height=\"16\" opacity=\"{:.2}\"/>",
            index as f64 * part,
            y + 15.0,
            0.25 + 0.75 * live.min(1.0)
        );
    }
}
