//! Writes the Rust that follows from the table of driver functions, and checks that what is checked
//! in is current.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::table::{self, DriverFunction};

const NOTICE: &str =
    "// Written by `cargo run -p xtask -- generate` from shim/abi/data/driver.tsv. Do not edit.\n\n";

/// Writes every generated file, or with `check` fails on the first that is out of date.
pub(crate) fn run(check: bool) -> Result<()> {
    let functions = table::read()?;
    for (path, text) in [
        ("shim/abi/src/generated/symbols.rs", symbols(&functions)),
        ("shim/abi/src/generated/parameters.rs", parameters(&functions)),
        ("shim/preload/src/entry/generated/trampolines.rs", trampolines(&functions)),
    ] {
        settle(crate::root().join(path), &text, check, "generate")?;
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

/// `wm_abi::symbol`: one zero-sized type a function, and the array of names in the same order.
fn symbols(functions: &[DriverFunction]) -> String {
    let mut text = String::from(NOTICE);
    for (index, function) in functions.iter().enumerate() {
        text += &match &function.parameters {
            Some(parameters) => format!("symbol!({index}, {}, ({parameters}));\n", function.name),
            None => format!("undocumented!({index}, {});\n", function.name),
        };
    }
    let names: String = functions.iter().map(|f| format!("    c\"{}\",\n", f.name)).collect();
    text + &format!(
        "\n/// Every symbol's name; the position is its index.\npub const NAMES: [&CStr; {}] = [\n{names}];\n",
        functions.len()
    )
}

/// `wm_abi::with_parameters!`: the parameters of a function, for a macro that declares one of its
/// signature.
fn parameters(functions: &[DriverFunction]) -> String {
    let arm = |function: &DriverFunction| {
        let parameters = function.parameters.as_ref()?;
        Some(format!(
            "    ({} => $then:ident!($($with:tt)*)) => {{ $then!(({parameters}) $($with)*); }};\n",
            function.name
        ))
    };
    let arms: String = functions.iter().filter_map(arm).collect();
    format!("{NOTICE}{PARAMETERS}macro_rules! with_parameters {{\n{arms}}}\n")
}

const PARAMETERS: &str = "\
/// `with_parameters!(cuMemFree_v2 => then!(more))` is `then!((dptr: CUdeviceptr) more)`.
///
/// The types are those of this crate and of `std::ffi`, by their plain names: the caller imports
/// them.
#[macro_export]
";

/// The exports of the preloaded library: one trampoline a function.
fn trampolines(functions: &[DriverFunction]) -> String {
    let rows: String =
        functions.iter().enumerate().map(|(index, f)| format!("    {index} {},\n", f.name)).collect();
    format!("{NOTICE}trampolines! {{\n{rows}}}\n")
}
