//! The checked-in table of driver functions: one line a symbol, `name<TAB>parameters`.
//!
//! Parameters are written in Rust (`dptr: *mut CUdeviceptr, bytesize: usize`). `?` stands for a
//! symbol that no public header declares: it is forwarded, and can be neither hooked nor called by
//! us. Sorted, no duplicates.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

/// One exported symbol of the driver library.
pub(crate) struct DriverFunction {
    pub(crate) name: String,
    /// `None`: undocumented.
    pub(crate) parameters: Option<String>,
}

pub(crate) fn path() -> PathBuf {
    crate::root().join("shim/abi/data/driver.tsv")
}

/// Reads the table, refusing one that is unsorted or has a malformed line.
pub(crate) fn read() -> Result<Vec<DriverFunction>> {
    let text = fs::read_to_string(path()).context("shim/abi/data/driver.tsv")?;
    let functions =
        text.lines().filter(|line| !line.starts_with('#')).map(parse).collect::<Result<Vec<_>>>()?;
    if !functions.is_sorted_by(|a, b| a.name < b.name) {
        bail!("shim/abi/data/driver.tsv is not sorted, or names a symbol twice");
    }
    Ok(functions)
}

fn parse(line: &str) -> Result<DriverFunction> {
    let (name, parameters) = line.split_once('\t').with_context(|| format!("no tab in: {line}"))?;
    let parameters = (parameters != "?").then(|| parameters.to_owned());
    Ok(DriverFunction { name: name.to_owned(), parameters })
}

/// Writes the table with its heading.
pub(crate) fn write(functions: &[DriverFunction]) -> Result<()> {
    let mut text =
        String::from("# Exported driver functions: name, parameters. Written by `xtask import-headers`.\n");
    for function in functions {
        text += &format!("{}\t{}\n", function.name, function.parameters.as_deref().unwrap_or("?"));
    }
    fs::write(path(), text).context("shim/abi/data/driver.tsv")
}
