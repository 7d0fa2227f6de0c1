//! Gives the library NVIDIA's SONAME and an export for every name that the driver has.
//!
//! A function is simulated if and only if some file in `src` has a row `fn cuName` in an `exports!`
//! table. The other names of `wm_abi::symbol::NAMES` become rows of `unsimulated!`, so that `dlsym`
//! finds every name without a second list.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=src");
    // -Bsymbolic like NVIDIA's: a call inside the library never returns through an interposer's
    // export.
    for argument in ["-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic", "-Wl,-z,nodelete"] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
    let simulated = simulated(Path::new("src"))?;
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(out.join("unsimulated.rs"), rows("unsimulated", |name| !simulated.contains(name)))?;
    fs::write(out.join("addresses.rs"), rows("addresses", |_| true))
}

/// Names that occur as `fn cuName` or `fn cuName + cuTwin` in the sources of a folder.
fn simulated(folder: &Path) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            names.append(&mut simulated(&path)?);
        } else {
            fs::read_to_string(&path)?.lines().for_each(|line| collect(line, &mut names));
        }
    }
    Ok(names)
}

fn collect(line: &str, names: &mut BTreeSet<String>) {
    let Some(rest) = line.trim_start().strip_prefix("fn cu") else { return };
    let head = rest.split('(').next().unwrap_or_default();
    let row = format!("cu{head}");
    names.extend(row.split('+').map(|name| name.trim().to_owned()));
}

/// One call of `macro!` with a row for each chosen name.
fn rows(macro_name: &str, chosen: impl Fn(&str) -> bool) -> String {
    let names = wm_abi::symbol::NAMES.iter().map(|name| name.to_str().expect("C identifiers are ASCII"));
    let mut text = format!("{macro_name}! {{\n");
    for name in names.filter(|name| chosen(name)) {
        writeln!(text, "    {name},").expect("writing to a string");
    }
    text + "}\n"
}
