//! The tables of a run, in order, and the operations on each. Pure: the plan is complete before the
//! run begins.

use anyhow::{Result, ensure};

use super::arguments::{BenchPart, TypePair, WholeMemoryArguments, bytes};
use super::orders::{
    ElementKind, RowNumbers, TableForm, TableLocation, TableOperation, TableOptimizer, TableRequest,
    TableType,
};

/// Row of embeddings, bytes, and the part of theirs that a cache has.
const EMBEDDING_ROW: u64 = 512;
const CACHED: f32 = 0.1;

/// Tables that a kernel reaches come first: their ceilings are for the others, too.
const ON_DEVICE: [TableType; 3] = [TableType::Chunked, TableType::Continuous, TableType::Distributed];
const ON_HOST: [TableType; 2] = [TableType::Continuous, TableType::Distributed];
const TRAINED: [TableType; 2] = [TableType::Chunked, TableType::Distributed];

const ALL: [BenchPart; 5] =
    [BenchPart::Device, BenchPart::Host, BenchPart::Cached, BenchPart::Training, BenchPart::Calls];

/// Rows of one call, and the tables that are asked for so few.
const CALLS: [u64; 6] = [1, 10, 100, 1000, 10_000, 100_000];
const CALLED: [(TableType, TableLocation); 3] = [
    (TableType::Continuous, TableLocation::Device),
    (TableType::Distributed, TableLocation::Device),
    (TableType::Continuous, TableLocation::Host),
];

/// Rows of one call, and the types of table, of memory that spans islands.
const CROSSINGS: [u64; 4] = [1, 1000, 100_000, 1_000_000];
const SPANNING: [TableType; 2] = [TableType::Distributed, TableType::Hierarchy];

const MOVES: &[TableOperation] = &[TableOperation::Gather, TableOperation::Scatter];

const FLOATS: [ElementKind; 2] = [ElementKind::Float; 2];

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
    let is_fit = |row: &u64| row.is_multiple_of(4) && (4..=1 << 20).contains(row);
    ensure!(arguments.rows.iter().all(is_fit), "--rows are multiples of 4 bytes, up to 1 MiB");
    let has_columns =
        |row: &u64| arguments.types.iter().all(|TypePair([table, _])| row.is_multiple_of(table.bytes()));
    ensure!(arguments.rows.iter().all(has_columns), "--rows are whole elements of the table's --types");
    let chosen = |part: &BenchPart| {
        arguments.only.contains(part) || (arguments.only.is_empty() && *part != BenchPart::Calls)
    };
    let plans: Vec<_> = if arguments.islands > 1 {
        SPANNING.map(|kind| spanning(arguments, kind, ranks)).into()
    } else {
        ALL.into_iter().filter(chosen).flat_map(|part| kinds(arguments, part, ranks)).collect()
    };
    let fits = |table: &TableRequest| (1..1 << 32).contains(&table.rows);
    let all_fit = plans.iter().flat_map(|plan| &plan.tables).all(fits);
    ensure!(
        all_fit,
        "a table has one row a rank at least, and fewer than 2^32: see --table-gib, --host-gib and --rows"
    );
    Ok(plans)
}

