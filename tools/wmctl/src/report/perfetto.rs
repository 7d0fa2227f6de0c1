//! A report as a trace of Chrome's form, which Perfetto's page (ui.perfetto.dev) opens: a counter
//! of live bytes by tier, a slice from each mark to the next, and an instant for each other event.

use serde_json::{Value, json};

use super::model::{MemoryReport, TimelineEvent, TimelineEventKind};

/// The trace of a report.
pub(crate) fn trace(report: &MemoryReport, pid: u64) -> Value {
    let name = json!({ "ph": "M", "pid": pid, "name": "process_name", "args": { "name": report.title } });
    let thread =
        json!({ "ph": "M", "pid": pid, "tid": 1, "name": "thread_name", "args": { "name": "marks" } });
    let counters = report.timeline.iter().map(|point| {
        let args = json!({ "device": point.live.device, "peer": point.live.peer, "host": point.live.host });
        json!({ "ph": "C", "pid": pid, "ts": point.at, "name": "live bytes", "args": args })
    });
    let marks: Vec<&TimelineEvent> =
        report.events.iter().filter(|event| event.kind == TimelineEventKind::Mark).collect();
    let ends = marks.iter().skip(1).map(|next| next.at).chain([report.span]);
    let slices = marks.iter().zip(ends).map(|(mark, end)| {
        let length = end.saturating_sub(mark.at);
        json!({ "ph": "X", "pid": pid, "tid": 1, "ts": mark.at, "dur": length, "name": mark.text, "cat": "mark" })
    });
    let others = report.events.iter().filter(|event| event.kind != TimelineEventKind::Mark).map(|event| {
        json!({ "ph": "i", "s": "p", "pid": pid, "tid": 1, "ts": event.at, "name": event.text, "cat": "memory" })
    });
    let events: Vec<Value> = [name, thread].into_iter().chain(counters).chain(slices).chain(others).collect();
    json!({ "traceEvents": events, "displayTimeUnit": "ms" })
}
