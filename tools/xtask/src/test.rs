//! `cargo xtask test`: every test of the workspace.
//!
//! Tests start programs with libwmshim.so preloaded and libsimcuda.so as the driver, and find both beside their own
//! executables. Cargo does not build a cdylib because a test wants the file, so everything is built first. The tests
//! run under nextest, one process a test.

use anyhow::Result;

use crate::{step, toolbox};

/// Builds the workspace and runs its tests; `filter` is handed to nextest, none means all.
pub(crate) fn run(filter: &[String]) -> Result<()> {
    let mut nextest = toolbox::cargo("nextest", &["run"])?;
    nextest.args(filter);
    step::run("build", step::cargo(&["build", "--workspace"]))?;
    if filter.is_empty() {
        let discover = ["-B", "-m", "unittest", "discover", "-s", "tools/python/tests", "-t", "tools/python"];
        step::run("tests of the Python package", step::command("python3", &discover))?;
    }
    step::run("tests", nextest)
}