fn kinds(arguments: &WholeMemoryArguments, part: BenchPart, ranks: usize) -> Vec<KindPlan> {
    let table = |memory_type, location, form, row_bytes: u64| {
        let all = if location == TableLocation::Device { arguments.table_gib } else { arguments.host_gib };
        let rows = bytes(all, 30) / row_bytes / ranks as u64 * ranks as u64;
        let count = (bytes(arguments.gather_mib, 20) / row_bytes).max(1);
        let (types, numbers) = (FLOATS, RowNumbers::Uniform);
        TableRequest { memory_type, location, form, row_bytes, types, numbers, rows, count }
    };
    let shaped = |memory_type, location, form| {
        let shapes =
            arguments.rows.iter().flat_map(|row| arguments.types.iter().map(move |types| (*row, types.0)));
        let tables = shapes.flat_map(move |(row_bytes, types)| {
            // No side of a conversion is larger than what is asked for.
            let longest = row_bytes / types[0].bytes() * types[0].bytes().max(types[1].bytes());
            let count = (bytes(arguments.gather_mib, 20) / longest).max(1);
            let request = TableRequest { types, count, ..table(memory_type, location, form, row_bytes) };
            arguments.numbers.iter().map(move |numbers| TableRequest { numbers: *numbers, ..request })
        });
        tables.collect::<Vec<_>>()
    };
    let moved = |memory_type: &TableType, location| KindPlan {
        tables: shaped(*memory_type, location, TableForm::Tensor),
        operations: MOVES,
    };
    match part {
        BenchPart::Device => ON_DEVICE.iter().map(|kind| moved(kind, TableLocation::Device)).collect(),
        BenchPart::Host => ON_HOST.iter().map(|kind| moved(kind, TableLocation::Host)).collect(),
        BenchPart::Cached => {
            let form = TableForm::Cached(CACHED);
            let table = table(TableType::Chunked, TableLocation::Host, form, EMBEDDING_ROW);
            let tables = vec![TableRequest { numbers: RowNumbers::Zipf, ..table }];
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
        BenchPart::Calls => {
            let called = |(kind, location)| {
                let tables = shaped(kind, location, TableForm::Calls);
                let some = |most: TableRequest| {
                    let counts = CALLS.into_iter().filter(move |count| *count <= most.count);
                    counts.map(move |count| TableRequest { count, ..most })
                };
                KindPlan { tables: tables.into_iter().flat_map(some).collect(), operations: MOVES }
            };
            CALLED.map(called).into()
        }
    }
}

/// Tables on devices that span islands, of each kind of numbers. One row is the last one of the
/// table, so that it passes from island to island.
fn spanning(arguments: &WholeMemoryArguments, memory_type: TableType, ranks: usize) -> KindPlan {
    let table = |(row_bytes, count, numbers): (u64, u64, RowNumbers)| TableRequest {
        memory_type,
        location: TableLocation::Device,
        form: TableForm::Spanning,
        row_bytes,
        types: FLOATS,
        numbers,
        rows: bytes(arguments.table_gib, 30) / row_bytes / ranks as u64 * ranks as u64,
        count,
    };
    let most = bytes(arguments.gather_mib, 20);
    let calls = |row: &u64| CROSSINGS.map(|count| (*row, count));
    let shapes = arguments.rows.iter().flat_map(calls).filter(|(row, count)| row * count <= most);
    let drawn = |(row, count)| {
        let kinds = if count == 1 { &[RowNumbers::One] } else { &*arguments.numbers };
        kinds.iter().map(move |numbers| (row, count, *numbers))
    };
    KindPlan { tables: shapes.flat_map(drawn).map(table).collect(), operations: MOVES }
}

#[cfg(test)]
mod tests {
    //! Hazard: a run leaves a shape out that was asked for, or asks for memory that the machine
    //! does not have.
    use clap::{Args as _, FromArgMatches as _};

    use super::*;

    fn planned(line: &str) -> Result<Vec<TableRequest>> {
        let command = WholeMemoryArguments::augment_args(clap::Command::new("wholememory"));
        let words = std::iter::once("wholememory").chain(line.split_whitespace());
        let arguments = WholeMemoryArguments::from_arg_matches(&command.try_get_matches_from(words)?)?;
        Ok(plan(&arguments, 2)?.into_iter().flat_map(|plan| plan.tables).collect())
    }

    #[test]
    fn every_shape_that_is_named_is_measured() {
        let line =
            "--only device --rows 64,100 --numbers uniform,one --types float,half:double --gather-mib 1";
        let tables = planned(line).expect("a plan");
        assert_eq!(tables.len(), 3 * 2 * 2 * 2);
        let has = |row, numbers, types| {
            let is_it = |table: &&TableRequest| {
                (table.row_bytes, table.numbers, table.types) == (row, numbers, types)
            };
            tables.iter().filter(is_it).map(|table| table.count).collect::<Vec<_>>()
        };
        let (float, double) = ([ElementKind::Float; 2], [ElementKind::Half, ElementKind::Double]);
        assert_eq!(has(100, RowNumbers::One, float), [10485; 3]);
        // Packed rows of 400 bytes.
        assert_eq!(has(100, RowNumbers::Uniform, double), [2621; 3]);
    }

    #[test]
    fn calls_are_measured_where_they_are_asked_for() {
        let all = planned("--rows 512").expect("a plan");
        assert!(all.iter().all(|table| table.form != TableForm::Calls));
        let calls = planned("--rows 512 --only calls").expect("a plan");
        let counts: Vec<_> = calls.iter().map(|table| table.count).collect();
        assert_eq!(counts, [CALLS, CALLS, CALLS].concat());
        let few = planned("--rows 512 --only calls --gather-mib 1").expect("a plan");
        assert!(few.iter().all(|table| table.count <= 1000), "more than 1 MiB a call");
        assert!(calls.iter().all(|table| table.form == TableForm::Calls));
    }

    #[test]
    fn rows_over_islands_are_moved_by_calls_of_all_sizes() {
        let tables = planned("--islands 2 --rows 128,2048 --gather-mib 512").expect("a plan");
        let shapes = |row| {
            let of_row = tables.iter().filter(move |table| table.row_bytes == row);
            of_row.map(|table| (table.memory_type as u32, table.count)).collect::<Vec<_>>()
        };
        let each = |counts: &[u64]| {
            [3, 4].map(|kind| counts.iter().map(|count| (kind, *count)).collect::<Vec<_>>()).concat()
        };
        assert_eq!(shapes(128), each(&CROSSINGS));
        assert_eq!(shapes(2048), each(&CROSSINGS[..3]), "no call of more than 512 MiB");
        assert!(planned("--islands 2 --only host").is_err(), "parts that do not span islands");
    }

    #[test]
    fn rows_over_islands_are_moved_by_numbers_that_repeat() {
        let tables = planned("--islands 2 --rows 128 --numbers uniform,zipf").expect("a plan");
        let of_a_kind: Vec<_> = tables.iter().take(7).map(|table| (table.count, table.numbers)).collect();
        let large = CROSSINGS[1..].iter();
        let both = |count: &u64| [RowNumbers::Uniform, RowNumbers::Zipf].map(|numbers| (*count, numbers));
        let wanted: Vec<_> = std::iter::once((1, RowNumbers::One)).chain(large.flat_map(both)).collect();
        assert_eq!(of_a_kind, wanted);
    }

    #[test]
    fn a_row_is_of_whole_elements() {
        for wrong in ["--rows 6", "--rows 0", "--rows 2097152", "--rows 100 --types double"] {
            assert!(planned(wrong).is_err(), "{wrong}");
        }
    }
}
