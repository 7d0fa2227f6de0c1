//! Hazard (vacuous test): a mutation patch no longer applies, and the oracle's ability to find its
//! fault is untested.

use std::path::Path;
use std::process::Command;

#[test]
fn every_mutation_applies() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (patches, root) = (here.join("mutations"), here.ancestors().nth(2).expect("a workspace"));
    let mut count = 0;
    for entry in std::fs::read_dir(patches).expect("the mutations") {
        let patch = entry.expect("a file").path();
        let git = Command::new("git").args(["apply", "--check"]).arg(&patch).current_dir(root).output();
        let output = git.expect("git starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} does not apply:\n{errors}", patch.display());
        count += 1;
    }
    assert!(count >= 10, "{count} mutations");
}
