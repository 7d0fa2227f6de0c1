//! `wmctl bench copy`: plain copies beside the shim's, from 1 MiB to the largest that fits, in one run.
//!
//! A figure is the median of several runs that take turns, so that a machine which others use slows both alike. The last
//! column sets a copy against what all links together carried, measured in this run too.

use anyhow::Result;
use serde::Serialize;
use serde_json::json;
use wm_abi::CUdevice;
use wm_multipath::topology::picture;
use wm_multipath::{Direction, HostMemory};

use super::machine::Machine;
use crate::table::Table;
use crate::{human, output};

/// Arguments of `wmctl bench copy`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The GPU that copies go to and come from
    #[arg(long, default_value_t = 0)]
    target: CUdevice,
    /// GPUs whose links may be used besides; all if none are named
    #[arg(long, value_delimiter = ',')]
    relays: Option<Vec<CUdevice>>,
    /// Largest copy, MiB
    #[arg(long, default_value_t = 8192)]
    largest: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Sizes of copies, MiB.
const SIZES: [usize; 9] = [1, 4, 16, 32, 64, 256, 1024, 4096, 8192];
/// Bytes that are verified in each direction.
const VERIFIED: usize = 256 << 20;

const WAYS: [(&str, &[Direction]); 3] =
    [("in", &[Direction::In]), ("out", &[Direction::Out]), ("both", &[Direction::In, Direction::Out])];

/// One line of the result. Rates are bytes a second.
#[derive(Debug, Serialize)]
struct Row {
    bytes: usize,
    memory: &'static str,
    direction: &'static str,
    plain: f64,
    multipath: f64,
    ratio: f64,
    of_all_links: Option<f64>,
    several_paths: bool,
}

/// Measures and prints.
///
/// # Errors
/// No driver, fewer than two devices, or memory that is not to be had.
pub(super) fn copy(arguments: &Arguments) -> Result<()> {
    let sizes: Vec<_> =
        SIZES.iter().filter(|size| **size <= arguments.largest).map(|size| size << 20).collect();
    let largest = sizes.last().copied().unwrap_or(1 << 20);
    let mut machine = Machine::new(arguments.target, arguments.relays.clone(), largest)?;
    let (picture, devices) = {
        let topology = machine.topology()?;
        let measured = topology.into.alone.iter().enumerate().filter(|(_, rate)| **rate > 0.0);
        (picture::draw(topology), measured.map(|(device, _)| device as CUdevice).collect::<Vec<_>>())
    };
    machine.keep()?;
    let all = [Direction::In, Direction::Out].map(|way| machine.all_links(&devices, way));
    let [into, out] = all;
    let all = [into?, out?];
    machine.verify(VERIFIED.min(largest))?;
    let rows = rows(&machine, &sizes, all)?;
    if arguments.json {
        return output::print_json(&json!({
            "schema": "wmctl-bench-copy/1",
            "target": arguments.target,
            "topology": machine.topology()?,
            "all_links": { "in": all[0], "out": all[1] },
            "rows": rows,
            "paths": paths(&machine),
        }));
    }
    output::print(&format!("{picture}\n{}", render(&rows, all)))
}

fn paths(machine: &Machine) -> Vec<serde_json::Value> {
    let flows = machine.engine.traffic().into_iter();
    flows
        .map(|flow| {
            let direction = format!("{:?}", flow.direction).to_lowercase();
            json!({ "relay": flow.relay, "direction": direction, "count": flow.count, "bytes": flow.bytes })
        })
        .collect()
}

fn rows(machine: &Machine, sizes: &[usize], all: [f64; 2]) -> Result<Vec<Row>> {
    let kinds = [
        ("pinned, async", HostMemory::Pinned, false),
        ("pinned, waits", HostMemory::Pinned, true),
        ("pageable", HostMemory::Pageable, true),
    ];
    let mut rows = Vec::new();
    for (name, memory, waits) in kinds {
        // A caller that waits makes one copy after the other.
        for (direction, ways) in &WAYS[..if waits { 2 } else { 3 }] {
            for bytes in sizes {
                let mut row = row(machine, memory, ways, waits, *bytes)?;
                (row.memory, row.direction) = (name, direction);
                row.of_all_links = (ways.len() == 1).then(|| row.multipath / all[ways[0] as usize]);
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

fn row(machine: &Machine, memory: HostMemory, ways: &[Direction], waits: bool, bytes: usize) -> Result<Row> {
    let (mut plain, mut shared, mut several_paths) = (Vec::new(), Vec::new(), false);
    // The first round pays for what is made at first use.
    for round in 0..=rounds(memory, bytes) {
        let without = machine.plain(memory, ways, bytes)?;
        let (with, several) = machine.shared(memory, ways, waits, bytes)?;
        if round > 0 {
            plain.push(without);
            shared.push(with);
            several_paths |= several;
        }
    }
    let rate = |seconds: Vec<f64>| (bytes * ways.len()) as f64 / median(seconds);
    let (plain, multipath) = (rate(plain), rate(shared));
    let ratio = multipath / plain;
    Ok(Row { bytes, memory: "", direction: "", plain, multipath, ratio, of_all_links: None, several_paths })
}

/// Enough for a median, few enough for a minute.
fn rounds(memory: HostMemory, bytes: usize) -> usize {
    let most = if memory == HostMemory::Pageable { 2 << 30 } else { 16 << 30 };
    (most / bytes).clamp(3, 21)
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

fn render(rows: &[Row], all: [f64; 2]) -> String {
    let mut table = Table::new(&[
        "MEMORY",
        "WAY",
        ">SIZE",
        ">PLAIN GB/s",
        ">SHIM GB/s",
        ">RATIO",
        ">OF ALL LINKS",
        "PATHS",
    ]);
    for row in rows {
        table.row([
            row.memory.to_owned(),
            row.direction.to_owned(),
            human::bytes(row.bytes as u64),
            format!("{:.1}", row.plain / 1e9),
            format!("{:.1}", row.multipath / 1e9),
            format!("{:.2}", row.ratio),
            row.of_all_links.map_or_else(String::new, |part| format!("{:.0} %", part * 100.0)),
            if row.several_paths { "several" } else { "plain" }.to_owned(),
        ]);
    }
    format!("all links at once, sustained: {:.1} in, {:.1} out (GB/s)\n\n{table}", all[0] / 1e9, all[1] / 1e9)
}
