//! The kernels' source files, read and parsed.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::declarations::{self, KernelDeclaration};
use crate::structures::Structures;

/// One folder of `cuda/`: one GPU module.
pub(crate) struct ImageSources {
    /// The folder's name.
    pub(crate) name: String,
    /// The structures that its kernels may take.
    pub(crate) structures: Structures,
    pub(crate) units: Vec<Unit>,
}

/// One `.cu` file.
#[cfg_attr(not(feature = "cpu"), expect(dead_code, reason = "the CPU build compiles each file on its own"))]
pub(crate) struct Unit {
    /// Relative to `cuda/`.
    pub(crate) path: String,
    pub(crate) kernels: Vec<KernelDeclaration>,
    /// Which of the image's structures came with this file and its headers.
    pub(crate) structures: Range<usize>,
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
        let image = image(&folder, name)?;
        if !image.units.is_empty() {
            images.push(image);
        }
    }
    Ok(images)
}

fn image(folder: &Path, name: String) -> Result<ImageSources, String> {
    let mut image = ImageSources { name, structures: Structures::default(), units: Vec::new() };
    let mut seen = BTreeSet::new();
    for file in if folder.is_dir() { sorted(folder)? } else { Vec::new() } {
        if file.extension().is_some_and(|extension| extension == "cu") {
            let first = image.structures.0.len();
            let source = with_headers(&file, &mut image.structures, &mut seen)?;
            let path = format!("{}/{}", image.name, file_name(&file));
            let kernels = declarations::parse(&source, &image.structures)
                .map_err(|message| format!("cuda/{path}: {message}"))?;
            image.units.push(Unit { path, kernels, structures: first..image.structures.0.len() });
        }
    }
    Ok(image)
}

/// The text of a file. Adds its structures, behind those of the headers that it includes from its
/// folder.
fn with_headers(
    file: &Path,
    structures: &mut Structures,
    seen: &mut BTreeSet<PathBuf>,
) -> Result<String, String> {
    let source = text(file)?;
    if seen.insert(file.to_owned()) {
        let included = source.lines().filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"'));
        for header in included.filter(|header| !header.contains('/')) {
            with_headers(&file.with_file_name(header), structures, seen)?;
        }
        structures.parse(&source).map_err(|message| format!("{}: {message}", file.display()))?;
    }
    Ok(source)
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
