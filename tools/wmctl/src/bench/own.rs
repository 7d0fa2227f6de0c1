//! Pageable copies over the target's own link: the driver's beside those that threads carry, as
//! every program has them by default.
//!
//! Rounds take turns, as in [`super::rows`]. A column has the link's rate for pinned memory.

use anyhow::Result;
use serde::Serialize;
use serde_json::json;
use wm_abi::CUdevice;
use wm_multipath::measured::Topology;
use wm_multipath::{EngineSettings, HostMemory, LinkDirection};

use super::comparison::{Comparison, CopyKind, median};
use super::machine::{Machine, VERIFIED};
use crate::output;

/// Sizes of copies, MiB: about where threads begin to pay, to a large model's tensor.
const SIZES: [usize; 6] = [32, 48, 64, 256, 1024, 4096];

const WAITED: CopyKind = CopyKind { name: "pageable", memory: HostMemory::Pageable, waits: true };
const ASYNCHRONOUS: CopyKind =
    CopyKind { name: "pageable, async", memory: HostMemory::Pageable, waits: false };

/// One line of the result. Rates are bytes a second.
#[derive(Debug, Serialize)]
struct OwnLinkRow {
    #[serde(flatten)]
    compared: Comparison,
    threads: f64,
    /// The driver's copies of pinned memory.
    pinned: f64,
}

/// Measures copies of up to `largest` MiB to and from `target`, and prints them.
pub(super) fn compare(
    target: CUdevice,
    largest: usize,
    settings: EngineSettings,
    devices: Topology,
    as_json: bool,
) -> Result<()> {
    let sizes: Vec<_> = SIZES.iter().filter(|size| **size <= largest).map(|size| size << 20).collect();
    let largest = sizes.last().copied().unwrap_or(1 << 20);
    let mut machine = Machine::new(target, devices, settings, largest)?;
    machine.verify(HostMemory::Pageable, VERIFIED.min(largest))?;
    let mut rows = Vec::new();
    for (kind, way) in
        [(&WAITED, LinkDirection::In), (&ASYNCHRONOUS, LinkDirection::In), (&WAITED, LinkDirection::Out)]
    {
        for bytes in &sizes {
            rows.push(row(&machine, kind, way, *bytes)?);
        }
    }
    if as_json {
        let paths = machine.paths();
        return output::print_json(
            &json!({ "schema": "wmctl-bench-own/1", "target": target, "rows": rows, "paths": paths }),
        );
    }
    output::print(&render(&rows))
}

fn row(machine: &Machine, kind: &CopyKind, way: LinkDirection, bytes: usize) -> Result<OwnLinkRow> {
    const MOST: usize = 8 << 30;
    let (mut plain, mut threads, mut pinned, mut served) = (Vec::new(), Vec::new(), Vec::new(), false);
    // The first round pays for the setup at first use.
    for round in 0..=(MOST / bytes).clamp(3, 21) {
        let without = machine.plain(kind.memory, &[way], bytes)?;
        let (with, by_us) = machine.shared(&machine.engine, kind, &[way], bytes)?;
        let by_the_link = machine.plain(HostMemory::Pinned, &[way], bytes)?;
        if round > 0 {
            plain.push(without);
            threads.push(with);
            pinned.push(by_the_link);
            served |= by_us;
        }
    }
    let [plain, threads, pinned] = [plain, threads, pinned].map(|seconds| bytes as f64 / median(seconds));
    let direction = if way == LinkDirection::In { "in" } else { "out" };
    let compared = Comparison::new(kind, direction, bytes, (plain, threads), served);
    compared.tell();
    Ok(OwnLinkRow { compared, threads, pinned })
}

fn render(rows: &[OwnLinkRow]) -> String {
    let mut table = Comparison::table(">THREADS GB/s", &[">PINNED GB/s"]);
    for row in rows {
        table.row(row.compared.cells([format!("{:.1}", row.pinned / 1e9)], "threads"));
    }
    table.to_string()
}
