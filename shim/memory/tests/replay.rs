//! Hazard (fragmentation): a program needs more device memory than it holds at its peak.
//! Allocations of real programs, recorded at the driver, are replayed on a model GPU with overflow
//! off.
//!
//! The traces' format stands in their first line. Work is not recorded, so a stream's own reuse is
//! free and a host synchronisation says that the stream drained. A program that repeats itself must
//! not be stitched for anew each time. `WMSHIM_REPLAY=search` looks for the smallest memory that
//! completes, to 0.5 %, and prints it; the plain run asserts the ratio that was reached.

mod support;

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;

use flate2::read::GzDecoder;
use support::model::{GRANULARITY, Model};
use wm_driver::{StreamId, Tier};
use wm_memory::{Manager, ManagerSettings, Order, Usage};

/// Usage is not free to ask for.
const LOOK_EVERY: usize = 16;

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

/// Replays a trace on a device of `capacity` bytes, and looks at the usage every so many events;
/// `None` if it runs out of memory.
fn replay(trace: &Trace, capacity: u64, overflow: &[Tier], look: impl FnMut(&Usage)) -> Option<Usage> {
    let settings = ManagerSettings { headroom: 0, overflow: overflow.to_vec(), ..ManagerSettings::default() };
    replay_with(settings, trace, capacity, look)
}

fn replay_with(
    settings: ManagerSettings,
    trace: &Trace,
    capacity: u64,
    mut look: impl FnMut(&Usage),
) -> Option<Usage> {
    let capacity = capacity / GRANULARITY * GRANULARITY;
    let manager = Manager::new(Model::new(capacity, trace.peak), settings);
    let mut addresses = HashMap::new();
    for (index, event) in trace.events.iter().enumerate() {
        step(&manager, event, &mut addresses)?;
        if index % LOOK_EVERY == 0 {
            look(&manager.usage());
        }
    }
    manager.audit().expect("the books balance");
    Some(manager.usage())
}

fn step(manager: &Manager<Model>, event: &Event, addresses: &mut HashMap<u64, u64>) -> Option<()> {
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
    Some(())
}

/// The smallest capacity that completes, as a ratio to the peak of live bytes, to half a per cent.
fn search(trace: &Trace) -> f64 {
    let completes = |thousandths: u64| replay(trace, trace.peak * thousandths / 1000, &[], |_| {}).is_some();
    let smallest = (1000..1500).step_by(5).find(|thousandths| completes(*thousandths));
    smallest.map_or(f64::INFINITY, |thousandths| thousandths as f64 / 1000.0)
}

#[allow(clippy::print_stdout, reason = "a figure for the reader of the test's output")]
fn assert_ratio(name: &str, thousandths: u64) {
    let trace = load(name);
    if std::env::var("WMSHIM_REPLAY").is_ok_and(|mode| mode == "search") {
        println!("{name}: smallest capacity that completes / peak live bytes = {:.3}", search(&trace));
    }
    let usage = replay(&trace, trace.peak * thousandths / 1000, &[], |_| {});
    let usage =
        usage.unwrap_or_else(|| panic!("{name} runs out of memory at {thousandths}/1000 of its peak"));
    println!("{name} at {thousandths}/1000: {:?}", usage.counters);
    assert_eq!(usage.counters.out_of_memory, 0);
}

/// Calls that make, map or give back memory, in each of several passes of a program's first events;
/// everything is freed in between.
fn calls_by_period(trace: &Trace, events: usize, periods: usize) -> Vec<u64> {
    let manager = Manager::new(Model::new(2 * trace.peak, 0), ManagerSettings::default());
    let calls = || ["create", "map", "unmap", "release"].map(|name| manager.gpu().calls(name)).iter().sum();
    let pass = |_| {
        let (before, mut addresses): (u64, _) = (calls(), HashMap::new());
        trace
            .events
            .iter()
            .take(events)
            .for_each(|event| step(&manager, event, &mut addresses).expect("room"));
        let mut left: Vec<_> = addresses.into_values().collect();
        left.sort_unstable();
        left.into_iter().for_each(|address| manager.free(address, Order::Device).expect("a live block"));
        manager.passed_all();
        calls() - before
    };
    (0..periods).map(pass).collect()
}

fn assert_quiet_after_the_second_period(name: &str, events: usize) {
    let calls = calls_by_period(&load(name), events, 3);
    assert!(calls[0] > 0, "the first period makes the memory");
    assert_eq!(calls[2], 0, "{calls:?}");
}

#[test]
fn gnn_needs_no_call_after_its_second_period() {
    assert_quiet_after_the_second_period("gnn.trace.gz", usize::MAX);
}

/// Hundreds of stitched extents of nearly as many sizes: the choice of an extent to use again must
/// not depend on which were stitched later.
#[test]
fn llama_needs_no_call_after_its_second_period() {
    assert_quiet_after_the_second_period("hf_generate.trace.gz", 250_000);
}

