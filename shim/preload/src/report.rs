//! The statistics of the process, in the schema of `docs/wmctl.md`.
//!
//! Read by the endpoint's thread and by `wmshim_stats_json`. Only reads: no driver call whose
//! answer could block, no lock of a path that programs take but each manager's own, shortly.

use std::ffi::{CString, c_char};
use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};
use wm_driver::{Api, Device};
use wm_memory::{Charge, Manager, PieceAccount, TierBytes, Usage};
use wm_multipath::CopyRoute;
use wm_schema as schema;

use crate::black_box::{self, ProcessFacts};
use crate::control::{self, StepCaller};
use crate::counters::COUNTERS;
use crate::endpoint::{ChangeRequest, EndpointSettings, PauseRequest, RequestedPlace, Source};
use crate::pauses::StorePlace;
use crate::physical::{self, ListedPiece};
use crate::settings::Dedup;
use crate::subsystems::PROCESS;
use crate::{multipath, pause_calls, process, registry, settings};

struct ProcessReport;

/// Opens the statistics endpoint, at the first successful `cuInit`.
pub(crate) fn open_endpoint() {
    COUNTERS.start();
    let Some(settings) = settings::get() else { return };
    let off = settings.stats_socket.as_deref() == Some(Path::new("off"));
    if !off && !settings.disable {
        let driver = driver().unwrap_or_default();
        let facts = ProcessFacts {
            program: &program(),
            driver: &driver.path,
            cuda_version: driver.version.and_then(|version| version.try_into().ok()).unwrap_or(0),
            allocator: PROCESS.torch.back_end(),
            dedup_mode: match settings.dedup {
                Dedup::Off => 0,
                Dedup::Advise => 1,
                Dedup::On => 2,
                Dedup::Auto => 3,
            },
        };
        black_box::open(settings.stats_dir.as_deref(), &facts);
    }
    let endpoint = EndpointSettings {
        socket: settings.stats_socket.clone(),
        directory: settings.stats_dir.clone(),
        at_exit: settings.stats_at_exit.clone(),
        enabled: !off && !settings.disable,
        signal: settings.stats_signal,
    };
    PROCESS.endpoint.start(endpoint, &ProcessReport);
}

impl Source for ProcessReport {
    fn stats(&self) -> Value {
        value(&stats(device))
    }

    fn audited(&self) -> Value {
        value(&stats(audited))
    }

    fn blocks(&self) -> Value {
        let of_device = |manager: &'static Manager<Device>| schema::DeviceBlocks {
            ordinal: manager.gpu().ordinal(),
            blocks: manager.blocks(),
            pieces: pieces_of(manager),
        };
        value(&schema::BlockList {
            schema: schema::BlockList::SCHEMA.to_owned(),
            pid: std::process::id(),
            devices: registry::all().map(of_device).collect(),
        })
    }

    fn pause(&self, pause: PauseRequest) -> Value {
        let files = pause.place.map(|place| match place {
            RequestedPlace::Folder(folder) => StorePlace::Folder(folder),
            RequestedPlace::Memory => StorePlace::Memory,
        });
        value(&pause_calls::pause(files, pause.deadline))
    }

    fn pause_prepare(&self) -> Value {
        value(&pause_calls::prepare())
    }

    fn pause_deep(&self) -> Value {
        value(&pause_calls::deep())
    }

    fn pause_restored(&self) -> Value {
        value(&pause_calls::restored())
    }

    fn resume(&self) -> Value {
        value(&pause_calls::resume())
    }

    fn pause_state(&self) -> Value {
        value(&pause_calls::state())
    }

    fn config(&self) -> Value {
        value(&schema::Config {
            schema: schema::Config::SCHEMA.to_owned(),
            pid: std::process::id(),
            library: wm_driver::interposer::own_path().as_deref().map(shown),
            settings: settings::get().map(settings::Settings::describe).unwrap_or_default(),
            devices: registry::all().map(in_force).collect(),
        })
    }

    fn change(&self, change: &ChangeRequest) -> Value {
        // It would wait for the driver, and the other clients for it.
        if let Some(why) = pause_calls::why_no_change() {
            return json!({ "schema": "wmshim-error/1", "error": why });
        }
        value(&control::change(change, StepCaller::Endpoint))
    }
}

