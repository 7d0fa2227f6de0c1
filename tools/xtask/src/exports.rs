//! `cargo xtask exports [FILE]`: the library exports the functions of the driver table, and no
//! others.
//!
//! A name that is missing resolves to null for every program, since later look-ups never reach the
//! real driver. A name too many can capture a call that was meant for another library.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::{elf, table};

/// By which PyTorch's allocator reports its blocks.
const OF_TORCH: &str = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";

/// Exports of the library besides driver functions.
fn is_ours(name: &str) -> bool {
    matches!(name, "dlopen" | "dlmopen") || name == OF_TORCH || name.starts_with("wmshim_")
}

/// The library as `cargo build` leaves it.
pub(crate) fn built() -> Result<PathBuf> {
    let path = crate::target()?.join("debug/libwmshim.so");
    if !path.exists() {
        bail!("{} is not there: run `cargo build -p wmshim` first", path.display());
    }
    Ok(path)
}

/// Compares the exports of `library` with `shim/abi/data/driver.tsv`.
pub(crate) fn check(library: &Path) -> Result<()> {
    let expected: BTreeSet<String> = table::read()?.into_iter().map(|function| function.name).collect();
    let found = elf::exports(library)?;
    let missing: Vec<_> = expected.difference(&found).collect();
    let extra: Vec<_> = found.difference(&expected).filter(|name| !is_ours(name)).collect();
    if !missing.is_empty() || !extra.is_empty() {
        bail!("{}: missing {missing:?}, not in the table {extra:?}", library.display());
    }
    println!("    {} driver functions, {} names of our own", expected.len(), found.len() - expected.len());
    Ok(())
}
