//! `cargo xtask kernels`: compiles the CUDA kernels for GPUs into kernels/compiled, which is
//! checked in.
//!
//! The compilers are Python wheels, pinned with hashes in kernels/tools/requirements.txt and
//! unpacked into `.toolchain/`; no CUDA installation is needed. The outputs depend on the sources
//! alone, so `--check` compiles again and compares bytes. Every other build uses the images that
//! are checked in: kernels/build refuses one whose source has changed since.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::step;

const REQUIREMENTS: &str = "kernels/tools/requirements.txt";

/// Compiles, and replaces the checked-in outputs; with `check`, fails instead if they differ.
pub(crate) fn run(check: bool) -> Result<()> {
    let python = toolchain()?;
    let fresh = crate::root().join("target/kernels");
    let _ = fs::remove_dir_all(&fresh);
    fs::create_dir_all(&fresh).with_context(|| fresh.display().to_string())?;
    let arguments = ["-B", "kernels/tools/compile.py", "target/kernels"];
    step::run("compile kernels", step::command(&python, &arguments))?;
    settle(&fresh, &crate::root().join("kernels/compiled"), check)
}

fn settle(fresh: &Path, committed: &Path, check: bool) -> Result<()> {
    let (new, old) = (contents(fresh)?, contents(committed)?);
    let changed: Vec<_> =
        new.keys().chain(old.keys()).filter(|name| new.get(*name) != old.get(*name)).collect();
    if let (true, Some(name)) = (check, changed.first()) {
        bail!("kernels/compiled/{name} is not what its sources compile to: run `cargo xtask kernels`");
    }
    for name in changed {
        let path = committed.join(name);
        let replace = new.get(name).map_or_else(|| fs::remove_file(&path), |bytes| fs::write(&path, bytes));
        replace.with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Every file of a folder, by name.
fn contents(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry?;
        Ok((entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?))
    };
    entries.map(read).collect()
}

/// The Python that has the compilers. Installs them unless `.toolchain/` was made from today's
/// requirements.
fn toolchain() -> Result<PathBuf> {
    let folder = crate::root().join(".toolchain");
    let (mark, wanted) = (folder.join("requirements.txt"), fs::read(crate::root().join(REQUIREMENTS))?);
    if fs::read(&mark).ok().as_ref() != Some(&wanted) {
        install(&folder)?;
        fs::write(&mark, wanted)?;
    }
    Ok(folder.join("bin/python"))
}

fn install(folder: &Path) -> Result<()> {
    let target = folder.to_string_lossy();
    step::run("make .toolchain", step::command("python3", &["-m", "venv", "--clear", &target]))
        .context("Python 3 with its venv module is needed (Debian: apt-get install python3-venv)")?;
    let list = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"];
    let mut fetch = step::command(folder.join("bin/pip"), &list);
    fetch.args(["--only-binary", ":all:", "-r", REQUIREMENTS]);
    step::run("fill .toolchain", fetch)
}
