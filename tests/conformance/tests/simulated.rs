//! Hazard: a simulated driver that answers otherwise than the real one, so that every test on it proves nothing.
//!
//! Runs the whole suite over the simulated driver, with two devices, and compares its answers with those that an H200
//! gave (`data/`). Both must hold: no failed case, and no answer of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use conformance::report::{self, Comparison, Document};

/// The simulated driver, which a build of the workspace puts beside the test's own folder.
fn simulated_driver() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own file");
    let built = test.parent().and_then(Path::parent).expect("tests lie in target/PROFILE/deps");
    let library = built.join("libsimcuda.so");
    assert!(library.exists(), "{} is not there: run `cargo build -p simcuda` first", library.display());
    library
}

fn suite(driver: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conformance"));
    command.arg("--driver").arg(driver).args(arguments);
    command.env("SIMCUDA_DEVICES", "2").env("SIMCUDA_MEMORY", "2GiB");
    command.output().expect("the suite starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn every_case_passes_and_answers_like_the_real_driver() {
    let answers = Path::new(env!("CARGO_TARGET_TMPDIR")).join("simulated.json");
    let file = answers.to_str().expect("the temporary folder has a name in UTF-8");
    let output = suite(&simulated_driver(), &["--threads", "2", "--save", file]);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let read = |text: &str| serde_json::from_str::<Document>(text).expect("a document of this suite");
    let simulated = read(&std::fs::read_to_string(&answers).expect("the suite wrote its document"));
    let real = read(include_str!("../data/observed-h200-580.json"));
    let differences = report::compare(&real, &simulated, Comparison { machine: false });
    assert!(differences.is_empty(), "real | simulated\n{}", report::comparison(&differences));
}

#[test]
fn functions_found_through_the_look_up_answer_alike() {
    let output =
        suite(&simulated_driver(), &["--threads", "2", "--lookup", "proc-address", "--filter", "memory."]);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn a_driver_that_is_not_there_is_one_clear_message() {
    let output = suite(Path::new("/nonexistent/libcuda.so.1"), &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("name one with --driver"), "{}", text(&output.stderr));
}
