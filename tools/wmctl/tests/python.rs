//! Runs the tests of the Python package, which is a client of the same endpoint as `wmctl`, against the library as built.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A library beside this test's own executable.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    let path = test.ancestors().nth(2).expect("target/<profile>").join(name);
    assert!(
        path.is_file(),
        "run `cargo build -p wmshim -p wholegraph -p simcuda` first: {} is missing",
        path.display()
    );
    path
}

#[test]
fn the_python_package_passes_its_own_tests() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python");
    let mut python = Command::new("python3");
    python.args(["-B", "-m", "unittest", "discover"]).current_dir(package);
    for (name, library) in
        [("LIBRARY", "libwmshim.so"), ("WHOLEGRAPH", "libwholegraph.so"), ("DRIVER", "libsimcuda.so")]
    {
        python.env(format!("TEST_{name}"), built(library));
    }
    let output = python.output().expect("python3 can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
