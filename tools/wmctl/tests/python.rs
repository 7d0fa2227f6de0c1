//! Hazard (API conformance): the Python package, a client of the same endpoint as `wmctl`, does
//! not work with the library as built.

use std::path::Path;
use std::process::Command;

use hazards::places::built;

#[test]
fn the_python_package_passes_its_own_tests() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python");
    let mut python = Command::new("python3");
    python.args(["-B", "-m", "tests"]).current_dir(package);
    for (name, library) in
        [("LIBRARY", "libwmshim.so"), ("WHOLEGRAPH", "libwholegraph.so"), ("DRIVER", "libsimcuda.so")]
    {
        python.env(format!("TEST_{name}"), built(library));
    }
    let output = python.output().expect("python3 can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
