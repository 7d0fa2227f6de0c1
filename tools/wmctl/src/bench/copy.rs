//! `wmctl bench copy`: plain copies beside the shim's, from 1 MiB to the largest that fits, in one run.
//!
//! A figure is the median of several runs that take turns, so that a machine which others use slows both alike. The last
//! column sets a copy against what all links together carried, measured in this run too.

use anyhow::Result;
use serde::Serialize;
use serde_json::json;
use wm_abi::CUdevice;
use wm_multipath::topology::picture;
use wm_multipath::{Direction, HostMemory, Settings};

use super::machine::{self, Machine};
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
    /// Smallest copy that is cut up, MiB; as measured if it is not given
    #[arg(long)]
    minimum: Option<usize>,
    /// From how many MiB on paths pull pieces of a copy that is waited for
    #[arg(long, default_value_t = wm_multipath::engine::PULL >> 20)]
    pull: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn settings(&self) -> Settings {
        Settings {
            relays: self.relays.clone(),
            minimum: self.minimum.map(|mib| mib << 20),
            pull: self.pull << 20,
            patience: 0,
            ..Settings::default()
        }
    }
}

/// Sizes of copies, MiB.
const SIZES: [usize; 9] = [1, 4, 16, 32, 64, 256, 1024, 4096, 8192];
/// Bytes that are verified in each direction.
const VERIFIED: usize = 256 << 20;

const DISTURBED: &str = "Others use the links: no two measurements agreed, so this one is not kept. Run it again when the \
                         machine is idle.\n";

const WAYS: [(&str, &[Direction]); 3] =
    [("in", &[Direction::In]), ("out", &[Direction::Out]), ("both", &[Direction::In, Direction::Out])];

/// One kind of copy.
pub(super) struct Kind {
    name: &'static str,
    pub(super) memory: HostMemory,
    pub(super) waits: bool,
    /// Without relays: what several threads bring by themselves.
    pub(super) one_path: bool,
}

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
    /// By the shim; else plainly there too.
    served: bool,
}

/// Measures and prints.
///
/// # Errors
/// No driver, fewer than two devices, or memory that is not to be had.
pub(super) fn copy(arguments: &Arguments) -> Result<()> {
    let sizes: Vec<_> =
        SIZES.iter().filter(|size| **size <= arguments.largest).map(|size| size << 20).collect();
    let largest = sizes.last().copied().unwrap_or(1 << 20);
    let measured = machine::measure(arguments.relays.as_deref())?;
    let kept = machine::keep(&measured)?;
    let topology = measured.topology;
    let devices = topology.into.alone.iter().enumerate().filter(|(_, rate)| **rate > 0.0);
    let devices: Vec<_> = devices.map(|(device, _)| device as CUdevice).collect();
    let mut machine = Machine::new(arguments.target, topology.clone(), arguments.settings(), largest)?;
    let all = [Direction::In, Direction::Out].map(|way| machine.all_links(&devices, way));
    let [into, out] = all;
    let all = [into?, out?];
    machine.verify(VERIFIED.min(largest))?;
    let rows = rows(&machine, &sizes, all)?;
    if arguments.json {
        return output::print_json(&json!({
            "schema": "wmctl-bench-copy/1",
            "target": arguments.target,
            "topology": topology,
            "steady": measured.steady,
            "kept": kept,
            "all_links": { "in": all[0], "out": all[1] },
            "rows": rows,
            "paths": paths(&machine),
        }));
    }
    let note = if measured.steady { "" } else { DISTURBED };
    output::print(&format!("{}{note}\n{}", picture::draw(&topology), render(&rows, all)))
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
    let kind = |name, memory, waits, one_path| Kind { name, memory, waits, one_path };
    let kinds = [
        kind("pinned, async", HostMemory::Pinned, false, false),
        kind("pinned, waits", HostMemory::Pinned, true, false),
        kind("pageable", HostMemory::Pageable, true, false),
        kind("pageable, own link", HostMemory::Pageable, true, true),
    ];
    let mut rows = Vec::new();
    for kind in kinds {
        // A caller that waits makes one copy after the other.
        for (direction, ways) in &WAYS[..if kind.waits { 2 } else { 3 }] {
            for bytes in sizes {
                let mut row = row(machine, &kind, ways, *bytes)?;
                row.direction = direction;
                row.of_all_links = (ways.len() == 1).then(|| row.multipath / all[ways[0] as usize]);
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

fn row(machine: &Machine, kind: &Kind, ways: &[Direction], bytes: usize) -> Result<Row> {
    let memory = kind.memory;
    let (mut plain, mut shared, mut served) = (Vec::new(), Vec::new(), false);
    // The first round pays for what is made at first use.
    for round in 0..=rounds(memory, bytes) {
        let without = machine.plain(memory, ways, bytes)?;
        let (with, by_us) = machine.shared(kind, ways, bytes)?;
        if round > 0 {
            plain.push(without);
            shared.push(with);
            served |= by_us;
        }
    }
    let rate = |seconds: Vec<f64>| (bytes * ways.len()) as f64 / median(seconds);
    let (plain, multipath) = (rate(plain), rate(shared));
    let ratio = multipath / plain;
    Ok(Row { bytes, memory: kind.name, direction: "", plain, multipath, ratio, of_all_links: None, served })
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
    let mut table =
        Table::new(&["MEMORY", "WAY", ">SIZE", ">PLAIN GB/s", ">SHIM GB/s", ">RATIO", ">OF ALL LINKS", "BY"]);
    for row in rows {
        table.row([
            row.memory.to_owned(),
            row.direction.to_owned(),
            human::bytes(row.bytes as u64),
            format!("{:.1}", row.plain / 1e9),
            format!("{:.1}", row.multipath / 1e9),
            format!("{:.2}", row.ratio),
            row.of_all_links.map_or_else(String::new, |part| format!("{:.0} %", part * 100.0)),
            if row.served { "shim" } else { "plain" }.to_owned(),
        ]);
    }
    format!("all links at once, sustained: {:.1} in, {:.1} out (GB/s)\n\n{table}", all[0] / 1e9, all[1] / 1e9)
}
