//! `cargo xtask check`: everything that must hold before a change is accepted and that is not a
//! test.

use anyhow::Result;

use crate::{exports, generate, kernels, schema, settings, step, toolbox, wholememory};

/// Runs the checks, the fast ones first, and stops at the first that fails.
pub(crate) fn run() -> Result<()> {
    step::run("format", step::cargo(&["fmt", "--all", "--check"]))?;
    step::perform("generated files", || generate::run(true))?;
    step::perform("docs/schema.md", || schema::run(true))?;
    step::perform("docs/settings.md", || settings::run(true))?;
    step::perform("WholeMemory's headers", || wholememory::run(true))?;
    kernels()?;
    let types = ["--strict", "--no-error-summary", "tools/python/wmshim"];
    step::run("types of the Python package", toolbox::program("mypy", &types)?)?;
    step::run("lints", step::cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    step::run("dependencies", toolbox::pinned("deny", &["check", "bans", "licenses", "sources"])?)?;
    step::build()?;
    step::perform("exports", || exports::check(&exports::built()?))
}

/// Compiling the kernels again needs the compilers, 60 MB that only a developer of kernels has.
/// Everywhere else the manifest guards: the build script refuses an output whose source has
/// changed.
fn kernels() -> Result<()> {
    if !crate::root().join(".toolchain").exists() {
        println!("==> kernels: no .toolchain here, the manifest is checked by the build");
        return Ok(());
    }
    step::perform("kernels", || kernels::run(true))
}
