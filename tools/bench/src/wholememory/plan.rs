//! The tables of a run, in order, and the operations on each. Pure: the plan is complete before the
//! run begins.

use anyhow::{Result, ensure};

use super::arguments::{BenchPart, WholeMemoryArguments, bytes};
use super::orders::{TableForm, TableLocation, TableOperation, TableOptimizer, TableRequest, TableType};

/// Row of embeddings, bytes, and the part of theirs that a cache has.
const EMBEDDING_ROW: u64 = 512;
const CACHED: f32 = 0.1;

/// Tables that a kernel reaches come first: their ceilings are for the others, too.
const ON_DEVICE: [TableType; 3] = [TableType::Chunked, TableType::Continuous, TableType::Distributed];
const ON_HOST: [TableType; 2] = [TableType::Continuous, TableType::Distributed];
const TRAINED: [TableType; 2] = [TableType::Chunked, TableType::Distributed];

const ALL: [BenchPart; 4] = [BenchPart::Device, BenchPart::Host, BenchPart::Cached, BenchPart::Training];

/// Tables of one kind, which the same ranks make one after the other.
#[derive(Debug)]
pub(super) struct KindPlan {
    pub(super) tables: Vec<TableRequest>,
    pub(super) operations: &'static [TableOperation],
}

/// Everything that a command line asks for.
///
/// # Errors
/// Sizes that make no table.
pub(super) fn plan(arguments: &WholeMemoryArguments, ranks: usize) -> Result<Vec<KindPlan>> {
    let is_fit = |row: &u64| row.is_power_of_two() && (16..=1 << 20).contains(row);
    ensure!(arguments.rows.iter().all(is_fit), "--rows are powers of two from 16 bytes to 1 MiB");
    let chosen = |part: &BenchPart| arguments.only.is_empty() || arguments.only.contains(part);
    let plans: Vec<_> =
        ALL.into_iter().filter(chosen).flat_map(|part| kinds(arguments, part, ranks)).collect();
    let fits = |table: &TableRequest| (1..1 << 32).contains(&table.rows);
    let all_fit = plans.iter().flat_map(|plan| &plan.tables).all(fits);
    ensure!(
        all_fit,
        "a table has one row a rank at least, and fewer than 2^32: see --table-gib, --host-gib and --rows"
    );
    Ok(plans)
}

fn kinds(arguments: &WholeMemoryArguments, part: BenchPart, ranks: usize) -> Vec<KindPlan> {
    const MOVES: &[TableOperation] = &[TableOperation::Gather, TableOperation::Scatter];
    let table = |memory_type, location, form, row_bytes: u64| {
        let all = if location == TableLocation::Device { arguments.table_gib } else { arguments.host_gib };
        let rows = bytes(all, 30) / row_bytes / ranks as u64 * ranks as u64;
        let count = (bytes(arguments.gather_mib, 20) / row_bytes).max(1);
        TableRequest { memory_type, location, form, row_bytes, rows, count }
    };
    let moved = |memory_type: &TableType, location| {
        let tables = arguments.rows.iter().map(|row| table(*memory_type, location, TableForm::Tensor, *row));
        KindPlan { tables: tables.collect(), operations: MOVES }
    };
    match part {
        BenchPart::Device => ON_DEVICE.iter().map(|kind| moved(kind, TableLocation::Device)).collect(),
        BenchPart::Host => ON_HOST.iter().map(|kind| moved(kind, TableLocation::Host)).collect(),
        BenchPart::Cached => {
            let form = TableForm::Cached(CACHED);
            let tables = vec![table(TableType::Chunked, TableLocation::Host, form, EMBEDDING_ROW)];
            vec![KindPlan { tables, operations: &[TableOperation::Gather] }]
        }
        BenchPart::Training => {
            let trained = |kind, optimizer| {
                table(kind, TableLocation::Device, TableForm::Trained(optimizer), EMBEDDING_ROW)
            };
            let both = [TableOptimizer::Sgd, TableOptimizer::Adam];
            let tables = |kind| both.map(|optimizer| trained(kind, optimizer)).to_vec();
            TRAINED.map(|kind| KindPlan { tables: tables(kind), operations: &[TableOperation::Step] }).into()
        }
    }
}
