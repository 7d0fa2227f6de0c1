//! The measurements as plain values, and their tables.

use clap::ValueEnum;
use serde::{Serialize, Serializer};

use super::orders::{
    ElementKind, RowNumbers, TableForm, TableLocation, TableOperation, TableOptimizer, TableRequest,
    TableType,
};
use wmctl::bench::comparison::percent;
use wmctl::table::TextTable;

/// The rates of one library.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum LibraryOutcome {
    /// Of one rank, by the slowest one's end: bytes a second, or rows a second of a step.
    Rate(f64),
    /// Elements were not right.
    Wrong,
    Failed,
}

impl LibraryOutcome {
    fn rate(self) -> Option<f64> {
        if let Self::Rate(rate) = self { Some(rate) } else { None }
    }

    fn shown(self, figure: impl Fn(f64) -> f64) -> String {
        match self {
            Self::Rate(rate) => format!("{:.1}", figure(rate)),
            Self::Wrong => "wrong".to_owned(),
            Self::Failed => "failed".to_owned(),
        }
    }
}

/// The tables of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    Rates,
    Steps,
    Calls,
    Spanning,
}

impl Section {
    /// Its first heading, and the figure of each library.
    fn headings(self) -> (&'static str, &'static str) {
        match self {
            Self::Rates => ("OPERATION", "GB/s"),
            Self::Steps => ("OPTIMIZER", "MILLION ROWS/s"),
            Self::Calls | Self::Spanning => ("OPERATION", "us"),
        }
    }

    /// The name of the plainest way to do the same.
    fn plainest(self) -> &'static str {
        if self == Self::Spanning { "NCCL" } else { "KERNEL" }
    }

    /// Whether rows of a call differ from line to line.
    fn has_counts(self) -> bool {
        matches!(self, Self::Calls | Self::Spanning)
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
    types: [ElementKind; 2],
    numbers: RowNumbers,
    /// Rows of a call of one rank.
    count: u64,
    ours: LibraryOutcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    beside: Option<LibraryOutcome>,
    /// Of the plainest kernel, on the same rows; of a distributed table, on those of another type.
    /// Over islands, of NCCL alone: the same payload over the time of the rows that cross.
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
        let TableRequest { memory_type, location, form, row_bytes, types, numbers, count, .. } = request;
        let kernel = kernel.and_then(LibraryOutcome::rate);
        Self {
            operation,
            memory_type,
            location,
            form,
            row_bytes,
            types,
            numbers,
            count,
            ours,
            beside,
            kernel,
        }
    }

    /// So that a run which is ended early has said something.
    pub(super) fn tell(&self) {
        let beside = self.beside.map_or_else(String::new, |other| format!(", beside {}", self.shown(other)));
        let kernel = self.kernel.map_or_else(String::new, |rate| {
            format!(", {} {:.1}", self.section().plainest(), self.figure(rate))
        });
        let (ours, unit) = (self.shown(self.ours), self.section().headings().1);
        eprintln!("{}: {ours} {unit}{beside}{kernel}", self.names().join(" "));
    }

    fn section(&self) -> Section {
        match (self.operation, self.form) {
            (TableOperation::Step, _) => Section::Steps,
            (_, TableForm::Calls) => Section::Calls,
            (_, TableForm::Spanning) => Section::Spanning,
            _ => Section::Rates,
        }
    }

    /// The figure for a rate: gigabytes or million rows a second, or the microseconds of a call.
    fn figure(&self, rate: f64) -> f64 {
        match self.section() {
            Section::Rates => rate / 1e9,
            Section::Steps => rate / 1e6,
            Section::Calls | Section::Spanning => (self.count * self.row_bytes) as f64 / rate * 1e6,
        }
    }

    fn shown(&self, outcome: LibraryOutcome) -> String {
        outcome.shown(|rate| self.figure(rate))
    }

    fn names(&self) -> Vec<String> {
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
            TableType::Hierarchy => "hierarchy",
        };
        let location = if self.location == TableLocation::Device { "device" } else { "host" };
        let row = match self.types {
            [ElementKind::Float, ElementKind::Float] => format!("{} B", self.row_bytes),
            [table, packed] => format!("{} B {}", self.row_bytes, type_names(table, packed)),
        };
        let mut names =
            [operation, memory_type, location, &row, &name_of(&self.numbers)].map(str::to_owned).to_vec();
        if self.section().has_counts() {
            names.push(self.count.to_string());
        }
        names
    }

    fn cells(&self) -> Vec<String> {
        let mut cells = self.names();
        cells.push(self.shown(self.ours));
        if let Some(beside) = self.beside {
            let ratio = self.ours.rate().zip(beside.rate());
            cells.push(self.shown(beside));
            cells.push(ratio.map_or_else(String::new, |(ours, beside)| format!("{:.2}", ours / beside)));
        }
        if self.section() != Section::Steps {
            let of_kernel = self.ours.rate().zip(self.kernel);
            cells.push(self.kernel.map_or_else(String::new, |rate| format!("{:.1}", self.figure(rate))));
            cells.push(of_kernel.map_or_else(String::new, |(ours, kernel)| percent(ours / kernel)));
        }
        if self.section() == Section::Spanning {
            cells.push(self.ours.shown(|rate| rate / 1e9));
        }
        cells
    }
}

