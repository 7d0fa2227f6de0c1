//! The measurements as plain values, and their tables.

use serde::{Serialize, Serializer};

use super::orders::{TableForm, TableLocation, TableOperation, TableOptimizer, TableRequest, TableType};
use wmctl::bench::comparison::percent;
use wmctl::table::TextTable;

/// The rates of one library.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum LibraryOutcome {
    /// Of one rank, by the slowest one's end: bytes a second, or rows a second of a step.
    Rate(f64),
    /// Bytes were not right.
    Wrong,
    Failed,
}

impl LibraryOutcome {
    fn rate(self) -> Option<f64> {
        if let Self::Rate(rate) = self { Some(rate) } else { None }
    }

    fn shown(self, unit: f64) -> String {
        match self {
            Self::Rate(rate) => format!("{:.1}", rate / unit),
            Self::Wrong => "wrong".to_owned(),
            Self::Failed => "failed".to_owned(),
        }
    }
}

/// A rate is a number, anything else a word.
impl Serialize for LibraryOutcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Rate(rate) => serializer.serialize_f64(*rate),
            Self::Wrong => serializer.serialize_str("wrong"),
            Self::Failed => serializer.serialize_str("failed"),
        }
    }
}

/// One line of the result. Rates are of one rank, bytes a second; of steps, rows a second.
#[derive(Debug, Clone, Serialize)]
pub(super) struct BenchRow {
    operation: TableOperation,
    memory_type: TableType,
    location: TableLocation,
    form: TableForm,
    row_bytes: u64,
    ours: LibraryOutcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    beside: Option<LibraryOutcome>,
    /// Of the plainest kernel, on the same rows; of a distributed table, on those of another type.
    kernel: Option<f64>,
}

impl BenchRow {
    pub(super) fn new(
        operation: TableOperation,
        request: TableRequest,
        ours: LibraryOutcome,
        beside: Option<LibraryOutcome>,
        kernel: Option<LibraryOutcome>,
    ) -> Self {
        let TableRequest { memory_type, location, form, row_bytes, .. } = request;
        let kernel = kernel.and_then(LibraryOutcome::rate);
        Self { operation, memory_type, location, form, row_bytes, ours, beside, kernel }
    }

    /// So that a run which is ended early has said something.
    pub(super) fn tell(&self) {
        let unit = self.unit();
        let beside = self.beside.map_or_else(String::new, |other| format!(", beside {}", other.shown(unit)));
        let kernel = self.kernel.map_or_else(String::new, |rate| format!(", kernel {:.1}", rate / unit));
        let [operation, memory_type, location, size] = self.names();
        let ours = self.ours.shown(unit);
        let word = if self.operation == TableOperation::Step { "million rows/s" } else { "GB/s" };
        eprintln!("{operation} {memory_type} {location} {size}: {ours} {word}{beside}{kernel}");
    }

    fn unit(&self) -> f64 {
        if self.operation == TableOperation::Step { 1e6 } else { 1e9 }
    }

    fn names(&self) -> [String; 4] {
        let operation = match (self.operation, self.form) {
            (TableOperation::Step, TableForm::Trained(TableOptimizer::Sgd)) => "SGD",
            (TableOperation::Step, _) => "lazy Adam",
            (_, TableForm::Cached(_)) => "cached gather",
            (TableOperation::Scatter, _) => "scatter",
            _ => "gather",
        };
        let memory_type = match self.memory_type {
            TableType::Continuous => "continuous",
            TableType::Chunked => "chunked",
            TableType::Distributed => "distributed",
        };
        let location = if self.location == TableLocation::Device { "device" } else { "host" };
        [operation, memory_type, location, &format!("{} B", self.row_bytes)].map(str::to_owned)
    }

