//! `cargo xtask check`: everything that must hold before a change is accepted and that is not a test.

use anyhow::Result;

use crate::{exports, generate, step, toolbox};

/// Runs the checks, the fast ones first, and stops at the first that fails.
pub(crate) fn run() -> Result<()> {
    step::run("format", step::cargo(&["fmt", "--all", "--check"]))?;
    step::perform("generated files", || generate::run(true))?;
    step::run("lints", step::cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    step::run("dependencies", toolbox::pinned("deny", &["check", "bans", "licenses", "sources"])?)?;
    step::run("build the shim", step::cargo(&["build", "--package", "wmshim"]))?;
    step::perform("exports", || exports::check(&exports::built()?))
}
