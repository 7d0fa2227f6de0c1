//! The orders of the measuring process to a rank, and the rank's answers: one line of JSON each.
//!
//! A library may print other lines: those of a rank that do not begin with [`MARK`] are not
//! answers.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Begins a line that is an answer.
pub(super) const MARK: &str = "@bench ";

/// `wholememory_memory_type_t`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TableType {
    Continuous = 1,
    Chunked = 2,
    Distributed = 3,
    Hierarchy = 4,
}

/// `wholememory_memory_location_t`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TableLocation {
    Device = 1,
    Host = 2,
}

/// `wholememory_optimizer_type_t`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TableOptimizer {
    Sgd = 1,
    Adam = 2,
}

/// `wholememory_dtype_t`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum ElementKind {
    Float = 1,
    Half = 2,
    Double = 3,
    Bf16 = 4,
    Int = 5,
    Int64 = 6,
    Int16 = 7,
    Int8 = 8,
}

impl ElementKind {
    /// Bytes of an element.
    pub(super) fn bytes(self) -> u64 {
        match self {
            Self::Double | Self::Int64 => 8,
            Self::Float | Self::Int => 4,
            Self::Half | Self::Bf16 | Self::Int16 => 2,
            Self::Int8 => 1,
        }
    }

    /// All whole numbers of so many bits are exact.
    pub(super) fn exact_bits(self) -> u32 {
        match self {
            Self::Float => 24,
            Self::Half => 11,
            Self::Bf16 => 8,
            Self::Int => 31,
            Self::Int16 => 15,
            Self::Int8 => 7,
            Self::Double | Self::Int64 => 32,
        }
    }

    pub(super) fn is_float(self) -> bool {
        matches!(self, Self::Float | Self::Half | Self::Double | Self::Bf16)
    }
}

/// The row numbers of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum RowNumbers {
    /// All rows as likely
    Uniform,
    /// As Zipf's law has them, with exponent 1
    Zipf,
    /// Uniform ones in their order
    Sorted,
    /// The same row at every place of every rank
    One,
}

/// The operation on the rows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TableForm {
    /// A tensor, of which many rows are moved at a time.
    Tensor,
    /// A tensor, of which so few rows are moved at a time that a call's own time counts.
    Calls,
    /// A tensor whose memory spans islands.
    Spanning,
    /// An embedding of which this part may be cached on devices.
    Cached(f32),
    /// An embedding that is trained.
    Trained(TableOptimizer),
}

/// A table, and how much of it a rank moves at a time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct TableRequest {
    pub(super) memory_type: TableType,
    pub(super) location: TableLocation,
    pub(super) form: TableForm,
    /// Bytes of a row of the table.
    pub(super) row_bytes: u64,
    /// Types of an element: in the table, and where rows are packed.
    pub(super) types: [ElementKind; 2],
    pub(super) numbers: RowNumbers,
    /// Of all ranks: the same number at each, and fewer than 2^32.
    pub(super) rows: u64,
    /// Rows of one gather of one rank.
    pub(super) count: u64,
}

impl TableRequest {
    pub(super) fn is_tensor(&self) -> bool {
        matches!(self.form, TableForm::Tensor | TableForm::Calls | TableForm::Spanning)
    }

    /// Elements of a row.
    pub(super) fn columns(&self) -> u64 {
        self.row_bytes / self.types[0].bytes()
    }

    /// Bits of a value that is exact on both sides.
    pub(super) fn exact_bits(&self) -> u32 {
        self.types.map(ElementKind::exact_bits).into_iter().min().unwrap_or(1)
    }

    /// Whether the plain kernels can move its rows.
    pub(super) fn is_plain(&self) -> bool {
        self.types[0] == self.types[1] && self.row_bytes.is_power_of_two() && self.row_bytes >= 16
    }
}

/// Something that is checked and timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum TableOperation {
    Gather,
    Scatter,
    /// Gathers of other row numbers, in which a cache may learn the frequent rows.
    Warm,
    /// A step of an optimizer.
    Step,
    /// The plainest kernel that gathers, and that scatters.
    PlainGather,
    PlainScatter,
    /// The rows of a gather that pass between islands, by NCCL alone.
    PlainExchange,
}

/// An order to a rank. All but the first are for all ranks at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RankOrder {
    /// Make a unique id.
    Identify,
    /// Meet the ranks that have this one.
    Meet(String),
    /// Make a unique id of NCCL's.
    IdentifyNetwork,
    /// Meet the ranks that have this one, over NCCL.
    MeetNetwork(String),
    /// Make a table, with its contents and row numbers.
    Make(TableRequest),
    /// Do it once, and compare all bytes.
    Check(TableOperation),
    /// Do it several times.
    Run(TableOperation, u64),
    /// Close the table.
    Close,
}

/// An answer of a rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RankAnswer {
    Identity(String),
    Done,
    /// Whether the plain kernels reach all of the table.
    Made {
        is_mapped: bool,
    },
    /// Elements that were not right.
    Wrong(u64),
    /// Begin and end on the machine's clock, nanoseconds.
    Ran(u64, u64),
    Failed(String),
}
