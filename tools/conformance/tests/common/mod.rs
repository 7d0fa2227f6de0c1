//! The tests' common functions: the build products of the workspace, a run of the suite, and the
//! bare driver's answers, which one test of a run makes for all.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use conformance::compare::{self, Accepted, Comparison};
use conformance::report::Document;

/// A build product beside the test's own folder.
pub(crate) fn built(library: &str, package: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own file");
    let folder = test.parent().and_then(Path::parent).expect("tests lie in target/PROFILE/deps");
    let library = folder.join(library);
    assert!(library.exists(), "{} is not there: run `cargo build -p {package}` first", library.display());
    library
}

/// The suite over a simulated driver with two devices. No variable of the caller's environment can
/// choose another one.
pub(crate) fn suite() -> Command {
    let mut command = on_two_devices();
    command.env_remove("LD_PRELOAD").arg("--driver").arg(built("libsimcuda.so", "simcuda"));
    command
}

/// [`suite`] under the shim, which the suite opens by the name of NVIDIA's library.
pub(crate) fn shimmed() -> Command {
    let mut command = on_two_devices();
    command.env("LD_PRELOAD", built("libwmshim.so", "wmshim"));
    command.env("WMSHIM_DRIVER", built("libsimcuda.so", "simcuda")).env("WMSHIM_STATS_SOCKET", "off");
    command
}

fn on_two_devices() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conformance"));
    command.env("SIMCUDA_DEVICES", "2").env("SIMCUDA_MEMORY", "2GiB").env_remove("SIMCUDA_FAIL");
    // Most cases wait more than they compute.
    command.args(["--threads", "4"]);
    command
}

/// Runs `command` and reads the document that it saves. Panics unless the suite came to its end.
pub(crate) fn document(mut command: Command, name: &str) -> (Output, Document) {
    let file = scratch(name);
    // That of an earlier run is none of this one's.
    let _absent_the_first_time = fs::remove_file(&file);
    let output = command.arg("--save").arg(&file).output().expect("the suite starts");
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}: {}", output.status, said(&output));
    let saved = fs::read_to_string(&file).unwrap_or_else(|_| panic!("no document: {}", said(&output)));
    (output, serde_json::from_str(&saved).expect("a document of this suite"))
}

pub(crate) fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// The bare driver's answers to every case. The first test runs the suite, under a lock, and stores
/// the ID of the nextest run; the other tests of that run read the document. Without nextest, each
/// test program makes its own.
pub(crate) fn bare() -> Document {
    static OWN: OnceLock<Document> = OnceLock::new();
    let Ok(this_run) = std::env::var("NEXTEST_RUN_ID") else {
        let name = format!("bare-{}.json", std::process::id());
        return OWN.get_or_init(|| document(suite(), &name).1).clone();
    };
    let lock = File::create(scratch("bare.lock")).expect("a file in the target folder");
    lock.lock().expect("a lock that ends with this process");
    let made_by = fs::read_to_string(scratch("bare.run")).unwrap_or_default();
    if made_by == this_run {
        let saved = fs::read_to_string(scratch("bare.json")).expect("the document of this run");
        return serde_json::from_str(&saved).expect("a document of this suite");
    }
    let (_, document) = document(suite(), "bare.json");
    fs::write(scratch("bare.run"), this_run).expect("a file in the target folder");
    document
}

/// Runs `command`, and panics if an answer differs from the bare driver's and no row of `lists`
/// accepts it.
pub(crate) fn answers_as_bare(command: Command, name: &str, lists: &[&str]) -> Document {
    let (output, other) = document(command, &format!("{name}.json"));
    assert!(!other.cases.is_empty(), "the areas have cases");
    let differences = compare::compare(&bare(), &other, Comparison { machine: true });
    let left = lists
        .iter()
        .fold(differences, |left, list| Accepted::parse(list).expect("a good list").remove_from(left));
    assert!(left.is_empty(), "bare | {name}\n{}\n{}", compare::table(&left), said(&output));
    other
}

/// The whole output of a run.
pub(crate) fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
