//! Answers of the endpoint as tables. Tolerant: a field that is absent is left out or shown as `-`.

use anyhow::Result;
use serde_json::Value;

use crate::answer::{items, name, number, word};
use crate::client::Endpoint;
use crate::human;
use crate::table::TextTable;

/// Tiers in the order in which they are filled.
const TIERS: [&str; 3] = ["device", "peer", "host"];

/// Everything about one process.
pub(super) fn stats(answer: &Value) -> String {
    let mut text = heading(answer);
    for device in items(answer, "devices") {
        text.push_str(&format!("\n{}", self::device(device)));
    }
    let sections = [
        ("Calls of the program", calls(answer)),
        ("Calls to the driver", driver_calls(answer)),
        ("Copies", copies(answer)),
        ("The same bytes, once", dedup(answer)),
        ("Guard", guard(answer)),
        ("Stepped aside", fail_open(answer)),
    ];
    for (title, table) in sections.into_iter().filter(|(_, table)| !table.is_empty()) {
        text.push_str(&format!("\n{title}\n{table}"));
    }
    text
}

fn heading(answer: &Value) -> String {
    let driver = answer.get("driver").filter(|driver| driver.is_object());
    let driver = driver.map_or_else(
        || "no driver".to_owned(),
        |driver| {
            let version = number(driver, "version")
                .map_or_else(String::new, |version| format!(" (CUDA {})", cuda(version)));
            format!("{}{version}", word(driver, "path"))
        },
    );
    let up = answer.get("uptime_s").and_then(Value::as_f64).map_or_else(|| "-".into(), human::duration);
    format!(
        "{} (process {}), up {up}, wmshim {}, PyTorch allocator: {}\ndriver {driver}\n",
        name(answer, "program"),
        figure(answer, "pid"),
        word(answer, "version"),
        word(answer, "torch_allocator"),
    )
}

/// `13000` is CUDA 13.0.
pub(super) fn cuda(version: u64) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

fn device(device: &Value) -> String {
    let size = |name| number(device, name).map_or_else(|| "-".into(), human::bytes);
    let share = device.get("utilization").and_then(Value::as_f64);
    let share = share.filter(|share| (0.0..=1.0).contains(share));
    let share = share.map_or_else(|| "-".into(), |share| format!("{:.1} %", share * 100.0));
    let mut text = format!(
        "Device {} {}: {} (limit {}, headroom {}); utilization {share}, largest free run {}\n",
        figure(device, "ordinal"),
        name(device, "name"),
        size("total_bytes"),
        size("limit_bytes"),
        size("headroom_bytes"),
        size("largest_free_run_bytes"),
    );
    text.push_str(&tiers(device).to_string());
    text.push_str(&counters(device));
    text.push_str(&pieces(device));
    text.push_str(&moves(device));
    text.push_str(&audit(device));
    text
}

/// What is wrong with the books, if they were looked at and something is.
fn audit(device: &Value) -> String {
    match device.get("audit").and_then(Value::as_str) {
        None | Some("ok") => String::new(),
        Some(finding) => {
            format!("the books do not agree, please report it: {}\n", human::shortened(finding, 1000))
        }
    }
}

/// Physical memory that the program made itself, if there is or was any.
fn pieces(device: &Value) -> String {
    let Some(pieces) = device.get("pieces") else { return String::new() };
    let figure = |name| number(pieces, name).unwrap_or(0);
    let (here, host, overflows) = (figure("device_bytes"), figure("host_bytes"), figure("overflows"));
    let most = figure("peak_bytes");
    if here + host + overflows + most == 0 {
        return String::new();
    }
    format!(
        "made by the program itself: {} on the device, {} on the host, overflows {}; at most {} at once\n",
        human::bytes(here),
        human::bytes(host),
        human::count(overflows),
        human::bytes(most)
    )
}

/// Memory of live blocks that moved or was to, if there is any.
fn moves(device: &Value) -> String {
    let Some(moves) = device.get("moves") else { return String::new() };
    let figure = |name| number(moves, name).unwrap_or(0);
    let refused = moves.get("refused").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let (here, away) = (figure("in_bytes"), figure("out_bytes"));
    if here + away == 0 && refused.is_empty() {
        return String::new();
    }
    let mut text = format!("moved: {} to the device, {} off it\n", human::bytes(here), human::bytes(away));
    for reason in refused {
        let why = reason.get("reason").and_then(Value::as_str).unwrap_or_default();
        let count = human::count(number(reason, "count").unwrap_or(0));
        text.push_str(&format!("  stayed {count} times: {}\n", human::shortened(why, 200)));
    }
    text
}