/// The trace that `tests/traces/made_up.py` writes: sizes log-uniform between two bounds, any block
/// freed next, one stream.
fn made_up(least: f64, most: f64, peak: u64, count: u64) -> Trace {
    let mut state = 1_u64;
    let mut draw = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let (order, mut live, mut total, mut trace) =
        (Order::Stream(StreamId(1)), Vec::new(), 0, Trace { peak: 0, events: vec![] });
    for id in 0..count {
        if live.is_empty() || (total as f64) < peak as f64 * (0.7 + 0.3 * draw()) {
            let bytes = (least * (most / least).powf(draw())) as usize;
            live.push((id, bytes));
            total += bytes as u64;
            trace.events.push(Event::Allocate { id, bytes, order });
        } else {
            let (id, bytes) = live.swap_remove((draw() * live.len() as f64) as usize);
            total -= bytes as u64;
            trace.events.push(Event::Free { id, order });
        }
        trace.peak = trace.peak.max(total);
    }
    trace
}

fn assert_made_up(trace: &Trace) {
    let usage = replay(trace, trace.peak * 1080 / 1000, &[], |_| {}).expect("enough memory");
    assert_eq!(usage.counters.out_of_memory, 0);
}

/// No program is as irregular: the memory that this trace needs is an upper bound.
#[test]
fn small_blocks_that_no_program_made() {
    assert_made_up(&made_up(512.0, (1 << 20) as f64, 1 << 30, 30_000));
}

#[test]
fn medium_blocks_that_no_program_made() {
    assert_made_up(&made_up((1 << 20) as f64, (16 << 20) as f64, 4 << 30, 8000));
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

/// The placement that sharing between processes needs may cost 3 %: on these traces it saves some.
#[test]
fn handles_of_one_size_need_no_more_memory() {
    for (name, thousandths) in [("gpt_varlen", 1012), ("hf_generate", 1004)] {
        let trace = load(&format!("{name}.trace.gz"));
        let chunked =
            ManagerSettings { headroom: 0, overflow: vec![], chunked: true, ..ManagerSettings::default() };
        let usage = replay_with(chunked, &trace, trace.peak * thousandths / 1000, |_| {});
        assert!(usage.is_some(), "{name} runs out of memory at {thousandths}/1000 of its peak");
    }
}

/// How much of the device a program in overflow really uses: bytes live there, over the bytes that
/// could be there, through the whole run.
#[allow(clippy::print_stdout, reason = "a figure for the reader of the test's output")]
fn assert_device_share(name: &str, percent_of_peak: u64, at_least: f64) {
    let trace = load(name);
    let capacity = trace.peak * percent_of_peak / 100;
    let (mut there, mut could_be) = (0u128, 0u128);
    let usage = replay(&trace, capacity, &[Tier::Host], |usage| {
        there += u128::from(usage.live.device);
        could_be += u128::from(usage.live.total().min(capacity));
    });
    let usage = usage.expect("the host has room for all of it");
    let share = there as f64 / could_be as f64;
    println!("{name} on {percent_of_peak} % of its peak: device share {share:.3}, {:?}", usage.counters);
    assert!(share >= at_least, "{share:.3} of what could be on the device is there");
}

#[test]
fn gnn_in_overflow_fills_the_device() {
    // Few and large blocks: those that went to the host stay there for as long as they live.
    assert_device_share("gnn.trace.gz", 60, 0.8);
}

#[test]
fn gpt_in_overflow_fills_the_device() {
    assert_device_share("gpt_varlen.trace.gz", 70, 0.9);
}

/// Of random sizes and frees, the share of the device that is live or asked for when a request
/// fails. `None`: none fails. The program frees as soon as it would hold more than 97 %.
fn failure(seed: u64) -> Option<f64> {
    const DEVICE: u64 = 1024 << 20;
    let manager =
        Manager::new(Model::new(DEVICE, 0), ManagerSettings { headroom: 0, ..ManagerSettings::default() });
    let (mut state, mut live, mut held) = (seed, 0, Vec::new());
    let mut drawn = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..300 {
        let bytes = (1 << 20) + drawn(80 << 20);
        while 100 * (live + bytes) > 97 * DEVICE || (!held.is_empty() && drawn(3) == 0) {
            let (address, bytes) = held.swap_remove(drawn(held.len() as u64) as usize);
            manager.free(address, Order::Device).expect("live");
            live -= bytes;
        }
        live += bytes;
        match manager.allocate(bytes as usize, Order::Device) {
            Ok(address) => held.push((address, bytes)),
            Err(_) => return Some(live as f64 / DEVICE as f64),
        }
    }
    None
}

/// Hazard (out of memory): handles of few sizes, as moves like them, leave gaps that no other block
/// fills.
#[test]
fn random_sizes_fill_the_device() {
    let failures: Vec<f64> = (1..=4).filter_map(failure).collect();
    assert_eq!(failures, [], "shares of the device that were refused");
}
