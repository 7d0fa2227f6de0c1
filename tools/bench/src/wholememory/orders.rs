//! The orders of the measuring process to a rank, and the rank's answers: one line of JSON each.
//!
//! A library may print other lines: those of a rank that do not begin with [`MARK`] are not
//! answers.

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

/// The operation on the rows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TableForm {
    /// A tensor, of which rows are drawn alike.
    Tensor,
    /// An embedding of which this part may be cached on devices, and rows are drawn as Zipf has
    /// them.
    Cached(f32),
    /// An embedding that is trained, of which rows are drawn alike.
    Trained(TableOptimizer),
}

/// A table, and how much of it a rank moves at a time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct TableRequest {
    pub(super) memory_type: TableType,
    pub(super) location: TableLocation,
    pub(super) form: TableForm,
    pub(super) row_bytes: u64,
    /// Of all ranks: the same number at each, and fewer than 2^32.
    pub(super) rows: u64,
    /// Rows of one gather of one rank.
    pub(super) count: u64,
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
}

/// An order to a rank. All but the first are for all ranks at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RankOrder {
    /// Make a unique id.
    Identify,
    /// Meet the ranks that have this one.
    Meet(String),
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
    /// Words that were not right.
    Wrong(u64),
    /// Begin and end on the machine's clock, nanoseconds.
    Ran(u64, u64),
    Failed(String),
}
