//! Hazard (privilege boundary): the name of a recording, set in a variable, leads to a file of the
//! user, which is overwritten.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use hazards::{Host, Scratch, c, driver};

/// A program that allocates, and the driver behind it.
struct Program<'a>(&'a Scratch, PathBuf, PathBuf);

impl<'a> Program<'a> {
    fn new(scratch: &'a Scratch) -> Self {
        Self(scratch, c::cuda_program(scratch, "life"), driver::simulated(scratch))
    }

    /// Runs it with a recording there. Returns its error output.
    fn record(&self, trace: &Path) -> String {
        let host = Host::shimmed(&self.1, self.0, &self.2).args(["closed"]);
        let outcome = host.env("WMSHIM_TRACE", trace).run();
        outcome.expect_success();
        outcome.stderr
    }
}

#[test]
fn a_file_with_something_else_in_it_is_left_as_it_is() {
    let scratch = Scratch::new();
    let thesis = scratch.file("thesis.txt", "my thesis");
    let program = Program::new(&scratch);
    let said = program.record(&thesis);
    assert!(said.contains("something else") && said.contains("nothing is recorded"), "{said}");
    let link = scratch.path().join("t.gz");
    symlink(&thesis, &link).expect("a link");
    let said = program.record(&link);
    assert!(said.contains("is a link"), "{said}");
    assert_eq!(fs::read_to_string(&thesis).expect("there"), "my thesis");
}

/// `/dev/stdout` is a link to the present standard output: here a log that other programs append
/// to.
#[test]
fn standard_output_is_no_place_for_a_recording() {
    let scratch = Scratch::new();
    let log = scratch.file("log.txt", "important log\n");
    let driver = driver::simulated(&scratch);
    let script =
        format!("exec '{}' closed >> '{}'", c::cuda_program(&scratch, "life").display(), log.display());
    let host =
        Host::shimmed("sh", &scratch, &driver).args(["-c", &script]).env("WMSHIM_TRACE", "/dev/stdout");
    host.run().expect_success();
    assert!(fs::read(&log).expect("there").starts_with(b"important log\n"));
}

#[test]
fn a_recording_is_the_users_alone_and_may_be_made_again() {
    let scratch = Scratch::new();
    let trace = scratch.path().join("a.trace.gz");
    let program = Program::new(&scratch);
    for _ in 0..2 {
        assert_eq!(program.record(&trace), "");
        assert!(fs::read(&trace).expect("there").starts_with(&[0x1f, 0x8b]));
    }
    assert_eq!(fs::metadata(&trace).expect("there").permissions().mode() & 0o777, 0o600);
}
