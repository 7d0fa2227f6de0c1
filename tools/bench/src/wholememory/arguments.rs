//! The command line of `bench wholememory`.

use std::path::PathBuf;

use clap::ValueEnum;

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
    /// Ranks, which take GPUs in turn; default: one a GPU
    #[arg(long)]
    pub(super) ranks: Option<usize>,
    /// Bytes of a row: powers of two
    #[arg(long, value_delimiter = ',', default_values_t = [64, 128, 256, 512, 1024, 4096])]
    pub(super) rows: Vec<u64>,
    /// Size of tables on devices, of all ranks, GiB
    #[arg(long, default_value_t = 8.0)]
    pub(super) table_gib: f64,
    /// Size of tables on the host, of all ranks, GiB
    #[arg(long, default_value_t = 2.0)]
    pub(super) host_gib: f64,
    /// What a rank gathers in a call, MiB
    #[arg(long, default_value_t = 1024.0)]
    pub(super) gather_mib: f64,
    /// Only these parts; all if none are named
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
