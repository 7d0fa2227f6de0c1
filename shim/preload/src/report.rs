//! What the process tells about itself, in the schema of `docs/statistics.md`.
//!
//! Read by the endpoint's thread and by `wmshim_stats_json`. Only reads: no driver call whose answer could block, no
//! lock of a path that programs take but each manager's own, shortly.

use std::ffi::{CString, c_char};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

use serde_json::{Value, json};
use wm_abi::CUdevice;
use wm_driver::probe::Reading;
use wm_driver::{Api, Device};
use wm_memory::{Manager, Usage};
use wm_multipath::{CopyRoute, RelayUsage};

use crate::counters::{COPIES, fail_open_reasons, hooked};
use crate::endpoint::{self, Source};
use crate::{guard, multipath, physical, process, registry, settings, torch};

struct Process;

static STARTED: OnceLock<Instant> = OnceLock::new();

/// Opens the statistics endpoint, at the first successful `cuInit`.
pub(crate) fn open_endpoint() {
    STARTED.get_or_init(Instant::now);
    let Some(settings) = settings::get() else { return };
    let off = settings.stats_socket.as_deref() == Some(Path::new("off"));
    let endpoint = endpoint::Settings {
        socket: settings.stats_socket.clone(),
        directory: settings.stats_dir.clone(),
        at_exit: settings.stats_at_exit.clone(),
        enabled: !off && !settings.disable,
        signal: settings.stats_signal,
    };
    endpoint::start(endpoint, &Process);
}

impl Source for Process {
    fn stats(&self) -> Value {
        stats(device)
    }

    fn audited(&self) -> Value {
        stats(audited)
    }

    fn blocks(&self) -> Value {
        let devices = registry::all()
            .map(|manager| json!({ "ordinal": manager.gpu().ordinal(), "blocks": manager.blocks() }));
        json!({ "schema": "wmshim-blocks/1", "pid": std::process::id(), "devices": devices.collect::<Vec<_>>() })
    }

    fn config(&self) -> Value {
        json!({
            "schema": "wmshim-config/2",
            "pid": std::process::id(),
            "library": wm_driver::search::own_path().as_deref().map(shown),
            "settings": settings::get().map(settings::Settings::describe),
            "devices": registry::all().map(in_force).collect::<Vec<_>>(),
        })
    }
}