fn tiers(device: &Value) -> TextTable {
    let mut table = TextTable::new(&["TIER", ">LIVE", ">RESERVED", ">PEAK LIVE", ">PEAK RESERVED"]);
    for name in TIERS {
        let Some(tier) = device.get("tiers").and_then(|tiers| tiers.get(name)) else { continue };
        let size = |field| number(tier, field).map_or_else(|| "-".into(), human::bytes);
        let figures = ["live_bytes", "reserved_bytes", "peak_live_bytes", "peak_reserved_bytes"].map(size);
        table.row([name.to_owned()].into_iter().chain(figures));
    }
    table
}

/// Whatever counters there are, in the order of their names; those in bytes as sizes.
fn counters(device: &Value) -> String {
    let Some(counters) = device.get("counters").and_then(Value::as_object) else { return String::new() };
    let shown = counters.iter().filter_map(|(name, value)| {
        let value = value.as_u64().filter(|value| *value > 0)?;
        let text = if name.ends_with("_bytes") { human::bytes(value) } else { human::count(value) };
        Some(format!("{} {text}", human::name(&name.trim_end_matches("_bytes").replace('_', " "))))
    });
    let shown: Vec<_> = shown.collect();
    if shown.is_empty() { String::new() } else { format!("{}\n", shown.join(", ")) }
}

fn calls(answer: &Value) -> TextTable {
    let mut table = TextTable::new(&["FUNCTION", ">CALLS", ">ERRORS"]);
    for call in by_count(answer, "calls") {
        table.row([word(call, "name"), figure(call, "count"), figure(call, "errors")]);
    }
    table
}

fn driver_calls(answer: &Value) -> TextTable {
    let mut table = TextTable::new(&["FUNCTION", ">CALLS", ">ERRORS", ">TOTAL", ">MEAN", ">SLOWEST"]);
    for call in by_count(answer, "driver_calls") {
        let (count, total) =
            (number(call, "count").unwrap_or(0), number(call, "total_ns").unwrap_or(0) as f64);
        table.row([
            word(call, "name"),
            figure(call, "count"),
            figure(call, "errors"),
            human::nanoseconds(total),
            human::nanoseconds(total / count.max(1) as f64),
            slowest(call),
        ]);
    }
    table
}

/// The bound of the highest bucket that has calls in it; the last bucket has no bound.
fn slowest(call: &Value) -> String {
    let mut buckets = items(call, "histogram").iter().filter(|bucket| number(bucket, "count") > Some(0));
    match buckets.next_back().map(|bucket| bucket.get("le_ns").and_then(Value::as_u64)) {
        Some(Some(bound)) => format!("≤ {}", human::nanoseconds(bound as f64)),
        Some(None) => "> 1 s".to_owned(),
        None => "-".to_owned(),
    }
}

fn copies(answer: &Value) -> TextTable {
    let mut table = TextTable::new(&["PATH", "DIRECTION", ">COPIES", ">BYTES"]);
    for copy in items(answer, "copies") {
        let size = number(copy, "bytes").map_or_else(|| "-".into(), human::bytes);
        table.row([word(copy, "path"), word(copy, "direction"), figure(copy, "count"), size]);
    }
    table
}

fn guard(answer: &Value) -> TextTable {
    let mut table = TextTable::new(&["MODE", ">GUARDED", ">LOOKS", ">OVERRUN", ">UNWATCHED"]);
    if let Some(guard) = answer.get("guard").filter(|guard| guard.is_object()) {
        let figures = ["guarded", "looks", "overrun", "unwatched"].map(|name| figure(guard, name));
        let [guarded, looks, overrun, unwatched] = figures;
        table.row([word(guard, "mode"), guarded, looks, overrun, unwatched]);
    }
    table
}

/// Memory stored once for several processes; nothing where it is off.
fn dedup(answer: &Value) -> TextTable {
    let mut table = TextTable::new(&["DEDUP", ">FIGURE"]);
    let Some(dedup) = answer.get("dedup").filter(|dedup| is_in_force(dedup)) else { return table };
    table.row(["mode".to_owned(), word(dedup, "mode")]);
    for name in ["candidate_bytes", "shared_bytes", "saved_bytes", "copied_back_bytes"] {
        let size = number(dedup, name).map_or_else(|| "-".into(), human::bytes);
        table.row([name.trim_end_matches("_bytes").replace('_', " "), size]);
    }
    for name in ["faults_avoided", "readers", "writers", "unknown", "launches", "turns"] {
        table.row([name.replace('_', " "), figure(dedup, name)]);
    }
    for reason in items(dedup, "refused") {
        table.row([format!("not shared: {}", word(reason, "reason")), figure(reason, "count")]);
    }
    table
}

/// An older library says nothing of it, and one where it is off null.
fn is_in_force(dedup: &Value) -> bool {
    dedup.get("mode").and_then(Value::as_str).is_some_and(|mode| mode != "off")
}

