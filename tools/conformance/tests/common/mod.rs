//! What both tests of the suite share: the libraries that a build of the workspace leaves, and a
//! run of the suite.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use conformance::report::Document;

/// A library that a build of the workspace puts beside the test's own folder.
pub(crate) fn built(library: &str, package: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own file");
    let folder = test.parent().and_then(Path::parent).expect("tests lie in target/PROFILE/deps");
    let library = folder.join(library);
    assert!(library.exists(), "{} is not there: run `cargo build -p {package}` first", library.display());
    library
}

/// The suite over a simulated driver with two devices. Nothing of the caller's environment chooses
/// another.
pub(crate) fn suite() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conformance"));
    command.env("SIMCUDA_DEVICES", "2").env("SIMCUDA_MEMORY", "2GiB").env_remove("SIMCUDA_FAIL");
    command.env_remove("LD_PRELOAD").args(["--threads", "2"]);
    command
}

/// Runs `command` and reads the document that it saves.
pub(crate) fn document(mut command: Command, name: &str) -> (Output, Document) {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let output = command.arg("--save").arg(&file).output().expect("the suite starts");
    let saved = std::fs::read_to_string(&file).unwrap_or_else(|_| panic!("no document: {}", said(&output)));
    (output, serde_json::from_str(&saved).expect("a document of this suite"))
}

/// All that a run has printed.
pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