/// A value as the command line has it.
fn name_of(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn type_names(table: ElementKind, packed: ElementKind) -> String {
    if table == packed { name_of(&table) } else { format!("{}:{}", name_of(&table), name_of(&packed)) }
}

/// Gives tables that no kernel reaches the best rate of the same rows in others.
pub(super) fn complete(rows: &mut [BenchRow]) {
    let measured = rows.to_vec();
    let shape = |row: &BenchRow| {
        (row.operation, row.location, row.row_bytes, row.types, row.numbers, row.count, row.section())
    };
    let is_tensor = |row: &&mut BenchRow| matches!(row.form, TableForm::Tensor | TableForm::Calls);
    for row in rows.iter_mut().filter(|row| row.kernel.is_none()).filter(is_tensor) {
        let same = measured.iter().filter(|other| shape(other) == shape(row));
        row.kernel = same.filter_map(|other| other.kernel).max_by(f64::total_cmp);
    }
}

/// A table of rates, one of steps, and one of calls; of each if there is any.
pub(super) fn render(rows: &[BenchRow], with_beside: bool) -> String {
    let table = |section: Section| {
        let (first, unit) = section.headings();
        let plainest = section.plainest();
        let [own, other, kernel] =
            ["", "BESIDE ", &format!("{plainest} ")].map(|side| format!(">{side}{unit}"));
        let of_kernel = format!(">OF {plainest}");
        let compared: &[&str] = if with_beside { &[&other, ">RATIO"] } else { &[] };
        let count: &[&str] = if section.has_counts() { &[">ROWS"] } else { &[] };
        let last: &[&str] = match section {
            Section::Steps => &[],
            Section::Spanning => &[&kernel, &of_kernel, ">GB/s"],
            Section::Rates | Section::Calls => &[&kernel, &of_kernel],
        };
        let headings =
            [&[first, "TYPE", "MEMORY", ">ROW", "NUMBERS"], count, &[&own], compared, last].concat();
        let mut table = TextTable::new(&headings);
        rows.iter().filter(|row| row.section() == section).for_each(|row| table.row(row.cells()));
        if table.is_empty() { None } else { Some(table.to_string()) }
    };
    let tables = [Section::Rates, Section::Steps, Section::Calls, Section::Spanning].map(table);
    tables.into_iter().flatten().collect::<Vec<_>>().join("\n")
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
        let (types, numbers) = ([ElementKind::Float; 2], RowNumbers::Uniform);
        let request =
            TableRequest { memory_type, location, form, row_bytes, types, numbers, rows: 8, count: 4 };
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
        assert_eq!(cells(0)[5..], ["GB/s", "BESIDE GB/s", "RATIO", "KERNEL GB/s", "OF KERNEL"]);
        assert_eq!(cells(1)[3..], ["64 B", "uniform", "100.0", "50.0", "2.00", "200.0", "50 %"]);
        assert_eq!(cells(2)[3..], ["128 B", "uniform", "wrong", "50.0", "400.0"]);
        assert_eq!(
            cells(3)[1..],
            ["distributed", "device", "64 B", "uniform", "20.0", "50.0", "0.40", "200.0", "10 %"]
        );
    }

    #[test]
    fn a_call_is_in_microseconds_and_a_row_names_its_shape() {
        let mut call = row(TableType::Continuous, 512, LibraryOutcome::Rate(1e9), None);
        (call.form, call.count, call.beside) = (TableForm::Calls, 1000, Some(LibraryOutcome::Rate(0.5e9)));
        (call.types, call.numbers) = ([ElementKind::Half, ElementKind::Float], RowNumbers::Sorted);
        let text = render(&[call], true);
        for shown in [">us", "BESIDE us", "512 B half:float", "sorted", "1000", "512.0", "1024.0", "2.00"] {
            assert!(text.contains(shown.trim_start_matches('>')), "{shown} in {text}");
        }
    }

    #[test]
    fn rows_that_cross_are_compared_with_nccl() {
        let mut call =
            row(TableType::Hierarchy, 500, LibraryOutcome::Rate(2e9), Some(LibraryOutcome::Rate(4e9)));
        (call.form, call.count) = (TableForm::Spanning, 4000);
        let text = render(&[call], true);
        let words: Vec<_> = text.split_whitespace().collect();
        assert!(text.contains("NCCL us  OF NCCL  GB/s") && !text.contains("KERNEL"), "{text}");
        assert!(words.ends_with(&["4000", "1000.0", "40.0", "0.04", "500.0", "50", "%", "2.0"]), "{text}");
    }

    #[test]
    fn a_kernel_is_compared_with_the_same_numbers_only() {
        let rate = LibraryOutcome::Rate(100e9);
        let mut rows = [
            row(TableType::Chunked, 64, rate, Some(LibraryOutcome::Rate(200e9))),
            row(TableType::Distributed, 64, rate, None),
            row(TableType::Distributed, 64, rate, None),
        ];
        rows[1].numbers = RowNumbers::One;
        complete(&mut rows);
        assert_eq!((rows[1].kernel, rows[2].kernel), (None, Some(200e9)));
    }
}
