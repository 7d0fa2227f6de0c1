//! Writes the Rust that follows from the table of driver functions, and checks that the checked-in
//! files are current.

mod abi;
mod cases;
mod hooks;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::table;

const NOTICE: &str =
    "// Written by `cargo run -p xtask -- generate` from shim/abi/data/driver.tsv. Do not edit.\n\n";

/// Writes every generated file, or with `check` fails on the first that is out of date.
pub(crate) fn run(check: bool) -> Result<()> {
    let functions = table::read().context("shim/abi/data/driver.tsv")?;
    for (path, text) in [
        ("shim/abi/src/generated/symbols.rs", abi::symbols(&functions)),
        ("shim/abi/src/generated/parameters.rs", abi::parameters(&functions)),
        ("shim/abi/src/generated/lookups.rs", abi::lookups(&functions)),
        ("shim/preload/src/entry/generated/trampolines.rs", hooks::trampolines(&functions)),
        ("shim/preload/src/hooks/generated/gated.rs", hooks::gated(&functions)),
        ("shim/preload/src/hooks/generated/bounded.rs", hooks::bounded(&functions)),
        ("shim/preload/src/hooks/generated/facts.rs", hooks::facts(&functions)),
        ("tools/conformance/src/generated/entrypoints.rs", cases::entrypoints(&functions)),
    ] {
        settle(crate::root().join(path), &format!("{NOTICE}{text}"), check, "generate")?;
    }
    Ok(())
}

/// Makes `path` hold `text`, or with `check` fails unless it does; `task` is the command that would
/// write it.
pub(crate) fn settle(path: PathBuf, text: &str, check: bool, task: &str) -> Result<()> {
    let current = fs::read_to_string(&path).unwrap_or_default();
    if current == text {
        return Ok(());
    }
    if check {
        bail!("{} is out of date: run `cargo xtask {task}`", path.display());
    }
    fs::write(&path, text).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    //! Hazard (source drift): a row of the table changed, and the library follows the old row.

    #[test]
    fn checked_in_files_follow_from_the_table() {
        super::run(true).unwrap();
    }
}