fn fail_open(answer: &Value) -> TextTable {
    let mut table = TextTable::new(&["REASON", ">TIMES"]);
    for reason in answer.get("fail_open").map_or(&[][..], |fail_open| items(fail_open, "reasons")) {
        table.row([word(reason, "reason"), figure(reason, "count")]);
    }
    table
}

/// One line a process.
pub(super) fn list(answers: &[(&Endpoint, Result<Value>)]) -> String {
    let headings =
        ["PID", "PROGRAM", ">UP", ">DEVICE LIVE", ">DEVICE RESERVED", ">PEER", ">HOST", ">OUT OF MEMORY"];
    let mut table = TextTable::new(&headings.map(|heading| if heading == "PID" { ">PID" } else { heading }));
    let mut silent = String::new();
    for (endpoint, answer) in answers {
        match answer {
            Ok(answer) => table.row(summary(endpoint, answer)),
            Err(error) => {
                let error = human::shown(&format!("{error:#}"));
                silent.push_str(&format!("process {}: {error}\n", endpoint.pid));
            }
        }
    }
    format!("{table}{silent}")
}

fn summary(endpoint: &Endpoint, answer: &Value) -> [String; 8] {
    let sum =
        |pointer: &str| items(answer, "devices").iter().filter_map(|d| d.pointer(pointer)?.as_u64()).sum();
    let bytes = |pointer: &str| human::bytes(sum(pointer));
    [
        endpoint.pid.to_string(),
        name(answer, "program"),
        answer.get("uptime_s").and_then(Value::as_f64).map_or_else(|| "-".into(), human::duration),
        bytes("/tiers/device/live_bytes"),
        bytes("/tiers/device/reserved_bytes"),
        bytes("/tiers/peer/reserved_bytes"),
        bytes("/tiers/host/reserved_bytes"),
        human::count(sum("/counters/out_of_memory")),
    ]
}

/// The live blocks, largest first.
pub(super) fn blocks(answer: &Value) -> String {
    let mut table = TextTable::new(&[">DEVICE", "ADDRESS", ">BYTES", ">ON DEVICE", ">ON PEERS", ">ON HOST"]);
    let mut rows: Vec<(u64, [String; 6])> = Vec::new();
    for device in items(answer, "devices") {
        rows.extend(items(device, "blocks").iter().map(|block| row(device, block)));
    }
    rows.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let (count, total) = (rows.len(), rows.iter().map(|(bytes, _)| bytes).sum());
    rows.into_iter().for_each(|(_, row)| table.row(row));
    format!("{table}{} blocks, {}\n", human::count(count as u64), human::bytes(total))
}

fn row(device: &Value, block: &Value) -> (u64, [String; 6]) {
    let bytes = number(block, "bytes").unwrap_or(0);
    let tier = |name| {
        block.get("tiers").and_then(|tiers| number(tiers, name)).map_or_else(|| "-".into(), human::bytes)
    };
    let address =
        number(block, "address").map_or_else(|| word(block, "address"), |address| format!("{address:#x}"));
    (
        bytes,
        [figure(device, "ordinal"), address, human::bytes(bytes), tier("device"), tier("peer"), tier("host")],
    )
}

/// The settings in force, one a line.
pub(super) fn config(answer: &Value) -> String {
    let mut table = TextTable::new(&["SETTING", "VALUE"]);
    let settings = answer.get("settings").filter(|settings| settings.is_object()).unwrap_or(answer);
    for (name, value) in settings.as_object().into_iter().flatten() {
        let value = match value {
            Value::Null => "-".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        table.row([human::name(name), human::shortened(&value, 200)]);
    }
    format!("{table}{}", in_force(answer))
}

/// What the settings come to on each device.
fn in_force(answer: &Value) -> String {
    let headings = [">DEVICE", ">LIMIT", ">HEADROOM", ">KEEPS IDLE", ">HOST LIMIT", ">PEER LIMIT"];
    let mut table = TextTable::new(&headings);
    for device in items(answer, "devices") {
        let size = |field| number(device, field).map_or_else(|| "none".into(), human::bytes);
        let fields = [
            "device_limit_bytes",
            "headroom_bytes",
            "keep_idle_bytes",
            "host_limit_bytes",
            "peer_limit_bytes",
        ];
        table.row([figure(device, "ordinal")].into_iter().chain(fields.map(size)));
    }
    if table.is_empty() { String::new() } else { format!("\nIn force\n{table}") }
}

fn by_count<'a>(answer: &'a Value, field: &str) -> Vec<&'a Value> {
    let mut calls: Vec<_> = items(answer, field).iter().collect();
    calls.sort_by_key(|call| std::cmp::Reverse(number(call, "count")));
    calls
}

fn figure(value: &Value, field: &str) -> String {
    match number(value, field) {
        Some(number) if matches!(field, "pid" | "ordinal") => number.to_string(),
        Some(number) => human::count(number),
        None => "-".to_owned(),
    }
}
