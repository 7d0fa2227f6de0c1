//! Hazard: fragmentation. Real programs' allocations, recorded at the driver, replayed on a model GPU with overflow
//! off: how much device memory does a program need that holds so much at its peak?
//!
//! The traces' format stands in their first line. Work is not recorded, so a stream's own reuse is free and a host
//! synchronisation says that the stream drained. `WMSHIM_REPLAY=search` looks for the smallest memory that completes,
//! to 0.5 %, and prints it; the plain run asserts the ratio that was reached.

mod support;

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;

use flate2::read::GzDecoder;
use support::model::{GRANULARITY, Model};
use wm_driver::StreamId;
use wm_memory::{Manager, Order, Settings, Usage};

enum Event {
    Allocate { id: u64, bytes: usize, order: Order },
    Free { id: u64, order: Order },
    Passed(Option<StreamId>),
}

struct Trace {
    peak: u64,
    events: Vec<Event>,
}

fn order(field: &str) -> Order {
    if field == "-" { Order::Device } else { Order::Stream(StreamId(field.parse().expect("a stream"))) }
}

fn event(line: &str) -> Event {
    let fields: Vec<&str> = line.split(' ').collect();
    let number = |index: usize| fields[index].parse::<u64>().expect("a number");
    match fields[0] {
        "a" => Event::Allocate { id: number(1), bytes: number(2) as usize, order: order(fields[3]) },
        "f" => Event::Free { id: number(1), order: order(fields[2]) },
        "s" => Event::Passed((fields[1] != "*").then(|| StreamId(number(1)))),
        other => panic!("an event of kind {other}"),
    }
}

fn load(name: &str) -> Trace {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/traces").join(name);
    let file = std::fs::File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut lines = BufReader::new(GzDecoder::new(file)).lines().map(|line| line.expect("text"));
    let head = lines.next().expect("a first line");
    let peak = head.split("peak_live_bytes ").nth(1).and_then(|rest| rest.split(';').next());
    let peak = peak.and_then(|peak| peak.parse().ok()).expect("peak_live_bytes in the first line");
    Trace { peak, events: lines.map(|line| event(&line)).collect() }
}

/// Replays a trace on a device of `capacity` bytes; `None` if it runs out of memory.
fn replay(trace: &Trace, capacity: u64) -> Option<Usage> {
    let capacity = capacity / GRANULARITY * GRANULARITY;
    let settings = Settings { headroom: 0, overflow: vec![], ..Settings::default() };
    let manager = Manager::new(Model::new(capacity, 0), settings);
    let mut addresses = HashMap::new();
    for event in &trace.events {
        match event {
            Event::Allocate { id, bytes, order } => {
                addresses.insert(*id, manager.allocate(*bytes, *order).ok()?);
            }
            Event::Free { id, order } => {
                let address = addresses.remove(id).expect("frees name what was allocated");
                manager.free(address, *order).expect("a live block");
            }
            Event::Passed(Some(stream)) => manager.passed(*stream),
            Event::Passed(None) => manager.passed_all(),
        }
    }
    manager.audit().expect("the books balance");
    Some(manager.usage())
}

/// The smallest capacity that completes, as a ratio to the peak of live bytes, to half a per cent.
fn search(trace: &Trace) -> f64 {
    let completes = |thousandths: u64| replay(trace, trace.peak * thousandths / 1000).is_some();
    let smallest = (1000..1500).step_by(5).find(|thousandths| completes(*thousandths));
    smallest.map_or(f64::INFINITY, |thousandths| thousandths as f64 / 1000.0)
}

#[allow(clippy::print_stdout, reason = "a figure for the reader of the test's output")]
fn assert_ratio(name: &str, thousandths: u64) {
    let trace = load(name);
    if std::env::var("WMSHIM_REPLAY").is_ok_and(|mode| mode == "search") {
        println!("{name}: smallest capacity that completes / peak live bytes = {:.3}", search(&trace));
    }
    let usage = replay(&trace, trace.peak * thousandths / 1000);
    let usage =
        usage.unwrap_or_else(|| panic!("{name} runs out of memory at {thousandths}/1000 of its peak"));
    println!("{name} at {thousandths}/1000: {:?}", usage.counters);
    assert_eq!(usage.counters.out_of_memory, 0);
}

#[test]
fn gnn_on_subgraphs() {
    assert_ratio("gnn.trace.gz", 1030);
}

#[test]
fn gpt_of_variable_length() {
    assert_ratio("gpt_varlen.trace.gz", 1030);
}

#[test]
fn llama_generation() {
    assert_ratio("hf_generate.trace.gz", 1030);
}
