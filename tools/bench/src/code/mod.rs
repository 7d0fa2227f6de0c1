//! `bench code`: random kernels run on a GPU, and nothing changes that the analysis of their code
//! calls read.
//!
//! Each kernel gets pointers into blocks with known bytes. Of its machine code and of its PTX it is
//! known what a launch with these parameters may write (`wm_code::launch`); after some hundred
//! launches every block beside that is compared. A kernel that is undecided is counted, and not
//! run.

mod arena;
mod assembler;
mod launch;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use drawn_kernels::{DrawnFor, DrawnKernel, draw};
use serde::Serialize;
use serde_json::json;
use wm_abi::{
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, CUdevice,
};
use wm_code::verdict::{CodeVerdict, Effects};
use wm_driver::Api;
use wm_driver::api::Named;
use wmctl::bench::machine;
use wmctl::output;

use arena::Arena;
use assembler::Assembler;
use launch::LaunchValues;

/// Arguments of `bench code`.
#[derive(Debug, clap::Args)]
pub(crate) struct CodeArguments {
    /// GPU
    #[arg(long, default_value_t = 0)]
    device: CUdevice,
    /// NVIDIA's assembler
    #[arg(long, default_value = "ptxas")]
    ptxas: PathBuf,
    /// Launches of all kernels
    #[arg(long, default_value_t = 1_000_000)]
    launches: u64,
    /// Launches of one kernel
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    each: u64,
    /// Launches with the same parameters, after which blocks are compared
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    same: u64,
    /// The first kernel's seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Kernels of one text, which the assembler compiles together.
const TOGETHER: u64 = 64;

/// What the run has seen.
#[derive(Debug, Default, Serialize)]
struct CodeCounts {
    kernels: u64,
    /// Those of which neither the machine code nor the text is decided.
    undecided: u64,
    launches: u64,
    /// Comparisons of all blocks that a launch may not write.
    comparisons: u64,
    blocks_compared: u64,
    /// Blocks that a launch may write, and that had changed.
    blocks_written: u64,
    blocks_not_written: u64,
    seconds: f64,
    missed: Vec<Missed>,
}

/// A block that has changed though the analysis calls it read.
#[derive(Debug, Serialize)]
struct Missed {
    seed: u64,
    /// Of the machine code, or of the text.
    analysis: &'static str,
    block: usize,
}

/// Runs kernels until there were as many launches as asked for.
///
/// # Errors
/// No driver or assembler; a kernel that the GPU refuses; a block that was missed.
pub(crate) fn code(arguments: &CodeArguments) -> Result<()> {
    let driver = Named(machine::driver()?);
    driver.init()?;
    driver.ctx_set_current(driver.primary_ctx_retain(arguments.device)?)?;
    let attribute = |which| driver.device_attribute(which, arguments.device);
    let (major, minor) = (
        attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    );
    let assembler = Assembler::new(&arguments.ptxas, major * 10 + minor)?;
    let mut arena = Arena::new(driver)?;
    let (begin, mut counts, mut seed) = (Instant::now(), CodeCounts::default(), arguments.seed);
    while counts.launches < arguments.launches && counts.missed.is_empty() {
        let kernels: Vec<DrawnKernel> =
            (seed..seed + TOGETHER).map(|seed| draw(seed, DrawnFor::Running)).collect();
        let assembled = assembler.assemble(&kernels)?;
        let module = driver.module_load_data(&assembled.cubin)?;
        for (kernel, seed) in kernels.iter().zip(seed..) {
            counts.kernels += 1;
            let verdicts = assembled.verdicts(&kernel.name)?;
            let function = driver.module_function(module, &std::ffi::CString::new(&*kernel.name)?)?;
            let judged = Judged::of(&verdicts);
            if judged.is_empty() {
                counts.undecided += 1;
                continue;
            }
            run(&mut arena, function, (seed, &judged), arguments, &mut counts)
                .with_context(|| format!("kernel of seed {seed}\n{}", kernel.text))?;
        }
        driver.module_unload(module)?;
        seed += TOGETHER;
        eprintln!(
            "{} kernels, {} undecided, {} launches, {:.0} s",
            counts.kernels,
            counts.undecided,
            counts.launches,
            begin.elapsed().as_secs_f64()
        );
    }
    counts.seconds = begin.elapsed().as_secs_f64();
    show(&counts, arguments.json)
}

/// An analysis that has decided.
struct Judged<'a> {
    analysis: &'static str,
    effects: &'a Effects,
}

impl<'a> Judged<'a> {
    fn of(verdicts: &'a [(&'static str, CodeVerdict)]) -> Vec<Self> {
        let decided = |(analysis, verdict): &'a (&'static str, CodeVerdict)| match verdict {
            CodeVerdict::Decided(effects) => Some(Self { analysis, effects }),
            CodeVerdict::Undecided(_) => None,
        };
        verdicts.iter().filter_map(decided).collect()
    }
}

/// Launches one kernel with parameters that are drawn anew each time that blocks were compared.
fn run(
    arena: &mut Arena,
    function: wm_abi::CUfunction,
    (seed, judged): (u64, &[Judged<'_>]),
    arguments: &CodeArguments,
    counts: &mut CodeCounts,
) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x7061_7261);
    let mut left = arguments.each.min(arguments.launches.saturating_sub(counts.launches));
    while left > 0 {
        let values = LaunchValues::draw(&mut random, arena);
        let same = left.min(arguments.same);
        arena.launch(function, values.table_words(), &values.pointers(), same)?;
        let changed = arena.changed()?;
        for one in judged {
            let may_write = values.may_write(one.effects, arena);
            for (block, _) in changed.iter().enumerate().filter(|(block, is)| **is && !may_write[*block]) {
                counts.missed.push(Missed { seed, analysis: one.analysis, block });
            }
            counts.blocks_compared += may_write.iter().filter(|may| !**may).count() as u64;
            counts.blocks_written +=
                may_write.iter().zip(&changed).filter(|(may, is)| **may && **is).count() as u64;
            counts.blocks_not_written +=
                may_write.iter().zip(&changed).filter(|(may, is)| **may && !**is).count() as u64;
        }
        arena.restore(&changed)?;
        counts.comparisons += 1;
        counts.launches += same;
        left -= same;
    }
    Ok(())
}

fn show(counts: &CodeCounts, json: bool) -> Result<()> {
    if json {
        output::print_json(&json!({ "schema": "bench-code/1", "counts": counts }))?;
    } else {
        output::print(&format!(
            "{} launches of {} kernels, {} undecided, in {:.0} s; {} blocks compared that are only read, of {} that may be written \
             {} were\n",
            counts.launches,
            counts.kernels,
            counts.undecided,
            counts.seconds,
            counts.blocks_compared,
            counts.blocks_written + counts.blocks_not_written,
            counts.blocks_written
        ))?;
    }
    if let Some(Missed { seed, analysis, block }) = counts.missed.first() {
        bail!(
            "the kernel of seed {seed} has written block {block}, which the analysis of its {analysis} calls read"
        );
    }
    Ok(())
}
