//! The checked-in table of driver functions, `shim/abi/data/driver.tsv`: one row a function, cells
//! between tabs.
//!
//! The opening comment of the file says what each column means. [`DriverTable`] is the table as
//! text, with which names and parameters are renewed; [`cells`] gives each cell its meaning, and
//! fails on one that has none.

pub(crate) mod cells;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

pub(crate) use cells::{DriverFunction, functions};

/// The columns, in their order.
pub(crate) const COLUMNS: [&str; 9] =
    ["name", "lookup", "gate", "stream", "pace", "writes", "bounds", "parameters", "cases"];

const NAME: usize = 0;
const PARAMETERS: usize = 7;

/// Stands in the row of a per-thread twin for the cell of the function that it is the twin of.
pub(crate) const AS_TWIN: &str = "=";

/// The cells of one function, as they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DriverRow([String; COLUMNS.len()]);

impl DriverRow {
    /// A function of which nothing is known but its parameters.
    fn new(name: String) -> Self {
        let mut cells: [String; COLUMNS.len()] = Default::default();
        cells[NAME] = name;
        Self(cells)
    }

    pub(crate) fn name(&self) -> &str {
        &self.0[NAME]
    }

    /// The text of a cell.
    fn cell(&self, column: &str) -> &str {
        COLUMNS.iter().position(|known| *known == column).map_or("", |at| &self.0[at])
    }
}

/// The table as text.
#[derive(Debug)]
pub(crate) struct DriverTable {
    /// The opening lines, each of which begins with `#`.
    opening: String,
    rows: Vec<DriverRow>,
}

pub(crate) fn path() -> PathBuf {
    crate::root().join("shim/abi/data/driver.tsv")
}

/// The functions of the checked-in table.
pub(crate) fn read() -> Result<Vec<DriverFunction>> {
    functions(&DriverTable::read()?)
}

impl DriverTable {
    pub(crate) fn read() -> Result<Self> {
        Self::parse(&fs::read_to_string(path()).context("shim/abi/data/driver.tsv")?)
    }

    /// Fails on a row with another number of cells, and on rows that are not sorted by name.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let opening =
            text.lines().filter(|line| line.starts_with('#')).map(|line| format!("{line}\n")).collect();
        let rows: Vec<_> =
            text.lines().filter(|line| !line.starts_with('#')).map(row).collect::<Result<_>>()?;
        ensure!(
            rows.is_sorted_by(|a, b| a.name() < b.name()),
            "rows are not sorted, or a name is there twice"
        );
        Ok(Self { opening, rows })
    }

    pub(crate) fn write(&self) -> Result<()> {
        fs::write(path(), self.text()).context("shim/abi/data/driver.tsv")
    }

    fn text(&self) -> String {
        let lines = self.rows.iter().map(|row| row.0.join("\t") + "\n");
        self.opening.clone() + &lines.collect::<String>()
    }

    /// Renews names and parameters. A function that was there keeps its other cells. The other
    /// cells of a new one are empty, so nothing is generated until they are written. Returns the
    /// names that are new and those that are gone.
    pub(crate) fn renew(&mut self, parameters: &BTreeMap<String, String>) -> [Vec<String>; 2] {
        let mut known: BTreeMap<String, DriverRow> =
            std::mem::take(&mut self.rows).into_iter().map(|row| (row.name().to_owned(), row)).collect();
        let fresh = parameters.keys().filter(|name| !known.contains_key(*name)).cloned().collect();
        for (name, parameters) in parameters {
            let mut row = known.remove(name).unwrap_or_else(|| DriverRow::new(name.clone()));
            row.0[PARAMETERS].clone_from(parameters);
            self.rows.push(row);
        }
        [fresh, known.into_keys().collect()]
    }

    /// The reasons that the opening gives for a column, which a cell names as `none(REASON)`: `#
    /// gate none(wait): ...`.
    fn reasons(&self, column: &str) -> BTreeMap<&str, &str> {
        let start = format!("# {column} none(");
        self.opening.lines().filter_map(|line| line.strip_prefix(&start)?.split_once("): ")).collect()
    }
}

fn row(line: &str) -> Result<DriverRow> {
    let cells: Vec<String> = line.split('\t').map(str::to_owned).collect();
    let (name, count) = (cells[NAME].clone(), cells.len());
    let cells = cells.try_into().ok();
    cells.map(DriverRow).with_context(|| format!("row {name}: {count} cells, not {}", COLUMNS.len()))
}

/// The function that a per-thread twin is the twin of.
pub(crate) fn twin_of(name: &str) -> Option<&str> {
    name.strip_suffix("_ptds").or_else(|| name.strip_suffix("_ptsz"))
}

#[cfg(test)]
mod tests {
    //! Hazard (source drift): importing a new CUDA release loses or guesses hand-written cells.
    use super::*;

    const TABLE: &str = "# gate none(wait): a wait\n\
        cuA\tcuA@2000\tnone(wait)\t-\tusual\t-\t-\tx: c_int\tinit.total_memory\n\
        cuC\tcuC@2000\tnone(wait)\t-\tusual\t-\t-\t()\tinit.total_memory\n";

    #[test]
    fn a_table_is_written_as_it_was_read() {
        assert_eq!(DriverTable::parse(TABLE).unwrap().text(), TABLE);
        let checked_in = fs::read_to_string(path()).unwrap();
        assert_eq!(DriverTable::parse(&checked_in).unwrap().text(), checked_in);
    }

    #[test]
    fn a_new_release_keeps_cells_and_adds_empty_ones() {
        let mut table = DriverTable::parse(TABLE).unwrap();
        let new =
            [("cuA", "y: u64"), ("cuB", "()")].map(|(name, parameters)| (name.into(), parameters.into()));
        assert_eq!(table.renew(&new.into()), [["cuB"], ["cuC"]]);
        assert_eq!(table.rows[0].0[PARAMETERS], "y: u64");
        assert_eq!(table.rows[0].cell("cases"), "init.total_memory");
        let error = functions(&table).unwrap_err().to_string();
        assert!(error.contains("row cuB, column lookup"), "{error}");
    }

    #[test]
    fn rows_have_all_cells_and_an_order() {
        let error = DriverTable::parse("cuA\t-\n").unwrap_err().to_string();
        assert_eq!(error, "row cuA: 2 cells, not 9");
        let twice = TABLE.replace("cuC\t", "cuA\t");
        assert!(DriverTable::parse(&twice).is_err());
    }
}
