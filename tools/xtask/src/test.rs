//! `cargo xtask test`: every test of the workspace.
//!
//! Tests start programs with libwmshim.so preloaded and libsimcuda.so as the driver, and find both
//! beside their own executables. Cargo does not build a cdylib because a test wants the file, so
//! everything is built first. The tests run under nextest, one process a test; those of the Python
//! package are one of them. The last lines say which tests were skipped, and why: each notes it in
//! a list (`hazards::skip`, `tools/python/tests/__main__.py`).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::num::NonZero;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{step, toolbox};

/// nextest's variable for the number of tests that run at once.
const AT_ONCE: &str = "NEXTEST_TEST_THREADS";

/// Builds the workspace and runs its tests; `filter` is handed to nextest, none means all.
pub(crate) fn run(filter: &[String]) -> Result<()> {
    step::build()?;
    let list = crate::target()?.join("skips.txt");
    fs::write(&list, "").with_context(|| list.display().to_string())?;
    let mut nextest = toolbox::cargo("nextest", &["run"])?;
    nextest.args(filter).env("TEST_SKIPS", &list);
    add_machine_code(&mut nextest);
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    nextest.env(AT_ONCE, at_once(std::env::var_os(AT_ONCE), cores));
    let outcome = step::run("tests", nextest);
    if filter.is_empty() {
        // nextest does not run the examples in comments.
        step::run("examples in comments", step::cargo(&["test", "--doc", "--workspace"]))?;
    }
    let skips = fs::read_to_string(&list).with_context(|| list.display().to_string())?;
    println!("{}", summary(&skips));
    outcome
}

/// Tells the tests of machine code where NVIDIA's disassembler and assembler are. Without them
/// these tests skip themselves.
fn add_machine_code(nextest: &mut Command) {
    let set = |name: &str| std::env::var_os(name).is_some();
    for (tool, variable) in [("nvdisasm", "TEST_NVDISASM"), ("ptxas", "TEST_PTXAS")] {
        match toolbox::nvidia(tool) {
            _ if set(variable) => {}
            Ok(program) => {
                nextest.env(variable, program);
            }
            Err(error) => println!("tests that need {tool} skip themselves: {error:#}"),
        }
    }
}

/// How many tests run at once, if the caller does not say: half as many again as there are cores,
/// since many a test waits for its programs more than it computes.
fn at_once(said: Option<OsString>, cores: usize) -> OsString {
    said.unwrap_or_else(|| (cores + cores / 2).to_string().into())
}

/// How many tests skipped something, and how many of them for each reason, from lines of `test TAB
/// reason`.
fn summary(skips: &str) -> String {
    let skips: BTreeSet<(&str, &str)> = skips.lines().filter_map(|line| line.split_once('\t')).collect();
    let tests: BTreeSet<&str> = skips.iter().map(|(test, _)| *test).collect();
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    skips.iter().for_each(|(_, reason)| *reasons.entry(reason).or_default() += 1);
    let of_each = reasons.iter().map(|(reason, count)| format!("\n    {reason} x{count}"));
    format!("{} tests skipped{}", tests.len(), of_each.collect::<String>())
}

#[cfg(test)]
mod tests {
    //! Hazard: a test that never runs, and counts as one that passes.
    use super::{at_once, summary};

    /// Hazard (latency): the tests take longer than the machine needs for them.
    #[test]
    fn cores_are_busy_while_tests_wait_and_the_caller_decides() {
        assert_eq!([1, 2, 3, 16].map(|cores| at_once(None, cores)), ["1", "3", "4", "24"]);
        assert_eq!(at_once(Some("num-cpus".into()), 2), "num-cpus");
    }

    #[test]
    fn each_test_is_counted_once_and_under_each_of_its_reasons() {
        let skips = "a\tneeds root\nb\tneeds root\nb\tneeds pip\nb\tneeds root\n";
        assert_eq!(summary(skips), "2 tests skipped\n    needs pip x1\n    needs root x2");
        assert_eq!(summary(""), "0 tests skipped");
    }
}
