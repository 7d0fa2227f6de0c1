//! The kernels' source files, read and parsed.

use std::fs;
use std::path::{Path, PathBuf};

use crate::declarations::{self, KernelDeclaration};

/// One folder of `cuda/`: one GPU module.
pub(crate) struct ImageSources {
    /// The folder's name.
    pub(crate) name: String,
    pub(crate) units: Vec<Unit>,
}

/// One `.cu` file.
#[cfg_attr(not(feature = "cpu"), expect(dead_code, reason = "the CPU build compiles each file on its own"))]
pub(crate) struct Unit {
    /// Relative to `cuda/`.
    pub(crate) path: String,
    pub(crate) kernels: Vec<KernelDeclaration>,
}

impl ImageSources {
    pub(crate) fn kernels(&self) -> impl Iterator<Item = &KernelDeclaration> {
        self.units.iter().flat_map(|unit| &unit.kernels)
    }
}

/// All images, sorted by name.
pub(crate) fn read(root: &Path) -> Result<Vec<ImageSources>, String> {
    let mut images = Vec::new();
    for folder in sorted(&root.join("cuda"))? {
        let name = file_name(&folder);
        let units = units_in(&folder, &name)?;
        if !units.is_empty() {
            images.push(ImageSources { name, units });
        }
    }
    Ok(images)
}

fn units_in(folder: &Path, image: &str) -> Result<Vec<Unit>, String> {
    let mut units = Vec::new();
    if folder.is_dir() {
        for file in sorted(folder)? {
            if file.extension().is_some_and(|extension| extension == "cu") {
                let path = format!("{image}/{}", file_name(&file));
                let kernels = declarations::parse(&text(&file)?)
                    .map_err(|message| format!("cuda/{path}: {message}"))?;
                units.push(Unit { path, kernels });
            }
        }
    }
    Ok(units)
}

/// Writes a generated file.
pub(crate) fn write(path: &Path, content: &str) -> Result<(), String> {
    fs::write(path, content).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn text(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries =
        fs::read_dir(folder).map_err(|error| format!("cannot list {}: {error}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    Ok(paths)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
