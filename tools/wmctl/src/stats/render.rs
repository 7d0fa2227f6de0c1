//! Answers of the endpoint as tables. A field that an older library lacks has its default in
//! `wm-schema`: zero, or an empty text, which is shown as `-`.

use anyhow::anyhow;
use wm_schema::black_box::RefusedRequest;
use wm_schema::{
    ArenaStats, Bucket, Config, Counters, DedupStats, DeviceStats, DriverCall, MoveStats, PauseStats,
    PieceStats, Stats, TierUsage, Tiers, TurnStats,
};

use super::asked::AskedProgram;
use crate::client::{self, Origins};
use crate::human::{self, bytes, count, name, word};
use crate::table::TextTable;

/// Everything about one process. `pid` is its number here, if that is known.
pub(super) fn stats(pid: Option<u32>, answer: &Stats) -> String {
    let mut text = heading(pid, answer);
    if answer.detached {
        text.push_str("detached: the shim's features are off; `wmctl attach` undoes it\n");
    }
    for device in &answer.devices {
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

fn heading(pid: Option<u32>, answer: &Stats) -> String {
    let process = match pid.filter(|pid| *pid != answer.pid) {
        Some(pid) => format!("{pid}, {} inside", answer.pid),
        None => answer.pid.to_string(),
    };
    let driver = answer.driver.as_ref().map_or_else(
        || "no driver".to_owned(),
        |driver| {
            let version = driver.version.map_or_else(String::new, |code| format!(" (CUDA {})", cuda(code)));
            format!("{}{version}", word(&driver.path))
        },
    );
    let pause = answer.pause.as_ref().filter(|pause| !pause.runs()).map(|pause| {
        let waits = if pause.is_awaited { "; calls wait" } else { "" };
        format!("{}{waits}: {}", word(pause.word()), paused(pause))
    });
    let ready =
        answer.pause.as_ref().map(|pause| &pause.arena).filter(|told| **told != ArenaStats::default());
    let ready = ready.map(arena);
    format!(
        "{} (process {process}), up {}, wmshim {}, PyTorch allocator: {}\ndriver {driver}\n{}{}{}",
        name(&answer.program),
        human::duration(answer.uptime_s),
        word(&answer.version),
        word(&answer.torch_allocator),
        pause.unwrap_or_default(),
        ready.unwrap_or_default(),
        answer.turn.as_ref().map(turns).unwrap_or_default(),
    )
}

/// The turns of a process, as one line.
fn turns(turn: &TurnStats) -> String {
    let alone = if turn.has_broker { "" } else { ", without a broker" };
    format!(
        "takes turns{alone}: {}; has waited {} times, {} at most; has given way {} times, {} the last time\n",
        word(&turn.state),
        turn.asks,
        human::duration(turn.longest_wait_s),
        turn.gave_way,
        bytes(turn.given_bytes),
    )
}

/// Host memory that lies ready for a pause.
pub(crate) fn arena(arena: &ArenaStats) -> String {
    let ArenaStats { bytes: ready, lacking_bytes, is_filling, is_full } = *arena;
    let rest = match (is_filling, lacking_bytes) {
        (true, _) => ", more is being made".to_owned(),
        (false, 0) => String::new(),
        (false, lacking) if is_full => format!("; the host has no room for {} more", bytes(lacking)),
        (false, lacking) => format!("; {} more could leave", bytes(lacking)),
    };
    format!("arena: {} of host memory ready for a pause{rest}\n", bytes(ready))
}

/// What a pause did.
pub(crate) fn paused(pause: &PauseStats) -> String {
    let place = match (pause.file_bytes, pause.is_in_memory) {
        (0, _) => "the host",
        (_, true) => "memory that is not pinned",
        (_, false) => "files",
    };
    let mut text = format!("{} to {place} in {}", bytes(pause.out_bytes), human::duration(pause.pause_s));
    if pause.clean_bytes > 0 {
        text.push_str(&format!(", {} of that without a copy", bytes(pause.clean_bytes)));
    }
    if pause.common_bytes > 0 {
        text.push_str(&format!(", {} in one copy for all programs that have it", bytes(pause.common_bytes)));
    }
    text.push('\n');
    for stayed in &pause.stayed {
        text.push_str(&format!("  {} stay on the device: {}\n", bytes(stayed.bytes), word(&stayed.reason)));
    }
    text
}

/// A driver's version number as people write it: `13000` is CUDA 13.0.
pub(super) fn cuda(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

fn device(device: &DeviceStats) -> String {
    let share = Some(utilization(device)).filter(|share| (0.0..=1.0).contains(share));
    let share = share.map_or_else(|| "-".into(), |share| format!("{:.1} %", share * 100.0));
    let mut text = format!(
        "Device {} {}: {} (limit {}, headroom {}); utilization {share}, largest free run {}\n",
        device.ordinal,
        name(&device.name),
        bytes(device.total_bytes),
        bytes(device.limit_bytes),
        bytes(device.headroom_bytes),
        bytes(device.largest_free_run_bytes),
    );
    text.push_str(&tiers(device).to_string());
    text.push_str(&counters(&device.counters));
    text.push_str(&pieces(&device.pieces));
    text.push_str(&moves(&device.moves));
    text.push_str(&audit(device));
    text
}

/// Live over reserved. All of a piece is live until the program gives it up.
fn utilization(device: &DeviceStats) -> f64 {
    let reserved = |tiers: &Tiers| {
        [tiers.device, tiers.peer, tiers.host].iter().map(|tier| tier.reserved_bytes as f64).sum::<f64>()
    };
    let [blocks, all] = [&device.tiers, &device.everything()].map(reserved);
    let pieces = device.pieces.device_bytes as f64 + device.pieces.host_bytes as f64;
    if pieces > 0.0 && all > 0.0 { (device.utilization * blocks + pieces) / all } else { device.utilization }
}

/// The disagreement that an audit of the books found, if there was an audit and a disagreement.
fn audit(device: &DeviceStats) -> String {
    match device.audit.as_deref() {
        None | Some("ok") => String::new(),
        Some(finding) => {
            format!("the books do not agree, please report it: {}\n", human::shortened(finding, 1000))
        }
    }
}

/// Physical memory that the program made itself, if there is or was any.
fn pieces(pieces: &PieceStats) -> String {
    let PieceStats { device_bytes, host_bytes, overflows, peak_bytes, .. } = *pieces;
    if device_bytes + host_bytes + overflows + peak_bytes == 0 {
        return String::new();
    }
    format!(
        "made by the program itself: {} on the device, {} on the host, overflows {}; at most {} at once\n",
        bytes(device_bytes),
        bytes(host_bytes),
        count(overflows),
        bytes(peak_bytes)
    )
}

/// Memory of live blocks that moved or was refused a move, if there is any.
fn moves(moves: &MoveStats) -> String {
    let MoveStats { in_bytes, out_bytes, clean_bytes, unequal_bytes, refused, .. } = moves;
    if in_bytes + out_bytes == 0 && refused.is_empty() {
        return String::new();
    }
    let mut text = format!("moved: {} to the device, {} off it", bytes(*in_bytes), bytes(*out_bytes));
    if *clean_bytes > 0 {
        text.push_str(&format!(", {} of that without a copy", bytes(*clean_bytes)));
    }
    text.push('\n');
    if *unequal_bytes > 0 {
        let unequal = bytes(*unequal_bytes);
        text.push_str(&format!("  {unequal} had the same fingerprints and were not the same: report it\n"));
    }
    for reason in refused {
        text.push_str(&format!("  stayed {} times: {}\n", count(reason.count), word(&reason.reason)));
    }
    text
}

fn tiers(device: &DeviceStats) -> TextTable {
    let mut table = TextTable::new(&["TIER", ">LIVE", ">RESERVED", ">PEAK LIVE", ">PEAK RESERVED"]);
    let all = device.everything();
    // In the order in which they are filled.
    for (name, tier) in [("device", all.device), ("peer", all.peer), ("host", all.host)] {
        let TierUsage { live_bytes, reserved_bytes, peak_live_bytes, peak_reserved_bytes } = tier;
        let sizes = [live_bytes, reserved_bytes, peak_live_bytes, peak_reserved_bytes].map(bytes);
        table.row([name.to_owned()].into_iter().chain(sizes));
    }
    table
}

/// The counters above zero, in the order of their names.
fn counters(counters: &Counters) -> String {
    let fields = serde_json::to_value(counters).unwrap_or_default();
    let shown = fields.as_object().into_iter().flatten().filter_map(|(name, value)| {
        let value = value.as_u64().filter(|value| *value > 0)?;
        Some(format!("{} {}", name.replace('_', " "), count(value)))
    });
    let shown: Vec<_> = shown.collect();
    if shown.is_empty() { String::new() } else { format!("{}\n", shown.join(", ")) }
}

fn calls(answer: &Stats) -> TextTable {
    let mut table = TextTable::new(&["FUNCTION", ">CALLS", ">ERRORS"]);
    let mut calls: Vec<_> = answer.calls.iter().collect();
    calls.sort_by_key(|call| std::cmp::Reverse(call.count));
    for call in calls {
        table.row([word(&call.name), count(call.count), count(call.errors)]);
    }
    table
}

fn driver_calls(answer: &Stats) -> TextTable {
    let mut table = TextTable::new(&["FUNCTION", ">CALLS", ">ERRORS", ">TOTAL", ">MEAN", ">SLOWEST"]);
    let mut calls: Vec<_> = answer.driver_calls.iter().collect();
    calls.sort_by_key(|call| std::cmp::Reverse(call.count));
    for call in calls {
        let total = call.total_ns as f64;
        table.row([
            word(&call.name),
            count(call.count),
            count(call.errors),
            human::nanoseconds(total),
            human::nanoseconds(total / call.count.max(1) as f64),
            slowest(call),
        ]);
    }
    table
}

/// The bound of the highest bucket that has calls in it; the last bucket has no bound.
fn slowest(call: &DriverCall) -> String {
    match call.histogram.iter().rfind(|bucket| bucket.count > 0) {
        Some(Bucket { le_ns: Some(bound), .. }) => format!("≤ {}", human::nanoseconds(*bound as f64)),
        Some(Bucket { le_ns: None, .. }) => "> 1 s".to_owned(),
        None => "-".to_owned(),
    }
}

fn copies(answer: &Stats) -> TextTable {
    let mut table = TextTable::new(&["PATH", "DIRECTION", ">COPIES", ">BYTES"]);
    for copy in &answer.copies {
        table.row([word(&copy.path), word(&copy.direction), count(copy.count), bytes(copy.bytes)]);
    }
    table
}

fn guard(answer: &Stats) -> TextTable {
    let mut table = TextTable::new(&["MODE", ">GUARDED", ">LOOKS", ">OVERRUN", ">UNWATCHED"]);
    if let Some(guard) = &answer.guard {
        let figures = [guard.guarded, guard.looks, guard.overrun, guard.unwatched].map(count);
        table.row([word(&guard.mode)].into_iter().chain(figures));
    }
    table
}

/// Memory stored once for several processes; empty if `WMSHIM_DEDUP` is off.
fn dedup(answer: &Stats) -> TextTable {
    let mut table = TextTable::new(&["DEDUP", ">FIGURE"]);
    let Some(dedup) = answer.dedup.as_ref().filter(|dedup| dedup.is_in_force()) else { return table };
    let DedupStats { candidate_bytes, shared_bytes, saved_bytes, copied_back_bytes, .. } = *dedup;
    let DedupStats { faults_avoided, readers, writers, unknown, launches, turns, .. } = *dedup;
    let rows = [
        ("mode", word(&dedup.mode)),
        ("candidate", bytes(candidate_bytes)),
        ("shared", bytes(shared_bytes)),
        ("saved", bytes(saved_bytes)),
        ("copied back", bytes(copied_back_bytes)),
        ("faults avoided", count(faults_avoided)),
        ("readers", count(readers)),
        ("writers", count(writers)),
        ("unknown", count(unknown)),
        ("launches", count(launches)),
        ("turns", count(turns)),
    ];
    rows.into_iter().for_each(|(name, figure)| table.row([name.to_owned(), figure]));
    for reason in &dedup.refused {
        table.row([format!("not shared: {}", word(&reason.reason)), count(reason.count)]);
    }
    table
}

fn fail_open(answer: &Stats) -> TextTable {
    let mut table = TextTable::new(&["REASON", ">TIMES"]);
    for reason in &answer.fail_open.reasons {
        table.row([word(&reason.reason), count(reason.count)]);
    }
    table
}

/// One line a process.
pub(super) fn list(programs: &[AskedProgram]) -> String {
    let origins = Origins::of(programs.iter().map(|program| &program.identity));
    let headings =
        [">PID", "USER", ">UP", ">DEVICE LIVE", ">DEVICE RESERVED", ">PEER", ">HOST", ">OUT OF MEMORY"];
    let headings = headings.into_iter().chain(origins.headings()).chain(["COMMAND"]);
    let mut table = TextTable::new(&headings.collect::<Vec<_>>());
    let mut silent = String::new();
    for program in programs {
        match program.answer.as_ref().map_err(|error| anyhow!("{error:#}")).and_then(client::parsed::<Stats>)
        {
            Ok(answer) => {
                let command = name(&program.identity.command_or(&answer.program));
                let halt = if program.is_stopped { Some("stopped") } else { answer.halt() };
                let halt = halt.map(|halt| format!(" ({})", word(halt)));
                let command = format!("{command}{}", halt.unwrap_or_default());
                let command = if answer.detached { format!("{command} (detached)") } else { command };
                table.row(
                    summary(program, &answer)
                        .into_iter()
                        .chain(origins.cells(&program.identity))
                        .chain([command]),
                );
            }
            Err(error) => {
                let error = human::shown(&format!("{error:#}"));
                silent.push_str(&format!("process {}: {error}\n", program.pid));
            }
        }
    }
    format!("{table}{silent}")
}

/// Refused requests of a process that are told.
const REFUSALS: usize = 3;

/// One line a process that ended without an exit: what it held then, and at most. Below, its last
/// refused requests.
pub(super) fn dead(answers: &[AskedProgram]) -> String {
    let headings = [
        ">PID",
        "PROGRAM",
        ">RAN",
        ">DEVICE LIVE",
        ">HOST LIVE",
        ">PEAK DEVICE",
        ">PEAK PEER",
        ">PEAK HOST",
        ">OUT OF MEMORY",
    ];
    let mut table = TextTable::new(&headings);
    let parsed = answers
        .iter()
        .filter_map(|program| Some((program, client::parsed(program.answer.as_ref().ok()?).ok()?)));
    for (program, answer) in parsed {
        let answer: Stats = answer;
        table.row([
            program.pid.to_string(),
            name(&answer.program),
            human::duration(answer.uptime_s),
            bytes(sum(&answer, |device| device.everything().device.live_bytes)),
            bytes(sum(&answer, |device| device.everything().host.live_bytes)),
            bytes(sum(&answer, |device| device.everything().device.peak_live_bytes)),
            bytes(sum(&answer, |device| device.everything().peer.peak_live_bytes)),
            bytes(sum(&answer, |device| device.everything().host.peak_live_bytes)),
            count(sum(&answer, |device| device.counters.out_of_memory)),
        ]);
    }
    let refused =
        answers.iter().flat_map(|program| program.refused.iter().take(REFUSALS).map(|it| (program.pid, it)));
    let lines: String = refused.map(|(pid, request)| refusal(pid, request)).collect();
    format!("{table}{lines}")
}

fn refusal(pid: u32, request: &RefusedRequest) -> String {
    let RefusedRequest { at, ordinal, asked, held } = *request;
    format!(
        "process {pid}: after {} {} were refused on device {ordinal}, beside {} that it held\n",
        human::duration(at.as_secs_f64()),
        bytes(asked),
        bytes(held)
    )
}

/// A figure of all devices of a process together.
fn sum(answer: &Stats, figure: fn(&DeviceStats) -> u64) -> u64 {
    answer.devices.iter().map(figure).fold(0, u64::saturating_add)
}

fn summary(program: &AskedProgram, answer: &Stats) -> [String; 8] {
    let sum = |figure: fn(&DeviceStats) -> u64| sum(answer, figure);
    [
        program.pid.to_string(),
        name(program.identity.user.as_deref().unwrap_or_default()),
        human::duration(answer.uptime_s),
        bytes(sum(|device| device.everything().device.live_bytes)),
        bytes(sum(|device| device.everything().device.reserved_bytes)),
        bytes(sum(|device| device.everything().peer.reserved_bytes)),
        bytes(sum(|device| device.everything().host.reserved_bytes)),
        count(sum(|device| device.counters.out_of_memory)),
    ]
}

/// The settings in force, one a line.
pub(super) fn config(answer: &Config) -> String {
    let mut table = TextTable::new(&["SETTING", "VALUE"]);
    for (setting, value) in &answer.settings {
        table.row([name(setting), word(value.as_deref().unwrap_or_default())]);
    }
    format!("{table}{}", in_force(answer))
}

/// The budget that the settings come to on each device.
fn in_force(answer: &Config) -> String {
    let headings = [">DEVICE", ">LIMIT", ">HEADROOM", ">KEEPS IDLE", ">HOST LIMIT", ">PEER LIMIT"];
    let mut table = TextTable::new(&headings);
    for device in &answer.devices {
        let limit = |limit: Option<u64>| limit.map_or_else(|| "none".into(), bytes);
        table.row([
            device.ordinal.to_string(),
            limit(device.device_limit_bytes),
            bytes(device.headroom_bytes),
            bytes(device.keep_idle_bytes),
            limit(device.host_limit_bytes),
            limit(device.peer_limit_bytes),
        ]);
    }
    if table.is_empty() { String::new() } else { format!("\nIn force\n{table}") }
}