fn stats(of_device: fn(&'static Manager<Device>) -> Value) -> Value {
    json!({
        "schema": "wmshim-stats/1",
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "program": program(),
        "uptime_s": STARTED.get().map_or(0.0, |start| start.elapsed().as_secs_f64()),
        "driver": driver(),
        "torch_allocator": torch::back_end(),
        "devices": registry::all().map(of_device).collect::<Vec<_>>(),
        "calls": calls(),
        "driver_calls": driver_calls(),
        "copies": copies(),
        "relays": relays(),
        "guard": guard::statistics(),
        "fail_open": fail_open(),
    })
}

/// A path as JSON can hold it: the bytes of a path need not be text.
fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn driver() -> Value {
    let Some(table) = process::opened() else { return Value::Null };
    // The function needs no context and never blocks.
    json!({ "path": shown(table.path()), "version": table.driver_version().ok() })
}

fn device(manager: &'static Manager<Device>) -> Value {
    let (usage, limits) = (manager.usage(), manager.settings());
    let label = registry::label(manager.gpu().ordinal());
    json!({
        "ordinal": manager.gpu().ordinal(),
        "name": label.name,
        "total_bytes": label.total,
        "limit_bytes": limits.device_limit.min(label.total),
        "headroom_bytes": limits.headroom,
        "tiers": tiers(&usage),
        "pieces": pieces(manager.gpu().ordinal()),
        "cached_bytes": usage.cached,
        "idle_bytes": usage.idle.total(),
        "utilization": usage.utilization,
        "largest_free_run_bytes": usage.largest_free_run,
        "extents": usage.extents,
        "idle_views": usage.idle_views,
        "quarantined": usage.quarantined,
        "counters": usage.counters,
    })
}

/// What the settings come to on a device, in bytes; null where there is no limit.
fn in_force(manager: &'static Manager<Device>) -> Value {
    let limits = manager.settings();
    let bytes = |limit: u64| (limit != u64::MAX).then_some(limit);
    json!({
        "ordinal": manager.gpu().ordinal(),
        "device_limit_bytes": bytes(limits.device_limit),
        "headroom_bytes": limits.headroom,
        "keep_idle_bytes": limits.keep_idle,
        "host_limit_bytes": bytes(limits.host_limit),
        "peer_limit_bytes": bytes(limits.peer_limit),
    })
}

/// A device with the verdict on its books: "ok", or what does not agree.
fn audited(manager: &'static Manager<Device>) -> Value {
    let mut value = device(manager);
    value["audit"] = manager.audit().map_or_else(Value::from, |()| "ok".into());
    value
}

fn tiers(usage: &Usage) -> Value {
    let tier = |pick: fn(&wm_memory::TierBytes) -> u64| {
        json!({
            "live_bytes": pick(&usage.live),
            "reserved_bytes": pick(&usage.reserved),
            "peak_live_bytes": pick(&usage.live_peak),
            "peak_reserved_bytes": pick(&usage.reserved_peak),
        })
    };
    json!({ "device": tier(|t| t.device), "peer": tier(|t| t.peer), "host": tier(|t| t.host) })
}

/// Physical memory that the program made itself.
fn pieces(device: CUdevice) -> Value {
    let account = physical::account(device);
    json!({
        "device_bytes": account.held.device,
        "idle_bytes": physical::kept::idle(device),
        "host_bytes": account.held.host,
        "overflows": account.overflows,
    })
}

fn calls() -> Vec<Value> {
    let made = hooked().into_iter().filter(|(_, (count, _))| *count > 0);
    made.map(|(name, (count, errors))| json!({ "name": name, "count": count, "errors": errors })).collect()
}

/// Our own calls, of all devices together.
fn driver_calls() -> Vec<Reading> {
    let mut sum: Vec<Reading> = Vec::new();
    for reading in registry::all().flat_map(|manager| manager.gpu().probes.read()) {
        match sum.iter_mut().find(|known| known.name == reading.name) {
            Some(known) => known.add(&reading),
            None => sum.push(reading),
        }
    }
    sum
}

/// By path: what the driver copied, and the direct part of pinned copies over several links, went `direct`; what threads of ours carried over
/// the target's own link, `threads`.
fn copies() -> Vec<Value> {
    let mut rows: Vec<(String, &str, u64, u64)> = Vec::new();
    let plain = COPIES.iter().map(|copies| (copies.direction, copies.read()));
    rows.extend(plain.map(|(direction, (count, bytes))| ("direct".into(), direction, count, bytes)));
    for flow in multipath::traffic() {
        let path = match flow.route {
            CopyRoute::Direct => "direct".to_owned(),
            CopyRoute::Threads => "threads".to_owned(),
            CopyRoute::Relay(relay) => format!("relay {relay}"),
        };
        let direction = if flow.direction == wm_multipath::LinkDirection::In { "htod" } else { "dtoh" };
        match rows.iter_mut().find(|row| (row.0.as_str(), row.1) == (&path, direction)) {
            Some(row) => (row.2, row.3) = (row.2 + flow.count, row.3 + flow.bytes),
            None => rows.push((path, direction, flow.count, flow.bytes)),
        }
    }
    let made = rows.into_iter().filter(|(_, _, count, _)| *count > 0);
    made.map(|(path, direction, count, bytes)| {
        json!({ "path": path, "direction": direction, "count": count, "bytes": bytes })
    })
    .collect()
}

/// Device memory that copies through siblings take there.
fn relays() -> Vec<Value> {
    let row = |relay: RelayUsage| {
        json!({
            "ordinal": relay.device,
            "staging_bytes": relay.staging,
            "context_bytes_at_most": relay.context,
        })
    };
    multipath::relays().into_iter().map(row).collect()
}

fn fail_open() -> Value {
    let reasons = fail_open_reasons();
    let rows = reasons.iter().map(|(reason, count)| json!({ "reason": reason, "count": count }));
    json!({ "count": reasons.values().sum::<u64>(), "reasons": rows.collect::<Vec<_>>() })
}

/// This library's version, as a C string. Its presence tells a program that it runs under the shim.
#[unsafe(no_mangle)]
extern "C" fn wmshim_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The statistics as a JSON text that the caller frees with `free`; null without memory for it.
#[unsafe(no_mangle)]
extern "C" fn wmshim_stats_json() -> *mut c_char {
    let text = CString::new(Process.stats().to_string()).unwrap_or_default();
    // SAFETY: a NUL-terminated string; `strdup` gives memory of the C allocator, which the caller can free.
    unsafe { libc::strdup(text.as_ptr()) }
}
