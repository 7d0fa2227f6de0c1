//! A report's source in the form of `torch.cuda.memory._snapshot()`, which PyTorch's page
//! `memory_viz` draws.
//!
//! All of the process's device memory is in it, also that of NCCL and cuBLAS, which PyTorch's own
//! snapshot lacks. Each block and each piece is a segment with one block, because that is what the
//! driver was asked for: a view that plays the events backwards finds each block in its segment.

use serde_json::{Value, json};

use super::from_trace;
use super::lifetimes::{Lifetimes, MemoryChange, RecordedBlock};
use super::model::{HeldRange, TimelineEvent, TimelineEventKind};
use crate::trace::Trace;

/// Allocations and frees that are kept, the last ones: PyTorch's page keeps each in its memory.
pub(crate) const EVENTS: usize = 50_000;

/// Addresses of memory that is mapped nowhere.
const UNMAPPED: u64 = 1 << 50;

/// The snapshot of what a process holds: no events.
pub(crate) fn of_ranges(ranges: &[HeldRange], events: &[TimelineEvent]) -> Value {
    let mut unmapped = UNMAPPED;
    let segments: Vec<Value> = ranges
        .iter()
        .map(|range| {
            let mut address = range.address;
            if address == 0 {
                address = unmapped;
                unmapped = unmapped.saturating_add(range.bytes.next_multiple_of(512));
            }
            segment(range, address)
        })
        .collect();
    let devices = ranges.iter().map(|range| range.device.max(0) as usize + 1).max().unwrap_or(1);
    snapshot(segments, vec![json!([]); devices], events)
}

/// The snapshot of a recording at its end, with its events, and how many it leaves out.
pub(crate) fn of_trace(trace: &Trace) -> (Value, usize) {
    let (mut lives, mut changes, mut count) = (Lifetimes::new(trace), Vec::new(), 0);
    while let Some(change) = lives.step() {
        if change != MemoryChange::None {
            count += 1;
            changes.push((lives.now(), change));
            if changes.len() >= 2 * EVENTS {
                changes.drain(..EVENTS);
            }
        }
    }
    let first = changes.len().saturating_sub(EVENTS);
    let kept = &changes[first..];
    let mut entries: Vec<(u64, Value)> = kept.iter().flat_map(entries).collect();
    let begin = if kept.len() < count { kept.first().map_or(0, |(at, _)| *at) } else { 0 };
    let notes = from_trace::notes(trace);
    let refused =
        notes.iter().zip(&trace.notes).filter(|(note, _)| note.kind == TimelineEventKind::OutOfMemory);
    entries.extend(refused.filter(|(note, _)| note.at >= begin).map(|(note, asked)| {
        let entry = json!({ "action": "oom", "size": asked.asked, "device_free": 0, "stream": 0,
                            "time_us": note.at, "frames": [frame(&note.text)] });
        (note.at, entry)
    }));
    entries.sort_by_key(|(at, _)| *at);
    let mut live: Vec<_> = lives.blocks().copied().collect();
    live.sort_by_key(|block| block.address);
    let segments = live.iter().map(|block| segment(&block.range(), block.address)).collect();
    let entries = entries.into_iter().map(|(_, entry)| entry).collect();
    (snapshot(segments, vec![Value::Array(entries)], &notes), count - kept.len())
}

fn snapshot(segments: Vec<Value>, traces: Vec<Value>, events: &[TimelineEvent]) -> Value {
    let marks = events.iter().filter(|event| event.kind == TimelineEventKind::Mark);
    let annotations: Vec<Value> = marks
        .map(|mark| json!({ "stage": "START", "name": mark.text, "device": 0, "time_us": mark.at }))
        .collect();
    json!({ "segments": segments, "device_traces": traces, "external_annotations": annotations,
            "allocator_settings": { "allocator": "wmshim" } })
}

fn segment(range: &HeldRange, address: u64) -> Value {
    let frames = [frame(what(range.is_piece, range.elsewhere > 0))];
    json!({
        "device": range.device, "address": address, "total_size": range.bytes, "allocated_size": range.bytes,
        "active_size": range.bytes, "requested_size": range.bytes, "stream": range.stream.unwrap_or(0),
        "segment_type": "large", "segment_pool_id": [0, 0], "is_expandable": false, "frames": frames,
        "blocks": [{ "address": address, "size": range.bytes, "requested_size": range.bytes,
                     "state": "active_allocated", "frames": frames }],
    })
}

fn what(is_piece: bool, is_elsewhere: bool) -> &'static str {
    match (is_piece, is_elsewhere) {
        (false, false) => "block on the device (cuMemAlloc)",
        (false, true) => "block with a part elsewhere (cuMemAlloc)",
        (true, false) => "memory that the program made (cuMemCreate)",
        (true, true) => "memory that the program made, elsewhere (cuMemCreate)",
    }
}

fn frame(name: &str) -> Value {
    json!({ "name": name, "filename": "wmshim", "line": 0 })
}

/// The entries of a change, in the order in which the driver would have been asked.
fn entries((at, change): &(u64, MemoryChange)) -> Vec<(u64, Value)> {
    let (block, actions): (&RecordedBlock, &[&str]) = match change {
        MemoryChange::Came(block) => (block, &["segment_alloc", "alloc"]),
        MemoryChange::Went(block) => (block, &["free_requested", "free_completed", "segment_free"]),
        MemoryChange::None => return Vec::new(),
    };
    let entry = |action: &&str| {
        let entry = json!({ "action": action, "addr": block.address, "size": block.bytes,
                            "stream": block.stream.unwrap_or(0), "time_us": at,
                            "frames": [frame(what(block.is_piece, false))] });
        (*at, entry)
    };
    actions.iter().map(entry).collect()
}
