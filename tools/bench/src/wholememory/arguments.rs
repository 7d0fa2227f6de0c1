//! The command line of `bench wholememory`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::ValueEnum;

use super::islands::IslandWire;
use super::orders::{ElementKind, RowNumbers};

/// The operations that can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum BenchPart {
    /// Gather and scatter of tables on devices
    Device,
    /// Gather and scatter of tables on the host
    Host,
    /// Gather of an embedding on the host, a tenth of which may be cached on devices
    Cached,
    /// Steps of optimizers
    Training,
    /// Microseconds of a gather or scatter of 1, 10, and up to 100,000 rows
    Calls,
}

/// Types of an element, in the table and where rows are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TypePair(pub(super) [ElementKind; 2]);

impl FromStr for TypePair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (table, packed) = text.split_once(':').unwrap_or((text, text));
        let pair = [ElementKind::from_str(table, true)?, ElementKind::from_str(packed, true)?];
        if pair[0].is_float() == pair[1].is_float() {
            return Ok(Self(pair));
        }
        Err("floating-point numbers are not converted to integers, nor back: name two types of one family"
            .to_owned())
    }
}

/// Arguments of `bench wholememory`.
#[derive(Debug, clap::Args)]
pub(crate) struct WholeMemoryArguments {
    /// The library to measure; default: the one that is installed with this program
    #[arg(long)]
    pub(super) library: Option<PathBuf>,
    /// Another library to measure in turns with it, such as RAPIDS'; what that needs is found
    /// through LD_LIBRARY_PATH
    #[arg(long)]
    pub(super) beside: Option<PathBuf>,
    /// Ranks, which take GPUs in turn; default: one a GPU. Islands of more ranks than there are
    /// GPUs lie on one each
    #[arg(long)]
    pub(super) ranks: Option<usize>,
    /// Islands as which the ranks pose: gathers and scatters of memory that spans them, and NCCL
    /// alone on the same rows
    #[arg(long, default_value_t = 1, conflicts_with = "only")]
    pub(super) islands: usize,
    /// The wire between islands
    #[arg(long, value_enum, default_value = "network")]
    pub(super) wire: IslandWire,
    /// Bytes of a table's row: multiples of 4
    #[arg(long, value_delimiter = ',', default_values_t = [64, 128, 256, 512, 1024, 4096])]
    pub(super) rows: Vec<u64>,
    /// Row numbers of gather and scatter
    #[arg(long, value_delimiter = ',', value_enum, default_value = "uniform")]
    pub(super) numbers: Vec<RowNumbers>,
    /// Types of elements: `half`, or `half:float` for a table of the one and packed rows of the
    /// other
    #[arg(long, value_delimiter = ',', default_value = "float")]
    pub(super) types: Vec<TypePair>,
    /// Size of tables on devices, of all ranks, GiB
    #[arg(long, default_value_t = 8.0)]
    pub(super) table_gib: f64,
    /// Size of tables on the host, of all ranks, GiB
    #[arg(long, default_value_t = 2.0)]
    pub(super) host_gib: f64,
    /// What a rank gathers in a call, MiB
    #[arg(long, default_value_t = 1024.0)]
    pub(super) gather_mib: f64,
    /// Only these parts; all but calls if none are named
    #[arg(long, value_delimiter = ',')]
    pub(super) only: Vec<BenchPart>,
    /// Seconds of one measurement
    #[arg(long, default_value_t = 0.2)]
    pub(super) seconds: f64,
    /// Measurements of each kind, in turns; the median counts
    #[arg(long, default_value_t = 3)]
    pub(super) repeat: usize,
    /// Seconds that ranks may take for one order before they are given up
    #[arg(long, default_value_t = 60)]
    pub(super) patience: u64,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Be this rank
    #[arg(long, hide = true)]
    pub(super) rank: Option<usize>,
}

/// Bytes of a size on the command line, in units of 2 to the `power` bytes.
pub(super) fn bytes(size: f64, power: u32) -> u64 {
    (size * f64::from(1 << power)) as u64
}

#[cfg(test)]
mod tests {
    //! Hazard: a pair of types that no library converts is asked for.
    use super::*;

    #[test]
    fn types_are_one_or_a_pair_of_a_family() {
        assert_eq!("half".parse(), Ok(TypePair([ElementKind::Half; 2])));
        assert_eq!("half:float".parse(), Ok(TypePair([ElementKind::Half, ElementKind::Float])));
        assert_eq!("int8:int64".parse(), Ok(TypePair([ElementKind::Int8, ElementKind::Int64])));
        for wrong in ["", "word", "half:", "half:int8", "int64:double"] {
            assert!(wrong.parse::<TypePair>().is_err(), "{wrong}");
        }
    }
}