    fn cells(&self) -> Vec<String> {
        let mut cells = self.names().to_vec();
        cells.push(self.ours.shown(self.unit()));
        if let Some(beside) = self.beside {
            let ratio = self.ours.rate().zip(beside.rate());
            cells.push(beside.shown(self.unit()));
            cells.push(ratio.map_or_else(String::new, |(ours, beside)| format!("{:.2}", ours / beside)));
        }
        if self.operation != TableOperation::Step {
            let of_kernel = self.ours.rate().zip(self.kernel);
            cells.push(self.kernel.map_or_else(String::new, |rate| format!("{:.1}", rate / 1e9)));
            cells.push(of_kernel.map_or_else(String::new, |(ours, kernel)| percent(ours / kernel)));
        }
        cells
    }
}

/// Gives tables that no kernel reaches the best rate of the same rows in others.
pub(super) fn complete(rows: &mut [BenchRow]) {
    let measured = rows.to_vec();
    for row in rows.iter_mut().filter(|row| row.kernel.is_none() && row.form == TableForm::Tensor) {
        let same = measured.iter().filter(|other| {
            (other.operation, other.location, other.row_bytes) == (row.operation, row.location, row.row_bytes)
        });
        row.kernel = same.filter_map(|other| other.kernel).max_by(f64::total_cmp);
    }
}

/// A table of rates, and one of steps; of each if there is any.
pub(super) fn render(rows: &[BenchRow], with_beside: bool) -> String {
    let table = |is_step: bool, first: &'static str, unit: &str, last: &[&str]| {
        let own = format!(">{unit}");
        let other = format!(">BESIDE {unit}");
        let compared: &[&str] = if with_beside { &[&other, ">RATIO"] } else { &[] };
        let headings = [&[first, "TYPE", "MEMORY", ">ROW", &own], compared, last].concat();
        let mut table = TextTable::new(&headings);
        let chosen = rows.iter().filter(|row| (row.operation == TableOperation::Step) == is_step);
        chosen.for_each(|row| table.row(row.cells()));
        if table.is_empty() { None } else { Some(table.to_string()) }
    };
    let rates = table(false, "OPERATION", "GB/s", &[">KERNEL GB/s", ">OF KERNEL"]);
    let steps = table(true, "OPTIMIZER", "MILLION ROWS/s", &[]);
    [rates, steps].into_iter().flatten().collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    //! Hazard: a figure under another one's heading, and a table that no kernel reaches compared
    //! with other rows.
    use super::*;

    fn row(
        memory_type: TableType,
        row_bytes: u64,
        ours: LibraryOutcome,
        kernel: Option<LibraryOutcome>,
    ) -> BenchRow {
        let (location, form) = (TableLocation::Device, TableForm::Tensor);
        let request = TableRequest { memory_type, location, form, row_bytes, rows: 8, count: 4 };
        BenchRow::new(TableOperation::Gather, request, ours, Some(LibraryOutcome::Rate(50e9)), kernel)
    }

    #[test]
    fn every_figure_stands_under_its_heading() {
        let mut rows = [
            row(TableType::Chunked, 64, LibraryOutcome::Rate(100e9), Some(LibraryOutcome::Rate(200e9))),
            row(TableType::Chunked, 128, LibraryOutcome::Wrong, Some(LibraryOutcome::Rate(400e9))),
            row(TableType::Distributed, 64, LibraryOutcome::Rate(20e9), None),
        ];
        complete(&mut rows);
        let text = render(&rows, true);
        let cells = |line: usize| -> Vec<_> {
            text.lines().nth(line).map_or_else(Vec::new, |line| {
                line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
            })
        };
        assert_eq!(cells(0)[4..], ["GB/s", "BESIDE GB/s", "RATIO", "KERNEL GB/s", "OF KERNEL"]);
        assert_eq!(cells(1)[3..], ["64 B", "100.0", "50.0", "2.00", "200.0", "50 %"]);
        assert_eq!(cells(2)[3..], ["128 B", "wrong", "50.0", "400.0"]);
        assert_eq!(cells(3)[1..], ["distributed", "device", "64 B", "20.0", "50.0", "0.40", "200.0", "10 %"]);
    }
}