/// The program's own memory of a device. The books are locked as long as it is listed, which takes
/// a fraction of what the driver took to make it.
fn pieces_of(manager: &'static Manager<Device>) -> Vec<schema::PieceEntry> {
    let entry = |piece: ListedPiece<'_, Charge<'static, Device>>| schema::PieceEntry {
        bytes: piece.charge.bytes(),
        id: piece.number,
        tiers: piece.charge.tiers().into(),
        mappings: piece
            .mappings
            .into_iter()
            .map(|(address, bytes)| schema::PieceRange { address, bytes })
            .collect(),
    };
    let book = physical::book();
    let of_device = book.listed().into_iter().filter(|piece| std::ptr::eq(piece.charge.manager(), manager));
    of_device.map(entry).collect()
}

/// An answer as JSON. Its maps have keys of text, so there is always one.
fn value(answer: &impl Serialize) -> Value {
    serde_json::to_value(answer).unwrap_or_default()
}

fn stats(of_device: fn(&'static Manager<Device>) -> schema::DeviceStats) -> schema::Stats {
    schema::Stats {
        schema: schema::Stats::SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        program: program(),
        uptime_s: COUNTERS.uptime(),
        driver: driver(),
        torch_allocator: PROCESS.torch.back_end().to_owned(),
        devices: registry::all().map(of_device).collect(),
        calls: calls(),
        driver_calls: driver_calls(),
        copies: copies(),
        relays: relays(),
        guard: PROCESS.guard.statistics(),
        dedup: PROCESS.sharing.figures(),
        pause: PROCESS.pauses.figures(),
        turn: PROCESS.turns.figures(),
        fail_open: fail_open(),
        out_of_bounds: COUNTERS.out_of_bounds(),
        detached: process::detached(),
    }
}

/// A path as JSON can hold it: the bytes of a path need not be text.
fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn driver() -> Option<schema::DriverInfo> {
    let table = process::opened()?;
    // The function needs no context, and blocks only where every call does.
    let version = (!PROCESS.pauses.is_deep()).then(|| table.driver_version().ok());
    Some(schema::DriverInfo { path: shown(table.path()), version: version.flatten() })
}

fn device(manager: &'static Manager<Device>) -> schema::DeviceStats {
    let (usage, limits) = (manager.usage(), manager.settings());
    let ordinal = manager.gpu().ordinal();
    let label = registry::label(ordinal);
    schema::DeviceStats {
        ordinal,
        name: label.name.clone(),
        uuid: label.uuid.clone(),
        pci: label.pci.clone(),
        total_bytes: label.total,
        limit_bytes: manager.device_limit().min(label.total),
        headroom_bytes: limits.headroom,
        tiers: tiers(&usage),
        memory: Some(usage.together.tiers()),
        pieces: pieces(&usage.pieces),
        moves: move_stats(manager, &usage),
        peak_live_bytes: usage.live_peaks.total,
        cached_bytes: usage.cached,
        idle_bytes: usage.idle.total(),
        utilization: usage.utilization,
        largest_free_run_bytes: usage.largest_free_run,
        extents: usage.extents as u64,
        idle_views: usage.idle_views as u64,
        quarantined: usage.quarantined as u64,
        counters: schema::Counters {
            out_of_memory: usage.counters.out_of_memory + usage.pieces.refused,
            ..usage.counters
        },
        audit: None,
    }
}

/// A device with the verdict on its books: "ok", or the first contradiction.
fn audited(manager: &'static Manager<Device>) -> schema::DeviceStats {
    let verdict = manager.audit().map_or_else(|finding| finding, |()| "ok".to_owned());
    schema::DeviceStats { audit: Some(verdict), ..device(manager) }
}

/// The limits of a device that follow from the settings.
fn in_force(manager: &'static Manager<Device>) -> schema::DeviceBudget {
    let limits = manager.settings();
    let bytes = |limit: u64| (limit != u64::MAX).then_some(limit);
    schema::DeviceBudget {
        ordinal: manager.gpu().ordinal(),
        device_limit_bytes: bytes(manager.device_limit()),
        headroom_bytes: limits.headroom,
        keep_idle_bytes: limits.keep_idle,
        host_limit_bytes: bytes(limits.host_limit),
        peer_limit_bytes: bytes(limits.peer_limit),
    }
}

fn tiers(usage: &Usage) -> schema::Tiers {
    let tier = |of: fn(&TierBytes) -> u64| schema::TierUsage {
        live_bytes: of(&usage.live),
        reserved_bytes: of(&usage.reserved),
        peak_live_bytes: of(&usage.live_peak),
        peak_reserved_bytes: of(&usage.reserved_peak),
    };
    schema::Tiers {
        device: tier(|bytes| bytes.device),
        peer: tier(|bytes| bytes.peer),
        host: tier(|bytes| bytes.host),
    }
}

/// Physical memory that the program made itself.
fn pieces(account: &PieceAccount) -> schema::PieceStats {
    schema::PieceStats {
        device_bytes: account.held.device,
        idle_bytes: account.idle.device,
        host_bytes: account.held.host,
        host_idle_bytes: account.idle.host,
        peak_device_bytes: account.peaks.tiers.device,
        peak_host_bytes: account.peaks.tiers.host,
        peak_bytes: account.peaks.total,
        overflows: account.overflows,
    }
}

fn move_stats(manager: &Manager<Device>, usage: &Usage) -> schema::MoveStats {
    let reason = |(reason, count): (&str, u64)| schema::Reason { reason: reason.to_owned(), count };
    schema::MoveStats {
        in_bytes: usage.moves.in_bytes,
        out_bytes: usage.moves.out_bytes,
        clean_bytes: usage.moves.clean_bytes,
        unprinted_bytes: usage.moves.unprinted_bytes,
        unequal_bytes: usage.moves.unequal_bytes,
        refused: PROCESS
            .moves
            .refusals(manager.gpu().ordinal(), &usage.moves)
            .into_iter()
            .map(reason)
            .collect(),
    }
}

fn calls() -> Vec<schema::CallCount> {
    let made = COUNTERS.hooked().into_iter().filter(|(_, (count, _))| *count > 0);
    made.map(|(name, (count, errors))| schema::CallCount { name: name.to_owned(), count, errors }).collect()
}

/// Our own calls, of all devices together.
fn driver_calls() -> Vec<schema::DriverCall> {
    let mut sum: Vec<schema::DriverCall> = Vec::new();
    for call in registry::all().flat_map(|manager| manager.gpu().probes.read()) {
        match sum.iter_mut().find(|known| known.name == call.name) {
            Some(known) => known.add(&call),
            None => sum.push(call),
        }
    }
    sum
}

/// By path. `direct`: the driver's copies, and the direct part of pinned copies over several links.
/// `threads`: bytes that threads of ours carried over the target's own link.
fn copies() -> Vec<schema::CopyStats> {
    let plain = COUNTERS.copies().into_iter().map(|copies| {
        let (count, bytes) = copies.read();
        schema::CopyStats { path: "direct".to_owned(), direction: copies.direction.to_owned(), count, bytes }
    });
    let mut rows: Vec<schema::CopyStats> = plain.collect();
    for flow in multipath::traffic() {
        let path = match flow.route {
            CopyRoute::Direct => "direct".to_owned(),
            CopyRoute::Threads => "threads".to_owned(),
            CopyRoute::Relay(relay) => format!("relay {relay}"),
        };
        let direction = if flow.direction == wm_multipath::LinkDirection::In { "htod" } else { "dtoh" };
        match rows.iter_mut().find(|row| row.path == path && row.direction == direction) {
            Some(row) => (row.count, row.bytes) = (row.count + flow.count, row.bytes + flow.bytes),
            None => rows.push(schema::CopyStats {
                path,
                direction: direction.to_owned(),
                count: flow.count,
                bytes: flow.bytes,
            }),
        }
    }
    rows.retain(|row| row.count > 0);
    rows
}

/// Device memory that copies through siblings take there.
fn relays() -> Vec<schema::RelayStats> {
    let relays = multipath::relays().into_iter();
    relays
        .map(|relay| schema::RelayStats {
            ordinal: relay.device,
            staging_bytes: relay.staging as u64,
            context_bytes_at_most: relay.context,
        })
        .collect()
}

fn fail_open() -> schema::FailOpen {
    let reasons = COUNTERS.fail_open_reasons().into_iter();
    let reasons: Vec<schema::Reason> =
        reasons.map(|(reason, count)| schema::Reason { reason: reason.to_string(), count }).collect();
    schema::FailOpen { count: reasons.iter().map(|reason| reason.count).sum(), reasons }
}

/// This library's version, as a C string. Its presence tells a program that it runs under the shim.
#[unsafe(no_mangle)]
extern "C" fn wmshim_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The statistics as a JSON text that the caller frees with `free`; null without memory for it.
#[unsafe(no_mangle)]
extern "C" fn wmshim_stats_json() -> *mut c_char {
    let text = CString::new(ProcessReport.stats().to_string()).unwrap_or_default();
    // SAFETY: a NUL-terminated string; `strdup` gives memory of the C allocator, which the caller
    // can free.
    unsafe { libc::strdup(text.as_ptr()) }
}
