//! Are the committed GPU images those of the committed sources?
//!
//! `compiled/manifest.tsv` has one line a file: its kind (`source` or `output`), its SHA-256 and
//! its path in this crate. The compiler script counts as a source, and so does its list of
//! packages: options and versions stand there.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

/// The remedy for every error of this file.
const REMEDY: &str = "run `cargo xtask kernels` and commit kernels/compiled";

/// Fails when a file differs from the manifest, is missing, or is a kernel source that the manifest
/// does not know.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let manifest = fs::read_to_string(root.join("compiled/manifest.tsv"))
        .map_err(|error| format!("compiled/manifest.tsv: {error}; {REMEDY}"))?;
    let listed = parse(&manifest)?;
    for (path, expected) in &listed {
        let found = hash(&root.join(path)).map_err(|why| format!("kernels/{path}: {why}; {REMEDY}"))?;
        if found != *expected {
            return Err(format!("kernels/{path} is not what the GPU images were made from; {REMEDY}"));
        }
    }
    unlisted(root, &listed)
}

fn parse(manifest: &str) -> Result<BTreeMap<&str, &str>, String> {
    let line = |text| {
        let fields: Vec<&str> = str::split(text, '\t').collect();
        let [_kind, hash, path] = fields[..] else {
            return Err(format!("compiled/manifest.tsv: bad line `{text}`; {REMEDY}"));
        };
        Ok((path, hash))
    };
    manifest.lines().map(line).collect()
}

/// A new source file changes no listed hash, so it is looked for.
fn unlisted(root: &Path, listed: &BTreeMap<&str, &str>) -> Result<(), String> {
    for folder in fs::read_dir(root.join("cuda")).into_iter().flatten().flatten() {
        for file in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
            let (folder, name) = (folder.file_name(), file.file_name());
            let path = format!("cuda/{}/{}", folder.to_string_lossy(), name.to_string_lossy());
            let is_source = path.ends_with(".cu") || path.ends_with(".cuh");
            if is_source && !listed.contains_key(path.as_str()) {
                return Err(format!("kernels/{path} is in no GPU image yet; {REMEDY}"));
            }
        }
    }
    Ok(())
}

fn hash(path: &Path) -> Result<String, std::io::Error> {
    let digest = Sha256::digest(fs::read(path)?);
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}
