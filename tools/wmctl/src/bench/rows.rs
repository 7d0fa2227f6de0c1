//! All kinds of copies, plain and as the shim makes them.

use anyhow::Result;
use serde::Serialize;
use wm_multipath::{Engine, EngineSettings, HostMemory, LinkDirection, TableDriver};

use super::comparison::{Comparison, CopyKind, median, percent};
use super::links::{All, Sums};
use super::machine::Machine;

/// One line of the result. Rates are bytes a second.
#[derive(Debug, Serialize)]
pub(super) struct CopyRow {
    #[serde(flatten)]
    compared: Comparison,
    multipath: f64,
    /// Share of the sustained rate of all links.
    of_all_links: f64,
    /// Share of the links' rate for the same bytes; pageable memory has no such figure.
    of_same_size: Option<f64>,
}

/// Directions of copies that meet, and their name.
type CopyWay = (&'static str, &'static [LinkDirection]);

const WAYS: [CopyWay; 2] = [("in", &[LinkDirection::In]), ("out", &[LinkDirection::Out])];
const BOTH: CopyWay = ("both", &[LinkDirection::In, LinkDirection::Out]);

const ASYNCHRONOUS: CopyKind = CopyKind { name: "pinned, async", memory: HostMemory::Pinned, waits: false };
const WAITED: CopyKind = CopyKind { name: "pinned, waits", memory: HostMemory::Pinned, waits: true };
const PAGEABLE: CopyKind = CopyKind { name: "pageable", memory: HostMemory::Pageable, waits: true };
/// Without relays: the gain of several threads alone.
const OWN_LINK: CopyKind = CopyKind { name: "pageable, own link", memory: HostMemory::Pageable, waits: true };

/// Measures copies of these sizes.
pub(super) fn measure(machine: &Machine, all: &All, sizes: &[usize], sums: &Sums) -> Result<Vec<CopyRow>> {
    let alone =
        machine.engine_with(EngineSettings { relays: Some(Vec::new()), ..machine.settings.clone() })?;
    let mut rows = Vec::new();
    let mut series = |kind: &CopyKind, engine: &Engine<TableDriver>, way: CopyWay| -> Result<()> {
        for bytes in sizes {
            let row = row(machine, engine, kind, way, *bytes, all, sums)?;
            row.compared.tell();
            rows.push(row);
        }
        Ok(())
    };
    // A caller that waits makes one copy after the other, so these are the only ones that can meet.
    for way in WAYS.into_iter().chain([BOTH]) {
        series(&ASYNCHRONOUS, &machine.engine, way)?;
    }
    for (kind, engine) in [(&WAITED, &machine.engine), (&PAGEABLE, &machine.engine), (&OWN_LINK, &alone)] {
        for way in WAYS {
            series(kind, engine, way)?;
        }
    }
    Ok(rows)
}

fn row(
    machine: &Machine,
    engine: &Engine<TableDriver>,
    kind: &CopyKind,
    (direction, ways): CopyWay,
    bytes: usize,
    all: &All,
    sums: &Sums,
) -> Result<CopyRow> {
    let (mut plain, mut shared, mut same, mut served) = (Vec::new(), Vec::new(), Vec::new(), false);
    // The first round pays for the setup at first use.
    for round in 0..=rounds(kind.memory, bytes) {
        let without = machine.plain(kind.memory, ways, bytes)?;
        let (with, by_us) = machine.shared(engine, kind, ways, bytes)?;
        let all =
            if kind.memory == HostMemory::Pinned { Some(all.same_size(machine, ways, bytes)?) } else { None };
        if round > 0 {
            plain.push(without);
            shared.push(with);
            same.extend(all);
            served |= by_us;
        }
    }
    let rate = |seconds: Vec<f64>| (bytes * ways.len()) as f64 / median(seconds);
    let (plain, multipath) = (rate(plain), rate(shared));
    let of_same_size = (!same.is_empty()).then(|| multipath / rate(same));
    let of_all_links = multipath / sums.all(ways);
    let compared = Comparison::new(kind, direction, bytes, (plain, multipath), served);
    Ok(CopyRow { compared, multipath, of_all_links, of_same_size })
}

/// Enough for a median, few enough for a minute.
fn rounds(memory: HostMemory, bytes: usize) -> usize {
    let most = if memory == HostMemory::Pageable { 2 << 30 } else { 16 << 30 };
    (most / bytes).clamp(3, 21)
}

pub(super) fn render(rows: &[CopyRow]) -> String {
    let mut table = Comparison::table(">SHIM GB/s", &[">OF ALL LINKS", ">OF SAME SIZE"]);
    for row in rows {
        let of_same_size = row.of_same_size.map_or_else(String::new, percent);
        table.row(row.compared.cells([percent(row.of_all_links), of_same_size], "shim"));
    }
    table.to_string()
}
