//! `wmctl bench copy`: plain copies beside the shim's, from 1 MiB to the largest that fits, in one
//! run. With one GPU, or with `--own`, it measures only copies over the target's own link
//! ([`own`]).
//!
//! Each figure is the median of several rounds. Plain and shim rounds alternate, so that load of
//! other programs slows both alike. Two columns compare a copy with all links together: with their
//! sustained rate, and with the same bytes, from the same host memory, where each device copies its
//! part to itself.

use anyhow::Result;
use serde_json::json;
use wm_abi::CUdevice;
use wm_multipath::EngineSettings;
use wm_multipath::measured::picture;

use super::prepared::Prepared;
use super::{machine, own, rows};
use crate::output;

/// Arguments of `wmctl bench copy`.
#[derive(Debug, clap::Args)]
pub(crate) struct CopyArguments {
    /// The GPU that copies go to and come from
    #[arg(long, default_value_t = 0)]
    target: CUdevice,
    /// GPUs whose links may be used besides; all if none are named
    #[arg(long, value_delimiter = ',')]
    relays: Option<Vec<CUdevice>>,
    /// Largest copy, MiB
    #[arg(long, default_value_t = 8192)]
    largest: usize,
    /// Smallest copy that is cut up, MiB; as measured if it is not given
    #[arg(long)]
    minimum: Option<usize>,
    /// Only pageable copies over the target's own link, as every program has them by default; all
    /// that can be measured where there is one GPU
    #[arg(long)]
    own: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Sizes of copies, MiB.
const SIZES: [usize; 9] = [1, 4, 16, 32, 64, 256, 1024, 4096, 8192];

const DISTURBED: &str = "No two measurements of the links agreed, because other programs use them. This one is not kept: run it \
                         again when the machine is idle.\n";

/// Measures and prints.
///
/// # Errors
/// No driver, or too little memory.
pub(super) fn copy(arguments: &CopyArguments) -> Result<()> {
    let minimum = arguments.minimum.map(|mib| mib << 20);
    let devices = machine::unmeasured()?;
    if arguments.own || devices.key.devices.len() == 1 {
        let settings = EngineSettings { relays: Some(Vec::new()), minimum, ..EngineSettings::default() };
        return own::compare(arguments.target, arguments.largest, settings, devices, arguments.json);
    }
    let Prepared { machine, all, sizes, steady, kept } =
        Prepared::new(arguments.target, arguments.relays.clone(), minimum, &SIZES, arguments.largest)?;
    let sums = all.sums(&machine)?;
    let rows = rows::measure(&machine, &all, &sizes, &sums)?;
    if arguments.json {
        return output::print_json(&json!({
            "schema": "wmctl-bench-copy/3",
            "target": arguments.target,
            "topology": machine.topology,
            "steady": steady,
            "kept": kept,
            "sustained": sums,
            "rows": rows,
            "paths": machine.paths(),
        }));
    }
    let note = if steady { "" } else { DISTURBED };
    let picture = picture::draw(&machine.topology);
    output::print(&format!("{picture}{note}{}\n{}", sums.render(), rows::render(&rows)))
}
