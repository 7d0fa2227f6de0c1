//! What a report shows, whatever it was made from: plain values, and the pure functions that reduce
//! them to what a page has room for.
//!
//! Sums saturate: a source may be a file that any program wrote.

use serde::Serialize;
use wm_schema::BytesByTier;

/// The version of a report as JSON.
pub(crate) const SCHEMA: &str = "wmctl-report/1";
/// Columns of a timeline.
pub(crate) const COLUMNS: u64 = 2000;
/// Sizes of memory that was not freed.
pub(crate) const UNFREED: usize = 200;

/// A report.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct MemoryReport {
    /// `wmctl-report/1`.
    pub(crate) schema: &'static str,
    /// The program or the file.
    pub(crate) title: String,
    /// A sentence about the source.
    pub(crate) source: String,
    /// What a number of the timeline counts.
    pub(crate) unit: TimeUnit,
    /// The end of the timeline.
    pub(crate) span: u64,
    /// Live bytes by tier, in the order of time. Each holds until the next.
    pub(crate) timeline: Vec<TimelinePoint>,
    /// Marks, refusals and first overflows, in the order of time.
    pub(crate) events: Vec<TimelineEvent>,
    /// Single figures, by name.
    pub(crate) facts: Vec<ReportFact>,
    /// A sentence about what the holders are.
    pub(crate) holders_of: String,
    /// Holders of memory: the outermost frame of each is first.
    pub(crate) holders: Vec<MemoryHolder>,
    /// The moment of the address space and of the size classes.
    pub(crate) moment: String,
    /// Live ranges of that moment, by address.
    pub(crate) ranges: Vec<HeldRange>,
    /// Sizes, powers of two.
    pub(crate) classes: Vec<SizeClass>,
    /// A sentence about the memory that was not freed.
    pub(crate) unfreed_of: String,
    /// Memory that was not freed, the most first.
    pub(crate) unfreed: Vec<UnfreedMemory>,
    /// What the source does not have, and what would.
    pub(crate) missing: Vec<String>,
}

/// The measure of a timeline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TimeUnit {
    #[default]
    Microseconds,
    /// A recording without times.
    Events,
}

/// Live bytes from a time on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct TimelinePoint {
    pub(crate) at: u64,
    pub(crate) live: BytesByTier,
}

impl TimelinePoint {
    pub(crate) fn total(&self) -> u64 {
        let BytesByTier { device, peer, host } = self.live;
        device.saturating_add(peer).saturating_add(host)
    }
}

/// A moment of the timeline that has a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct TimelineEvent {
    pub(crate) at: u64,
    pub(crate) kind: TimelineEventKind,
    pub(crate) text: String,
}

/// What kind of event it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TimelineEventKind {
    /// The program's own line.
    Mark,
    /// A request was refused.
    OutOfMemory,
    /// The first memory lies on the host.
    Overflow,
}

/// A figure with its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ReportFact {
    pub(crate) name: String,
    pub(crate) value: String,
}

impl ReportFact {
    pub(crate) fn new(name: &str, value: impl Into<String>) -> Self {
        Self { name: name.to_owned(), value: value.into() }
    }
}

/// Bytes that a path of names holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct MemoryHolder {
    pub(crate) path: Vec<String>,
    pub(crate) bytes: u64,
    pub(crate) count: u64,
}

/// A live range of addresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct HeldRange {
    /// 0: not known.
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) is_piece: bool,
    pub(crate) device: i32,
    /// The stream of the allocation, as the source numbers it.
    pub(crate) stream: Option<u64>,
    /// Bytes of it that are not on the device.
    pub(crate) elsewhere: u64,
}

impl HeldRange {
    /// The address behind it.
    pub(crate) fn end(&self) -> u64 {
        self.address.saturating_add(self.bytes)
    }
}

/// Sizes from `from` to below its double.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct SizeClass {
    pub(crate) from: u64,
    /// Allocations so far; 0 where the source does not have them.
    pub(crate) allocations: u64,
    /// Live ranges of that size.
    pub(crate) live: u64,
    pub(crate) live_bytes: u64,
    /// Holes of that size between live ranges.
    pub(crate) holes: u64,
    pub(crate) hole_bytes: u64,
}

/// Memory of one size that was not freed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct UnfreedMemory {
    pub(crate) what: String,
    pub(crate) bytes: u64,
    pub(crate) count: u64,
    /// The first allocation and the last of them; `None` where the source does not have them.
    pub(crate) allocated: Option<[u64; 2]>,
}

/// The points that `columns` columns have room for: in each column the one with the most live
/// bytes, and the last one, which holds until the next column.
pub(crate) fn reduced(points: &[TimelinePoint], span: u64, columns: u64) -> Vec<TimelinePoint> {
    let mut reducer = TimelineReducer::new(span, columns);
    points.iter().for_each(|point| reducer.add(*point));
    reducer.finish()
}

/// Reduces a timeline point by point.
#[derive(Debug)]
pub(crate) struct TimelineReducer {
    width: u64,
    /// Of the columns that are over.
    points: Vec<TimelinePoint>,
    /// The highest and the last point of the column under way.
    column: Option<[TimelinePoint; 2]>,
}

impl TimelineReducer {
    pub(crate) fn new(span: u64, columns: u64) -> Self {
        let width = span.div_ceil(columns.max(1)).max(1);
        Self { width, points: Vec::new(), column: None }
    }

    /// Adds a point that is not earlier than the one before.
    pub(crate) fn add(&mut self, point: TimelinePoint) {
        match &mut self.column {
            Some([highest, last]) if last.at / self.width == point.at / self.width => {
                if point.total() > highest.total() {
                    *highest = point;
                }
                *last = point;
            }
            _ => {
                self.end_column();
                self.column = Some([point; 2]);
            }
        }
    }

    fn end_column(&mut self) {
        if let Some([highest, last]) = self.column.take() {
            self.points.push(highest);
            self.points.extend((last != highest).then_some(last));
        }
    }

    pub(crate) fn finish(mut self) -> Vec<TimelinePoint> {
        self.end_column();
        self.points
    }
}

/// The first point with memory on the host, as an event.
pub(crate) fn first_overflow(points: &[TimelinePoint]) -> Option<TimelineEvent> {
    let first = points.iter().find(|point| point.live.host > 0)?;
    let text = "the first memory lies on the host".to_owned();
    Some(TimelineEvent { at: first.at, kind: TimelineEventKind::Overflow, text })
}

/// The peak of a timeline: the highest point.
pub(crate) fn peak(points: &[TimelinePoint]) -> Option<TimelinePoint> {
    // Of equal ones the first.
    points.iter().copied().rev().max_by_key(TimelinePoint::total)
}
