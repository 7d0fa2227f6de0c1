//! `wmctl bench copy`: plain copies beside the shim's, from 1 MiB to the largest that fits, in one run. With one GPU, or if asked for, only
//! those that need no sibling ([`own`]).
//!
//! A figure is the median of several runs that take turns, so that a machine which others use slows both alike. Two columns
//! set a copy against all links together: against what they carry for some time, and against the same bytes, from the same
//! host memory, with each device copying its part to itself.

use anyhow::Result;
use serde_json::json;
use wm_abi::CUdevice;
use wm_multipath::measured::picture;
use wm_multipath::{EngineSettings, HostMemory};

use super::links::All;
use super::machine::{self, Machine};
use super::{own, rows, shapes};
use crate::output;

/// Arguments of `wmctl bench copy`.
#[derive(Debug, clap::Args)]
pub(crate) struct CopyArguments {
    /// The GPU that copies go to and come from
    #[arg(long, default_value_t = 0)]
    pub(super) target: CUdevice,
    /// GPUs whose links may be used besides; all if none are named
    #[arg(long, value_delimiter = ',')]
    relays: Option<Vec<CUdevice>>,
    /// Largest copy, MiB
    #[arg(long, default_value_t = 8192)]
    pub(super) largest: usize,
    /// Smallest copy that is cut up, MiB; as measured if it is not given
    #[arg(long)]
    pub(super) minimum: Option<usize>,
    /// Only pageable copies over the target's own link, as every program has them by default; all that can be measured where
    /// there is one GPU
    #[arg(long)]
    own: bool,
    /// Compare other ways to cut large copies up, instead of all kinds of copies
    #[arg(long)]
    shapes: bool,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

impl CopyArguments {
    fn settings(&self) -> EngineSettings {
        EngineSettings {
            relays: self.relays.clone(),
            minimum: self.minimum.map(|mib| mib << 20),
            patience: 0,
            eager: true,
            prompt: true,
            ..EngineSettings::default()
        }
    }
}

/// Sizes of copies, MiB.
const SIZES: [usize; 9] = [1, 4, 16, 32, 64, 256, 1024, 4096, 8192];
/// Bytes that are verified in each direction.
pub(super) const VERIFIED: usize = 256 << 20;

const DISTURBED: &str = "Others use the links: no two measurements agreed, so this one is not kept. Run it again when the \
                         machine is idle.\n";

/// Measures and prints.
///
/// # Errors
/// No driver, or memory that is not to be had.
pub(super) fn copy(arguments: &CopyArguments) -> Result<()> {
    let devices = machine::unmeasured()?;
    if arguments.own || devices.key.devices.len() == 1 {
        return own::compare(arguments, devices);
    }
    let sizes: Vec<_> =
        SIZES.iter().filter(|size| **size <= arguments.largest).map(|size| size << 20).collect();
    let largest = sizes.last().copied().unwrap_or(1 << 20);
    let measured = machine::measure(arguments.relays.as_deref())?;
    let kept = machine::keep(&measured)?;
    let topology = measured.topology;
    let mut machine = Machine::new(arguments.target, topology.clone(), arguments.settings(), largest)?;
    let all = All::new(&machine, largest)?;
    let sums = all.sums(&machine)?;
    machine.verify(HostMemory::Pinned, VERIFIED.min(largest))?;
    let (result, text) = if arguments.shapes {
        let rows = shapes::measure(&machine, &all, &sizes)?;
        (json!(rows), shapes::render(&rows))
    } else {
        let rows = rows::measure(&machine, &all, &sizes, &sums)?;
        (json!(rows), rows::render(&rows))
    };
    if arguments.json {
        return output::print_json(&json!({
            "schema": "wmctl-bench-copy/3",
            "target": arguments.target,
            "topology": topology,
            "steady": measured.steady,
            "kept": kept,
            "sustained": sums,
            "rows": result,
            "paths": machine.paths(),
        }));
    }
    let note = if measured.steady { "" } else { DISTURBED };
    output::print(&format!("{}{note}{}\n{text}", picture::draw(&topology), sums.render()))
}
