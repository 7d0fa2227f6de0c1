//! `bench shapes`: other ways to split a large copy over several links, side by side, to choose the
//! constants of a plan.
//!
//! Rounds of all shapes alternate with rounds of the plain copy and of all links with the same
//! bytes.

use anyhow::Result;
use serde::Serialize;
use serde_json::json;
use wm_abi::CUdevice;
use wm_multipath::{Engine, EngineSettings, HostMemory, LinkDirection, TableDriver};

use wmctl::bench::comparison::{CopyKind, median, percent};
use wmctl::bench::links::All;
use wmctl::bench::machine::Machine;
use wmctl::bench::prepared::Prepared;
use wmctl::table::TextTable;
use wmctl::{human, output};

/// Arguments of `bench shapes`.
#[derive(Debug, clap::Args)]
pub(crate) struct ShapesArguments {
    /// The GPU that copies go to and come from
    #[arg(long, default_value_t = 0)]
    target: CUdevice,
    /// Largest copy, MiB
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(64..))]
    largest: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A way to cut a copy up.
struct Shape {
    name: &'static str,
    /// Largest piece, MiB.
    piece: usize,
    /// Pipelines through each relay.
    lanes: usize,
    /// Do rates follow the lateness of copies?
    learns: bool,
}

const SHAPES: [Shape; 7] = [
    Shape { name: "8 MiB", piece: 8, lanes: 1, learns: true },
    Shape { name: "8 MiB, not learned", piece: 8, lanes: 1, learns: false },
    Shape { name: "4 MiB", piece: 4, lanes: 1, learns: true },
    Shape { name: "2 MiB", piece: 2, lanes: 1, learns: true },
    Shape { name: "8 MiB, 2 lanes", piece: 8, lanes: 2, learns: true },
    Shape { name: "4 MiB, 2 lanes", piece: 4, lanes: 2, learns: true },
    Shape { name: "8 MiB, 4 lanes", piece: 8, lanes: 4, learns: true },
];

impl Shape {
    fn settings(&self, base: &EngineSettings) -> EngineSettings {
        EngineSettings {
            chunk: self.piece << 20,
            lanes: self.lanes,
            learn: if self.learns { base.learn } else { usize::MAX },
            ..base.clone()
        }
    }

    fn kind(&self) -> CopyKind {
        CopyKind { name: self.name, memory: HostMemory::Pinned, waits: false }
    }
}

/// One line of the result. Rates are bytes a second.
#[derive(Debug, Serialize)]
struct ShapeRow {
    bytes: usize,
    direction: &'static str,
    shape: &'static str,
    rate: f64,
    of_plain: f64,
    of_same_size: f64,
    /// The relays' observed rate as a share of their measured rate.
    factor: f64,
}

impl ShapeRow {
    /// So that a run which is ended early has said something.
    fn tell(&self) {
        let (rate, size) = (self.rate / 1e9, human::bytes(self.bytes as u64));
        eprintln!(
            "{} {size} in {}: {rate:.1} GB/s, {:.2} of plain",
            self.direction, self.shape, self.of_plain
        );
    }
}

/// Sizes of copies, MiB. The shape of a smaller copy makes no difference.
const SIZES: [usize; 5] = [64, 256, 1024, 4096, 8192];
/// Bytes that each shape copies at each size; rounds are more than copies need to learn.
const VOLUME: usize = 24 << 30;

/// Measures every shape at every size in both directions, and prints the rates.
///
/// # Errors
/// No driver, fewer than two devices, or too little memory.
pub(crate) fn shapes(arguments: &ShapesArguments) -> Result<()> {
    let largest = arguments.largest as usize;
    let Prepared { machine, all, sizes, .. } = Prepared::new(arguments.target, None, None, &SIZES, largest)?;
    let mut rows = Vec::new();
    for way in [LinkDirection::In, LinkDirection::Out] {
        for bytes in &sizes {
            let found = at(&machine, &all, way, *bytes)?;
            found.iter().for_each(ShapeRow::tell);
            rows.extend(found);
        }
    }
    if arguments.json {
        let paths = machine.paths();
        return output::print_json(&json!({ "schema": "bench-shapes/1", "rows": rows, "paths": paths }));
    }
    output::print(&render(&rows))
}

fn at(machine: &Machine, all: &All, way: LinkDirection, bytes: usize) -> Result<Vec<ShapeRow>> {
    let engine = |shape: &Shape| machine.engine_with(shape.settings(&machine.settings));
    let engines: Vec<Engine<TableDriver>> = SHAPES.iter().map(engine).collect::<Result<_>>()?;
    let (mut plain, mut same) = (Vec::new(), Vec::new());
    let mut times = vec![Vec::new(); SHAPES.len()];
    let rounds = (VOLUME / bytes).clamp(6, 40);
    for round in 0..rounds {
        // The first third is for learning.
        let counts = round >= rounds / 3;
        plain.extend(Some(machine.plain(HostMemory::Pinned, &[way], bytes)?).filter(|_| counts));
        same.extend(Some(all.same_size(machine, &[way], bytes)?).filter(|_| counts));
        for ((shape, engine), times) in SHAPES.iter().zip(&engines).zip(&mut times) {
            let (seconds, _) = machine.shared(engine, &shape.kind(), &[way], bytes)?;
            times.extend(Some(seconds).filter(|_| counts));
        }
    }
    let (plain, same) = (median(plain), median(same));
    let row = |((shape, engine), times): ((&Shape, &Engine<TableDriver>), Vec<f64>)| {
        let seconds = median(times);
        ShapeRow {
            bytes,
            direction: if way == LinkDirection::In { "in" } else { "out" },
            shape: shape.name,
            rate: bytes as f64 / seconds,
            of_plain: plain / seconds,
            of_same_size: same / seconds,
            factor: engine.relays_factor(machine.target, way),
        }
    };
    Ok(SHAPES.iter().zip(&engines).zip(times).map(row).collect())
}

fn render(rows: &[ShapeRow]) -> String {
    let mut table =
        TextTable::new(&["WAY", ">SIZE", "PIECES", ">GB/s", ">RATIO", ">OF SAME SIZE", ">RELAYS' FACTOR"]);
    for row in rows {
        table.row([
            row.direction.to_owned(),
            human::bytes(row.bytes as u64),
            row.shape.to_owned(),
            format!("{:.1}", row.rate / 1e9),
            format!("{:.2}", row.of_plain),
            percent(row.of_same_size),
            format!("{:.2}", row.factor),
        ]);
    }
    table.to_string()
}
